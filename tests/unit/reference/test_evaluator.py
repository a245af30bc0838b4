"""The meaning of programs, given as SDG text, at small sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tempo.errors import CycleError, DefinitionError, DomainError, HostCallError, InputError, ShapeError
from tempo.reference.evaluator import Evaluator
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol

Array = np.ndarray[Any, Any]


def at(**sizes: int) -> dict[Symbol, int]:
    return {Symbol(name, "size"): value for name, value in sizes.items()}


def run(graph: Graph, sizes: Mapping[Symbol, int], **inputs: Array) -> dict[str, Array]:
    by_name = {node.attr("name"): node.id for node in graph.nodes.values() if node.op == "input"}
    given = {by_name[name]: array for name, array in inputs.items()}
    return Evaluator(graph, given, sizes).run().outputs


RUNNING_SUM = """
dims t: t.size
%0: float32[3] over (t) = input {name: "x", role: "input"} @0 "x"
%1: float32[3] over (t) = add(%2[t - 1], %0[t])
%2: float32[3] over (t) = merge {name: "s", role: "recurrent"} @1 "s"
  | t == 0 -> %0[0]
  | True -> %1[t]
output "s": float32[3] over (t) = %2[t] as ($t, 0)
"""


def test_a_recurrence_is_computed_from_its_first_point() -> None:
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_array_equal(run(parse(RUNNING_SUM), at(t=5), x=x)["s"], np.cumsum(x, axis=0))


def test_a_recurrence_of_size_one_takes_no_step() -> None:
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(run(parse(RUNNING_SUM), at(t=1), x=x)["s"], x)


def test_no_recursion_limit() -> None:
    text = RUNNING_SUM.replace('over (t) = %2[t] as ($t, 0)', "= %2[t.size - 1] as (0)")
    x = np.ones((20_000, 3), np.float32)
    np.testing.assert_array_equal(run(parse(text), at(t=20_000), x=x)["s"], [20_000] * 3)
