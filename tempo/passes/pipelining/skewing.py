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

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from tempo.analysis.dependence.acyclic import points_read
from tempo.errors import Location
from tempo.passes.manager import PassContext
from tempo.passes.pipelining.stages import Members, Stages
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice, identity_map, index_exprs, index_symbols
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import FALSE, TRUE, Condition, Context, Dim, Expr, Symbol, conjunction, const, maximum, minimum, var

Index = Point | Slice


@dataclass(frozen=True)
class _Away:
    """A read of a member so many microbatches and layers from the reader's own."""

    edge: Edge
    microbatches: int
    layers: int

    def goes(self, way: int) -> bool:
        """Whether it reads what is before the reader in both, or (`way` < 0) behind it."""
        return self.layers * way <= 0 and self.microbatches * way <= 0


@dataclass
class Skewing:
    """`layers`, `microbatches`: how many there are, the first a multiple of the stages."""

    graph: Graph
    stages: Stages
    members: Members
    layers: int
    microbatches: int
    context: PassContext
    copies: dict[int, int] = field(default_factory=dict)
    """By member, what it is in the program of stages."""
    handed_on: dict[_Away, Edge] = field(default_factory=dict)
    """Reads that go from stage to stage, in that program."""
    wholes: dict[int | _Away, Edge] = field(default_factory=dict)
    """What others read of members, and of what is handed on, in the program as it was."""
    complete: dict[int, bool] = field(default_factory=dict)

    @property
    def waves(self) -> int:
        return self.microbatches + self.stages.count - 1

    @property
    def run(self) -> int:
        """How many layers a stage has."""
        return self.layers // self.stages.count

    @cached_property
    def new(self) -> Rewriter:
        stages, dims = self.stages, list[Dim]()
        for dim in self.graph.dims:
            if dim.symbol == stages.microbatches:
                dims.append(Dim(stages.wave, const(self.waves)))
            if dim.symbol == stages.dim:
                dims += [Dim(stages.stage, const(stages.count)), Dim(stages.layer, const(self.run))]
            dims.append(dim)
        return Rewriter(replace(self.graph, dims=tuple(dims)))

    @cached_property
    def within(self) -> dict[Symbol, Expr]:
        """Layer and microbatch at a point of the program of stages."""
        stages = self.stages
        stage, layer = var(stages.stage), var(stages.layer)
        return {stages.dim: self.run * stage + layer, stages.microbatches: var(stages.wave) - stage}

    def skewed(self) -> Graph:
        """Raises `UnsupportedError` for reads between members that do not go through stages."""
        graph, nodes = self.graph, self.new.nodes
        mine = [node for node in graph.operands_first() if node.id in self.members]
        merges = [node for node in mine if node.is_merge]
        for node in merges:
            self.copies[node.id] = self.new.declare(replace(node, domain=self.over(node), cases=())).node
        for node in mine:
            if not node.is_merge:
                self.copies[node.id] = self.copied(node).node
        for node in merges:
            copy = self.copies[node.id]
            nodes[copy] = replace(nodes[copy], cases=self.cases(node))
        for id, node in graph.nodes.items():
            if id not in self.members:
                nodes[id] = self.reading(node)
        outputs = [replace(each, edge=self.outside(each.edge, each.location)) for each in graph.outputs]
        gone = self.members.keys() - self.wholes.keys()
        kept = {id: node for id, node in nodes.items() if id not in gone}
        return replace(graph, dims=self.new.dims, nodes=kept, outputs=tuple(outputs))

    def over(self, node: Node) -> tuple[Symbol, ...]:
        """Its domain in the program of stages."""
        stages = self.stages
        return self.new.canonical({*node.domain, stages.wave, stages.stage, stages.layer} - {*stages.dims})

    def copied(self, node: Node) -> Edge:
        attrs = OPERATORS[node.op].with_exprs(node.attributes, self.placed)
        operands = (self.read(node, edge) for edge in node.operands)
        return Tensors(self.new, node.location).apply(node.op, *operands, **attrs)

    def placed(self, value: Any) -> Any:
        """An expression, or a condition, at a point of the program of stages."""
        return value.substitute(self.within)

    # -- reads of members by members ---------------------------------------------------------------------------------

    def read(self, reader: Node, edge: Edge) -> Edge:
        """What a member reads, at a point of the program of stages."""
        mine, other = self.members[reader.id], self.members.get(edge.node)
        if other is None:
            return self.given(reader, edge)
        away = self.away(edge)
        if away is not None and away.layers == away.microbatches == 0:
            return self.moved(edge)
        if away is not None and other.way == mine.way and away.goes(mine.way):
            return self.from_before(reader, away)
        if other != mine:
            return self.given(reader, self.outside(edge, reader.location))
        if away is not None and away.layers * mine.way <= 0:
            along, microbatches = (symbol.name for symbol in self.stages.dims)
            raise mine.refused(
                f"goes one way along {along} and the other along {microbatches}: no wave has what the next one needs",
                reader,
            )
        raise mine.refused(
            f"reads other points of itself than some before it along {self.stages.dim.name}, or some behind it: what a "
            "stage has made goes to the next alone",
            reader,
        )

    def away(self, edge: Edge) -> _Away | None:
        """None where it is not a number of layers and microbatches away."""
        shown = self.shown(edge)
        layers, microbatches = (_distance(shown[symbol], symbol) for symbol in self.stages.dims)
        return None if layers is None or microbatches is None else _Away(edge, microbatches, layers)

    def shown(self, edge: Edge) -> dict[Symbol, Index]:
        return dict(zip(self.new.nodes[edge.node].domain, edge.map, strict=True))

    def moved(self, edge: Edge, at: Mapping[Symbol, Index] | None = None) -> Edge:
        """The read of a member as one of its copy: at the reader's own point of the program of stages, or as `at`
        says."""
        old, copy = self.shown(edge), self.new.nodes[self.copies[edge.node]]
        own = dict(zip(copy.domain, identity_map(copy.domain)))
        map = tuple({**own, **old, **(at or {})}[each] for each in copy.domain)
        return replace(edge, node=copy.id, map=map)

    def from_before(self, reader: Node, read: _Away) -> Edge:
        """Of the same stage where that has the layer, else of the one next to it, a wave ago. Zeros where there is
        none: nobody asks for what they become."""
        if read in self.handed_on:
            return self.handed_on[read]
        stages, mine, run = self.stages, self.members[reader.id], self.run
        way, tensors = mine.way, Tensors(self.new, reader.location)
        if abs(read.layers) > run:
            raise mine.refused(f"reads {abs(read.layers)} layers away, and a stage has {run}", reader)
        wave, layer = var(stages.wave) + read.microbatches, var(stages.layer) + read.layers
        own = self.moved(read.edge, {stages.wave: Point(wave), stages.layer: Point(layer)})
        is_own, seen, cases = _is_there(layer, run, way), tensors.seen(own), list[Case]()
        if run > abs(read.layers):
            cases.append(Case(_is_there(wave, self.waves, way) & is_own, own, reader.location))
        if read.layers and stages.count > 1:
            ago = wave - way
            place = const(run - 1 if way > 0 else 0) if abs(read.layers) == 1 else layer + way * run
            next_to = self.next_to(read.edge, ago, place, way, tensors)
            cases.append(Case(_is_there(ago, self.waves, way) & ~is_own, next_to, reader.location))
        cases.append(Case(TRUE, tensors.zeros(seen), reader.location))
        found = self.new.cases(tuple(cases), seen, locate=lambda: reader.location)
        return self.handed_on.setdefault(read, found)

    def next_to(self, edge: Edge, wave: Expr, layer: Expr, way: int, tensors: Tensors) -> Edge:
        """What the stage next to this one has made."""
        seen, axis = self.of_all_stages(edge, Point(wave), Point(layer))
        shifted = tensors.apply("shift", seen, axis=axis, distance=way, dim=self.stages.stage.name)
        return tensors.at(shifted, axis, var(self.stages.stage))

    def of_all_stages(self, edge: Edge, wave: Index, layer: Index) -> tuple[Edge, int]:
        """What all stages have made, and which axis is theirs."""
        stages = self.stages
        whole = Slice(const(0), const(stages.count))
        seen = self.moved(edge, {stages.wave: wave, stages.layer: layer, stages.stage: whole})
        before = seen.map[: self.new.nodes[seen.node].domain.index(stages.stage)]
        return seen, sum(isinstance(index, Slice) for index in before)

    # -- what members are given --------------------------------------------------------------------------------------

    def given(self, reader: Node, edge: Edge) -> Edge:
        """What a member reads of others: of their layers those of the stage; of their microbatches the one that is its
        turn, and where there is none, the first or the last."""
        stages, tensors = self.stages, Tensors(self.new, reader.location)
        if not edge.dims() & {*stages.dims}:
            return edge
        if not self.is_plain(edge):
            dims = map(self.new.graph.dim, self.shown(edge))
            inside = (self.inside(reader, dim, index) for dim, index in zip(dims, edge.map, strict=True))
            edge = tensors.apply("copy", replace(edge, map=tuple(inside)))
        shown = self.shown(edge)
        counts = {stages.dim: self.layers, stages.microbatches: self.microbatches}
        along = [symbol for symbol in shown if symbol in counts and index_symbols(shown[symbol]) & {*stages.dims}]
        whole = {symbol: Slice(const(0), const(counts[symbol])) for symbol in along}
        found = replace(edge, map=tuple({**shown, **whole}.values()))
        if stages.dim in along:
            found = tensors.moved(found, along.index(stages.dim), 0)
            found = tensors.reshape(found, (stages.count, self.run, *tensors.shape(found)[1:]))
            found = tensors.at(tensors.at(found, 0, var(stages.stage)), 0, var(stages.layer))
        if stages.microbatches in along:
            (turn,) = index_exprs(shown[stages.microbatches])
            turn = minimum(maximum(self.placed(turn), 0), self.microbatches - 1)
            found = tensors.gather(found, tensors.number(turn), 0)
        return found

    def is_plain(self, edge: Edge) -> bool:
        """Whether it reads its own layer, and a microbatch that it says by the number of its own alone."""
        shown, (layer, microbatch) = self.shown(edge), self.stages.dims
        others = (index for symbol, index in shown.items() if symbol not in self.stages.dims)
        if any(isinstance(index, Slice) for index in shown.values()):
            return False
        is_own = shown.get(layer, Point(var(layer))) == Point(var(layer))
        turn = index_symbols(shown[microbatch]) if microbatch in shown else frozenset()
        return is_own and layer not in turn and not any(index_symbols(index) & {layer, microbatch} for index in others)

    def inside(self, reader: Node, dim: Dim, index: Index) -> Index:
        """A read of a point that moves with layers or microbatches, at one that there is: at others nobody asks for
        it."""
        if isinstance(index, Slice) or not index_symbols(index) & {*self.stages.dims}:
            return index
        here = self.context.over(self.graph, reader.domain)
        if here.implies(index.index.ge(0) & index.index.lt(dim.size)):
            return index
        return Point(minimum(maximum(index.index, 0), dim.size - 1))

    # -- definitions -------------------------------------------------------------------------------------------------

    def cases(self, node: Node) -> tuple[Case, ...]:
        """In the program of stages. Which layer it is, all stages say by a mask: each computes every case. The first
        layer of a run, or the last, is told apart, so that the others need none."""
        forward, layer, point = self.members[node.id].way > 0, var(self.stages.layer), var(self.stages.dim)
        end = 0 if forward else self.run - 1
        rest = point.ge(1) if forward else point.lt(self.layers - 1)
        at_end = self.cases_where(node, TRUE, const(end))
        others = at_end if self.run == 1 else self.cases_where(node, rest, layer)
        if at_end == others:
            return at_end
        return (*(replace(case, condition=layer.eq(end) & case.condition) for case in at_end), *others)

    def cases_where(self, node: Node, known: Condition, layer: Expr) -> tuple[Case, ...]:
        """Those that hold where `known` does of the dim, at such a layer of a stage."""
        here, live = self.context.over(self.graph, node.domain).assume(known), list[Case]()
        left = here
        for case in node.cases:
            condition = here.simplify_condition(case.condition)
            edge = self.at_own_layer(case.edge, left.assume(condition))
            live.append(replace(case, condition=condition, edge=edge))
            left = left.assume(~condition)
            if live[-1].condition == TRUE:
                break
        live, made = [case for case in live if case.condition != FALSE], list[Case]()
        while live and not live[0].condition.dims() & {*self.stages.dims}:
            case = live.pop(0)
            here = here.assume(~case.condition)
            made.append(replace(case, edge=self.read(node, case.edge)))
        if not live:
            return tuple(made)
        tensors, within = Tensors(self.new, node.location), {self.stages.layer: layer}
        value = self.read_anywhere(node, live[-1].edge, here)  # where no other condition holds
        for case in reversed(live[:-1]):
            mask = tensors.apply("condition_value", condition=self.placed(case.condition).substitute(within))
            value = tensors.apply("where", mask, self.read_anywhere(node, case.edge, here), value)
        return (*made, Case(TRUE, value, node.location))

    def at_own_layer(self, edge: Edge, here: Context) -> Edge:
        """A read of the layer that holds there by its number: it is the reader's own."""
        shown, along = self.shown(edge), self.stages.dim
        number = self.number(shown[along]) if along in shown else None
        if number is None or not here.implies(var(along).eq(number)):
            return edge
        return replace(edge, map=tuple({**shown, along: Point(var(along))}.values()))

    def read_anywhere(self, node: Node, edge: Edge, here: Context) -> Edge:
        """What a case reads, at points where another one holds, too; zeros where it is not there."""
        is_there = self.is_there(edge, here)
        if is_there.dims() & {*self.stages.dims}:
            raise self.members[node.id].refused(
                "has a case for some layers or microbatches that reads what is not there for the others: every stage "
                "computes all cases",
                node,
            )
        read = self.read(node, edge)
        if is_there == TRUE:
            return read
        tensors = Tensors(self.new, node.location)
        type = tensors.seen(read)
        cases = Case(is_there, read, node.location), Case(TRUE, tensors.zeros(type), node.location)
        return self.new.cases(cases, type, locate=lambda: node.location)

    def is_there(self, edge: Edge, here: Context) -> Condition:
        """Where what is read is there, and all that operators make it of, along other dims."""
        node, shown, found = self.graph.nodes[edge.node], self.shown(edge), list[Condition]()
        for symbol, index in shown.items():
            start, stop = points_read(index)
            inside = start.ge(0) & stop.le(self.new.graph.dim(symbol).size)
            if symbol not in self.stages.dims and not here.implies(inside):
                found.append(inside)
        points = {symbol: index.index for symbol, index in shown.items() if isinstance(index, Point)}
        if not node.is_nominal and len(points) == len(shown):
            found += (self.is_there(operand.substitute(points), here) for operand in node.operands)
        return conjunction(found)

    # -- reads of members by others ----------------------------------------------------------------------------------

    def reading(self, node: Node) -> Node:
        """One that is no member, with its reads as reads in the program as it was."""
        masked = self.masked(node)
        if not masked:
            return node.reading(partial(self.outside, location=node.location))
        return replace(node, operands=masked)

    def outside(self, edge: Edge, location: Location | None) -> Edge:
        """The read as one in the program as it was."""
        if edge.node not in self.members:
            return edge
        shown = self.shown(edge)
        layer, microbatch = (shown[symbol] for symbol in self.stages.dims)
        number = self.number(layer)
        if number is not None and self.stages.dim not in index_symbols(microbatch):
            return self.of_one_stage(edge, microbatch, number, location)
        layers = _distance(layer, self.stages.dim)
        handed_on = self.of_handed_on(edge, layers, Point(var(self.stages.dim)), location) if layers else None
        if handed_on is not None:
            return handed_on
        if edge.node not in self.wholes:
            node = self.graph.nodes[edge.node]
            made = self.whole(node.id, self.new.identity(self.copies[node.id]), node.location)
            self.new.put(node, made)
        return edge

    def of_handed_on(self, edge: Edge, layers: int, at: Index, location: Location | None) -> Edge | None:
        """The read of a member so many layers away, as one of what is handed on to the layers `at`: it lies there. None
        where no member reads it so."""
        along, shown = self.stages.dim, self.shown(edge)
        own = {symbol: Point(var(symbol) + (layers if symbol == along else 0)) for symbol in shown}
        read = self.away(replace(edge, map=tuple(own.values())))
        here = None if read is None else self.handed_on.get(read)
        if read is None or here is None or self.stages.wave not in here.dims():
            return None
        made = self.whole(read, here, location)
        shown[along] = at
        return replace(made, map=tuple(shown[symbol] for symbol in self.new.nodes[made.node].domain))

    def masked(self, node: Node) -> tuple[Edge, ...]:
        """The operands of one that folds some of the layers, each a row of them, as all of them, of which the others
        count for nothing: parts of all rows lie on the same devices. Empty where it does not."""
        fold, parts = OPERATORS[node.op].fold, dict[int, Slice]()
        for number, edge in enumerate(node.operands):
            layers = self.shown(edge).get(self.stages.dim) if self.has_all_layers(edge.node) else None
            if isinstance(layers, Slice) and layers.start.is_const and layers.length.is_const:
                parts[number] = layers
        counts = {part.length.as_int() for part in parts.values()}
        if fold is None or fold.neutral is None or len(counts) != 1 or counts == {self.layers}:
            return ()
        shapes = [self.graph.seen_type(edge).shape for edge in node.operands]
        axes = {(number, self.axis_of_layers(node.operands[number])) for number in parts}
        factors = OPERATORS[node.op].axes(node.attributes, shapes, node.shape)
        if not any(factor.folds and {*factor.places} == axes for factor in factors):
            return ()
        for first in sorted({part.start.as_int() for part in parts.values()}, reverse=True):
            found = [self.masked_row(node, number, parts.get(number), first) for number in range(len(shapes))]
            if None not in found:
                return tuple(edge for edge in found if edge is not None)
        return ()

    def masked_row(self, node: Node, number: int, part: Slice | None, first: int) -> Edge | None:
        """An operand with all layers, those that a row is of at `first` and behind it."""
        edge, tensors, fold = node.operands[number], Tensors(self.new, node.location), OPERATORS[node.op].fold
        if part is None:
            return self.outside(edge, node.location)
        layers, every = part.start.as_int() - first, Slice(const(0), const(self.layers))
        shown, axis = self.shown(edge), self.axis_of_layers(edge)
        whole = self.outside(replace(edge, map=tuple({**shown, self.stages.dim: every}.values())), node.location)
        row = whole if layers == 0 else self.of_handed_on(edge, layers, every, node.location)
        if row is None:
            return None
        place, dtype = tensors.iota((const(self.layers),), 0), tensors.dtype(row)
        low, high = (tensors.number(each) for each in (first, first + part.length.as_int()))
        counts = tensors.apply("logical_and", tensors.apply("ge", place, low), tensors.apply("lt", place, high))
        mask = tensors.reshape(counts, (self.layers, *(1,) * (tensors.rank(row) - axis - 1)))
        assert fold is not None
        assert fold.neutral is not None
        return tensors.apply("where", mask, row, tensors.constant(fold.neutral(dtype), dtype))

    def has_all_layers(self, id: int) -> bool:
        """Whether a node can be made at all of them, wherever it is asked for: a member, or what is made of members and
        inputs at the same layer."""
        if id not in self.complete:
            node = self.graph.nodes[id]
            is_made = not node.is_nominal and not node.attr("checked") and not node.is_draw
            self.complete[id] = (
                id in self.members or node.is_input or (is_made and all(map(self.is_at_all_layers, node.operands)))
            )
        return self.complete[id]

    def is_at_all_layers(self, edge: Edge) -> bool:
        along = self.stages.dim
        index = self.shown(edge).get(along)
        if index is None or along not in index_symbols(index):
            return along not in edge.dims()
        return index == Point(var(along)) and self.has_all_layers(edge.node)

    def axis_of_layers(self, edge: Edge) -> int:
        """Of what is seen of several."""
        domain = self.graph.nodes[edge.node].domain
        return sum(isinstance(index, Slice) for index in edge.map[: domain.index(self.stages.dim)])

    def number(self, layer: Index) -> int | None:
        """That of the layer, where a read names one."""
        if isinstance(layer, Slice) or layer.index.dims():
            return None
        low, high = self.context.over(self.graph, ()).constant_bounds(layer.index)
        return low if low == high else None

    def of_one_stage(self, edge: Edge, microbatch: Index, layer: int, location: Location | None) -> Edge:
        """What one stage has made: all others add nothing to it."""
        tensors, (stage, place) = Tensors(self.new, location), divmod(layer, self.run)
        wave: Index = (
            Point(microbatch.index + stage)
            if isinstance(microbatch, Point)
            else replace(microbatch, start=microbatch.start + stage)
        )
        seen, axis = self.of_all_stages(edge, wave, Point(const(place)))
        count, rank, dtype = self.stages.count, tensors.rank(seen), tensors.dtype(seen)
        is_it = tensors.apply("eq", tensors.iota((const(count),), 0), tensors.number(stage))
        mask = tensors.reshape(is_it, (count, *(1,) * (rank - axis - 1)))
        masked = tensors.apply("where", mask, seen, tensors.constant(0, dtype))
        return tensors.apply("reduce_any" if dtype == "bool" else "reduce_sum", masked, axes=(axis,))

    def whole(self, key: int | _Away, edge: Edge, location: Location | None) -> Edge:
        """What `edge` shows at the points of the program of stages, at those of the program as it was."""
        if key in self.wholes:
            return self.wholes[key]
        stages, tensors, domain = self.stages, Tensors(self.new, location), self.new.nodes[edge.node].domain
        counts = {stages.wave: self.waves, stages.layer: self.run}
        shown = {
            symbol: Slice(const(0), const(counts[symbol])) if symbol in counts else Point(var(symbol))
            for symbol in domain
        }
        seen = replace(edge, map=tuple(shown.values()))
        axes = [symbol for symbol in domain if symbol in counts]
        waves = axes.index(stages.wave)
        own = tensors.add(tensors.iota((const(self.microbatches),), 0), tensors.number(var(stages.stage)))
        found = tensors.gather(seen, own, waves)
        found = tensors.moved(found, waves, 1) if stages.layer in axes else tensors.with_ones(found, 0, 1)
        rows = self.new.nodes[found.node].domain
        every = Slice(const(0), const(stages.count))
        found = replace(found, map=tuple(every if each == stages.stage else Point(var(each)) for each in rows))
        found = tensors.reshape(found, (self.layers, *tensors.shape(found)[2:]))
        found = tensors.at(tensors.at(found, 0, var(stages.dim)), 0, var(stages.microbatches))
        return self.wholes.setdefault(key, found)


def _distance(index: Index, symbol: Symbol) -> int | None:
    """How far it is from the reader's own point; None where that is no number."""
    away = index.index - var(symbol) if isinstance(index, Point) else var(symbol)
    return away.as_int() if away.is_const else None


def _is_there(place: Expr, size: int, way: int) -> Condition:
    """Whether a place is one of so many, where it is before that of the reader, or (`way` < 0) behind it."""
    return place.ge(0) if way > 0 else place.lt(size)
