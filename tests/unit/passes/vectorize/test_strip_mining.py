"""Blocks of a dim: the same meaning at every size, and no tensor of all points in between."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.passes.manager import PassContext
from tempo.passes.vectorize.search import Decision, Lift
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol
from tests.unit.passes.equivalence import check

SIZES = tuple({"t": size} for size in (1, 2, 3, 4, 7))
X = '%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0'
LEFT, RIGHT = (f"lhs_batch: (), lhs_contract: ({axis},), rhs_batch: (), rhs_contract: (0,)" for axis in (1, 0))
CAUSAL = f"""
{X}
%1: float32[3] over (t) = tanh(%0[t])
%2: float32[t + 1] over (t) = dot(%1[0 +: t + 1], %0[t]) {{{LEFT}}}
%3: float32[t + 1] over (t) = exp(%2[t])
%4: float32[3] over (t) = dot(%3[t], %1[0 +: t + 1]) {{{RIGHT}}}
output "y": float32[3] over (t) = %4[t] as ($t, 0)
"""


def lift(body: str, *, mapping: object = 2, known: int | None = None) -> tuple[Graph, list[Decision]]:
    graph = parse(f"dims t: t.size\n{body}")
    sizes = {} if known is None else {Symbol("t", "size"): known}
    context, chosen = PassContext(sizes), Lift(mapping=mapping)
    return check(chosen, graph, *SIZES, context=context), list(chosen.apply(graph, context).decisions)


def loops(graph: Graph) -> set[str]:
    """The dims that are loops still, but for inputs that are read point by point."""
    return {symbol.name for node in graph.nodes.values() if node.op != "input" for symbol in node.domain}


def test_causal_reads_in_blocks() -> None:
    after, _ = lift(CAUSAL)
    assert loops(after) == {"t_block"}
    shapes = [[str(size) for size in node.shape] for node in after.nodes.values() if node.op == "exp"]
    assert shapes == [["min(t.size, 2)", "t.size"]]


def test_windows_in_blocks() -> None:
    after, _ = lift(f"""
{X}
%1: float32[min(t + 3, t.size) - t, 3] over (t) = neg(%0[t +: min(t + 3, t.size) - t])
%2: float32[3] over (t) = reduce_max(%1[t]) {{axes: (0,)}}
%3: float32[3] over (t) = tanh(%2[t])
output "y": float32[3] over (t) = %3[t] as ($t, 0)
output "first": float32[3] = %3[0] as (0)
""")
    assert loops(after) == {"t_block"}


def test_what_may_have_no_points_stays_whole() -> None:
    after, _ = lift(f"""
{X}
%1: float32[3] over (t) = tanh(%0[t])
%2: float32[3] over (t) = exp(%1[t + 1])
%3: float32[3] over (t) = merge {{name: "c", role: "cases"}} @2
  | t < t.size - 1 -> %2[t]
  | True -> %1[t]
output "y": float32[3] over (t) = %3[t] as ($t, 0)
""")
    assert loops(after) == {"t_block"}


def test_draws_and_definitions_by_pieces_stay_whole() -> None:
    after, _ = lift("""
%0: uint32[] = input {layout: (), name: "seed", role: "seed"} @0
%1: uint32[2] over (t) = random_bits(%0) {bits: 32, coordinates: (`t`, 0), declaration: 1, shape: (2,)} @1
%2: float32[2] over (t) = cast(%1[t]) {dtype: "float32"}
%3: float32[2] over (t) = neg(%2[t])
%4: float32[2] over (t) = merge {name: "c", role: "cases"} @2
  | t == 0 -> %3[t]
  | True -> %2[t]
output "y": float32[2] over (t) = %4[t] as ($t, 0)
""")
    assert loops(after) == {"t_block"}
    (draw,) = [node for node in after.nodes.values() if node.op == "random_bits"]
    assert not draw.domain


def test_a_recurrence_in_another_dim_is_a_definition_of_every_block() -> None:
    graph = parse("""dims i: i.size, t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0
%1: float32[3] over (i, t) = merge {name: "h", role: "recurrent"} @1
  | i == 0 -> %0[t]
  | True -> %2[i, t]
%2: float32[3] over (i, t) = tanh(%1[i - 1, t])
output "y": float32[3] over (t) = %1[i.size - 1, t] as ($t, 0)
""")
    sizes = [{"i": 1, "t": 1}, {"i": 3, "t": 5}]
    after = check(Lift(mapping={"t": 2}), graph, *sizes)
    assert loops(after) == {"i", "t_block"}


@pytest.mark.parametrize(("known", "kind"), [(64, "full"), (4096, "blocks"), (None, "blocks")])
def test_blocks_where_all_points_would_hold_too_much(known: int | None, kind: str) -> None:
    after, decisions = lift(CAUSAL, mapping=None, known=known)
    assert {each.kind for each in decisions if 3 in each.nodes} == {kind}
    assert loops(after) == (set() if kind == "full" else {"t_block"})


@pytest.mark.parametrize(("mapping", "kind"), [({"l": "sequential"}, "full"), (None, "blocks")])
def test_what_all_points_hold_is_that_of_an_iteration_of_loops_that_stay(mapping: object, kind: str) -> None:
    """64 times 16 KiB beside one another, and as many for each of 4,096 points of l."""
    graph = parse("""
dims b: b.size, l: l.size
%0: float32[64, 64] over (b, l) = input {layout: ($b, $l, 0, 1), name: "x", role: "input"} @0
%1: float32[64, 64] over (b, l) = tanh(%0[b, l])
%2: float32[] over (b, l) = reduce_sum(%1[b, l]) {axes: (0, 1)}
output "y": float32[] over (b, l) = %2[b, l] as ($b, $l)
""")
    context = PassContext({Symbol("b", "size"): 64, Symbol("l", "size"): 4096})
    decisions = Lift(mapping=mapping).apply(graph, context).decisions
    assert [each.kind for each in decisions if each.dim.name == "b"] == [kind]


def test_the_model_is_told() -> None:
    _, decisions = lift(CAUSAL, mapping=None, known=4096)
    (decision,) = [each for each in decisions if each.kind == "blocks"]
    costs = dict(decision.costs)
    chosen = costs.pop(f"blocks of {decision.points}")
    assert all(chosen.seconds < other.seconds for other in costs.values())
    assert "launches" in str(decision) and "uncached" in str(decision)


@pytest.mark.parametrize("wrong", [0, -1, {"t": 0}, True])
def test_blocks_have_points(wrong: object) -> None:
    with pytest.raises(tp.InputError, match="mapping="):
        tp.Options(mapping=wrong)  # type: ignore[arg-type]
