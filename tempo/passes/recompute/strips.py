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

from dataclasses import replace

from tempo.errors import UnsupportedError
from tempo.passes.recompute.loops import Loops
from tempo.passes.recurrence.prefix import accumulator
from tempo.passes.recurrence.sliding import leaves, part
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.builder import fresh_dim
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Condition, Context, Dim, Expr, const, maximum, minimum, var

Version = tuple[int, int]
"""A node, and the number of the loop that it is computed in: its own, or a later one that needs it again."""


class Strips:
    """Makes the graph with strips of `size` points of the dim that `loops` are over."""

    def __init__(self, graph: Graph, loops: Loops, size: int, facts: Condition) -> None:
        self.old, self.loops, self.size, self.symbol = graph, loops, size, loops.dim
        whole = graph.dim(self.symbol).size
        names = {dim.symbol.name for dim in graph.dims}
        self.outer = fresh_dim(f"{self.symbol.name}_strip", names)
        self.inner = fresh_dim(f"{self.symbol.name}_in", names | {self.outer.name})
        self.sizes = Context.of((), facts)
        self.whole = whole
        self.length = self.sizes.simplify(minimum(size, whole))
        self.count = self.sizes.simplify((whole + size - 1) // size)
        fresh = (Dim(self.outer, self.count), Dim(self.inner, self.length))
        place = [dim.symbol for dim in graph.dims].index(self.symbol) + 1
        self.dims = (*graph.dims[:place], *fresh, *graph.dims[place:])
        self.point = Context.of(fresh, facts).simplify(minimum(size * var(self.outer) + var(self.inner), whole - 1))
        self.new = Rewriter(replace(graph, dims=self.dims))
        self.versions: dict[Version, int] = {}
        self.tokens: dict[int, Edge] = {}
        self.entering: dict[tuple[int, int], Edge] = {}
        self.sums: dict[int, list[tuple[Edge, Expr]]] = {}
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
        for number, token in self.tokens.items():
            self.define_order(number, token)
        return without_dead_nodes(replace(self.old, dims=self.dims, nodes=self.new.nodes))

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
        map = self.placed(node, (Point(here // self.size), Point(here % self.size)))
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
        key = id, number
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
        again = number > self.loops.of[id]
        inside = any(edge.node in self.loops.of for edge in node.operands)
        operands = tuple(self.read(edge, number, again, not inside) for edge in node.operands)
        cases: list[Case] = []
        for case, moved in zip(node.cases, made.cases):
            for condition, edge in self.ways(case.edge, number, again):
                cases.append(replace(case, condition=moved.condition & condition, edge=edge))
        self.new.nodes[made.id] = replace(made, operands=operands, cases=tuple(cases))

    def read(self, edge: Edge, number: int, again: bool, alone: bool) -> Edge:
        """What an operator reads; `alone`: nothing else that it reads waits for a loop."""
        if not self.is_cut(edge) or not self.shift(edge):
            return self.ways(edge, number, again, alone)[0][1]
        node = self.old.nodes[edge.node]
        shown = replace(edge, map=tuple(self.here(edge)))
        seen = self.ways(shown, number, again)
        moved = self.shifted(node, edge.result, self.shift(edge) or 0, tuple(seen))
        map = list(edge.substitute({self.symbol: self.point}).map)
        place = node.domain.index(self.symbol)
        return Edge(moved.node, (*map[:place], Point(var(self.outer)), Point(var(self.inner)), *map[place + 1 :]))

    def here(self, edge: Edge) -> list[Point | Slice]:
        """The read with everything but the dim at the producer's own point."""
        domain = self.old.nodes[edge.node].domain
        return [part if symbol == self.symbol else Point(var(symbol)) for symbol, part in zip(domain, edge.map)]

    def shifted(self, node: Node, result: int, by: int, ways: tuple[tuple[Condition, Edge], ...]) -> Edge:
        """The value of a node some points away, over the points of strips."""
        type = self.new.seen_type(ways[0][1])
        cases = tuple(Case(condition, edge, node.location) for condition, edge in ways)
        return self.new.cases(cases, type, node.name or node.op, locate=lambda: node.location)

    def shift(self, edge: Edge) -> int | None:
        """How many points away a node in strips is read, where that is a number."""
        index = edge.map[self.old.nodes[edge.node].domain.index(self.symbol)]
        by = index.index - var(self.symbol) if isinstance(index, Point) else None
        return by.as_int() if by is not None and by.is_const else None

    def ways(
        self, edge: Edge, number: int, again: bool = False, alone: bool = False
    ) -> list[tuple[Condition, Edge]]:
        """What a version in loop `number` reads instead, where: of its strip, or of what enters it."""
        within = edge.substitute({self.symbol: self.point})
        if edge.node not in self.loops.of:
            ordered = again and (alone or self.symbol in edge.dims())
            return [(TRUE, self.behind(within, number) if ordered else within)]
        by = self.shift(edge)
        if by is None:
            return [(TRUE, within)]
        if abs(by) > self.size:
            raise self.too_short(edge, by)
        place = self.old.nodes[edge.node].domain.index(self.symbol)
        here, before, after = var(self.inner), within.map[:place], within.map[place + 1 :]
        at = (*before, Point(var(self.outer)), Point(here + by), *after)
        inside = Edge(self.version(edge.node, number), at, edge.result)
        if by == 0:
            return [(TRUE, inside)]
        found = [(here.ge(-by) if by < 0 else here.lt(self.length - by), inside)]
        for step in range(abs(by)):
            position, offset = (const(step), by + step) if by < 0 else (self.length - by + step, step)
            map = (*before, Point(var(self.outer)), *after)
            entering = replace(self.enters(edge.node, edge.result, offset), map=map)
            found.append((here.eq(position), self.behind(entering, number) if again else entering))
        return found

    def too_short(self, edge: Edge, by: int) -> UnsupportedError:
        node = self.old.nodes[edge.node]
        return UnsupportedError(
            f"recompute= cuts {self.symbol.name} into strips of {self.size}, "
            f"and {node.name or node.op} is read {abs(by)} points away",
            location=node.location,
            hint=f"write recompute={{{self.symbol.name!r}: {abs(by)}}}, or more",
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
            map = self.placed(node, (Point(there[0]), Point(there[1])))
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

    def define_order(self, number: int, token: Edge) -> None:
        """It is there once the loop has made what it hands on from strip to strip."""
        forward = self.loops.directions[number] == "forward"
        before = var(self.outer) + (-1 if forward else 1)
        tensors = Tensors(self.new, None)
        order = self.new.identity(self.zero().id)
        for (id, offset), edge in list(self.entering.items()):
            if self.loops.of[id] == number and id in self.loops.carried and (offset < 0) == forward:
                is_there = var(self.outer).ge(1) if forward else var(self.outer).lt(self.count - 1)
                order = self.waits(tensors, order, edge, is_there)
        for edge, first in self.sums.get(number, ()):
            there = edge.substitute({self.outer: before})
            order = self.waits(tensors, order, there, before.ge(first) if forward else before.le(first))
        self.new.define(token, (Case(TRUE, order),))

    def waits(self, tensors: Tensors, order: Edge, edge: Edge, is_there: Condition) -> Edge:
        """`order` once the edge is there, where it ever is."""
        node = self.new.nodes[edge.node]
        inside = {*self.loops.around, self.outer}
        map = tuple(
            index if symbol in inside else Slice(const(0), self.new_size(node, symbol))
            for symbol, index in zip(node.domain, edge.map)
        )
        seen = replace(edge, map=map)
        for axis in range(tensors.rank(seen)):
            seen = tensors.cut(seen, axis, const(0), const(1))
        value = tensors.reshape(seen, ())
        made = self.new.cases((Case(is_there, value), Case(TRUE, tensors.constant(0, node.dtype))), self.new.seen_type(value))
        return tensors.apply("after", order, made)

    def new_size(self, node: Node, symbol: object) -> Expr:
        return next(dim.size for dim in self.dims if dim.symbol == symbol)

    # -- sums over the dim -------------------------------------------------------------------------------------------

    def add_up(self, node: Node) -> None:
        """Puts a recurrence over the strips in place of a sum over points of the loops."""
        found = self.summed(node)
        if found is None:
            return
        edges, first = found
        number = max(self.loops.of[edge.node] for edge in edges if self.is_cut(edge))
        start, length = first.start, first.length
        ends = [self.sizes.simplify(point // self.size) for point in (start, start + length - 1)]
        forward = self.loops.directions[number] == "forward"
        begin, end = ends if forward else ends[::-1]
        tensors = Tensors(self.new, node.location)

        def piece(strip: Expr, is_end: bool) -> Edge:
            low = self.sizes.simplify(maximum(0, start - self.size * strip)) if is_end else const(0)
            high = self.sizes.simplify(minimum(self.length, start + length - self.size * strip)) if is_end else self.length
            shown = {edge: self.in_strip(edge, number, first, low, high - low) for edge in edges}
            return part(self.old, tensors, node, shown)

        here = var(self.outer)
        added = piece(here, False)
        last = None if self.is_whole(end, start, length) else (end, piece(end, True))
        total = accumulator(tensors, node, self.outer, forward, begin, piece(begin, True), added, last)
        self.sums.setdefault(number, []).append((total, begin))
        map = tuple(Point(end) if index == Point(here) else index for index in total.map)
        self.new.put(node, tensors.cast(replace(total, map=map), node.dtype))

    def is_cut(self, edge: Edge) -> bool:
        return edge.node in self.loops.of

    def is_whole(self, strip: Expr, start: Expr, length: Expr) -> bool:
        """Whether a sum takes all points of a strip."""
        low, high = self.size * strip, self.size * strip + self.size
        return self.sizes.implies(start.le(low) & high.le(start + length))

    def summed(self, node: Node) -> tuple[list[Edge], Slice] | None:
        """The slices that a node sums, and that of the first of them in strips."""
        if self.symbol in node.domain or node.is_nominal:
            return None
        edges = leaves(self.old, node, self.symbol) or []
        slices = {edge: next(index for index in edge.map if isinstance(index, Slice)) for edge in edges}
        cut = [edge for edge in edges if self.is_cut(edge)]
        if not cut or not all(self.is_along(edge) for edge in cut):
            return None
        first = slices[cut[0]]
        fixed = not (first.start.dims() or first.length.dims()) and first.extent is None
        if not fixed or not self.sizes.implies(first.length.ge(1)):
            return None
        near = all((slices[edge].start - first.start).is_const for edge in cut)
        same = all(index.length == first.length for index in slices.values())
        return (edges, first) if near and same else None

    def is_along(self, edge: Edge) -> bool:
        """Whether the slice is along the dim."""
        return isinstance(edge.map[self.old.nodes[edge.node].domain.index(self.symbol)], Slice)

    def in_strip(self, edge: Edge, number: int, first: Slice, low: Expr, length: Expr) -> Edge:
        """The points of a slice that fall into a strip of what `first` shows, `length` from `low` on."""
        node = self.old.nodes[edge.node]
        index = next(each for each in edge.map if isinstance(each, Slice))
        by = index.start - first.start
        if not self.is_cut(edge):
            start = self.size * var(self.outer) + low + index.start - first.start
            shown = Slice(start, length)
            return replace(edge, map=tuple(shown if each is index else each for each in edge.map))
        place = node.domain.index(self.symbol)
        at = (*edge.map[:place], Point(var(self.outer)), Slice(low, length), *edge.map[place + 1 :])
        if by == const(0):
            return Edge(self.version(node.id, number), at, edge.result)
        away = list(Point(var(symbol)) for symbol in node.domain)
        away[place] = Point(var(self.symbol) + by)
        ways = self.ways(Edge(node.id, tuple(away), edge.result), number)
        return Edge(self.shifted(node, edge.result, by.as_int(), tuple(ways)).node, at)


