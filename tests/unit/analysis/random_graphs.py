"""Random graphs for the analyses, and what the analyses mean, spelled out point by point."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tempo.analysis.demand.reads import RunSizes, edge_reads, reads_of_point
from tempo.analysis.dependence.host_order import previous_call
from tempo.analysis.reports import Instance, output_reader
from tempo.sdg.graph import Edge, Graph, Node, Slice
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol

Array = np.ndarray[Any, Any]


def at(**sizes: int) -> dict[Symbol, int]:
    return {Symbol(name, "size"): value for name, value in sizes.items()}


def one_by_one(graph: Graph, sizes: Mapping[Symbol, int]) -> dict[int, Array]:
    """The definition of demand: everything reachable from outputs and sinks, and calls before a call."""
    known = RunSizes.of(graph, sizes)
    masks = {node.id: np.zeros(known.shape(node.domain), np.bool_) for node in graph.nodes.values()}
    pending: list[Instance] = []
    for output in graph.outputs:
        for point in itertools.product(*map(range, known.shape(output.domain))):
            here = tuple(np.array([value]) for value in point)
            reads = edge_reads(known, -1, output.domain, output.edge, here).inside(masks[output.edge.node].shape)
            boxes = [range(int(lo[0]), int(hi[0])) for lo, hi in zip(reads.lo, reads.hi)] if reads.count else [range(0)]
            pending.extend(Instance(output.edge.node, read) for read in itertools.product(*boxes))
    for id in graph.sinks:
        pending.extend(Instance(id, tuple(point)) for point in np.ndindex(masks[id].shape))
    while pending:
        id, point = pending.pop()
        if masks[id][point]:
            continue
        masks[id][point] = True
        pending.extend(needs_of(known, Instance(id, point)))
    return masks


def needs_of(known: RunSizes, instance: Instance) -> list[Instance]:
    node = known.graph.nodes[instance.node]
    needs = [
        Instance(edge.node, read)
        for edge, ranges in reads_of_point(known, node, instance.point)
        for read in itertools.product(*ranges)
    ]
    previous = previous_call(node, instance.point, known.shape(node.domain)) if node.op == "host_call" else None
    return needs + ([] if previous is None else [Instance(node.id, previous)])


# Random graphs: several tensors over (i), (t) or (i, t) that read one another anyhow, with and without cycles.

INDICES = ["{d}", "{d} - 1", "{d} - 2", "{d} + 1", "0", "{d}.size - 1", "{d} // 2", "2 * {d}", "{d}.size - 1 - {d}"]
SLICES = ["0 +: {d} + 1", "0 +: {d}", "{d} +: {d}.size - {d}", "{d} + 1 +: {d}.size - {d} - 1", "0 +: {d}.size"]
CONDITIONS = ["{d} == 0", "{d} >= 2", "{d} % 2 == 0", "{d} <= {d}.size - 2"]


SAFE = ["{d}", "{d}", "0", "{d}.size - 1", "{d} // 2", "{d}.size - 1 - {d}"]
GUARDED = [  # conditions under which an index is in range, and the other case
    ("{d} == 0", "{d} - 1"),
    ("{d} == {d}.size - 1", "{d} + 1"),
    ("{d} < 2", "{d} - 2"),
    ("{d} == 0", "0 +: {d}"),
]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Half of the tensors are in good order, so that a fair share of the graphs is right."""
    count = draw(st.integers(1, 4))
    domains = [draw(st.sampled_from([("t",), ("i", "t"), ("i",)])) for _ in range(count)]
    ops = [draw(st.sampled_from(["merge", "recurrence", "recurrence", "host_call", "neg"])) for _ in range(count)]

    def read(reader: tuple[str, ...], fixed: dict[str, str] | None = None, safe: bool = False) -> str:
        reached = [id for id, domain in enumerate(domains) if set(fixed or {}) <= set(domain)]
        target = draw(st.sampled_from(reached))
        indices = []
        for dim in domains[target]:
            own = [*SAFE, *([] if safe else INDICES), *SLICES[: 3 if safe else None]] if dim in reader else []
            chosen = (fixed or {}).get(dim) or draw(st.sampled_from([*own, "0", "0 +: {d}.size", "{d}.size - 1"]))
            indices.append(chosen.format(d=dim))
        return f"%{target}[{', '.join(indices)}]"

    def cases(domain: tuple[str, ...]) -> list[str]:
        found = []
        for _ in range(draw(st.integers(0, 2))):
            condition = draw(st.sampled_from(CONDITIONS)).format(d=draw(st.sampled_from(domain)))
            found.append(f"  | {condition} -> {read(domain)}")
        return [*found, f"  | True -> {read(domain)}"] if draw(st.booleans()) else found

    def recurrence(domain: tuple[str, ...]) -> list[str]:
        dim = draw(st.sampled_from(domain))
        first, step = draw(st.sampled_from(GUARDED))
        return [
            f"  | {first.format(d=dim)} -> %{count}[0]",
            f"  | True -> {read(domain, {dim: step}, safe=True)}",
        ]

    lines = ["dims i: i.size, t: t.size"]
    for id, (op, domain) in enumerate(zip(ops, domains)):
        over = f"%{id}: float32[] over ({', '.join(domain)}) ="
        if op in {"merge", "recurrence"}:
            lines.append(f'{over} merge {{name: "m{id}", role: "recurrent"}} @{id} "m{id}"')
            lines += cases(domain) if op == "merge" else recurrence(domain)
        elif op == "host_call":
            ordered = "".join(f"${dim}, " for dim in domain if draw(st.booleans()))
            read_safely = read(domain, safe=True)
            lines.append(f"{over} host_call({read_safely}) {{fn: !f, ordered_by: ({ordered})}} @{id}")
        else:
            lines.append(f"{over} neg({read(domain, safe=True)}, {read(domain, safe=True)})")
    lines.append(f'%{count}: float32[] over (i) = input {{name: "x"}} @{count} "x"')
    for output in range(draw(st.integers(1, 2))):
        seen = read(("i", "t"), safe=draw(st.booleans()))
        lines.append(f'output "o{output}": float32[] over (i, t) = {seen} as ($i, $t)')
    return parse("\n".join(lines).replace(", )", ",)"))


