"""A recurrence that only indices order, as a loop over tiles: points that wait for none of their own tile.

    order[tile, lane]       which point it is; behind the last of a tile it is that again
    position[n]             where n is: tile * lanes + lane
    at[tile, lane]          for each indirect read, the positions of what is read

    h'[tile, lane] = f(x[order], rows(h'[0:tile, 0:lanes])[at])         h[n] = rows(h'[0:tiles, 0:lanes])[position]

The points that read no others fill the first tiles. All is said in the language of graphs, before
gradients are expanded: so these go over the same tiles backwards, and no scheduler or backend knows of it. The arrays
are inputs, which an inspector makes (`tempo.runtime.dynamic.inspector`).

Of points of rows, `row[tile, lane]` says in which, and `order` which of it; `at` where the one before is, or behind.
What the recurrence reads of a point, and what is computed for it alone before, has a dim of tiles of its own, `all`: no
loop is over that, so a projection of all inputs is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tempo.analysis.asked import unbounded_reads
from tempo.analysis.reports import tensor_name
from tempo.analysis.rows import Mask, Rows, Shown, exists, selected, with_losses
from tempo.errors import UnsupportedError
from tempo.passes.wavefront.components import Wavefront
from tempo.sdg.builder import fresh_dim
from tempo.sdg.components import reached
from tempo.sdg.graph import Case, Edge, Graph, Node, Output, Point, Port, Slice
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import FALSE, Condition, Context, Dim, Expr, Symbol, const, var

LANES = 16
"""Points of a tile."""


@dataclass(frozen=True)
class Tiled:
    """A graph with a recurrence in tiles. The sizes of the dims `counts` are the numbers of tiles without indirect
    reads, and with; `lane` is the dim of the points of a tile. What an inspector gives are inputs. `ahead`: the nodes
    of the recurrence that are computed for all tiles at once."""

    graph: Graph
    counts: tuple[Symbol, Symbol]
    lane: Dim
    order: Port
    position: Port
    reads: tuple[Port, ...]
    ahead: frozenset[int]
    row: Port | None = None


def tiled(graph: Graph, wave: Wavefront, lanes: int = LANES, unbounded: Collection[int] = ()) -> Tiled:
    """Raises `UnsupportedError` where points are asked for that are not made at every point, and for rows that are made
    of nodes that are `unbounded`, that is, may have no finite gradient where there is no point."""
    taken = {dim.symbol.name for dim in graph.dims}
    names = [fresh_dim(f"{wave.dim.symbol.name}_{each}", taken) for each in ("base", "more", "all", "tile", "lane")]
    base, more = (Dim(symbol, var(symbol.of_kind("size"))) for symbol in names[:2])
    all, tile = (Dim(symbol, base.size + more.size) for symbol in names[2:4])
    lane, dims = Dim(names[4], const(lanes)), list[Dim]()
    for dim in graph.dims:
        dims += [base, more, all, tile, lane, dim] if dim == wave.dim else [dim]
    return _Tiling(replace(graph, dims=tuple(dims)), wave, base, more, all, tile, lane, unbounded).tiled()


@dataclass(frozen=True)
class _Tiling:
    graph: Graph
    wave: Wavefront
    base: Dim
    more: Dim
    all: Dim
    tile: Dim
    lane: Dim
    unbounded: Collection[int]
    copies: dict[int, int] = field(default_factory=dict)
    wholes: dict[tuple[int, int], Edge] = field(default_factory=dict)
    _given: dict[str, Edge] = field(default_factory=dict)

    @cached_property
    def rewriter(self) -> Rewriter:
        return Rewriter(self.graph)

    @property
    def symbol(self) -> Symbol:
        return self.wave.dim.symbol

    @cached_property
    def lanes(self) -> tuple[Symbol, Symbol]:
        return self.tile.symbol, self.lane.symbol

    @cached_property
    def ahead(self) -> frozenset[int]:
        """The nodes that nothing of the recurrence makes, which are computed of points for it; what is so of the few
        that read no others stays with their tiles."""
        merges = [id for id in self.wave.nodes if self.graph.nodes[id].is_merge]
        readers = {id: [reader for reader, _ in self.graph.consumers[id]] for id in self.graph.nodes}
        made: set[int] = reached(merges, readers.__getitem__)
        few = {id for id, points in self.wave.nodes.items() if points == self.wave.others}
        return frozenset(self.wave.nodes.keys() - made - few)

    @cached_property
    def shown(self) -> list[Shown]:
        """What the program shows of rows, where lengths are given."""
        graph = with_losses(self.graph)
        return [Shown(graph, end) for end in self.graph.ragged.values()]

    def check_bounded(self) -> None:
        """Raises where lanes of points that nobody asks for may have no finite gradients: 0 times that is no 0."""
        if not self.wave.rows or all(node.op != "gradient" for node in self.graph.nodes.values()):
            return
        for node in map(self.graph.nodes.__getitem__, self.wave.nodes):
            is_cut = node.id in self.cut and bool(unbounded_reads(node))
            if is_cut or not {node.id, *self.graph.producers(node.id)}.isdisjoint(self.unbounded):
                raise UnsupportedError(f"{tensor_name(node)} may not be finite where a row has no point")

    @cached_property
    def cut(self) -> set[int]:
        """The nodes that are asked for behind the first points of rows, some lanes of which have no numbers of their
        own: what they are made of is read behind these points alone."""
        wave, consumers = self.wave, self.graph.consumers
        by_tile = ((const(0), wave.dim.size), wave.reading, wave.others)  # every lane of a tile, or none
        late = {id for id, points in wave.nodes.items() if points not in by_tile and points[0] != const(0)}
        reads = ((id, edge) for id in late for _, edge in self.graph.nodes[id].reads())
        first = {id for id, edge in reads if edge.node not in wave.nodes and edge.dims() & {*wave.symbols}}
        return reached(first, lambda id: [reader for reader, _ in consumers[id] if reader in late])

    def tiles(self, node: int) -> Symbol:
        """The dim of tiles of a node of the recurrence."""
        return self.all.symbol if node in self.ahead else self.tile.symbol

    def tiled(self) -> Tiled:
        self.check_bounded()
        graph, name, nodes = self.graph, self.tile.symbol.name, self.rewriter.nodes
        merges = [graph.nodes[id] for id in sorted(self.wave.nodes) if graph.nodes[id].is_merge]
        for merge in merges:
            self.copies[merge.id] = self.rewriter.declare(replace(merge, domain=self.over(merge), cases=())).node
        reads = {read.node: f"{name} read {number}" for number, read in enumerate(self.wave.reads)}
        steps = [f"{name} step"] if self.wave.rows else []
        for node in graph.operands_first():
            if node.id in self.wave.nodes and not node.is_merge:
                self.copies[node.id] = self.copied(node, reads.get(node.id)).node
        for merge in merges:
            cases = tuple(case for each in merge.cases for case in self.case(merge, each))
            nodes[self.copies[merge.id]] = replace(nodes[self.copies[merge.id]], cases=cases)
        for id, node in graph.nodes.items():
            if id not in self.wave.nodes:
                nodes[id] = self.outside(node)
        outputs = tuple(map(self.output, graph.outputs))
        kept = {id: node for id, node in nodes.items() if id not in self.wave.nodes}
        ports = (Port("input", each) for each in (f"{name} order", f"{name} position", *reads.values(), *steps))
        order, position, *others = ports
        row = Port("input", f"{name} row") if self.wave.rows else None
        made = replace(graph, nodes=kept, outputs=outputs)
        counts = self.base.symbol, self.more.symbol
        return Tiled(made, counts, self.lane, order, position, tuple(others), self.ahead, row)

    # -- what an inspector gives -------------------------------------------------------------------------------------

    def given(self, name: str, domain: tuple[Symbol, ...], shape: tuple[Expr, ...] = ()) -> Edge:
        found = self._given.get(name)
        if found is None:
            found = self._given[name] = self.rewriter.given(name, domain, shape)
        return found

    def of_lanes(self, name: str, node: Node) -> Edge:
        """What is given for each lane, as a node of the recurrence reads it."""
        found = self.given(f"{self.tile.symbol.name} {name}", self.lanes)
        return replace(found, map=(Point(var(self.tiles(node.id))), Point(var(self.lane.symbol))))

    # -- the recurrence ----------------------------------------------------------------------------------------------

    def over(self, node: Node) -> tuple[Symbol, ...]:
        """Its domain in tiles."""
        return self.graph.canonical({*node.domain, self.tiles(node.id), self.lane.symbol} - {*self.wave.symbols})

    def copied(self, node: Node, read: str | None) -> Edge:
        tensors = Tensors(self.rewriter, node.location)
        if read is not None:
            data, index = node.operands
            at = self.given(read, self.lanes, self.graph.seen_type(index).shape)
            before = Slice(const(0), var(self.tile.symbol))
            return tensors.gather(self.rows(tensors, data, before), at, 0)
        operands = (self.read(node, edge, self.wave.nodes[node.id]) for edge in node.operands)
        return tensors.apply(node.op, *operands, **node.attributes)

    def rows(self, tensors: Tensors, edge: Edge, tiles: Slice) -> Edge:
        """All points of some tiles of what `edge` reads, as rows."""
        moved = {self.tiles(edge.node): tiles, self.lane.symbol: Slice(const(0), self.lane.size)}
        seen = self.moved(edge, moved)
        shape = tensors.shape(seen)
        return tensors.reshape(seen, (tiles.length * self.lane.size, *shape[2:]))

    def moved(self, edge: Edge, within: Mapping[Symbol, Point | Slice]) -> Edge:
        """The read of a node of the cycle as one of its copy."""
        old = dict(zip(self.graph.nodes[edge.node].domain, edge.map, strict=True))
        copy = self.rewriter.nodes[self.copies[edge.node]]
        return replace(edge, node=copy.id, map=tuple(within.get(each) or old[each] for each in copy.domain))

    def case(self, merge: Node, case: Case) -> list[Case]:
        """The case in tiles: of each of its two parts that it holds in."""
        wave, tile, n = self.wave, var(self.tile.symbol), var(self.symbol)
        inside = []
        for low, high in (wave.others, wave.reading):
            context = Context.of(self.graph.dims, n.ge(low), n.lt(high))
            inside.append(context.simplify_condition(case.condition))
        if any(condition.dims() & {*wave.symbols} for condition in inside):
            raise UnsupportedError(f"{merge.name} has other cases than those of the points that read others")
        others, reading = inside
        where: Condition = others
        if others != reading:
            where = (tile.lt(self.base.size) & others) | (tile.ge(self.base.size) & reading)
        if where == FALSE:
            return []
        points = wave.reading if others == FALSE else wave.others if reading == FALSE else wave.nodes[merge.id]
        return [replace(case, condition=where, edge=self.read(merge, case.edge, points))]

    def read(self, node: Node, edge: Edge, points: tuple[Expr, Expr]) -> Edge:
        """What a node of the cycle reads at its own point, one of `points`, in tiles."""
        tile = Point(var(self.tiles(node.id)))
        here = {self.all.symbol: tile, self.tile.symbol: tile, self.lane.symbol: Point(var(self.lane.symbol))}
        tensors = Tensors(self.rewriter, node.location)
        if edge.node in self.wave.nodes:
            if not self.wave.rows or self.is_own(edge):
                return self.moved(edge, here)
            at = self.given(f"{self.tile.symbol.name} step", self.lanes)
            return tensors.gather(self.rows(tensors, edge, Slice(const(0), var(self.tile.symbol))), at, 0)
        if not edge.dims() & {*self.wave.symbols}:
            return edge
        if any(size.dims() for size in tensors.shape(edge)):
            raise UnsupportedError("shapes of what is read vary along the dim")
        if any(shown.read(edge) for shown in self.shown):  # which end where that of the point's row is
            raise UnsupportedError(f"{tensor_name(self.graph.nodes[edge.node])} is read at several points of a row")
        if not self.graph.is_identity(edge):
            edge = tensors.apply("copy", edge)
        domain = self.rewriter.nodes[edge.node].domain
        low, high = points
        parts = {row: Slice(const(0), self.graph.dim(row).size) for row in self.wave.rows}
        parts[self.symbol] = Slice(low, high - low)
        map = tuple(parts.get(symbol, index) for symbol, index in zip(domain, edge.map, strict=True))
        order = self.of_lanes("order", node)
        order = order if low == const(0) else tensors.apply("sub", order, tensors.number(low))
        places = {row: self.of_lanes("row", node) for row in self.wave.rows}
        indices = [{**places, self.symbol: order}[symbol] for symbol in domain if symbol in parts]
        if len(indices) == 1:
            return tensors.gather(replace(edge, map=map), indices[0], 0)
        attrs = {"axis": 0, "count": len(indices), "batch": 0, "checked": False, "in_row": True}
        data = replace(edge, map=map)
        if points == self.wave.others or low != const(0):  # there may be no such point, and any lane has numbers
            end, shown = (
                self.graph.ragged[self.symbol],
                Rows(tuple(parts[symbol] for symbol in self.wave.symbols), (0, 1)),
            )
            data = selected(tensors, exists(end, tensors, shown), data, Mask(shown, 0), in_row=True)
        return tensors.apply("gather_pairs", data, *indices, **attrs)

    def is_own(self, edge: Edge) -> bool:
        """Whether it is read at the reader's point."""
        shown = dict(zip(self.graph.nodes[edge.node].domain, edge.map))
        return all(shown[symbol] == Point(var(symbol)) for symbol in self.wave.symbols)

    # -- around it ---------------------------------------------------------------------------------------------------

    def outside(self, node: Node) -> Node:
        """With reads of the recurrence as reads of all of its points in their own order."""
        if node.op == "gradient":
            loss, (wrt, _) = node.attr("loss"), node.attr("wrt")
            if wrt in self.wave.nodes:
                raise UnsupportedError("a gradient with respect to its points is asked for")
            return node.with_attrs(loss=self.whole(loss))
        if node.op == "custom_gradient":
            edges = (edge for edge in node.attr("gradients") if edge is not None)
            if any(edge.node in self.wave.nodes for edge in edges):
                raise UnsupportedError("a gradient of one's own reads its points")
        return node.reading(self.whole)

    def output(self, output: Output) -> Output:
        return replace(output, edge=self.whole(output.edge))

    def whole(self, edge: Edge) -> Edge:
        if edge.node not in self.wave.nodes:
            return edge
        key = edge.node, edge.result
        if key not in self.wholes:
            node, points = self.graph.nodes[edge.node], self.wave.nodes[edge.node]
            tensors = Tensors(self.rewriter, node.location)
            if points != (const(0), self.wave.dim.size):  # a loss may read more than is asked for
                raise UnsupportedError("some of its points are read")
            place = self.given(f"{self.tile.symbol.name} position", self.wave.symbols)
            own = Edge(node.id, tuple(Point(var(each)) for each in node.domain), edge.result)
            rows = self.rows(tensors, own, Slice(const(0), self.tile.size))
            self.wholes[key] = tensors.gather(rows, place, 0)
        made = self.wholes[key]
        domain = self.rewriter.nodes[made.node].domain
        old = dict(zip(self.graph.nodes[edge.node].domain, edge.map, strict=True))
        return replace(made, map=tuple(old[symbol] for symbol in domain))
