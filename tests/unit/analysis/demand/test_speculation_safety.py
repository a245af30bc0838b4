"""What can be made at every point of the demanded box, though not all of them are demanded."""

from __future__ import annotations

import pytest

from tempo.analysis.demand.demand import demand
from tempo.analysis.demand.speculation_safety import harmless
from tempo.sdg.parse import parse

STENCIL = """dims t: t.size, y: y.size, x: x.size
%0: float32[] over (y, x) = input {layout: ($y, $x), name: "start", role: "input"} @0
%1: float32[] over (t, y, x) = merge {name: "u", role: "recurrent"} @1
  | y == 0 or y == y.size - 1 or x == 0 or x == x.size - 1 -> %2
  | t == 0 -> %0[y, x]
  | True -> %4[t, y, x]
%2: float32[] = constant {value: array(float32, (), (0.0))}
%3: float32[] over (t, y, x) = add(%1[t - 1, y, x - 1], %1[t - 1, y, x + 1])
%4: float32[] over (t, y, x) = add(%3[t, y, x], %1[t - 1, y + 1, x])
output "y": float32[y.size, x.size] = %1[t.size - 1, 0 +: y.size, 0 +: x.size] as (0, 1)
"""


def found(text: str) -> set[int]:
    graph = parse(text)
    demands = demand(graph)
    assert not demands[1].exact  # the corners, before the last step
    return harmless(graph, demands, (1, 3, 4))


def test_the_corners_of_a_stencil_can_be_made() -> None:
    assert found(STENCIL) == {1, 3, 4}


@pytest.mark.parametrize(
    "broken",
    [
        STENCIL.replace(
            "  | True -> %4", "  | x >= 1 and y >= 1 and x < x.size - 1 and y < y.size - 1 and t < 5 -> %4"
        ),
        STENCIL.replace("-> %2\n", "-> %5[t, y, x]\n")
        + "%5: float32[] over (t, y, x) = host_call() "
        + '{batched: (), fn: !f, name: "f", ordered_by: (), resource: !r} @5\n',
    ],
    ids=["a point without a case", "a call"],
)
def test_what_may_fail_is_made_where_it_is_demanded(broken: str) -> None:
    assert not found(broken)
