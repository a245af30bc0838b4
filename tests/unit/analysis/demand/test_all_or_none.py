"""What is demanded as a whole or not at all, for every size."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.analysis.demand.demand import demand
from tempo.analysis.demand.instances import demanded
from tempo.analysis.demand.speculation_safety import AllOrNone
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol


def prefix_of_later_steps() -> tp.Program:
    """The steps from p.size on read a prefix, in which all that was made before them lies."""
    with tp.Program() as program:
        p, t = tp.dims("p t")
        given, x = tp.input("given", (), (p,)), tp.input("x", (), (t,))
        made = tp.exp(x)
        out = tp.recurrent("out", (), (t,))
        out[t < p.size] = 0.0
        out[True] = made[0 : t + 1].sum(axis=0) * given[0]
        tp.output("out", out)
    return program


def prefix_of_odd_steps() -> tp.Program:
    """Every second step reads a prefix: the last point may not be read."""
    with tp.Program() as program:
        t = tp.dim("t")
        made = tp.exp(tp.input("x", (), (t,)))
        out = tp.recurrent("out", (), (t,))
        out[t % 2 == 0] = 0.0
        out[True] = made[0 : t + 1].sum(axis=0)
        tp.output("out", out)
    return program


def two_readers() -> tp.Program:
    """Each reads all or nothing, at sizes of its own."""
    with tp.Program() as program:
        p, q, t = tp.dims("p q t")
        one, two = tp.input("one", (), (p,)), tp.input("two", (), (q,))
        made = tp.exp(tp.input("x", (), (t,)))
        for name, given in (("first", one), ("second", two)):
            out = tp.recurrent(name, (), (t,))
            dim = p if name == "first" else q
            out[t < dim.size] = 0.0
            out[True] = (made[0 : t + 1] * made).sum(axis=0) * given[0] if dim is p else made[0 : t + 1].max(axis=0)
            tp.output(name, out)
    return program


def last_of_some_layers(own: bool) -> tp.Program:
    """Of the last layer the last point is read, if any, and of those below it what the layer above reads: all, or
    without its `own` point ever less.
    """
    with tp.Program() as program:
        l, p, t = tp.dims("l p t")
        table, given = tp.input("table", (5,)), tp.input("given", (), (p,), dtype=tp.int32)
        x = tp.recurrent("x", (), (l, p))
        x[0, p] = tp.take(table, given, axis=0)
        before = tp.exp(x)[l, 0 : p + 1 if own else p]
        y = tp.where(before > 0, before, 0.0).sum(axis=0)
        x[l + 1, p] = y
        out = tp.recurrent("out", (), (t,))
        out[t < p.size] = 0.0
        out[True] = y[l.size - 1, p.size - 1] * t
        tp.output("out", out)
    return program


@pytest.mark.parametrize(
    ("make", "expected"), [(prefix_of_later_steps, True), (prefix_of_odd_steps, False), (two_readers, False)]
)
def test_an_answer_is_right_at_all_sizes(make, expected: bool) -> None:
    graph = without_dead_nodes(make().graph())
    (node,) = (node for node in graph.nodes.values() if node.op == "exp")
    demands = demand(graph)
    assert not demands[node.id].exact
    assert AllOrNone(graph, demands).holds(node.id) == expected
    if expected:
        assert all(is_all_or_none(graph, node.id, size, other) for size in (1, 2, 5) for other in (1, 2, 3, 5, 7))


@pytest.mark.parametrize("own", [True, False])
def test_what_is_demanded_for_sure_of_a_cycle_is_found(own: bool) -> None:
    """The demand of the layers is no box."""
    graph = without_dead_nodes(last_of_some_layers(own).graph())
    (node,) = (node for node in graph.nodes.values() if node.op == "gather")
    demands = demand(graph)
    asked = AllOrNone(graph, demands)
    assert not demands[node.id].exact
    assert not asked.holds(node.id)
    assert asked.holds_for_some_condition(node.id) == own
    if own:
        assert all(is_all_or_none(graph, node.id, t, other) for t in (1, 2, 5) for other in (1, 2, 3, 5, 7))


def is_all_or_none(graph: Graph, id: int, size: int, other: int) -> bool:
    sizes = {dim.symbol: size if dim.symbol == Symbol("t", "dim") else other for dim in graph.dims}
    sizes = {Symbol(symbol.name, "size"): value for symbol, value in sizes.items()}
    marks = demanded(graph, sizes)[id]
    ((_, lo, hi),) = demand(graph)[id].box.bounds
    inside = marks[int(lo.evaluate(sizes)) : max(0, int(hi.evaluate(sizes)))]
    return bool(inside.all()) or not marks.any()
