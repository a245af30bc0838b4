"""Storage follows from the order: what each reuse distance keeps."""

from __future__ import annotations

import pytest

from tests.unit.lowering.planned import check, plan_of, storage

INPUT = '%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"'

RUNNING_SUM = f"""\
dims t: t.size
{INPUT}
%1: float32[3] = constant {{value: array(float32, (3,), (0.0, 0.0, 0.0))}}
%3: float32[3] over (t) = merge {{name: "h", role: "recurrent"}} @1 "h"
  | t == 0 -> %1
  | t >= 1 -> %4[t - 1]
%4: float32[3] over (t) = add(%3[t], %0[t]) "sum"
output "last": float32[3] = %4[t.size - 1] as (0)
"""

LATE = f"""\
dims t: t.size
{INPUT}
%1: float32[3] over (t) = tanh(%0[t]) "a"
%2: float32[3] over (t) = merge {{name: "h", role: "recurrent"}} @1 "h"
  | t <= 2 -> %1[t]
  | True -> %3[t - 3]
%3: float32[3] over (t) = add(%2[t], %1[max(t - 2, 0)]) "b"
output "y": float32[3] over (t) = %3[t] as ($t, 0)
"""

TRAILING_WINDOW = f"""\
dims t: t.size
{INPUT}
%1: float32[3] over (t) = tanh(%0[t]) "a"
%2: float32[4, 3] over (t) = mask(%1[max(t - 3, 0) +: min(t + 1, 4) of 4]) {{axis: 0, fill: 0, length: `min(t + 1, 4)`}}
%3: float32[3] over (t) = reduce_sum(%2[t]) {{axes: (0,)}} "s"
output "y": float32[3] over (t) = %3[t] as ($t, 0)
"""

LEADING_WINDOW = f"""\
dims t: t.size
{INPUT}
%1: float32[3] over (t) = tanh(%0[t]) "a"
%2: float32[4, 3] over (t) = mask(%1[t +: min(4, t.size - t) of 4]) {{axis: 0, fill: 0, length: `min(4, t.size - t)`}}
%3: float32[3] over (t) = reduce_sum(%2[t]) {{axes: (0,)}} "s"
output "y": float32[3] over (t) = %3[t] as ($t, 0)
"""

BACKWARD = f"""\
dims t: t.size
{INPUT}
%1: float32[3] over (t) = merge {{name: "g", role: "recurrent"}} @1 "g"
  | t == t.size - 1 -> %0[t]
  | True -> %2[t]
%2: float32[3] over (t) = add(%1[t + 1], %0[t]) "next"
output "first": float32[3] = %1[0] as (0)
"""

WHOLE_HISTORY = f"""\
dims t: t.size
{INPUT}
%1: float32[3] over (t) = tanh(%0[t]) "a"
%2: float32[t.size, 3] over (t) = mask(%1[0 +: t + 1 of t.size]) {{axis: 0, fill: 0.0, length: `t + 1`}} "w"
%3: float32[3] over (t) = reduce_sum(%2[t]) {{axes: (0,)}} "s"
output "y": float32[3] over (t) = %3[t] as ($t, 0)
"""

LAYERS = """\
dims l: l.size, t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
%1: float32[3] over (l, t) = merge {name: "h", role: "recurrent"} @1 "h"
  | l == 0 -> %0[t]
  | True -> %2[l - 1, t]
%2: float32[3] over (l, t) = tanh(%3[l, t]) "up"
%3: float32[3] over (l, t) = add(%1[l, t], %4[l, t]) "mixed"
%4: float32[3] over (l, t) = merge {name: "before", role: "recurrent"} @2 "before"
  | t == 0 -> %1[l, t]
  | True -> %1[l, t - 1]
output "top": float32[3] over (t) = %2[l.size - 1, t] as ($t, 0)
"""


def test_a_sum_of_which_only_the_end_is_read_keeps_one_point() -> None:
    assert storage(plan_of(RUNNING_SUM)) == {"sum": "point", "h": "register", "last": "register"}


def test_a_read_three_steps_back_keeps_a_window() -> None:
    # b(t) reads b(t - 3) before it is written itself, so three points are enough; a is read at t, t - 1 and t - 2.
    assert storage(plan_of(LATE, mapping="sequential")) == {"a": "window(3)", "b": "window(3)", "h": "register"}


@pytest.mark.parametrize("text", [TRAILING_WINDOW, LEADING_WINDOW])
def test_a_sliding_window_keeps_its_width(text: str) -> None:
    assert storage(plan_of(text, mapping="sequential"))["a"] == "window(4)"


def test_the_recurrence_backward_in_time_keeps_what_the_next_step_reads() -> None:
    kept = storage(plan_of(BACKWARD))
    assert kept["g"] in ("point", "window(2)")


def test_a_read_of_the_whole_history_keeps_it() -> None:
    assert storage(plan_of(WHOLE_HISTORY))["a"] == "full"


def test_what_an_outer_loop_carries_is_full_in_the_loops_inside() -> None:
    kept = storage(plan_of(LAYERS, mapping="sequential"))
    assert "full" in kept["h"] and "full x full" not in kept["h"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "text", [RUNNING_SUM, LATE, TRAILING_WINDOW, LEADING_WINDOW, BACKWARD, WHOLE_HISTORY], ids=range(6)
)
def test_no_value_is_lost(text: str, size: int) -> None:
    check(text, t=size)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_no_value_is_lost_between_nested_loops(layers: int) -> None:
    check(LAYERS, t=4, l=layers)
