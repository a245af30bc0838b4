"""From graph, schedule tree and storage to LoopIR. Everything is decided before; this only writes it down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from tempo.loop_ir.ir import (
    Axis,
    Block,
    Branch,
    Buffer,
    CallHost,
    CallSegment,
    Guard,
    LastValue,
    Loop,
    LoopProgram,
    Offsets,
    Segment,
    Statement,
    Stop,
)
from tempo.lowering.construct.statements import RunLowering
from tempo.lowering.construct.stopping import Stops
from tempo.lowering.scheduling.clusters import Cluster, Clustered, Value, intervals
from tempo.lowering.scheduling.places import Apart, Fragment, Place, has_host, is_outside, parts, top_items
from tempo.lowering.storage.assignment import Storage
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence, runs
from tempo.sdg.graph import Edge, IndexMap, Node, Output, Point, Port, Slice
from tempo.symbolic import FALSE, TRUE, Condition, Dim, Expr, Symbol, conjunction, const, var


@dataclass
class Buffers:
    """All buffers of a program, and what is kept where."""

    found: dict[int, Buffer] = field(default_factory=dict)
    of_value: dict[Value, Buffer] = field(default_factory=dict)
    registers: list[Buffer] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    inputs: dict[Port, int] = field(default_factory=dict)
    outputs: dict[Port, int] = field(default_factory=dict)
    written_outputs: dict[Value, list[Buffer]] = field(default_factory=dict)

    def add(self, **fields: Any) -> Buffer:
        buffer = Buffer(id=len(self.found), **fields)
        self.found[buffer.id] = buffer
        return buffer


def build(
    program: Clustered,
    tree: ScheduleTree,
    places: Mapping[str, tuple[Place, ...]],
    storage: Mapping[Value, Storage],
    tables: Mapping[str, int],
    checks: bool,
    apart: Apart = (),
) -> LoopProgram:
    """`places`: of the tree. `tables`: by the name of a cluster, the node whose demanded points guard it. `checks`:
    gathers are checked. `apart`: loops of the tree that are segments of their own.
    """
    return _Builder(program, places, storage, tables, checks, apart).build(tree)


def make_buffers(program: Clustered, storage: Mapping[Value, Storage]) -> Buffers:
    """Those of a program's values, of what it is given, and of its outputs."""
    buffers, graph = Buffers(), program.graph
    for id in sorted(graph.reachable()):
        if graph.nodes[id].is_given and graph.nodes[id].attr("role") != "last":
            _add_given(program, graph.nodes[id], buffers)
    shared = _stored_in_output(program, storage)
    for output in graph.outputs:
        buffer = _add_output(program, output, buffers)
        value = output.edge.node, output.edge.result
        if shared.get(value) is output:
            buffers.of_value[value] = buffer
        else:
            buffers.written_outputs.setdefault(value, []).append(buffer)
    for value, decided in storage.items():
        if not decided.moved and value not in buffers.of_value:
            _add_value(program, value, decided, buffers)
    return buffers


def _add_given(program: Clustered, node: Node, buffers: Buffers) -> None:
    axes = _full_axes(program, node.domain)
    role = "input" if node.is_input else "constant"
    layout = node.attr("layout", (*node.domain, *range(len(node.shape))))
    name = node.attr("name", "") or node.name or role
    buffer = buffers.add(
        name=name, dtype=node.dtype, axes=axes, shape=node.shape, role=role, layout=layout, location=node.location
    )
    buffers.of_value[node.id, 0] = buffer
    if node.is_constant:
        buffers.constants[buffer.id] = node.attr("value")
    else:
        buffers.inputs[node.port] = buffer.id


def _add_output(program: Clustered, output: Output, buffers: Buffers) -> Buffer:
    axes = tuple(axis for axis in _full_axes(program, output.domain) if axis.dim in output.layout)
    type = output.type
    buffer = buffers.add(
        name=output.name,
        dtype=type.dtype,
        axes=axes,
        shape=type.shape,
        role="output",
        layout=output.layout,
        location=output.location,
    )
    buffers.outputs[output.port] = buffer.id
    return buffer


