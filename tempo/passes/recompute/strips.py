"""Strips of a dim, and what a later loop needs of an earlier one computed again in each.

    h[t] = f(h[t - 1], x[t]),  then backward  g[t] = b(g[t + 1], h[t])

becomes, in strips of Z points, t = Z o + i, with what enters each strip kept,

    c[o] = h[o - 1, Z - 1]            h[o, 0] = f(c[o], x[Z o]),           h[o, i] = f(h[o, i - 1], x[Z o + i])
    d[o] = g[o + 1, 0]                r[o, 0] = f(after(c[o], d[o]), ..),  r[o, i] = f(r[o, i - 1], after(.., d[o]))
                                      g[o, Z - 1] = b(d[o], r[o, Z - 1]),  g[o, i] = b(g[o, i + 1], r[o, i])

so that of h no point need be kept beyond its own step but c, one for each strip, and of r those of one strip: `after`
holds back what is computed again until the later loop comes to its strip, else it would run beside the first loop and
all of it would be kept. A sum over all points of what the loops make is added up strip by strip.

The last strip may have fewer points. Behind them, t stays at the last point: there everything is in range and has a
value, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tempo.analysis.demand.demand import Demand
from tempo.errors import UnsupportedError
from tempo.passes.manager import PassContext
from tempo.passes.recompute.folds import Fold, fold_of
from tempo.passes.recompute.loops import Loops
from tempo.passes.recurrence.prefix import accumulator, put_last
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.builder import fresh_dim
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice
from tempo.sdg.rewriter import Rewriter, Tensors, without_idle_dims
from tempo.symbolic import TRUE, Box, Condition, Context, Dim, Expr, const, maximum, minimum, var

Version = tuple[int, int]
"""A node, and the number of the loop that it is computed in: its own, or a later one that needs it again."""


class Strips:
    """Makes the graph with strips of `size` points of the dim that `loops` are over."""

    def __init__(self, graph: Graph, loops: Loops, size: int, context: PassContext, again: bool = True) -> None:
        """`again`: a later loop computes what it needs of an earlier one; else it reads what was kept."""
        facts, self.context, self.is_again = context.facts, context, again
        self.old, self.loops, self.size, self.symbol = graph, loops, size, loops.dim
        whole = graph.dim(self.symbol).size
        names = {dim.symbol.name for dim in graph.dims}
        self.outer = fresh_dim(f"{self.symbol.name}_strip", names)
        self.inner = fresh_dim(f"{self.symbol.name}_in", names | {self.outer.name})
        self.sizes = Context.of((), facts)
        self.length = self.sizes.simplify(minimum(size, whole))
        self.count = self.sizes.simplify((whole + size - 1) // size)
        pairs = list(zip(loops.directions, loops.ahead))
        self.behind_it = max((ahead for direction, ahead in pairs if direction == "backward"), default=0)
        more = max((ahead for direction, ahead in pairs if direction == "forward"), default=0)
        self.total = self.length + self.behind_it + more
        fresh = (Dim(self.outer, self.count, sequential=True), Dim(self.inner, self.total))
        place = [dim.symbol for dim in graph.dims].index(self.symbol) + 1
        self.dims = (*graph.dims[:place], *fresh, *graph.dims[place:])
        point = size * var(self.outer) + var(self.inner) - self.behind_it
        self.point = Context.of(fresh, facts).simplify(maximum(0, minimum(point, whole - 1)))
        self.new = Rewriter(replace(graph, dims=self.dims))
        self.versions: dict[Version, int] = {}
        self.tokens: dict[int, Edge] = {}
        self.entering: dict[tuple[int, int], Edge] = {}
        self.sums: dict[int, list[Edge]] = {}
        self.version_of: dict[int, Version] = {}

    def graph(self) -> Graph:
        pending = [output.edge.node for output in self.old.outputs] + list(self.old.sinks)
        seen = set(pending)
        while pending:
            id = pending.pop()
            self.make(id)
            fresh = {edge.node for _, edge in self.new.nodes[id].reads()} - seen
            seen |= fresh
            pending += sorted(fresh)
        for token in self.tokens.values():
            self.new.define(token, (Case(TRUE, self.new.identity(self.zero().id)),))
        demands = self.context.demand(self.made())  # which the order is not to change
        for number, token in self.tokens.items():
            self.define_order(number, token, demands)
        return self.made()

    def made(self) -> Graph:
        return without_idle_dims(without_dead_nodes(replace(self.old, dims=self.dims, nodes=dict(self.new.nodes))))

    def make(self, id: int) -> None:
        """Puts in place what a number stands for."""
        if id in self.version_of:
            self.read_again(*self.version_of[id])
        elif id in self.old.nodes:
            self.replace(self.old.nodes[id])

    # -- under the old numbers ---------------------------------------------------------------------------------------

    def replace(self, node: Node) -> None:
        """What is read under the number of a node: of one in strips its value at each point of the dim, and of a sum
        over the dim that of all strips. All else stays."""
        if node.id not in self.loops.of:
            self.add_up(node)
            return
        here = var(self.symbol)
        map = self.placed(node, (Point(here // self.size), Point(here % self.size + self.behind_it)))
        shown = Edge(self.version(node.id, self.loops.of[node.id]), map)
        copy = Node(node.id, "copy", node.domain, node.results, (shown,), name=node.name, location=node.location)
        self.new.nodes[node.id] = copy

    def placed(self, node: Node, parts: tuple[Point | Slice, Point | Slice]) -> tuple[Point | Slice, ...]:
        """The read of a version of the node: of the strip and the place in it, and of the rest at its own point."""
        found: list[Point | Slice] = []
        for symbol in node.domain:
            found += parts if symbol == self.symbol else (Point(var(symbol)),)
        return tuple(found)

    # -- versions of the nodes in strips -----------------------------------------------------------------------------

    def version(self, id: int, number: int) -> int:
        key = id, number if self.is_again else self.loops.of[id]
        if key not in self.versions:
            self.versions[key] = self.new.new_number()
            node = self.old.nodes[id]
            parts = (self.outer, self.inner)
            # Its type is asked for before its reads are known.
            self.new.nodes[self.versions[key]] = self.new.copied(
                node, self.versions[key], self.symbol, parts, self.point
            )
            self.version_of[self.versions[key]] = key
        return self.versions[key]

    def read_again(self, id: int, number: int) -> None:
        """Puts the reads of a version in place."""
        node, made = self.old.nodes[id], self.new.nodes[self.versions[id, number]]
        own = self.loops.of[id]
        alone = not any(self.is_cut(edge) or self.symbol in edge.dims() for edge in node.operands)
        operands = tuple(self.read(edge, number, own, alone) for edge in node.operands)
        cases: list[Case] = []
        for case, moved in zip(node.cases, made.cases):
            for condition, edge in self.ways(case.edge, number, own):
                cases.append(replace(case, condition=moved.condition & condition, edge=edge))
        self.new.nodes[made.id] = replace(made, operands=operands, cases=tuple(cases))

    def read(self, edge: Edge, number: int, own: int, alone: bool) -> Edge:
        """What an operator reads; `alone`: nothing that it reads waits for a loop, or varies along the dim."""
        found = self.ways(edge, number, own, alone)
        if len(found) == 1:
            return found[0][1]
        node = self.old.nodes[edge.node]
        shown = replace(edge, map=tuple(self.here(edge)))
        seen = self.ways(shown, number, own)
        moved = self.shifted(node, tuple(seen))
        map = list(edge.substitute({self.symbol: self.point}).map)
        place = node.domain.index(self.symbol)
        return Edge(moved.node, (*map[:place], Point(var(self.outer)), Point(var(self.inner)), *map[place + 1 :]))

    def here(self, edge: Edge) -> list[Point | Slice]:
        """The read with everything but the dim at the producer's own point."""
        domain = self.old.nodes[edge.node].domain
        return [part if symbol == self.symbol else Point(var(symbol)) for symbol, part in zip(domain, edge.map)]

    def shifted(self, node: Node, ways: tuple[tuple[Condition, Edge], ...]) -> Edge:
        """The value of a node some points away, over the points of strips."""
        type = self.new.seen_type(ways[0][1])
        cases = tuple(Case(condition, edge, node.location) for condition, edge in ways)
        return self.new.cases(cases, type, node.name or node.op, locate=lambda: node.location)

    def shift(self, edge: Edge) -> int | None:
        """How many points away a node in strips is read, where that is a number."""
        index = edge.map[self.old.nodes[edge.node].domain.index(self.symbol)]
        by = index.index - var(self.symbol) if isinstance(index, Point) else None
        return by.as_int() if by is not None and by.is_const else None

    def ways(self, edge: Edge, number: int, own: int, alone: bool = False) -> list[tuple[Condition, Edge]]:
        """What a version in loop `number` of a node of loop `own` reads instead, where: of its strip, or of what enters
        it."""
        within = edge.substitute({self.symbol: self.point})
        again = number > own
        if not self.is_cut(edge):
            ordered = again and (alone or self.symbol in edge.dims())
            return [(TRUE, self.behind(within, number) if ordered else within)]
        by = self.shift(edge)
        if by is None:
            return [(TRUE, within)]
        place = self.old.nodes[edge.node].domain.index(self.symbol)
        here, before, after = var(self.inner), within.map[:place], within.map[place + 1 :]
        at = (*before, Point(var(self.outer)), Point(here + by), *after)
        inside = Edge(self.version(edge.node, number), at, edge.result)
        low, high = self.edges(self.loops.of[edge.node] == number, number)
        if by == 0 or (low is None and by < 0) or (high is None and by > 0):
            return [(TRUE, inside)]
        found = [(self.within(here + by, low if by < 0 else None, high if by > 0 else None), inside)]
        for step in range(abs(by)):
            position, offset = self.crossing(by, step, low, high)
            self.check(edge, offset)
            map = (*before, Point(var(self.outer)), *after)
            entering = replace(self.enters(edge.node, edge.result, offset), map=map)
            found.append((here.eq(position), self.behind(entering, number) if again else entering))
        return found

    def edges(self, same: bool, number: int) -> tuple[Expr | None, Expr | None]:
        """Where what is read of a strip begins and ends; in the same loop no strip ends in the direction: what is read
        against it is made once more."""
        if not same:
            return const(0), self.total
        forward = self.loops.directions[number] == "forward"
        return (const(self.behind_it), None) if forward else (None, self.behind_it + self.length)

    @staticmethod
    def within(place: Expr, low: Expr | None, high: Expr | None) -> Condition:
        return (TRUE if low is None else place.ge(low)) & (TRUE if high is None else place.lt(high))

    def crossing(self, by: int, step: int, low: Expr | None, high: Expr | None) -> tuple[Expr, int]:
        """The place in a strip that reads over its edge, and how far from the core's start (below 0) or end."""
        if by < 0:
            assert low is not None
            return low + step, low.as_int() - self.behind_it + by + step
        assert high is not None
        more = (high - self.behind_it - self.length).as_int()
        return high - by + step, more + step

    def check(self, edge: Edge, offset: int) -> None:
        far = -offset if offset < 0 else offset + 1
        if far > self.size:
            node = self.old.nodes[edge.node]
            raise UnsupportedError(
                f"recompute= cuts {self.symbol.name} into strips of {self.size}, "
                f"and what enters one reads {node.name or node.op} {far} points away",
                location=node.location,
                hint=f"write recompute={{{self.symbol.name!r}: {far}}}, or more",
            )

    def enters(self, id: int, result: int, offset: int) -> Edge:
        """What a strip reads of the one before (`offset` points from its start, below 0), or of the one after it."""
        key = id, offset
        if key not in self.entering:
            node, here = self.old.nodes[id], var(self.outer)
            if any(self.symbol in size.dims() for size in node.results[result].shape):
                raise UnsupportedError(
                    f"recompute= names {self.symbol.name!r}, with which the shape of {node.name or node.op} varies",
                    location=node.location,
                )
            there = (here - 1, const(self.size + offset)) if offset < 0 else (here + 1, const(offset))
            map = self.placed(node, (Point(there[0]), Point(there[1] + self.behind_it)))
            case = Case(here.ge(1) if offset < 0 else here.lt(self.count - 1), Edge(self.own(id), map, result))
            name = node.name or node.op
            self.entering[key] = self.new.cases((case,), node.results[result], name, locate=lambda: node.location)
        return self.entering[key]

    def own(self, id: int) -> int:
        """The version in the node's own loop."""
        return self.version(id, self.loops.of[id])

    # -- order -------------------------------------------------------------------------------------------------------

    def behind(self, edge: Edge, number: int) -> Edge:
        """The same, once loop `number` comes to the strip."""
        if number not in self.tokens:
            domain = self.new.canonical({*self.loops.around, self.outer})
            type = self.zero().type
            attrs = (("name", "order"), ("role", "cases"))
            self.tokens[number] = self.new.declare(Node(-1, "merge", domain, (type,), (), attrs, name="order"))
        return Tensors(self.new, None).apply("after", edge, self.tokens[number])

    def zero(self) -> Node:
        return self.new.nodes[Tensors(self.new, None).constant(0, "bool").node]

    def define_order(self, number: int, token: Edge, demands: Mapping[int, Demand]) -> None:
        """It is there once the loop has made what it hands on from strip to strip, as far as somebody asks for it."""
        forward = self.loops.directions[number] == "forward"
        tensors = Tensors(self.new, None)
        order = self.new.identity(self.zero().id)
        handed = [
            edge
            for (id, offset), edge in self.entering.items()
            if self.loops.of[id] == number and id in self.loops.carried and (offset < 0) == forward
        ]
        before = {self.outer: var(self.outer) + (-1 if forward else 1)}
        handed += [edge.substitute(before) for edge in self.sums.get(number, ())]
        for edge in handed:
            if edge.node in demands and demands[edge.node].exact:
                order = self.waits(tensors, order, edge, demands[edge.node].box)
        self.new.define(token, (Case(TRUE, order),))

    def waits(self, tensors: Tensors, order: Edge, edge: Edge, box: Box) -> Edge:
        """`order` once the edge is there, where it is within what is asked for of it."""
        node = self.new.nodes[edge.node]
        inside = {*self.loops.around, self.outer}
        is_there: Condition = TRUE
        map: list[Point | Slice] = []
        for symbol, index in zip(node.domain, edge.map):
            low, high = box.interval(symbol)
            if symbol in inside and isinstance(index, Point):
                is_there = is_there & index.index.ge(low) & index.index.lt(high)
                map.append(index)
            elif self.sizes.implies(high.gt(low)):
                map.append(Slice(low, high - low))
            else:
                return order
        seen = replace(edge, map=tuple(map))
        empty = [axis for axis, size in enumerate(tensors.shape(seen)) if not self.sizes.implies(size.ge(1))]
        if empty:  # an axis without positions has no first one
            fold = "reduce_any" if node.dtype == "bool" else "reduce_sum"
            seen = tensors.apply(fold, seen, axes=tuple(empty))
        for axis in range(tensors.rank(seen)):
            seen = tensors.cut(seen, axis, const(0), const(1))
        value = tensors.reshape(seen, ())
        made = self.new.cases(
            (Case(is_there, value), Case(TRUE, tensors.constant(0, node.dtype))), self.new.seen_type(value)
        )
        return tensors.apply("after", order, made)

    # -- sums over the dim -------------------------------------------------------------------------------------------

    def add_up(self, node: Node) -> None:
        """Puts a recurrence over the strips in place of a sum over points of the loops."""
        fold = fold_of(self.old, node, self.symbol)
        whole = None if fold is None else self.range_of(fold)
        if fold is None or whole is None:
            return
        number = max(self.loops.of[edge.node] for edge in fold.ranges if self.is_cut(edge))
        start, stop = whole.start, whole.start + whole.length
        ends = [self.sizes.simplify(point // self.size) for point in (start, stop - 1)]
        forward = self.loops.directions[number] == "forward"
        begin, end = ends if forward else ends[::-1]
        tensors = Tensors(self.new, node.location)
        added = self.part(tensors, fold, number, whole, (const(0), self.length))
        first, last = (self.part(tensors, fold, number, whole, self.points_in(whole, strip)) for strip in (begin, end))
        is_whole = self.sizes.implies(start.le(self.size * end) & (self.size * (end + 1)).le(stop))
        other = None if is_whole else (end, last)
        total = accumulator(tensors, node, self.outer, forward, begin, first, added, other)
        self.sums.setdefault(number, []).append(total)
        put_last(self.new, tensors, node, total, self.outer, end)

    def is_cut(self, edge: Edge) -> bool:
        return edge.node in self.loops.of

    def points_in(self, whole: Slice, strip: Expr) -> tuple[Expr, Expr]:
        """Where the range begins and ends in a strip."""
        low, high = (end - self.size * strip for end in (whole.start, whole.start + whole.length))
        return self.sizes.simplify(maximum(0, low)), self.sizes.simplify(minimum(self.length, high))

    def part(self, tensors: Tensors, fold: Fold, number: int, whole: Slice, points: tuple[Expr, Expr]) -> Edge:
        """The fold of those of its points that lie in one strip."""
        low, length = points[0], points[1] - points[0]
        away = {edge: index.start - whole.start for edge, index in fold.ranges.items()}
        shown = {edge: self.in_strip(edge, number, by, low, length) for edge, by in away.items()}
        return fold.part(tensors, shown.__getitem__, self.size * var(self.outer) + low - whole.start, length)

    def range_of(self, fold: Fold) -> Slice | None:
        """The range of what is in strips; None where it is not one, some points away for some, or may be empty."""
        cut = [index for edge, index in fold.ranges.items() if self.is_cut(edge)]
        if not cut:
            return None
        number = max(self.loops.of[edge.node] for edge in fold.ranges if self.is_cut(edge))
        own = [index for edge, index in fold.ranges.items() if self.is_cut(edge) and self.loops.of[edge.node] == number]
        first = own[0]
        for index in own[1:]:
            ahead = index.start - first.start
            forward = self.loops.directions[number] == "forward"
            if ahead.is_const and (ahead.as_int() > 0) == forward:
                first = index
        fixed = not (first.start.dims() or first.length.dims()) and first.extent is None
        near = all((index.start - first.start).is_const for index in cut)
        same = all(index.length == first.length for index in fold.ranges.values())
        return first if fixed and near and same and self.sizes.implies(first.length.ge(1)) else None

    def in_strip(self, edge: Edge, number: int, by: Expr, low: Expr, length: Expr) -> Edge:
        """The points of a strip, `length` from `low` on, of what an edge shows; or those `by` points away."""
        node = self.old.nodes[edge.node]
        place = node.domain.index(self.symbol)
        before, after = edge.map[:place], edge.map[place + 1 :]
        if not self.is_cut(edge):
            return replace(edge, map=(*before, Slice(self.size * var(self.outer) + low + by, length), *after))
        away = [Point(var(symbol) + (by if symbol == self.symbol else 0)) for symbol in node.domain]
        ways = self.ways(Edge(node.id, tuple(away), edge.result), number, number)
        low = low + self.behind_it + (by if len(ways) == 1 else 0)
        shown = ways[0][1] if len(ways) == 1 else self.shifted(node, tuple(ways))
        return replace(shown, map=(*before, Point(var(self.outer)), Slice(low, length), *after))
