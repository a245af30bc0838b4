"""The last passes on the graph: outputs read one tensor at itself, cases that read an element read its row."""

from __future__ import annotations

import numpy as np

from tempo.passes.storage import ElementReads, MaterialiseOutputs
from tempo.reference.evaluator import Evaluator
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol
from tests.unit.passes.texts import after, assert_becomes

OUTPUTS = """
dims t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
%1: float32[3] over (t) = neg(%0[t])
"""
ROWS = """
dims t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
%1: float32[t.size, 3] = neg(%0[0 +: t.size])
%2: float32[1, 3] over (t) = slice(%1) {lengths: (`1`, `3`), starts: (`t`, `0`), steps: (1, 1)}
%3: float32[3] over (t) = reshape(%2[t]) {shape: (`3`,)}
%4: float32[3] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | t == 0 -> %0[t]
  | True -> CASE
output "h": float32[3] over (t) = %4[t] as ($t, 0)
"""


def values(graph: Graph) -> np.ndarray:
    inputs = {0: np.arange(12, dtype=np.float32).reshape(4, 3)}
    return Evaluator(graph, inputs, {Symbol("t", "size"): 4}).run().outputs["h"]


def test_an_output_that_reads_through_a_map_gets_a_copy() -> None:
    text = OUTPUTS + 'output "last": float32[3] = %1[t.size - 1] as (0)\n'
    copy = '%2: float32[3] = copy(%1[t.size - 1]) "last"\noutput "last": float32[3] = %2 as (0)\n'
    assert_becomes(MaterialiseOutputs(), text, OUTPUTS + copy)


def test_an_input_gets_one_and_what_is_read_at_itself_none() -> None:
    text = OUTPUTS + 'output "y": float32[3] over (t) = %1[t] as ($t, 0)\n'
    assert after(MaterialiseOutputs(), text) == parse(text)
    text += 'output "x": float32[3] over (t) = %0[t] as ($t, 0)\n'
    found = after(MaterialiseOutputs(), text)
    assert found.nodes[2].op == "copy"
    assert found.outputs[0] == parse(text).outputs[0]


def test_a_case_that_reads_an_element_reads_the_row() -> None:
    text = ROWS.replace("CASE", "%3[t]")
    assert_becomes(ElementReads(), text, ROWS.replace("CASE", "%1 at t of axes (0, 1)"))
    found = after(ElementReads(), text)
    assert parse(str(found)) == found
    np.testing.assert_array_equal(values(found), values(parse(text)))


def test_what_nobody_keeps_stays_as_it_is() -> None:
    text = ROWS.replace("CASE", "%3[t]").replace("over (t) = %4[t] as ($t, 0)", "= %4[t.size - 1] as (0)")
    assert after(ElementReads(), text) == parse(text)
