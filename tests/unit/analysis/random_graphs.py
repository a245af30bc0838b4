"""Random graphs for the analyses, and what the analyses mean, spelled out point by point."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tempo.analysis.host_order import previous_call
from tempo.analysis.reads import Sizes, edge_reads, reads_of_point
from tempo.analysis.reports import Instance, output_reader
from tempo.sdg.graph import Edge, Graph, Node, Slice
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol

Array = np.ndarray[Any, Any]


def at(**sizes: int) -> dict[Symbol, int]:
    return {Symbol(name, "size"): value for name, value in sizes.items()}


def one_by_one(graph: Graph, sizes: Mapping[Symbol, int]) -> dict[int, Array]:
    """The definition of demand: everything reachable from outputs and sinks, and calls before a call."""
    known = Sizes.of(graph, sizes)
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


def needs_of(known: Sizes, instance: Instance) -> list[Instance]:
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


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 4))
    domains = [draw(st.sampled_from([("t",), ("i", "t"), ("i",)])) for _ in range(count)]
    ops = [draw(st.sampled_from(["merge", "merge", "host_call", "neg"])) for _ in range(count)]

    def read(reader: tuple[str, ...]) -> str:
        target = draw(st.integers(0, count - 1))
        indices = []
        for dim in domains[target]:
            own = [choice for choice in [*INDICES, *SLICES] if dim in reader or choice in {"0", "0 +: {d}.size"}]
            own += ["{d}.size - 1"]
            indices.append(draw(st.sampled_from(own)).format(d=dim))
        return f"%{target}[{', '.join(indices)}]"

    lines = ["dims i: i.size, t: t.size"]
    for id, (op, domain) in enumerate(zip(ops, domains)):
        over = f"%{id}: float32[] over ({', '.join(domain)}) = {op}"
        if op == "merge":
            lines.append(f'{over} {{name: "m{id}", role: "recurrent"}} @{id} "m{id}"')
            for _ in range(draw(st.integers(0, 2))):
                condition = draw(st.sampled_from(CONDITIONS)).format(d=draw(st.sampled_from(domain)))
                lines.append(f"  | {condition} -> {read(domain)}")
            lines.append(f"  | True -> {read(domain)}" if draw(st.booleans()) else "")
        elif op == "host_call":
            ordered = "".join(f"${dim}, " for dim in domain if draw(st.booleans()))
            lines.append(f"{over}({read(domain)}) {{fn: !f, ordered_by: ({ordered})}} @{id}")
        else:
            lines.append(f"{over}({read(domain)}, {read(domain)})")
    for output in range(draw(st.integers(1, 2))):
        lines.append(f'output "o{output}": float32[] over (i, t) = {read(("i", "t"))} as ($i, $t)')
    return parse("\n".join(line for line in lines if line).replace(", )", ",)"))


def has_cycle(graph: Graph, sizes: Mapping[Symbol, int], masks: Mapping[int, Array]) -> bool:
    """By removing instances that need nothing that is left, until none can be removed."""
    known = Sizes.of(graph, sizes)
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
    known, node = Sizes.of(graph, sizes), graph.nodes[instance.node]
    found = needs_of(known, instance)
    previous = previous_call(node, instance.point, known.shape(node.domain)) if node.op == "host_call" else None
    while previous is not None:
        found.append(Instance(node.id, previous))
        previous = previous_call(node, previous, known.shape(node.domain))
    return found


def is_wrong(graph: Graph, sizes: Mapping[Symbol, int]) -> bool:
    """Whether a demanded point reads outside a domain, is covered by no case, or needs itself."""
    known, masks = Sizes.of(graph, sizes), one_by_one(graph, sizes)
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


def leaves_domain(known: Sizes, edge: Edge, env: Mapping[Symbol, int]) -> bool:
    for index, size in zip(edge.map, known.shape(known.graph.nodes[edge.node].domain)):
        if isinstance(index, Slice):
            start, length = index.start.evaluate(env), index.length.evaluate(env)
            if not (0 <= start <= size and 0 <= start + length <= size and length >= 0):
                return True
        elif not 0 <= index.index.evaluate(env) < size:
            return True
    return False
