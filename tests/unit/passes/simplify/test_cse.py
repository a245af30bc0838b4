"""Equal up to a shift: SDG text in, SDG text out."""

import pytest

from tempo.passes.simplify.cse import CommonSubexpressions
from tempo.sdg.parse import parse
from tests.unit.passes.equivalence import check
from tests.unit.passes.texts import after, assert_becomes

HEAD = """
dims t: t.size
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
%1: float32[] over (t) = exp(%0[t])
"""
GUARDED = """%9: float32[] over (t) = merge {name: "m", role: "cases"} @1
  | t >= 1 -> %2[t]
  | True -> %1[t]
output "y": float32[] over (t) = %9[t] as ($t)
"""


def test_a_node_is_read_where_another_has_its_value() -> None:
    text = HEAD + "%2: float32[] over (t) = exp(%0[t - 1])\n" + GUARDED
    expected = HEAD + GUARDED.replace("%2[t]", "%1[t - 1]")
    assert_becomes(CommonSubexpressions(), text, expected)


def test_chains_merge_with_the_movement_inside_them() -> None:
    text = """
        dims t: t.size
        %0: float32[2] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
        %1: float32[2, 1] over (t) = reshape(%0[t]) {shape: (`2`, `1`)}
        %2: float32[2, 1] over (t) = exp(%1[t])
        %3: float32[2, 1] over (t) = reshape(%0[t - 2]) {shape: (`2`, `1`)}
        %4: float32[2, 1] over (t) = exp(%3[t])
        %5: float32[2, 1] over (t) = merge {name: "m", role: "cases"} @1
          | t >= 2 -> %4[t]
          | True -> %2[t]
        output "y": float32[2, 1] over (t) = %5[t] as ($t, 0, 1)
    """
    result = after(CommonSubexpressions(), text)
    assert sorted(result.nodes) == [0, 1, 2, 5]


@pytest.mark.parametrize(
    "node",
    [
        "%2: float32[] over (t) = exp(%0[t.size - 1 - t])",  # reversed, not moved
        "%2: float32[] over (t) = log(%0[t - 1])",
        '%2: float64[] over (t) = cast(%0[t - 1]) {dtype: "float64"}',
    ],
)
def test_what_is_no_shift_stays(node: str) -> None:
    dtype = node.split(" ")[1]
    text = (
        HEAD
        + node
        + f"""
        %3: {dtype} over (t) = merge {{name: "m", role: "cases"}} @1
          | t >= 1 -> %2[t]
          | True -> %2[t.size - 1]
        output "y": {dtype} over (t) = %3[t] as ($t)
        output "z": float32[] over (t) = %1[t] as ($t)
    """
    )
    assert_becomes(CommonSubexpressions(), text, text)


def test_a_value_outside_the_domain_is_none() -> None:
    """The sum of x[0:t] at 0 is that of nothing, which the sum of x[0:t + 1] is at no point."""
    text = """
        dims t: t.size
        %0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
        %1: float32[] over (t) = reduce_sum(%0[0 +: t + 1]) {axes: (0,)}
        %2: float32[] over (t) = reduce_sum(%0[0 +: t]) {axes: (0,)}
        output "y": float32[] over (t) = %1[t] as ($t)
        output "z": float32[] over (t) = %2[t] as ($t)
    """
    result = check(CommonSubexpressions(), parse(text), {"t": 1}, {"t": 5})
    assert {1, 2} <= set(result.nodes)
    guarded = text.replace(
        'output "z"',
        '%3: float32[] over (t) = merge {name: "m", role: "cases"} @1\n| t >= 1 -> %2[t]\n| True -> %1[t]\noutput "z"',
    ).replace("= %2[t] as", "= %3[t] as")
    assert 2 not in after(CommonSubexpressions(), guarded).nodes


def test_nominal_nodes_never_merge() -> None:
    text = """
        dims t: t.size
        %0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
        %1: float32[] over (t) = host_call(%0[t]) {batched: (), fn: !f, ordered_by: ($t,), resource: None} @1
        %2: float32[] over (t) = host_call(%0[t]) {batched: (), fn: !f, ordered_by: ($t,), resource: None} @2
        output "y": float32[] over (t) = %1[t] as ($t)
        output "z": float32[] over (t) = %2[t] as ($t)
    """
    assert_becomes(CommonSubexpressions(), text, text)


def test_what_reads_forward_merges_too() -> None:
    text = (
        HEAD
        + "%2: float32[] over (t) = exp(%0[t + 1])\n"
        + """%9: float32[] over (t) = merge {name: "m", role: "cases"} @1
          | t < t.size - 1 -> %2[t]
          | True -> %1[t]
        output "y": float32[] over (t) = %9[t] as ($t)
    """
    )
    assert 2 not in check(CommonSubexpressions(), parse(text), {"t": 1}, {"t": 4}).nodes
