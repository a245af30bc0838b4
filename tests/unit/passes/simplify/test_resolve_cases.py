"""Reads of one point of a definition go to what defines it there."""

from __future__ import annotations

from tempo.passes.simplify.resolve_cases import Decide
from tempo.sdg.graph import Edge, Point
from tempo.symbolic import size
from tests.unit.passes.texts import after, assert_becomes

X = '%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"\n'
H = """
%1: float32[] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | t == 0 -> %0[t]
  | True -> %2[t - 1]
"""


def _program(reads: str) -> str:
    return f'dims t: t.size\n{X}{H.strip()}\n{reads}\noutput "y": float32[] over (t) = %1[t] as ($t)\n'


def test_a_read_of_the_first_point_is_one_of_its_case() -> None:
    assert_becomes(
        Decide(),
        _program("%2: float32[] over (t) = add(%1[t], %1[0])"),
        _program("%2: float32[] over (t) = add(%1[t], %0[0])"),
    )


def test_a_point_whose_case_depends_on_sizes_stays() -> None:
    text = _program("%2: float32[] over (t) = add(%1[t], %1[t.size - 1])")
    assert_becomes(Decide(), text, text)


def test_a_point_that_varies_stays() -> None:
    text = _program("%2: float32[] over (t) = add(%1[t], %1[max(t - 3, 0)])")
    assert_becomes(Decide(), text, text)


def test_outputs_are_read_through_several_definitions() -> None:
    text = f"""dims t: t.size
{X}%1: float32[] over (t) = merge {{name: "a", role: "recurrent"}} @1 "a"
  | t == t.size - 1 -> %0[t]
  | True -> %1[t + 1]
%2: float32[] over (t) = merge {{name: "b", role: "recurrent"}} @2 "b"
  | t <= 2 -> %1[t.size - 1]
output "y": float32[] = %2[1] as ()
"""
    (output,) = after(Decide(), text).outputs
    assert output.edge == Edge(0, (Point(size("t") - 1),))


def test_what_would_need_itself_stays_as_it_is() -> None:
    text = f"""dims t: t.size
{X}%1: float32[] over (t) = merge {{name: "h", role: "recurrent"}} @1 "h"
  | t == 0 -> %2[t]
  | True -> %0[t]
%2: float32[] over (t) = add(%0[t], %1[0])
output "y": float32[] over (t) = %2[t] as ($t)
"""
    assert_becomes(Decide(), text, text)


W = """
%1: float32[] over (i, e) = merge {name: "w", role: "parameter"} @1 "w"
  | e >= 1 -> %2[i, e - 1]
  | e == 0 and i >= 1 -> %2[i - 1, e.size - 1]
  | True -> %0
%2: float32[] over (i, e) = mul(%1[i, e], %1[i, e])
"""


def test_the_cases_that_are_left_at_a_point_become_a_definition_of_their_own() -> None:
    head = 'dims i: i.size, e: e.size\n%0: float32[] = input {layout: (), name: "x", role: "input"} @0 "x"' + W
    read, end = "%3: float32[] over (i) = neg(%1[i, 0])\n", 'output "y": float32[] over (i) = %3[i] as ($i)\n'
    part = """%4: float32[] over (i) = merge {name: "w", role: "cases"} @2 "w"
  | i >= 1 -> %2[i - 1, e.size - 1]
  | True -> %0
"""
    assert_becomes(Decide(), head + read + end, head + read.replace("%1[i, 0]", "%4[i]") + part + end)


SUMS = """dims t: t.size
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
%1: float32[] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | t >= 3 -> %1[t - 1]
  | True -> READ
%2: float32[] = reduce_sum(SLICE) {axes: (0,)}
output "y": float32[] = %2 as ()
output "h": float32[] over (t) = %1[t] as ($t)
"""


def sums(slice: str, read: str = "%0[t]") -> str:
    return SUMS.replace("SLICE", slice).replace("READ", read)


def test_a_slice_of_points_of_one_case_reads_what_the_case_reads() -> None:
    assert_becomes(Decide(), sums("%1[1 +: 2]"), sums("%0[1 +: 2]"))


def test_a_slice_reads_the_points_that_the_case_reads() -> None:
    assert_becomes(Decide(), sums("%1[1 +: 2]", "%0[t + 1]"), sums("%0[2 +: 2]", "%0[t + 1]"))


def test_a_slice_of_points_of_several_cases_stays() -> None:
    assert_becomes(Decide(), sums("%1[1 +: 3]"), sums("%1[1 +: 3]"))
