"""The transpose of a read: from the cotangent of what a consumer sees to contributions to what it reads from.

    contribution(q) = sum over p with q in e(p) of cotangent(p)[q - start(p)]

The sum is over ranges of consumers (`tempo.autodiff.preimage`), read as slices. Where the cotangent is a contraction,
the sum joins it: `sum over t of outer(x[t], g[t])` is one contraction of x and g, and no outer product is kept. So it
does where rows are added to zeros: a table that is looked up at every t gets all rows at once, not a table for each t.
A consumer adds to no rows but those that it sees. So where rows are points, `h[child[n]]` of `h[0:n]`, what q gets is a
row of the sum over all consumers:

    contribution(q) = scatter_add(zeros, child[:], cotangent[:])[q]
                    = s[q + 1][q]    with s[n] = scatter_add(s[n + 1], child[n], cotangent[n])

The second where consumers wait for what their producers get, as in a recurrence; s is one array, which is added to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tempo.autodiff.nodes import Guarded, Nodes
from tempo.autodiff.preimage import GuardedBox, Preimage, ReadRange, parts, preimages, primed
from tempo.errors import UnsupportedError
from tempo.sdg.graph import Edge, IndexMap, Node, Point, Slice, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.axes import HALF, Attrs
from tempo.sdg.operators.making import INDEX_DTYPE
from tempo.symbolic import TRUE, Condition, Context, Dim, Expr, Max, Min, Symbol, conjunction, const, maximum, var

Positions = dict[int, Expr]
"""For axes of what the consumer sees that are slices: the position on them, over q and primed dims of p."""

Order = tuple[tuple[int, ...], ...]
"""For each axis of an operator, the axes of the cotangent that it is."""


@dataclass(frozen=True)
class Begun:
    """The rows that a running sum begins with, a merge that whoever knows the other contributions defines: q gets its
    row with them, where `condition` holds. `order` says which axes of the producer, those of its points first, each
    axis of the merge is; `map` is the read's."""

    merge: int
    condition: Condition
    map: IndexMap
    order: Order

    def rows(self, producer: GuardedBox) -> list[Dim]:
        """The dims whose points are rows."""
        return [dim for dim, index in zip(producer.dims, self.map, strict=True) if isinstance(index, Slice)]

    def define(self, nodes: Nodes, others: Guarded | None, producer: GuardedBox, type: TensorType) -> None:
        """With zeros, or what q gets in other ways."""
        shown = nodes.nodes[self.merge].type
        if others is None:
            nodes.define(self.merge, ((TRUE, nodes.zeros(shown)),))
            return
        dims, edge = self.rows(producer), nodes.total(others, type)
        ones = tuple(dim.size if dim.symbol in edge.dims() else const(1) for dim in dims)
        whole: dict[Symbol, Point | Slice] = {symbol: Point(var(symbol)) for symbol in edge.dims()}
        whole |= {dim.symbol: Slice(const(0), dim.size) for dim in dims}
        seen = nodes.reshape(nodes.through(edge, whole), (*ones, *type.shape))
        seen = nodes.broadcast(seen, (*(dim.size for dim in dims), *type.shape))
        turned = nodes.transpose(seen, [axis for axes in self.order for axis in axes])
        nodes.define(self.merge, ((TRUE, nodes.reshape(turned, shown.shape)),))


def contributions(
    nodes: Nodes,
    cotangent: Edge,
    map: IndexMap,
    reader: GuardedBox,
    producer: GuardedBox,
    begun: list[Begun] | None = None,
) -> list[Guarded]:
    """What the producer's adjoint gets from one read through `map`, at points where `reader` says. `begun`: where what
    is read may follow from what reads it, the list that running sums are put on."""
    found = preimages(reader, map, producer)
    transposed = (_Transposed(nodes, map, reader, producer, each, begun, len(found) == 1) for each in found)
    return [(each.preimage.condition, each.of(cotangent)) for each in transposed]


@dataclass(frozen=True)
class _RangeRead:
    """`edge` over q; its first axes are those of `ranges`, then the axes of the original that are left."""

    edge: Edge
    ranges: tuple[ReadRange, ...]


@dataclass(frozen=True)
class _Rows:
    """The points of the producer as `size` rows of one axis, of which nobody reads those from `end` on: a read begins
    with row `start`, and q is row `place`."""

    size: Expr
    end: Expr
    start: Expr
    place: Expr


