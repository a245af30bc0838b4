"""One relation says the order of host calls: what the checks, the evaluator and schedulers read of it is the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tempo.analysis.demand.reads import RunSizes
from tempo.analysis.dependence.host_order import HostOrder, calls_before, effect_nodes, order_reads
from tempo.analysis.reports import Instance
from tempo.compiler.driver import Compiler
from tempo.compiler.options import Options
from tempo.plugins.manager import get_backend, get_scheduler
from tempo.sdg.graph import Graph, Node
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol

SIZES = {"a": 2, "b": 2, "t": 3}
CALLS = {
    "one after another": (("a, t", "a, t"), ("a", "a"), ("", "")),
    "two loops of one order": (("a, t", "a, t"), ("a, b, t", "a, t")),
    "one inside the other": (("a", "a"), ("a, t", "a, t")),
    "at once along b": (("b, t", "t"), ("b, t", "t")),
    "three": (("t", "t"), ("a, t", "t"), ("a, t", "a")),
}


def graph_of(calls: tuple[tuple[str, str], ...]) -> Graph:
    def named(dims: str) -> str:
        symbols = [f"${dim}" for dim in dims.split(", ") if dim]
        return f"({', '.join(symbols)}{',' * (len(symbols) == 1)})"

    lines = ["dims a: 2, b: 2, t: 3", "%0: float32[] = constant {value: array(float32, (), [1.0])}"]
    for number, (dims, ordered) in enumerate(calls, start=1):
        over = f" over ({dims})" if dims else ""
        attrs = f'batched: (), fn: !f, ordered_by: {named(ordered)}, resource: "r"'
        lines.append(f"%{number}: nothing{over} = sink(%0) {{{attrs}}} @{number}")
    lines.append(f"sinks {', '.join(f'%{number}' for number in range(1, len(calls) + 1))}")
    return parse("\n".join(lines))


def closure(pairs: set[tuple[Instance, Instance]]) -> set[tuple[Instance, Instance]]:
    found = set(pairs)
    while True:
        more = {(one, three) for one, two in found for other, three in found if two == other} - found
        if not more:
            return found
        found |= more


def instances(graph: Graph) -> list[Instance]:
    ranges = {node.id: [range(SIZES[dim.name]) for dim in node.domain] for node in effect_nodes(graph)}
    return [Instance(id, point) for id, each in ranges.items() for point in itertools.product(*each)]


def by_definition(graph: Graph, first: Instance, second: Instance) -> bool:
    one, two = graph.nodes[first.node], graph.nodes[second.node]

    def place(node: Node, instance: Instance, dims: tuple[Symbol, ...]) -> tuple[int, ...]:
        return tuple(instance.point[node.domain.index(dim)] for dim in dims)

    ordered = tuple(dim for dim in one.attr("ordered_by") if dim in two.attr("ordered_by"))
    others = tuple(dim for dim in one.domain if dim not in ordered) if one is two else ()
    if place(one, first, others) != place(two, second, others):
        return False
    before, after = place(one, first, ordered), place(two, second, ordered)
    return before < after or (before == after and one.id < two.id)


@pytest.mark.parametrize("name", CALLS)
def test_all_who_ask_get_the_same_order(name: str) -> None:
    graph = graph_of(CALLS[name])
    every = instances(graph)
    wanted = closure({(p, q) for p, q in itertools.product(every, every) if by_definition(graph, p, q)})
    sizes = {Symbol(dim, "size"): size for dim, size in SIZES.items()}
    known = RunSizes.of(graph, sizes)

    def checked(q: Instance) -> set[Instance]:
        point = tuple(np.array([value]) for value in q.point)
        reads = [each for each in order_reads(graph, known, graph.nodes[q.node], point) if each.count]
        boxes = (
            (each.source, [range(int(lo[0]), int(hi[0])) for lo, hi in zip(each.lo, each.hi)])
            for each in reads
            if each.count
        )
        return {Instance(source, p) for source, box in boxes for p in itertools.product(*box)}

    assert {(p, q) for q in every for p in checked(q)} <= wanted
    assert closure({(p, q) for q in every for p in checked(q)}) == wanted
    assert evaluated(graph, every) == wanted
    assert scheduled(graph, every, sizes) == wanted


def evaluated(graph: Graph, every: list[Instance]) -> set[tuple[Instance, Instance]]:
    """What the evaluator waits for, through barriers."""
    shapes = {node.id: tuple(SIZES[dim.name] for dim in node.domain) for node in effect_nodes(graph)}
    points = {id: [each.point for each in every if each.node == id] for id in shapes}
    order, found = HostOrder(graph, shapes, points), set()
    for call in every:
        pending = list(order.before(call))
        while pending:
            need = pending.pop()
            if isinstance(need, Instance):
                found.add((need, call))
            else:
                pending += order.members(need)
    return closure(found)


def scheduled(graph: Graph, every: list[Instance], sizes: dict[Symbol, int]) -> set[tuple[Instance, Instance]]:
    """What schedulers are told."""
    plan = Compiler(graph, get_backend("numpy"), get_scheduler("greedy"), Options()).plan()
    clusters = plan.program.cluster_of()
    names = {clusters[id].name: id for id in {each.node for each in every}}
    found = set()
    for each in (each for each in plan.problem.dependences if each.kind == "order"):
        for q in (call for call in every if call.node == names[each.target]):
            env = {**sizes, **dict(zip(graph.nodes[q.node].domain, q.point))}
            if each.condition.evaluate(env):
                box = [range(int(side.lo.evaluate(env)), int(side.hi.evaluate(env)) + 1) for side in each.relation]
                found |= {(Instance(names[each.source], p), q) for p in itertools.product(*box)}
    return closure(found)


def test_calls_without_a_resource_wait_for_no_others() -> None:
    graph = graph_of(CALLS["three"])
    apart = dict(graph.nodes)
    for id in (1, 2, 3):
        attrs = tuple((key, None if key == "resource" else value) for key, value in graph.nodes[id].attrs)
        apart[id] = Node(id, "sink", graph.nodes[id].domain, (), graph.nodes[id].operands, attrs, declaration=id)
    found = calls_before(Graph(graph.dims, apart, (), graph.sinks), apart[2])
    assert [(each.source, each.target) for each in found] == [(2, 2)]