def has_cycle(graph: Graph, sizes: Mapping[Symbol, int], masks: Mapping[int, Array]) -> bool:
    """By removing instances that need nothing that is left, until none can be removed."""
    known = RunSizes.of(graph, sizes)
    left = {
        Instance(id, tuple(point)): needs_of(known, Instance(id, tuple(point)))
        for id, mask in masks.items()
        for point in np.argwhere(mask).tolist()
    }
    while True:
        free = [instance for instance, needs in left.items() if not any(need in left for need in needs)]
        if not free:
            return bool(left)
        for instance in free:
            del left[instance]


def transitive_calls(graph: Graph, sizes: Mapping[Symbol, int], instance: Instance) -> list[Instance]:
    """What an instance needs, with every call before it and not only the last."""
    known, node = RunSizes.of(graph, sizes), graph.nodes[instance.node]
    found = needs_of(known, instance)
    previous = previous_call(node, instance.point, known.shape(node.domain)) if node.op == "host_call" else None
    while previous is not None:
        found.append(Instance(node.id, previous))
        previous = previous_call(node, previous, known.shape(node.domain))
    return found


def is_wrong(graph: Graph, sizes: Mapping[Symbol, int]) -> bool:
    """Whether a demanded point reads outside a domain, is covered by no case, or needs itself."""
    known, masks = RunSizes.of(graph, sizes), one_by_one(graph, sizes)
    readers = [(output_reader(output), np.ones(known.shape(output.domain), np.bool_)) for output in graph.outputs]
    readers += [(graph.nodes[id], mask) for id, mask in masks.items()]
    for node, mask in readers:
        for point in np.argwhere(mask).tolist():
            env = {**known.symbols, **dict(zip(node.domain, point))}
            edges = chosen_edges(node, env)
            if edges is None or any(leaves_domain(known, edge, env) for edge in edges):
                return True
    return has_cycle(graph, sizes, masks)


def chosen_edges(node: Node, env: Mapping[Symbol, int]) -> list[Edge] | None:
    """The edges that are read at a point; None where no case holds."""
    if node.op != "merge":
        return list(node.operands)
    return next(([case.edge] for case in node.cases if case.condition.evaluate(env)), None)


def leaves_domain(known: RunSizes, edge: Edge, env: Mapping[Symbol, int]) -> bool:
    for index, size in zip(edge.map, known.shape(known.graph.nodes[edge.node].domain)):
        if isinstance(index, Slice):
            start, length = index.start.evaluate(env), index.length.evaluate(env)
            if not (0 <= start <= size and 0 <= start + length <= size and length >= 0):
                return True
        elif not 0 <= index.index.evaluate(env) < size:
            return True
    return False