@dataclass(frozen=True)
class _Transposed:
    nodes: Nodes
    map: IndexMap
    reader: GuardedBox
    producer: GuardedBox
    preimage: Preimage
    begun: list[Begun] | None
    has_all: bool  # of the consumers

    @property
    def is_cyclic(self) -> bool:
        return self.begun is not None

    def of(self, cotangent: Edge) -> Edge:
        positions = self.positions()
        for factor, order in self.joining(cotangent):
            join = self.contracted if self.nodes.nodes[factor.node].op == "dot" else self.scattered
            found = join(factor, positions, order)
            if found is not None:
                left = [axis for axes in order for axis in axes if axis not in positions]
                return self.nodes.transpose(found, [left.index(axis) for axis in sorted(left)])
        return self.summed(self.total(cotangent), positions)

    def sliced(self) -> list[tuple[Dim, Slice]]:
        """Slices come first in what the consumer sees, in the order of the producer's dims."""
        pairs = zip(self.producer.dims, self.map, strict=True)
        return [(dim, index) for dim, index in pairs if isinstance(index, Slice)]

    def positions(self) -> Positions:
        prime = {dim.symbol: var(primed(dim.symbol)) for dim in self.reader.dims}
        starts = (index.start.substitute(prime).substitute(self.preimage.substitution) for _, index in self.sliced())
        return {axis: var(dim.symbol) - start for axis, ((dim, _), start) in enumerate(zip(self.sliced(), starts))}

    def total(self, cotangent: Edge) -> Edge:
        """With zeros where the consumer's own condition does not hold."""
        own = self.preimage.own
        return self.nodes.total((own, cotangent), self.nodes.seen(cotangent))

    # A plain sum.

    def summed(self, cotangent: Edge, positions: Positions) -> Edge:
        nodes, mask = self.nodes, self.preimage.mask
        masked = tuple(each for each in self.preimage.ranges if primed(each.dim) in mask.symbols())
        read = self.read(cotangent, positions, masked)
        edge, ranges = read.edge, read.ranges
        if masked:
            holds = nodes.holds(mask, self.lines(ranges, nodes.rank(edge)))
            edge = nodes.apply("where", holds, edge, nodes.constant(0, nodes.dtype(edge)))
        edge = nodes.sum(edge, range(len(ranges)))
        return self.times_lengths(edge, [each for each in self.preimage.ranges if each not in ranges])

    def lines(self, ranges: Sequence[ReadRange], rank: int) -> dict[Symbol, Edge]:
        """The primed dims of ranges, each along an axis of its own, the first of `rank`."""
        found = {}
        for place, each in enumerate(ranges):
            line = self.nodes.positions(each.start, each.length)
            found[primed(each.dim)] = self.nodes.reshape(line, (each.length, *(const(1),) * (rank - place - 1)))
        return found

    def times_lengths(self, edge: Edge, ranges: Sequence[ReadRange]) -> Edge:
        """As often as there are consumers along dims in which the cotangent does not vary; where there are none, it is
        not made: 0 times what is not finite is no 0."""
        nodes, here = self.nodes, self.producer_context()
        for each in ranges:
            some = each.length.ge(1)
            if not here.implies(some):
                edge = nodes.total((some, edge), nodes.seen(edge))
            number = nodes.cast(nodes.number(each.length), nodes.dtype(edge))
            edge = nodes.apply("mul", edge, number)
        return edge

    # Reading one factor over the ranges.

    def read(self, edge: Edge, positions: Positions, wanted: Sequence[ReadRange] = ()) -> _RangeRead:
        """The factor over q: along the ranges in which it varies and those `wanted`, at its positions."""
        nodes = self.nodes
        moving = {symbol for at in positions.values() for symbol in at.symbols()}
        ranges = tuple(
            each
            for each in self.preimage.ranges
            if each.dim in edge.dims() or each in wanted or primed(each.dim) in moving
        )
        varying = tuple(each for each in ranges if each.dim in edge.dims())
        edge = self.evened(edge)
        points: dict[Symbol, Point | Slice] = {symbol: Point(at) for symbol, at in self.preimage.solved.items()}
        slices = {each.dim: Slice(each.start, each.length) for each in varying}
        edge = nodes.through(edge, {**points, **slices})
        edge = self.spread(edge, varying, ranges)
        for axis in sorted(positions, reverse=True):
            edge = self.at(edge, ranges, len(ranges) + axis, positions[axis])
        return _RangeRead(edge, ranges)

    def evened(self, edge: Edge) -> Edge:
        """Axes whose length varies along a range are padded to one length.

        It is a length at sizes at which nobody is read, too: compilers look at the shapes of what is never run.
        """
        for axis in self.ragged(edge):
            size = self.nodes.shape(edge)[axis]
            greatest = self.read_from().range_of(size)[1]
            if greatest is None:
                raise UnsupportedError(f"no bound is known for the extent {size}", location=self.nodes.location)
            length = Context.of(()).simplify(maximum(greatest, 0))
            edge = self.nodes.surrounded(edge, axis, const(0), length - size)
        return edge

    def ragged(self, edge: Edge) -> list[int]:
        """The axes whose length varies along the ranges."""
        dims = {each.dim for each in self.preimage.ranges}
        return [axis for axis, size in enumerate(self.nodes.shape(edge)) if dims & size.dims()]

    def read_from(self) -> Context:
        """What holds at the consumers that are summed over: all that the ranges say, and not `own`, since consumers at
        which that fails are read as well."""
        own = parts(self.preimage.own)
        told = conjunction(part for part in parts(self.reader.condition) if part not in own)
        return GuardedBox(self.reader.dims, self.reader.box, told).context()

    def producer_context(self) -> Context:
        """What holds where the contribution is made. At some sizes there may be no consumer there: ranges are empty."""
        return GuardedBox(self.producer.dims, self.producer.box, self.preimage.condition).context()

    def spread(self, edge: Edge, varying: Sequence[ReadRange], ranges: Sequence[ReadRange]) -> Edge:
        """With an axis for every range, also those along which the factor does not vary."""
        if len(varying) == len(ranges):
            return edge
        nodes, shape = self.nodes, self.nodes.shape(edge)
        rest = shape[len(varying) :]
        ones = tuple(each.length if each in varying else const(1) for each in ranges)
        return nodes.broadcast(nodes.reshape(edge, (*ones, *rest)), (*(each.length for each in ranges), *rest))

    def at(self, edge: Edge, ranges: Sequence[ReadRange], axis: int, position: Expr) -> Edge:
        """One position of an axis; where it moves along ranges, a gather whose batch they are.

        Every consumer in the ranges sees the position, but for those that the mask leaves out, which may see nothing;
        and where the ranges are empty, at some sizes, nobody does. What nobody looks at is gathered all the same, at
        points outside of what the contribution is for, too.
        """
        moving = [each for each in ranges if primed(each.dim) in position.symbols()]
        made_at = Context.of(self.producer.dims) if moving else self.producer_context()
        edge = self.nodes.never_empty(edge, axis, made_at)
        if not moving:
            return self.nodes.at(edge, axis, position)
        nodes, rank = self.nodes, self.nodes.rank(edge)
        front = [ranges.index(each) for each in moving]
        order = (*front, *(place for place in range(rank) if place not in front))
        values = nodes.values(position, self.lines(moving, len(moving)))
        index = nodes.broadcast(values, (each.length for each in moving))
        found = nodes.gather(nodes.transpose(edge, order), index, order.index(axis), batch=len(moving))
        left = [place for place in order if place != axis]
        return nodes.transpose(found, [left.index(place) for place in range(rank) if place != axis])

    # A sum of contractions is a contraction, and a sum of what is scattered is scattered.

    def joining(self, cotangent: Edge) -> list[tuple[Edge, Order]]:
        """The operator that may take the sum in, which the cotangent is up to an order of its axes, and up to rows that
        are added to being several axes; empty where there is none, or nothing is summed."""
        nodes = self.nodes
        if not self.preimage.ranges or self.preimage.mask != TRUE:
            return []
        order: Order = tuple((axis,) for axis in range(nodes.rank(cotangent)))
        edge = cotangent
        while (node := nodes.nodes[edge.node]).op in ("transpose", "reshape") and nodes.is_identity(edge):
            edge = node.operands[0]
            if node.op == "transpose":
                axes = node.attr("axes")
                order = tuple(order[axes.index(place)] for place in range(len(axes)))
                continue
            added, shape = nodes.nodes[edge.node], list(nodes.shape(edge))
            if added.op != "scatter_add":
                return []
            at, end = added.attr("axis"), added.attr("axis") + 1 + len(node.shape) - len(shape)
            shape[at : at + 1] = node.shape[at:end]
            if end <= at or tuple(shape) != node.shape:
                return []
            order = (*order[:at], tuple(axis for axes in order[at:end] for axis in axes), *order[end:])
        may_join = node.op in ("dot", "scatter_add") and nodes.is_identity(edge)
        return [(edge, order)] if may_join else []

    def contracted(self, dot: Edge, seen: Positions, order: Order) -> Edge | None:
        """The sum of `dot` over the ranges, at the positions of its axes; None where it must be summed as it is."""
        node = self.nodes.nodes[dot.node]
        positions = {place: seen[axis] for place, (axis,) in enumerate(order) if axis in seen}
        shapes = [self.nodes.shape(edge) for edge in node.operands]
        factors = OPERATORS[node.op].axes(node.attributes, shapes, node.shape)
        places = [(number, axis, each.result) for each in factors for number, axis in each.places]
        sides = [{axis: to for number, axis, to in places if number == side and to is not None} for side in (0, 1)]
        reads = []
        for edge, axes in zip(node.operands, sides, strict=True):
            mine = {place: positions[axis] for place, axis in axes.items() if axis in positions}
            if not mine.keys() >= set(self.ragged(edge)):
                return None
            reads.append(self.read(self.total(edge), mine))
        common = tuple(each for each in reads[0].ranges if each in reads[1].ranges)
        # Of each, the sum over the ranges that the other factor does not vary in.
        alone = [[place for place, each in enumerate(read.ranges) if each not in common] for read in reads]
        edges = [self.nodes.sum(read.edge, places) for read, places in zip(reads, alone)]
        others = [each for each in self.preimage.ranges if not any(each in read.ranges for read in reads)]
        attrs = {}
        for name, axes, shape in zip(("lhs", "rhs"), sides, shapes):
            left = [place for place in range(len(shape)) if axes.get(place) not in positions]
            for kind in ("contract", "batch"):
                kept = (left.index(place) for place in node.attr(f"{name}_{kind}") if place in left)
                attrs[f"{name}_{kind}"] = tuple(len(common) + place for place in kept)
            attrs[f"{name}_contract"] = (*range(len(common)), *attrs[f"{name}_contract"])
        return self.times_lengths(self.nodes.apply("dot", *edges, **attrs), others)

    def scattered(self, scatter: Edge, positions: Positions, order: Order) -> Edge | None:
        """The sum over the ranges of rows added to zeros: their axes are axes of the indices; else as above."""
        node, ranges = self.nodes.nodes[scatter.node], self.preimage.ranges
        base, *indices, updates = node.operands
        rows = order[node.attr("axis") :][: len(indices)]  # of each axis that is added to at indices
        every = {axis for each in rows for axis in each}
        if positions.keys() - every or not self.nodes.is_zero(base) or any(map(self.ragged, (*indices, updates))):
            return None
        if positions:
            seen = [self.rows([self.sliced()[axis] for axis in each if axis in positions]) for each in rows]
            found = [each for each in seen if each is not None]
            if len(found) < len(rows) or positions.keys() != every:
                return None
            return self.deposited(node, found, order)
        if self.ragged(base) or len(every) > len(rows):
            return None
        return self.added(node.attributes, base, list(map(self.total, indices)), self.total(updates), ranges)

    def rows(self, seen: Sequence[tuple[Dim, Slice]]) -> _Rows | None:
        """The points of some dims, those of all but the first whole, as rows of one axis; None for anything else."""
        if not seen:
            return None
        (dim, index), *inner = seen
        size, start, place = dim.size, index.start, var(dim.symbol)
        end = index.start + index.length
        if end.dims() or not Context.of(()).implies(end.ge(1) & end.le(size)):
            end = size
        for other, whole in inner:
            if not other.size.is_const or (whole.start, whole.length) != (const(0), other.size):
                return None
            size, end, start = size * other.size, end * other.size, start * other.size
            place = place * other.size + var(other.symbol)
        return _Rows(size, end, start, place)

    def added(
        self, attrs: Attrs, base: Edge, indices: Sequence[Edge], updates: Edge, ranges: Sequence[ReadRange]
    ) -> Edge:
        """The rows of all consumers in the ranges, added to zeros at once."""
        varying = tuple(each for each in ranges if any(each.dim in edge.dims() for edge in (*indices, updates)))
        count, whole = len(varying), replace(self, preimage=replace(self.preimage, ranges=tuple(ranges)))
        rows, places = whole.read(updates, {}, varying), [whole.read(edge, {}, varying) for edge in indices]
        # The axes of the ranges come first; they belong behind the batch, where those of the indices begin.
        found = self.nodes.apply(
            "scatter_add",
            whole.read(base, {}).edge,
            *(self.behind(each.edge, count, attrs.get("batch", 0)) for each in places),
            self.behind(rows.edge, count, attrs["axis"]),
            **attrs,
        )
        return self.times_lengths(found, [each for each in ranges if each not in varying])

    def deposited(self, scatter: Node, rows: Sequence[_Rows], order: Order) -> Edge | None:
        """Row q of the sum over all consumers, or over those on one side of q. None where they are on neither, where
        their condition is no box, and where the sum over all would wait for itself."""
        nodes, axis = self.nodes, scatter.attr("axis")
        box, ranges = self.reader.box, self.preimage.ranges
        moving = [each for each in ranges if each.start.dims() or (each.start + each.length).dims()]
        bounds = {each.dim: box.interval(each.dim) for each in ranges}
        if not self.has_all or len(moving) > 1 or any(bound.dims() for pair in bounds.values() for bound in pair):
            return None
        if any(each.start.dims() and (each.start + each.length).dims() for each in moving):
            return None
        if self.is_cyclic and not moving and not self.is_behind():
            return None
        # What a range says of the consumers is not said by one that is wider.
        if not Context.of(self.reader.dims, box=box).implies(self.reader.condition):
            return None
        base, *indices, updates = scatter.operands
        is_running = self.is_cyclic and bool(moving)
        shape, sizes = nodes.shape(base), tuple(each.size if is_running else each.end for each in rows)
        zeros = nodes.zeros(TensorType((*shape[:axis], *sizes, *shape[axis + len(rows) :]), nodes.dtype(base)))
        counted = zip(indices, rows, shape[axis:])
        indices = [self.counted_from_0(index, each.start, size) for index, each, size in counted]
        every = [ReadRange(each, lo, hi - lo) for each, (lo, hi) in bounds.items()]
        if is_running:
            places = [each.place for each in rows]
            begun = self.begins_with(zeros, order)
            return self.running(scatter.attributes, moving[0], every, (begun, *indices, updates), places)
        found = self.added(scatter.attributes, zeros, indices, updates, every)
        for each in rows:
            found = nodes.at(found, axis, each.place)
        return found

    def begins_with(self, zeros: Edge, order: Order) -> Edge:
        """What is not known yet, where q's row of it is seen at the points that see q; else the zeros."""
        points = [(dim, index) for dim, index in zip(self.producer.dims, self.map) if isinstance(index, Point)]
        if self.begun is None or any(index.index != var(dim.symbol) for dim, index in points):
            return zeros
        domain = tuple(dim.symbol for dim, _ in points)
        merge = self.nodes.declare(domain, self.nodes.seen(zeros), "")
        self.begun.append(Begun(merge.id, self.preimage.condition, self.map, order))
        return self.nodes.identity(merge.id)

    def is_behind(self) -> bool:
        """Whether what is read is at another point of some dim than what reads it."""
        pairs = zip(self.producer.dims, self.map, strict=True)
        return any(isinstance(index, Point) and index.index != var(dim.symbol) for dim, index in pairs)

    def counted_from_0(self, indices: Edge, start: Expr, length: Expr) -> Edge:
        """Indices into a slice, clamped to it, as indices into all that it is a slice of."""
        nodes = self.nodes
        inside = nodes.at_most(indices, length - 1)
        if start == const(0):  # what is below it is clamped in any case
            return inside
        inside = nodes.apply("maximum", inside, nodes.constant(0, nodes.dtype(inside)))
        return nodes.add(nodes.cast(inside, INDEX_DTYPE), nodes.number(start))

    def running(
        self,
        attrs: Attrs,
        moving: ReadRange,
        every: Sequence[ReadRange],
        operands: tuple[Edge, ...],
        places: Sequence[Expr],
    ) -> Edge:
        """The row at `places` of the sum over the consumers so far, which begins where all ranges do, or end."""
        nodes, symbol, dtype = self.nodes, moving.dim, self.nodes.dtype(operands[0])
        first_rows, *indices, updates = operands
        rows, updates = (nodes.cast(each, "float32" if dtype in HALF else dtype) for each in (first_rows, updates))
        others = [each for each in every if each.dim != symbol]
        (whole,) = (each for each in every if each.dim == symbol)
        backward = bool(moving.start.dims())
        first, step = (whole.start + whole.length - 1, 1) if backward else (whole.start, -1)
        at = moving.start if backward else moving.start + moving.length - 1
        varying = {symbol, *(each for edge in (rows, *indices, updates) for each in edge.dims())}
        dims, type = varying - {each.dim for each in others}, nodes.seen(rows)
        so_far = nodes.identity(nodes.declare(nodes.graph.canonical(dims), type, "").id)
        before = so_far.substitute({symbol: var(symbol) + step})
        begun = nodes.choice(((var(symbol).eq(first), rows), (TRUE, before)), type)
        here = {dim.symbol: var(dim.symbol) for dim in self.reader.dims if dim.symbol in dims}
        own = replace(self, preimage=replace(self.preimage, solved=here))
        nodes.define(so_far.node, ((TRUE, own.added(attrs, begun, indices, updates, others)),))
        row = self.taken(so_far, attrs["axis"], symbol, at, places)
        row, some = nodes.cast(row, dtype), moving.length.ge(1)
        if self.producer_context().implies(some):
            return row
        alone = first_rows
        for place in places:
            alone = nodes.at(alone, attrs["axis"], place)
        return nodes.choice(((some, row), (TRUE, alone)), nodes.seen(row))

    def taken(self, so_far: Edge, axis: int, symbol: Symbol, at: Expr, places: Sequence[Expr]) -> Edge:
        """The row at `places` of the sum at a point of a dim: as soon as it is there, if it is always as far from the
        row's own, so that nothing but the next sum needs this one."""
        nodes, (atom, factor) = self.nodes, at.terms[0] if len(at.terms) == 1 else (None, 0)
        if isinstance(atom, Min | Max) and factor == 1:
            # Of equals the last, and those that do not move are last: such a row is no part of the recurrence.
            sign, args = 1 if isinstance(atom, Max) else -1, sorted(atom.args, key=lambda each: not each.dims())
            args = [each + at.const for each in args]
            wins = [
                conjunction(
                    (sign * (arg - other)).ge(later > place) for later, other in enumerate(args) if other != arg
                )
                for place, arg in enumerate(args[:-1])
            ]
            rows = [self.taken(so_far, axis, symbol, arg, places) for arg in args]
            return nodes.choice(tuple(zip((*wins, TRUE), rows, strict=True)), nodes.seen(rows[0]))
        points = {each: Point(value) for each, value in self.preimage.solved.items()}
        points |= {each: Point(var(each)) for place in places for each in place.dims()} | {symbol: Point(at)}
        ahead = at - var(symbol)
        if ahead.dims():
            return self.row(nodes.through(so_far, points), axis, places)
        moved = [place.substitute({symbol: var(symbol) - ahead}) for place in places]
        return nodes.through(self.row(so_far, axis, moved), points)

    def row(self, edge: Edge, axis: int, places: Sequence[Expr]) -> Edge:
        """One position of each of the axes from `axis` on, by a gather: a view would hold all of them."""
        numbers = list(map(self.nodes.number, places))
        if len(places) == 1:
            return self.nodes.gather(edge, numbers[0], axis)
        attrs = {"axis": axis, "count": len(places), "batch": 0, "checked": False}
        return self.nodes.apply("gather_pairs", edge, *numbers, **attrs)

    def behind(self, edge: Edge, count: int, place: int) -> Edge:
        """With its first `count` axes after the next `place`."""
        axes = (*range(count, count + place), *range(count), *range(count + place, self.nodes.rank(edge)))
        return self.nodes.transpose(edge, axes)
