"""Exact demand and cycles against following single points, on programs in SDG text."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo.analysis import instances
from tempo.analysis.host_order import previous_call
from tempo.analysis.instances import demanded, find_cycle
from tempo.analysis.reads import Sizes, edge_reads, reads_of_point
from tempo.analysis.reports import Instance
from tempo.sdg.graph import Graph
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


def assert_exact(graph: Graph, sizes: Mapping[Symbol, int]) -> dict[int, Array]:
    found, expected = demanded(graph, sizes), one_by_one(graph, sizes)
    for id in graph.nodes:
        np.testing.assert_array_equal(found[id], expected[id], err_msg=f"node {id} of\n{graph}")
    return found


def recurrence(step: str, output: str, first: str = "t == 0") -> Graph:
    """`h` with a first case that reads `x`, and a step that reads `h` through the map `step`."""
    shape = f"[{step.split('+:')[1].strip()}]" if "+:" in step else "[]"
    reduced = "reduce_sum(%1[t]) {axes: (0,)}" if "+:" in step else "neg(%1[t])"
    return parse(f"""
dims t: t.size
%0: float32[] over (t) = input {{name: "x", role: "input"}} @0 "x"
%1: float32{shape} over (t) = neg(%3[{step}])
%2: float32[] over (t) = {reduced}
%3: float32[] over (t) = merge {{name: "h", role: "recurrent"}} @1 "h"
  | {first} -> %0[t]
  | True -> %2[t]
output "h": float32[] = %3[{output}] as ()
""")


STEPS = ["t - 1", "t - 2", "t - 3", "t // 2", "0 +: t", "max(0, t - 4) +: min(t, 4)", "t - 1 - (t - 1) % 3"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("output", ["t.size - 1", "0", "t.size // 2"])
@pytest.mark.parametrize("size", [1, 2, 7, 101])
def test_demand_of_a_recurrence_is_exact(step: str, output: str, size: int) -> None:
    first = "t <= 2" if step in {"t - 2", "t - 3"} else "t == 0"
    assert_exact(recurrence(step, output, first), at(t=size))


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
    text = "\n".join(line for line in lines if line).replace("()}", "()}").replace("ordered_by: ()", "ordered_by: ()")
    return parse(text.replace(", )", ",)"))


def has_cycle(graph: Graph, sizes: Mapping[Symbol, int], masks: Mapping[int, Array]) -> bool:
    """By removing instances that need nothing that is left, until none can be removed."""
    known = Sizes.of(graph, sizes)
    left = {
        Instance(id, tuple(point)): [need for need in needs_of(known, Instance(id, tuple(point)))]
        for id, mask in masks.items()
        for point in np.argwhere(mask).tolist()
    }
    while True:
        free = [instance for instance, needs in left.items() if not any(need in left for need in needs)]
        if not free:
            return bool(left)
        for instance in free:
            del left[instance]


@settings(deadline=None, max_examples=300)
@given(graphs(), st.integers(1, 4), st.integers(1, 6), st.sampled_from([0, 1, 24]), st.sampled_from([2, 32]))
def test_random_graphs(graph: Graph, i: int, t: int, rounds: int, wide: int) -> None:
    sizes = at(i=i, t=t)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instances, "ROUNDS", rounds)
        patch.setattr(instances, "WIDE", wide)
        masks = assert_exact(graph, sizes)
    cycle = find_cycle(graph, sizes)
    assert (cycle is not None) == has_cycle(graph, sizes, masks)
    for current, following in zip(cycle or (), (cycle or ())[1:] + (cycle or ())[:1]):
        assert masks[current.node][current.point]
        assert following in transitive_calls(graph, sizes, current)


def transitive_calls(graph: Graph, sizes: Mapping[Symbol, int], instance: Instance) -> list[Instance]:
    """What an instance needs, with every call before it and not only the last."""
    known, node = Sizes.of(graph, sizes), graph.nodes[instance.node]
    found = needs_of(known, instance)
    previous = previous_call(node, instance.point, known.shape(node.domain)) if node.op == "host_call" else None
    while previous is not None:
        found.append(Instance(node.id, previous))
        previous = previous_call(node, previous, known.shape(node.domain))
    return found
