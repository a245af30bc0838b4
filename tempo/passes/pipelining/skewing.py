"""The program of stages: loop skewing of microbatches and layers, with the stages as the points of a dim.

    h[m, l] = f(h[m, l - 1], w[l])        l = K s + k, wave = m + s

    h'[wave, s, k] = f(h'[wave, s, k - 1], w[K s + k])                      k > 0
    h'[wave, s, 0] = f(shift(h'[wave - 1, 0:S, K - 1])[s], w[K s])          what the stage before has made, a wave ago

All stages of a wave can be made at once, so `s` becomes an axis, of which each device has one position, and the shift
is all that they exchange. Waves go up where the recurrence does, and down where it goes down, as gradients do: there
are M + S - 1 of them, in M of which a stage has work. In the others it makes what nobody reads.

Sources: Lamport, "The Parallel Execution of DO Loops" (1974), for skewing; Huang et al., GPipe (2019), for the order;
Xu et al., GSPMD (2021), section 3.3, for stages as an axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tempo.analysis.dependence.acyclic import points_read
from tempo.passes.pipelining.coordinates import Away, Coordinates, Index
from tempo.passes.pipelining.outside import Outside
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice, index_exprs, index_symbols
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import (
    FALSE,
    TRUE,
    Condition,
    Context,
    Dim,
    Expr,
    Symbol,
    conjunction,
    const,
    maximum,
    minimum,
    var,
)


@dataclass
class Skewing:
    """The members, at the points of the program of stages; `others` reads them in the order that they had."""

    at: Coordinates
    others: Outside

    def skewed(self) -> Graph:
        """Raises `UnsupportedError` for reads between members that do not go through stages."""
        graph, nodes = self.at.graph, self.at.new.nodes
        mine = [node for node in graph.operands_first() if node.id in self.at.members]
        merges = [node for node in mine if node.is_merge]
        for node in merges:
            self.at.copies[node.id] = self.at.new.declare(replace(node, domain=self.over(node), cases=())).node
        for node in mine:
            if not node.is_merge:
                self.at.copies[node.id] = self.copied(node).node
        for node in merges:
            copy = self.at.copies[node.id]
            nodes[copy] = replace(nodes[copy], cases=self.cases(node))
        for id, node in graph.nodes.items():
            if id not in self.at.members:
                nodes[id] = self.others.reading(node)
        outputs = [replace(each, edge=self.others.outside(each.edge, each.location)) for each in graph.outputs]
        gone = self.at.members.keys() - self.others.wholes.keys()
        kept = {id: node for id, node in nodes.items() if id not in gone}
        return replace(graph, dims=self.at.new.dims, nodes=kept, outputs=tuple(outputs))

    def over(self, node: Node) -> tuple[Symbol, ...]:
        """Its domain in the program of stages."""
        stages = self.at.stages
        return self.at.new.canonical({*node.domain, stages.wave, stages.stage, stages.layer} - {*stages.dims})

    def copied(self, node: Node) -> Edge:
        attrs = OPERATORS[node.op].with_exprs(node.attributes, self.at.placed)
        operands = (self.read(node, edge) for edge in node.operands)
        return Tensors(self.at.new, node.location).apply(node.op, *operands, **attrs)

    # -- reads of members by members ---------------------------------------------------------------------------------

    def read(self, reader: Node, edge: Edge) -> Edge:
        """What a member reads, at a point of the program of stages."""
        mine, other = self.at.members[reader.id], self.at.members.get(edge.node)
        if other is None:
            return self.given(reader, edge)
        away = self.at.away(edge)
        if away is not None and away.layers == away.microbatches == 0:
            return self.at.moved(edge)
        if away is not None and other.way == mine.way and away.goes(mine.way):
            return self.from_before(reader, away)
        if other != mine:
            return self.given(reader, self.others.outside(edge, reader.location))
        if away is not None and away.layers * mine.way <= 0:
            along, microbatches = (symbol.name for symbol in self.at.stages.dims)
            raise mine.refused(
                f"goes one way along {along} and the other along {microbatches}: no wave has what the next one needs",
                reader,
            )
        along = self.at.stages.dim.name
        raise mine.refused(
            f"reads other points of itself than some before it along {along}, or some behind it: what a stage has made "
            "goes to the next alone",
            reader,
        )

    def from_before(self, reader: Node, read: Away) -> Edge:
        """Of the same stage where that has the layer, else of the one next to it, a wave ago. Zeros where there is
        none: nobody asks for what they become."""
        if read in self.at.handed_on:
            return self.at.handed_on[read]
        stages, mine, run = self.at.stages, self.at.members[reader.id], self.at.run
        way, tensors = mine.way, Tensors(self.at.new, reader.location)
        if abs(read.layers) > run:
            raise mine.refused(f"reads {abs(read.layers)} layers away, and a stage has {run}", reader)
        wave, layer = var(stages.wave) + read.microbatches, var(stages.layer) + read.layers
        own = self.at.moved(read.edge, {stages.wave: Point(wave), stages.layer: Point(layer)})
        is_own, seen, cases = _is_place(layer, run, way), tensors.seen(own), list[Case]()
        if run > abs(read.layers):
            cases.append(Case(_is_place(wave, self.at.waves, way) & is_own, own, reader.location))
        if read.layers and stages.count > 1:
            ago = wave - way
            place = const(run - 1 if way > 0 else 0) if abs(read.layers) == 1 else layer + way * run
            next_to = self.next_to(read.edge, ago, place, way, tensors)
            cases.append(Case(_is_place(ago, self.at.waves, way) & ~is_own, next_to, reader.location))
        cases.append(Case(TRUE, tensors.zeros(seen), reader.location))
        found = self.at.new.cases(tuple(cases), seen, locate=lambda: reader.location)
        return self.at.handed_on.setdefault(read, found)

    def next_to(self, edge: Edge, wave: Expr, layer: Expr, way: int, tensors: Tensors) -> Edge:
        """What the stage next to this one has made."""
        seen, axis = self.at.of_all_stages(edge, Point(wave), Point(layer))
        shifted = tensors.apply("shift", seen, axis=axis, distance=way, dim=self.at.stages.stage.name)
        return tensors.at(shifted, axis, var(self.at.stages.stage))

    # -- what members are given --------------------------------------------------------------------------------------

    def given(self, reader: Node, edge: Edge) -> Edge:
        """What a member reads of others: of their layers those of the stage; of their microbatches the one that is its
        turn, and where there is none, the first or the last."""
        stages, tensors = self.at.stages, Tensors(self.at.new, reader.location)
        if not edge.dims() & {*stages.dims}:
            return edge
        if not self.is_plain(edge):
            dims = map(self.at.new.graph.dim, self.at.shown(edge))
            inside = (self.inside(reader, dim, index) for dim, index in zip(dims, edge.map, strict=True))
            edge = tensors.apply("copy", replace(edge, map=tuple(inside)))
        shown = self.at.shown(edge)
        counts = {stages.dim: self.at.layers, stages.microbatches: self.at.microbatches}
        along = [symbol for symbol in shown if symbol in counts and index_symbols(shown[symbol]) & {*stages.dims}]
        whole = {symbol: Slice(const(0), const(counts[symbol])) for symbol in along}
        found = replace(edge, map=tuple({**shown, **whole}.values()))
        if stages.dim in along:
            found = tensors.moved(found, along.index(stages.dim), 0)
            found = tensors.reshape(found, (stages.count, self.at.run, *tensors.shape(found)[1:]))
            found = tensors.at(tensors.at(found, 0, var(stages.stage)), 0, var(stages.layer))
        if stages.microbatches in along:
            (turn,) = index_exprs(shown[stages.microbatches])
            turn = minimum(maximum(self.at.placed(turn), 0), self.at.microbatches - 1)
            found = tensors.gather(found, tensors.number(turn), 0)
        return found

    def is_plain(self, edge: Edge) -> bool:
        """Whether it reads its own layer, and a microbatch that it says by the number of its own alone."""
        shown, (layer, microbatch) = self.at.shown(edge), self.at.stages.dims
        others = (index for symbol, index in shown.items() if symbol not in self.at.stages.dims)
        if any(isinstance(index, Slice) for index in shown.values()):
            return False
        is_own = shown.get(layer, Point(var(layer))) == Point(var(layer))
        turn = index_symbols(shown[microbatch]) if microbatch in shown else frozenset()
        return is_own and layer not in turn and not any(index_symbols(index) & {layer, microbatch} for index in others)

    def inside(self, reader: Node, dim: Dim, index: Index) -> Index:
        """A read of a point that moves with layers or microbatches, at one that there is: at others nobody asks for
        it."""
        if isinstance(index, Slice) or not index_symbols(index) & {*self.at.stages.dims}:
            return index
        here = self.at.context.over(self.at.graph, reader.domain)
        if here.implies(index.index.ge(0) & index.index.lt(dim.size)):
            return index
        return Point(minimum(maximum(index.index, 0), dim.size - 1))

    # -- definitions -------------------------------------------------------------------------------------------------

    def cases(self, node: Node) -> tuple[Case, ...]:
        """In the program of stages. Which layer it is, all stages say by a mask: each computes every case. The first
        layer of a run, or the last, is told apart, so that the others need none."""
        forward, layer, point = (
            self.at.members[node.id].way > 0,
            var(self.at.stages.layer),
            var(self.at.stages.dim),
        )
        end = 0 if forward else self.at.run - 1
        rest = point.ge(1) if forward else point.lt(self.at.layers - 1)
        at_end = self.cases_where(node, TRUE, const(end))
        others = at_end if self.at.run == 1 else self.cases_where(node, rest, layer)
        if at_end == others:
            return at_end
        return (*(replace(case, condition=layer.eq(end) & case.condition) for case in at_end), *others)

    def cases_where(self, node: Node, known: Condition, layer: Expr) -> tuple[Case, ...]:
        """Those that hold where `known` does of the dim, at such a layer of a stage."""
        here, live = self.at.context.over(self.at.graph, node.domain).assume(known), list[Case]()
        left = here
        for case in node.cases:
            condition = here.simplify_condition(case.condition)
            edge = self.as_away(node, case.edge, left.assume(condition))
            live.append(replace(case, condition=condition, edge=edge))
            left = left.assume(~condition)
            if live[-1].condition == TRUE:
                break
        live, made = [case for case in live if case.condition != FALSE], list[Case]()
        while live and not live[0].condition.dims() & {*self.at.stages.dims}:
            case = live.pop(0)
            here = here.assume(~case.condition)
            made.append(replace(case, edge=self.read(node, case.edge)))
        if not live:
            return tuple(made)
        tensors, within = Tensors(self.at.new, node.location), {self.at.stages.layer: layer}
        value = self.read_anywhere(node, live[-1].edge, here)  # where no other condition holds
        for case in reversed(live[:-1]):
            mask = tensors.apply("condition_value", condition=self.at.placed(case.condition).substitute(within))
            value = tensors.apply("where", mask, self.read_anywhere(node, case.edge, here), value)
        return (*made, Case(TRUE, value, node.location))

    def as_away(self, reader: Node, edge: Edge, here: Context) -> Edge:
        """A read of a layer, or a microbatch, by its number, as one of the reader's own, where that is known, or, in
        its own recurrence, as one so many away."""
        shown, mine = self.at.shown(edge), self.at.members[reader.id] == self.at.members.get(edge.node)
        for symbol in {*self.at.stages.dims} & shown.keys():
            number, (low, high) = self.at.number(shown[symbol]), here.constant_bounds(var(symbol))
            if number is not None and low is not None and low == high and (mine or number == low):
                shown[symbol] = Point(var(symbol) + number - low)
        return replace(edge, map=tuple(shown.values()))

    def read_anywhere(self, node: Node, edge: Edge, here: Context) -> Edge:
        """What a case reads, at points where another one holds, too; zeros where it is not there."""
        is_there = self.is_there(edge, here, {})
        if is_there.dims() & {*self.at.stages.dims}:
            raise self.at.members[node.id].refused(
                "has a case for some layers or microbatches that reads what is not there for the others: every stage "
                "computes all cases",
                node,
            )
        read = self.read(node, edge)
        if is_there == TRUE:
            return read
        tensors = Tensors(self.at.new, node.location)
        type = tensors.seen(read)
        cases = Case(is_there, read, node.location), Case(TRUE, tensors.zeros(type), node.location)
        return self.at.new.cases(cases, type, locate=lambda: node.location)

    def is_there(self, edge: Edge, here: Context, known: dict[Edge, Condition]) -> Condition:
        """Where what is read is there, and all that operators make it of, along other dims."""
        if edge in known:
            return known[edge]
        node, shown, found = self.at.graph.nodes[edge.node], self.at.shown(edge), list[Condition]()
        for symbol, index in shown.items():
            start, stop = points_read(index)
            inside = start.ge(0) & stop.le(self.at.new.graph.dim(symbol).size)
            if symbol not in self.at.stages.dims and not here.implies(inside):
                found.append(inside)
        points = {symbol: index.index for symbol, index in shown.items() if isinstance(index, Point)}
        if not node.is_nominal and len(points) == len(shown):
            found += (self.is_there(operand.substitute(points), here, known) for operand in node.operands)
        return known.setdefault(edge, conjunction(found))


def _is_place(place: Expr, size: int, way: int) -> Condition:
    """Whether a place is one of so many, where it is before that of the reader, or (`way` < 0) behind it."""
    return place.ge(0) if way > 0 else place.lt(size)
