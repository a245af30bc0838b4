"""Reads of members by others: what stages have made, in the order of layers and microbatches again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from tempo.errors import Location
from tempo.passes.pipelining.coordinates import Away, Coordinates, Index, behind, distance
from tempo.sdg.graph import Edge, Node, Point, Slice, index_symbols
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import const, var


@dataclass
class Outside:
    """What is no member, with its reads of members."""

    at: Coordinates
    wholes: dict[int | Away, Edge] = field(default_factory=dict)
    """By member, and by read of one that is handed on, what others read of it."""
    complete: dict[int, bool] = field(default_factory=dict)

    def reading(self, node: Node) -> Node:
        """One that is no member, with its reads as reads in the program as it was."""
        masked = self.masked(node)
        if not masked:
            return node.reading(partial(self.outside, location=node.location))
        return replace(node, operands=masked)

    def outside(self, edge: Edge, location: Location | None) -> Edge:
        """The read as one in the program as it was."""
        if edge.node not in self.at.members:
            return edge
        shown = self.at.shown(edge)
        layer, microbatch = (shown[symbol] for symbol in self.at.stages.dims)
        number = self.at.number(layer)
        if number is not None and self.at.stages.dim not in index_symbols(microbatch):
            return self.of_one_stage(edge, microbatch, number, location)
        layers = distance(layer, self.at.stages.dim)
        handed_on = self.of_handed_on(edge, layers, Point(var(self.at.stages.dim)), location) if layers else None
        if handed_on is not None:
            return handed_on
        if edge.node not in self.wholes:
            node = self.at.graph.nodes[edge.node]
            made = self.whole(node.id, self.at.new.identity(self.at.copies[node.id]), node.location)
            self.at.new.put(node, made)
        return edge

    def of_handed_on(self, edge: Edge, layers: int, at: Index, location: Location | None) -> Edge | None:
        """The read of a member so many layers away, as one of what is handed on to the layers `at`: it lies there. None
        where no member reads it so."""
        along, shown = self.at.stages.dim, self.at.shown(edge)
        own = {symbol: Point(var(symbol) + (layers if symbol == along else 0)) for symbol in shown}
        read = self.at.away(replace(edge, map=tuple(own.values())))
        here = None if read is None else self.at.handed_on.get(read)
        if read is None or here is None or self.at.stages.wave not in here.dims():
            return None
        made = self.whole(read, here, location)
        shown[along] = at
        return replace(made, map=tuple(shown[symbol] for symbol in self.at.new.nodes[made.node].domain))

    def of_one_stage(self, edge: Edge, microbatch: Index, layer: int, location: Location | None) -> Edge:
        """What one stage has made: all others add nothing to it."""
        tensors, (stage, place) = Tensors(self.at.new, location), divmod(layer, self.at.run)
        seen, axis = self.at.of_all_stages(edge, behind(microbatch, stage), Point(const(place)))
        count, rank, dtype = self.at.stages.count, tensors.rank(seen), tensors.dtype(seen)
        is_it = tensors.apply("eq", tensors.iota((const(count),), 0), tensors.number(stage))
        mask = tensors.reshape(is_it, (count, *(1,) * (rank - axis - 1)))
        masked = tensors.apply("where", mask, seen, tensors.constant(0, dtype))
        return tensors.apply("reduce_any" if dtype == "bool" else "reduce_sum", masked, axes=(axis,))

    def whole(self, key: int | Away, edge: Edge, location: Location | None) -> Edge:
        """What `edge` shows at the points of the program of stages, at those of the program as it was."""
        if key in self.wholes:
            return self.wholes[key]
        stages, tensors, domain = (
            self.at.stages,
            Tensors(self.at.new, location),
            self.at.new.nodes[edge.node].domain,
        )
        counts = {stages.wave: self.at.waves, stages.layer: self.at.run}
        shown = {
            symbol: Slice(const(0), const(counts[symbol])) if symbol in counts else Point(var(symbol))
            for symbol in domain
        }
        seen = replace(edge, map=tuple(shown.values()))
        axes = [symbol for symbol in domain if symbol in counts]
        waves = axes.index(stages.wave)
        own = tensors.add(tensors.iota((const(self.at.microbatches),), 0), tensors.number(var(stages.stage)))
        found = tensors.gather(seen, own, waves)
        found = tensors.moved(found, waves, 1) if stages.layer in axes else tensors.with_ones(found, 0, 1)
        rows = self.at.new.nodes[found.node].domain
        every = Slice(const(0), const(stages.count))
        found = replace(found, map=tuple(every if each == stages.stage else Point(var(each)) for each in rows))
        found = tensors.reshape(found, (self.at.layers, *tensors.shape(found)[2:]))
        found = tensors.at(tensors.at(found, 0, var(stages.dim)), 0, var(stages.microbatches))
        return self.wholes.setdefault(key, found)

    def masked(self, node: Node) -> tuple[Edge, ...]:
        """The operands of one that folds some of the layers, each a row of them, as all of them, of which the others
        count for nothing: parts of all rows lie on the same devices. Empty where it does not."""
        fold, parts = OPERATORS[node.op].fold, dict[int, Slice]()
        for number, edge in enumerate(node.operands):
            layers = self.at.shown(edge).get(self.at.stages.dim) if self.has_all_layers(edge.node) else None
            if isinstance(layers, Slice) and layers.start.is_const and layers.length.is_const:
                parts[number] = layers
        counts = {part.length.as_int() for part in parts.values()}
        if fold is None or fold.neutral is None or len(counts) != 1 or counts == {self.at.layers}:
            return ()
        shapes = [self.at.graph.seen_type(edge).shape for edge in node.operands]
        axes = {(number, self.at.axis_of(node.operands[number], self.at.stages.dim)) for number in parts}
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
        edge, tensors, fold = (
            node.operands[number],
            Tensors(self.at.new, node.location),
            OPERATORS[node.op].fold,
        )
        if part is None:
            return self.outside(edge, node.location)
        layers, every = part.start.as_int() - first, Slice(const(0), const(self.at.layers))
        shown, axis = self.at.shown(edge), self.at.axis_of(edge, self.at.stages.dim)
        whole = self.outside(replace(edge, map=tuple({**shown, self.at.stages.dim: every}.values())), node.location)
        row = whole if layers == 0 else self.of_handed_on(edge, layers, every, node.location)
        if row is None:
            return None
        place, dtype = tensors.iota((const(self.at.layers),), 0), tensors.dtype(row)
        low, high = (tensors.number(each) for each in (first, first + part.length.as_int()))
        counts = tensors.apply("logical_and", tensors.apply("ge", place, low), tensors.apply("lt", place, high))
        mask = tensors.reshape(counts, (self.at.layers, *(1,) * (tensors.rank(row) - axis - 1)))
        assert fold is not None
        assert fold.neutral is not None
        return tensors.apply("where", mask, row, tensors.constant(fold.neutral(dtype), dtype))

    def has_all_layers(self, id: int) -> bool:
        """Whether a node can be made at all of them, wherever it is asked for: a member, or what is made of members and
        inputs at the same layer."""
        if id not in self.complete:
            node = self.at.graph.nodes[id]
            is_made = not node.is_nominal and not node.attr("checked") and not node.is_draw
            self.complete[id] = (
                id in self.at.members or node.is_input or (is_made and all(map(self.is_at_all_layers, node.operands)))
            )
        return self.complete[id]

    def is_at_all_layers(self, edge: Edge) -> bool:
        along = self.at.stages.dim
        shown = self.at.shown(edge)
        own, others = shown.pop(along, None), shown.values()
        if any(along in index_symbols(index) for index in others):
            return False
        if own is None or along not in index_symbols(own):
            return True
        return own == Point(var(along)) and self.has_all_layers(edge.node)
