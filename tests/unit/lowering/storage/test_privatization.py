"""To which loops a value is local: every iteration reads only what it wrote."""

from __future__ import annotations

import pytest

from tests.unit.lowering.planned import check, plan_of

# `kept` is read in its own iteration of `i`, `up` one iteration later, `down` too, in the same one of `t`, and `shown`
# after the loop.
NESTED = """\
dims i: i.size, t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
%1: float32[3] over (i, t) = merge {name: "h", role: "recurrent"} @1 "h"
  | i == 0 -> %0[t]
  | True -> %5[i - 1, t.size - 1 - t]
%2: float32[3] over (i, t) = merge {name: "kept", role: "recurrent"} @2 "kept"
  | t == 0 -> %1[i, t]
  | True -> %3[i, t - 1]
%3: float32[3] over (i, t) = add(%2[i, t], %1[i, t]) "sum"
%4: float32[3] over (i, t) = merge {name: "back", role: "recurrent"} @3 "back"
  | t == t.size - 1 -> %2[i, t]
  | True -> %5[i, t + 1]
%5: float32[3] over (i, t) = mul(%4[i, t], %2[i, t]) "up"
%6: float32[3] over (i, t) = tanh(%2[i, t]) "shown"
%7: float32[3] over (i, t) = merge {name: "down", role: "recurrent"} @4 "down"
  | i == 0 -> %1[i, t]
  | True -> %7[i - 1, t]
output "y": float32[3] = %5[i.size - 1, 0] as (0)
output "w": float32[3] = %7[i.size - 1, 0] as (0)
output "z": float32[3] = %6[i.size - 1, 1] as (0)
"""


def local(name: str) -> set[str]:
    buffers = plan_of(NESTED, mapping="sequential").loops.buffers.values()
    (found,) = (buffer.local for buffer in buffers if buffer.name == name)
    return {symbol.name for symbol in found}


@pytest.mark.parametrize(("name", "loops"), [("kept", {"i"}), ("up", set()), ("shown", set()), ("down", set())])
def test_a_value_is_local_to_the_loop_that_has_all_its_reads(name: str, loops: set[str]) -> None:
    assert local(name) == loops


@pytest.mark.parametrize("size", [2, 3, 5])
def test_no_value_is_lost(size: int) -> None:
    check(NESTED, i=size, t=size)