def _add_value(program: Clustered, value: Value, decided: Storage, buffers: Buffers) -> None:
    node = program.graph.nodes[value[0]]
    type = node.results[value[1]]
    name = node.name or f"{node.op}_{node.id}"
    if decided.register:
        buffers.registers.append(Buffer(-1, name, type.dtype, (), type.shape, location=node.location))
        return
    buffers.of_value[value] = buffers.add(
        name=name,
        dtype=type.dtype,
        axes=decided.axes,
        shape=type.shape,
        local=decided.local,
        location=node.location,
    )


def _full_axes(program: Clustered, domain: tuple[Symbol, ...]) -> tuple[Axis, ...]:
    return tuple(Axis(dim, at, "full", program.extent(dim)) for at, dim in enumerate(domain))


def _stored_in_output(program: Clustered, storage: Mapping[Value, Storage]) -> dict[Value, Output]:
    """A tensor that is kept in full and is an output lives in the output's own buffer."""
    found: dict[Value, Output] = {}
    for output in program.graph.outputs:
        value = output.edge.node, output.edge.result
        decided, node = storage.get(value), program.graph.nodes[output.edge.node]
        if decided is not None and decided.axes and decided.is_full(node) and not output.last_along:
            found.setdefault(value, output)
    return found


class _Builder:
    def __init__(
        self,
        program: Clustered,
        places: Mapping[str, tuple[Place, ...]],
        storage: Mapping[Value, Storage],
        tables: Mapping[str, int],
        checks: bool,
        apart: Apart,
    ) -> None:
        self.apart = apart
        self.places = tuple(chain.from_iterable(places.values()))
        self.program, self.buffers = program, make_buffers(program, storage)
        self.clusters: dict[str, Cluster] = {cluster.name: cluster for cluster in program.clusters}
        self.hosts = frozenset(cluster.name for cluster in program.clusters if cluster.host)
        self.tables = {name: index for index, name in enumerate(tables)}
        self.table_nodes = dict(enumerate(tables.values()))
        self.stops = Stops.of(program, places)
        made = self.buffers
        self.lowering = RunLowering(program, made.of_value, made.written_outputs, storage, checks, self.lasts())
        self.segments: list[Segment] = []
        self.functions: list[Node] = []
        self.offsets: dict[int, Offsets] = {}

    def build(self, tree: ScheduleTree) -> LoopProgram:
        items = self.top(top_items(tree))
        buffers = self.buffers
        states = {output.port: found for output in self.states() if (found := self.last_value(output))}
        return LoopProgram(
            tuple(item for item, _ in items),
            tuple(self.segments),
            buffers.found,
            tuple(self.functions),
            buffers.constants,
            buffers.inputs,
            buffers.outputs,
            self.table_nodes,
            tuple(buffers.registers),
            tuple(stopped for _, stopped in items),
            states,
            self.offsets,
        )

    # -- the driver ------------------------------------------------------------------------------------------------

    def top(self, items: tuple[ScheduleTree, ...]) -> list[tuple[Statement, int | None]]:
        """The items of the driver, each with the buffer of the stop after which it is left out."""
        found: list[tuple[Statement, int | None]] = []
        for number, part in enumerate(parts(items, self.hosts, True, self.apart)):
            stop = self.stops.ends(number, self.places)
            made = self.lower(part.items[0], self.host_block) if part.host else (self.segment(part, top=True),)
            loop = part.items[0] if len(part.items) == 1 else None
            calls = loop is not None and has_host(loop, self.hosts)
            if isinstance(loop, For) and (calls or not part.host):  # what calls nobody leaves nothing to be salvaged
                self.offsets[len(found)] = self.offsets_in(loop)
            found.extend((item, None if stop is None else self.stop_buffer(stop)) for item in made)
        return found

    def stop_buffer(self, stop: Output) -> int:
        return self.buffers.outputs[stop.port]

    def host_block(self, items: tuple[ScheduleTree, ...]) -> Block:
        found: list[Statement] = []
        for part in parts(items, self.hosts, False, self.apart):
            made = self.lower(part.items[0], self.host_block) if part.host else (self.segment(part, top=False),)
            found.extend(made)
        return tuple(found)

    def call_host(self, run: Run) -> CallHost:
        cluster = self.clusters[run.statement]
        node = self.program.graph.nodes[cluster.nodes[0]]
        self.functions.append(node)
        here = dict(zip(cluster.domain, run.point, strict=True))
        reads = tuple(
            self.lowering.read_edge(f"x{number}", edge, here, cluster) for number, edge in enumerate(node.operands)
        )
        trims = node.attr("trims") or tuple(
            (None,) * len(self.program.graph.seen_type(edge).shape) for edge in node.operands
        )
        trimmed = tuple(
            tuple(None if length is None else length.substitute(here) for length in operand) for operand in trims
        )
        writes = (self.lowering.writes((node.id, at), f"y{at}", here) for at in range(len(node.results)))
        return CallHost(len(self.functions) - 1, run.point, reads, trimmed, tuple(chain.from_iterable(writes)))

    def lasts(self) -> dict[int, Buffer]:
        """The inputs that are what a loop has at its last point, each with the buffer of that."""
        nodes = self.program.graph.nodes
        asked = (nodes[id] for id in sorted(self.program.graph.reachable()) if nodes[id].is_input)
        outputs = self.buffers.outputs
        return {each.id: self.buffers.found[outputs[each.port]] for each in asked if each.port.role == "last"}

    # -- where a run stands when a call fails ----------------------------------------------------------------------

    def states(self) -> list[Output]:
        """The states that are copied at the end from where the run has them."""
        nodes = self.program.graph.nodes
        states = (each for each in self.program.graph.outputs if each.role == "state" and not each.last_along)
        return [each for each in states if nodes[each.edge.node].op in ("copy", "reshape")]

    def last_value(self, state: Output) -> LastValue | None:
        """The read of its copy, of all points of other dims at once; None where the value is a part of a buffer."""
        graph = self.program.graph
        copy = graph.nodes[state.edge.node]
        edge, cluster = copy.operands[0], self.program.cluster_of()[copy.id]
        value = edge.node, edge.result
        if value not in self.buffers.of_value or value in self.lowering.homes:
            return None
        domain = [graph.dim(symbol) for symbol in graph.nodes[edge.node].domain]
        others = [Point(var(dim)) for dim in copy.domain]
        ends = {dim.symbol: at for dim, index in zip(domain, edge.map) if (at := _from_the_end(dim, index)) is not None}
        map = tuple(
            Slice(const(0), dim.size) if index in others else Point(ends[dim.symbol]) if dim.symbol in ends else index
            for dim, index in zip(domain, edge.map)
        )
        seen = [dim for index in edge.map for dim in copy.domain if index == Point(var(dim))]
        if sorted(seen) != sorted(copy.domain) or len(state.layout) != len(seen) + len(copy.shape):
            return None
        if not Edge(edge.node, map).dims() <= ends.keys():
            return None
        labels = [*seen, *range(len(copy.shape))]
        sizes = (graph.dim(dim).size for dim in seen)
        read = self.lowering.read_edge("x0", replace(edge, map=map), {}, cluster)
        order = tuple(labels.index(label) for label in state.layout)
        dims = tuple(dim for dim in domain if dim.symbol in ends)
        return LastValue(read, (*sizes, *copy.shape), order, dims, self.made(edge.node, map))

    def made(self, id: int, index: IndexMap) -> Condition:
        """Whether what an index reads of a node is made."""
        demand = self.program.demands.get(id)
        if demand is None or self.program.graph.nodes[id].is_given:
            return TRUE
        if not demand.exact and self.program.cluster_of()[id].name in self.tables:
            return FALSE
        reads = zip(demand.box.bounds, intervals(Edge(id, index)))
        return conjunction(lo.le(read.lo) & hi.gt(read.hi) for (_, lo, hi), read in reads)

    def offsets_in(self, loop: For) -> Offsets:
        """Of the buffers whose points along the loop's dim are made in it, each a number after its own iteration."""
        found: dict[int, tuple[int, int]] = {}
        unknown: set[int] = set()
        for run in runs(loop):
            domain = self.clusters[run.statement].domain
            rest = run.point[domain.index(loop.var)] - var(loop.var) if loop.var in domain else var(loop.var)
            for id, more in self.written_by(self.clusters[run.statement], loop.var):
                if not rest.is_const or loop.direction != "forward":
                    unknown.add(id)
                    continue
                at = rest.as_int() + more
                lo, hi = found.get(id, (at, at))
                found[id] = min(lo, at), max(hi, at)
        return {id: each for id, each in found.items() if id not in unknown}

    def written_by(self, cluster: Cluster, dim: Symbol) -> Iterator[tuple[int, int]]:
        """The buffers, and how many points further along the dim than the cluster's own point."""
        nodes = map(self.program.graph.nodes.__getitem__, cluster.nodes)
        for value in ((node.id, at) for node in nodes for at in range(len(node.results))):
            if value in self.buffers.of_value:
                yield self.buffers.of_value[value].id, 0
            yield from ((buffer.id, 0) for buffer in self.buffers.written_outputs.get(value, ()))
            if (home := self.lowering.homes.get(value)) is not None:
                owner = self.program.graph.nodes[home.owner].domain
                more = home.index[owner.index(dim)] - var(dim) if dim in owner else const(0)
                if more.is_const:
                    yield self.buffers.of_value[home.owner, 0].id, more.as_int()

    # -- segments --------------------------------------------------------------------------------------------------

    def segment(self, part: Fragment, top: bool) -> CallSegment:
        """At the top a loop alone is run in chunks; elsewhere nobody gives it a start and a stop."""
        body = self.pure_block(part.items)
        segment = Segment.of(len(self.segments), body, is_loop=top and len(body) == 1 and isinstance(body[0], Loop))
        self.segments.append(segment)
        return CallSegment(segment.id)

    def pure_block(self, items: tuple[ScheduleTree, ...]) -> Block:
        return tuple(statement for item in items for statement in self.lower(item, self.pure_block))

    def lower(self, item: ScheduleTree, block: Callable[[tuple[ScheduleTree, ...]], Block]) -> Block:
        """One item; `block` lowers what is inside of it."""
        match item:
            case Run(statement, point):
                cluster = self.clusters[statement]
                made = (self.call_host(item),) if cluster.host else self.lowering.run(cluster, point)
                return (Guard(self.tables[statement], point, made),) if statement in self.tables else made
            case For(var, lo, hi, direction):
                return (Loop(var, lo, hi, direction, self.loop_body(item, block)),)
            case If(condition, body):
                return (Branch(condition, block(top_items(body))),)
            case Sequence(items):
                return block(items)

    def loop_body(self, loop: For, block: Callable[[tuple[ScheduleTree, ...]], Block]) -> Block:
        """It is left where the stop is known; at its end where the run may go on, and in the driver: a segment ends
        where the loop is left."""
        items, stop = top_items(loop.body), self.stops.leaves(loop)
        if stop is None:
            return block(items)
        at_end = stop.resumes or is_outside(loop, self.hosts, self.apart)
        at = len(items) if at_end else self.stops.known(loop)
        return (*block(items[:at]), Stop(self.stop_buffer(stop)), *block(items[at:]))


def _from_the_end(dim: Dim, index: Point | Slice) -> Expr | None:
    """An index that is counted from the end, as one that is counted from the point."""
    if not isinstance(index, Point):
        return None
    behind = index.index - (dim.size - 1)
    return var(dim.symbol) + behind if behind.is_const else None
