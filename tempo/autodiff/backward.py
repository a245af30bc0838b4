"""Gradients, expanded: the adjoints of everything between a loss and what it is differentiated with respect to.

The adjoint of a node is a tensor over the node's domain: the derivative of the sum of the loss, over its domain, with
respect to each value. Nodes are visited consumers first; each sends contributions through its reads. A cycle of the
graph runs through a merge, and its adjoint runs through the adjoint of that merge, which is a merge itself: of a
recurrence forward in time, one backward in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from tempo import dtypes
from tempo.analysis.asked import Asked, all_differentiated, asked_by_gradient, differentiated
from tempo.analysis.demand.demand import demand
from tempo.analysis.rows import Mask, Rows, Shown, exists, is_ragged, row_masks, selected
from tempo.autodiff.nodes import Guarded, Nodes, pulled_back
from tempo.autodiff.preimage import GuardedBox
from tempo.autodiff.transpose import Begun, contributions
from tempo.errors import Location, UnsupportedError
from tempo.sdg.components import reached, strongly_connected
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, Slice, TensorType, identity_map
from tempo.sdg.operators.creation import PLACEHOLDERS
from tempo.symbolic import TRUE, Box, Condition, Context, Expr, Symbol, conjunction, const, disjunction, var

Value = tuple[int, int]
"""A node and the number of one of its results."""


@dataclass(frozen=True)
class Loss:
    """What is differentiated: `edge`, of shape (), read at every point of `domain`."""

    edge: Edge
    domain: tuple[Symbol, ...]

    def seed(self, nodes: Nodes) -> Seed:
        return Seed(self.edge, self.domain, nodes.constant(1, nodes.graph.seen_type(self.edge).dtype))


@dataclass(frozen=True)
class Seed:
    """What is differentiated, `edge` at every point of `domain`, and its cotangent there, of the same shape."""

    edge: Edge
    domain: tuple[Symbol, ...]
    cotangent: Edge


class Backward:
    """The adjoints for what is differentiated: a loss, or several values, each with a cotangent; `wanted` are the
    values that it is differentiated with respect to."""

    def __init__(self, nodes: Nodes, seeds: Sequence[Seed], wanted: set[Value]) -> None:
        self.nodes = nodes
        self.graph = nodes.graph
        self.seeds = seeds
        reads = {
            id: [edge.node for edge in differentiable_reads(self.graph, node)] for id, node in self.graph.nodes.items()
        }
        below = reached((seed.edge.node for seed in seeds), reads.__getitem__)
        readers: dict[int, list[int]] = {id: [] for id in below}
        for id in below:
            for producer in reads[id]:
                readers[producer].append(id)
        self.active = reached(below.intersection(node for node, _ in wanted), readers.__getitem__)
        self._check_lasts()
        self.reads = {id: [other for other in reads[id] if other in self.active] for id in self.active}
        self.boxes = self._boxes()
        self.components = strongly_connected(sorted(self.reads), self.reads)
        self.cycle = {id: number for number, found in enumerate(self.components) for id in found}
        self.received: dict[Value, list[Guarded]] = {}  # from the cycle that the value is on
        self.outside: dict[Value, list[Guarded]] = {}
        self.begun: dict[Value, list[Begun]] = {}  # sums of what is received that are still to be begun
        self.ended: set[Value] = set()  # values that have received all
        self.declared: dict[int, int] = {}  # merges on a cycle, and the merges that are their adjoints
        self._run()

    def _check_lasts(self) -> None:
        for last in (each for each in map(self.graph.nodes.__getitem__, sorted(self.active)) if each.is_last):
            raise UnsupportedError(
                f"the gradient goes through {last.name}, which is known when the loop over {last.attr('along').name} "
                "has ended",
                location=self.nodes.location,
                hint="stop it with tp.stop_gradient, or give the dim a size that is known beforehand",
            )

    def _boxes(self) -> dict[int, Box]:
        """The points that the loss needs; elsewhere adjoints are zero. Leaves read nothing: demand follows what a
        derivative does."""
        return {id: found.box for id, found in demand(all_differentiated(self.alone(self.graph.nodes))).items()}

    def alone(self, nodes: Mapping[int, Node]) -> Graph:
        """The graph of these nodes, of which nothing is asked but what is differentiated."""
        roots = (
            Output(f"seed {at}", each.edge, each.domain, self.graph.seen_type(each.edge), each.domain)
            for at, each in enumerate(self.seeds)
        )
        guards, last_reads = self.graph.guards, self.graph.last_reads
        return Graph(self.graph.dims, nodes, tuple(roots), guards=guards, last_reads=last_reads)

    def region(self, id: int, condition: Condition = TRUE) -> GuardedBox:
        return GuardedBox(self.graph.domain_dims(self.graph.nodes[id]), self.boxes[id], condition)

    def type_of(self, value: Value) -> TensorType:
        return self.graph.nodes[value[0]].results[value[1]]

    # Sending.

    def _run(self) -> None:
        if not any(seed.edge.node in self.active for seed in self.seeds):
            return
        order, cyclic = self._order()
        for id in cyclic:
            node = self.graph.nodes[id]
            adjoint = self.nodes.declare(node.domain, node.type, f"grad_{node.name}")
            self.declared[id] = adjoint.id
        self._seed()
        for id in cyclic:
            self._visit(self.graph.nodes[id], (TRUE, self.nodes.identity(self.declared[id])))
        for id in order:
            if id in self.declared:
                continue
            node = self.graph.nodes[id]
            found = next(filter(None, (self.adjoint((id, at)) for at in range(len(node.results)))), ())
            if found:
                self._visit(node, choice(self.nodes, found, node.type, self.context(id)))
        for id, adjoint_id in self.declared.items():
            self.nodes.define(adjoint_id, self._covering((id, 0), self.adjoint((id, 0)), self.context(id)))
        for value in tuple(self.begun):
            self._begin(value)

    def context(self, id: int) -> Context:
        return self.region(id).context()

    def _order(self) -> tuple[list[int], list[int]]:
        """Consumers first, and the merges on cycles. These send before anything else, whatever they will receive."""
        looped = {id for each in self.components for id in each if len(each) > 1 or id in self.reads[id]}
        cyclic = [id for id in sorted(looped) if self.graph.nodes[id].is_merge]
        opened = {id: [] if id in cyclic else self.reads[id] for id in self.reads}
        ordered = [id for each in strongly_connected(sorted(self.reads), opened) for id in each]
        return ordered[::-1], cyclic

    def _seed(self) -> None:
        for seed in (each for each in self.seeds if each.edge.node in self.active):
            dims = tuple(self.graph.dim(symbol) for symbol in seed.domain)
            self._send(seed.cotangent, seed.edge, GuardedBox(dims, Box.full(dims)))

    def _visit(self, node: Node, adjoint: Guarded) -> None:
        condition, cotangent = adjoint[0], self._masked(node, *adjoint)
        for guard, edge, part in self._parts(node, cotangent):
            region = self.region(node.id)
            where = region.context().simplify_condition(guard & condition)
            is_cyclic = self.cycle[node.id] == self.cycle[edge.node]
            for shown in self._shown if not node.attr("in_row") else ():  # else it gives to points that there are
                part = self._in_rows(shown, shown.read(edge), part)
            if node.id in self._astray:
                part = self._where_asked(node.id, part)
            self._send(part, edge, GuardedBox(region.dims, region.box, where), is_cyclic)

    def _masked(self, node: Node, condition: Condition, cotangent: Edge) -> Edge:
        """The cotangent, zero at points behind the end of a row: of a sum it is the same at all positions."""
        if not self._shown:
            return cotangent
        varying = dict(zip(self.nodes.nodes[cotangent.node].domain, cotangent.map))
        active = [number for number, edge in enumerate(node.operands) if edge.node in self.active]
        context = self.region(node.id, condition).context()
        for shown in self._shown:
            goes_along = all(_is_at(varying.get(symbol), symbol, context) for symbol in shown.end.domain)
            own = [Rows(identity_map(shown.end.domain), ())] if is_ragged(shown.end, node.domain) else []
            cotangent = self._in_rows(shown, (*shown.mixed(node, active), *([] if goes_along else own)), cotangent)
        return cotangent

    def _in_rows(self, shown: Shown, rows: Iterable[Rows], cotangent: Edge) -> Edge:
        """With zeros for what there is not, so that it may be taken for what it is anywhere."""
        for each in rows:
            there = exists(shown.end, self.nodes, each)
            cotangent = selected(self.nodes, there, cotangent, Mask(each, 0), in_row=True)
        return cotangent

    @cached_property
    def _shown(self) -> list[Shown]:
        return [Shown(self._alone, end) for end in self.graph.ragged.values()]

    @cached_property
    def _alone(self) -> Graph:
        return self.alone(_marked_as_copies(self.graph))

    @cached_property
    def _asked(self) -> Asked:
        return asked_by_gradient(self.alone(self.graph.nodes), self.boxes, self.graph.ragged.values())

    @cached_property
    def _astray(self) -> frozenset[int]:
        return self._asked.astray if self.graph.ragged else frozenset()

    def _where_asked(self, id: int, part: Edge) -> Edge:
        """Zeros where no point that exists asks for the node: 0 times what is not finite is no 0."""
        zero = self.nodes.constant(0, self.nodes.dtype(part))
        found = self.nodes.apply("where", self._asked.holds(self.nodes, id), part, zero, in_row=True)
        self.nodes.guards[found.node] = self._asked.condition(id)
        return found

    def _parts(self, node: Node, cotangent: Edge) -> Iterator[tuple[Condition, Edge, Edge]]:
        """For every active read: under which condition, through which edge, and the cotangent of what it sees."""
        if not self.reads[node.id]:
            return
        if node.is_merge:
            yield from ((guard, edge, cotangent) for guard, edge in node.guarded_reads() if edge.node in self.active)
            return
        result = self.nodes.identity(node.id)
        for edge, part in zip(node.operands, pulled_back(self.nodes, node, result, cotangent), strict=True):
            if part is not None and edge.node in self.active:
                yield TRUE, edge, part

    def _send(self, cotangent: Edge, edge: Edge, reader: GuardedBox, is_cyclic: bool = False) -> None:
        producer = self.region(edge.node)
        value = (edge.node, edge.result)
        assert value not in self.ended, "consumers come first"
        begun = self.begun.setdefault(value, []) if is_cyclic else None
        found = contributions(self.nodes, cotangent, edge.map, reader, producer, begun)
        fitted = ((condition, self._fitted(part, self.type_of(value))) for condition, part in found)
        received = self.received if is_cyclic else self.outside
        received.setdefault(value, []).extend(fitted)

    def _fitted(self, part: Edge, type: TensorType) -> Edge:
        """With the lengths that the value has at its own point: they are those of the part, where the part counts.

        Of a tensor of shape (t.size - t,) that is read at t = 0, the part has the shape (t.size,).
        """
        shape = self.nodes.shape(part)
        if shape == type.shape:
            return part
        lengths = {"starts": (const(0),) * len(shape), "lengths": type.shape, "steps": (1,) * len(shape)}
        return self.nodes.apply("slice", part, **lengths)

    # Results.

    def adjoint(self, value: Value) -> Alternatives:
        self._begin(value)
        received = [*self.received.get(value, ()), *self.outside.get(value, ())]
        return collected(self.nodes, received, self.type_of(value), self.context(value[0])) if received else ()

    def _begin(self, value: Value) -> None:
        """What comes from outside of the cycle is in a running sum from its beginning, in one if there are several. Not
        along rows that end each by itself: their points are never read as they lie."""
        self.ended.add(value)
        if not self.begun.get(value):
            return
        begun, region, type = self.begun.pop(value), self.region(value[0]), self.type_of(value)
        context, given = region.context(), None
        first = max(begun, key=lambda each: context.implies(each.condition))
        is_ragged = any(dim.symbol in self.graph.ragged for dim in first.rows(region))
        if self.outside.get(value) and not is_ragged:
            found = collected(self.nodes, self.outside[value], type, context)
            condition, edge = choice(self.nodes, found, type, context)
            given = condition & region.box.condition(), edge
            left = context.simplify_condition(condition & ~first.condition)
            self.outside[value] = [] if context.excludes(left) else [(left, edge)]
        for each in begun:
            each.define(self.nodes, given if each is first else None, region, type)

    def gradient(self, value: Value) -> Alternatives:
        """The adjoint everywhere, with zeros where the loss does not reach: the cases of a merge."""
        id = value[0]
        if id in self.declared:
            found: Alternatives = ((TRUE, self.nodes.identity(self.declared[id])),)
        else:
            found = self.adjoint(value)
        everywhere = Context.of(self.graph.domain_dims(self.graph.nodes[id]))
        return self._covering(value, found, everywhere, self.boxes[id].condition() if found else TRUE)

    def _covering(self, value: Value, found: Alternatives, left: Context, inside: Condition = TRUE) -> Alternatives:
        """The cases of a merge that has what was found, `inside`, and zeros elsewhere."""
        cases: list[Guarded] = []
        for condition, edge in found:
            where = left.simplify_condition(condition & inside)
            if not left.excludes(where):
                cases.append((where, edge))
                left = left.assume(~where)
        if cases and left.infeasible():
            return (*cases[:-1], (TRUE, cases[-1][1]))
        return (*cases, (TRUE, self.nodes.zeros(self.type_of(value))))


# Adjoints while they are collected: sums of contributions that exist at some points only.

Alternatives = tuple[Guarded, ...]
"""The value is that of the one that holds; none do where the adjoint is zero and nothing is to be computed."""


def collected(nodes: Nodes, contributions: Sequence[Guarded], type: TensorType, context: Context) -> Alternatives:
    """The sum of the contributions, so that at every point only those that exist there are computed."""
    received: dict[Condition, list[Edge]] = {}
    for condition, edge in contributions:
        received.setdefault(condition, []).append(edge)
    groups = [(condition, summed(nodes, edges)) for condition, edges in received.items()]
    found: Alternatives = ()
    for group in groups:
        joined = _joined(nodes, found, group, context)
        if joined is None:
            return (_everywhere(nodes, tuple(groups), type, context),)
        found = joined
    return found


def _everywhere(nodes: Nodes, groups: Alternatives, type: TensorType, context: Context) -> Guarded:
    """The sum where any of them exists, of each with zeros where it does not: as many cases as there are groups."""
    covered = disjunction(condition for condition, _ in groups)
    zero = TRUE, nodes.zeros(type)
    parts = [
        edge if context.implies(condition) else nodes.choice(((condition, edge), zero), type)
        for condition, edge in groups
    ]
    condition = TRUE if context.implies(covered) else context.simplify_condition(covered)
    return condition, reduce(nodes.add, parts)


def _joined(nodes: Nodes, found: Alternatives, new: Guarded, context: Context) -> Alternatives | None:
    """`found` and `new`, added where both exist; None where there are several others, and not all of them apart."""
    condition, edge = new
    if all(context.excludes(other & condition) for other, _ in found):
        return (*found, new)
    if len(found) > 1:
        return None
    ((other, value),) = found
    within = context.assume(condition)
    if within.implies(other):  # new is the narrower one
        return ((condition, nodes.add(value, edge)), (other, value))
    if context.assume(other).implies(condition):
        return ((other, nodes.add(value, edge)), (condition, edge))
    both = context.simplify_condition(conjunction((other, condition)))
    return ((both, nodes.add(value, edge)), (other, value), (condition, edge))


def choice(nodes: Nodes, found: Alternatives, type: TensorType, context: Context) -> Guarded:
    """One value and where there is one; a merge where there are several alternatives."""
    if len(found) == 1:
        return found[0]
    covered = disjunction(condition for condition, _ in found)
    if context.implies(covered):
        cases = (*found[:-1], (TRUE, found[-1][1]))
        return TRUE, nodes.choice(cases, type)
    return context.simplify_condition(covered), nodes.choice(found, type)


# A sum of what several slices of one tensor get: `pad(a) + pad(b)`, with zeros where the other is, is `concat(a, b)`.
# The gates of a cell are slices of one product, so their gradients are the parts of one tensor. Padded and added, each
# of them would be as large as all.


@dataclass(frozen=True)
class _Padded:
    """`edge` stands from `start` to `end` along an axis, of `size` positions; zeros are around it."""

    edge: Edge
    axis: int
    start: int
    end: int
    size: Expr


def summed(nodes: Nodes, edges: Sequence[Edge]) -> Edge:
    """The sum of tensors of one shape; what is padded is put in rows that do not overlap."""
    parts = [_part(nodes, edge) for edge in edges]
    whole = [edge for edge, part in zip(edges, parts) if part is None]
    rows: list[list[_Padded]] = []
    for part in sorted((each for each in parts if each is not None), key=lambda each: (each.axis, each.start)):
        before = (row for row in rows if row[-1].axis == part.axis and row[-1].end <= part.start)
        row = next(before, None)
        if row is None:
            rows.append([part])
        else:
            row.append(part)
    return reduce(nodes.add, [*whole, *(_in_a_row(nodes, row) for row in rows)])


def _part(nodes: Nodes, edge: Edge) -> _Padded | None:
    """What is padded with zeros along one axis, as far as numbers say; None for anything else."""
    node = nodes.nodes[edge.node]
    if node.op != "pad" or node.attr("value") != 0 or not nodes.is_identity(edge):
        return None
    (inner,), low, high = node.operands, node.attr("low"), node.attr("high")
    axes = [axis for axis, sides in enumerate(zip(low, high)) if sides != (const(0), const(0))]
    if len(axes) != 1:
        return None
    (axis,) = axes
    start, length = low[axis], nodes.shape(inner)[axis]
    if not (start.is_const and length.is_const and start.as_int() >= 0):
        return None
    return _Padded(inner, axis, start.as_int(), (start + length).as_int(), nodes.shape(edge)[axis])


def _in_a_row(nodes: Nodes, row: list[_Padded]) -> Edge:
    axis, ends = row[0].axis, [row[0].start, *(part.end for part in row)]
    edges = [nodes.surrounded(part.edge, axis, const(part.start - end), const(0)) for part, end in zip(row, ends)]
    joined = edges[0] if len(edges) == 1 else nodes.apply("concat", *edges, axis=axis)
    return nodes.surrounded(joined, axis, const(ends[0]), row[0].size - ends[-1])


# Which reads derivatives go through.


def differentiable_reads(graph: Graph, node: Node) -> Iterator[Edge]:
    """The reads of floating values on which the value of `node` depends smoothly."""
    if any(dtypes.is_float(type.dtype) for type in node.results):
        edges = [edge for _, edge in differentiated(node).reads()]
        yield from (edge for edge in edges if dtypes.is_float(graph.nodes[edge.node].results[edge.result].dtype))


# Placeholders.

_NAMES = frozenset(operator.name for operator in PLACEHOLDERS)


def _is_at(index: Point | Slice | None, symbol: Symbol, context: Context) -> bool:
    """Whether it is the point itself, or a number that the point is for sure."""
    return isinstance(index, Point) and context.implies(index.index.eq(var(symbol)))


def expand_gradients(graph: Graph) -> Graph:
    """The graph without placeholders: gradients of inner losses first, since outer ones differentiate through them.

    Raises `UnsupportedError` at the line of `tp.grad` where a gradient is part of what it differentiates.
    """
    if not any(node.op in _NAMES for node in graph.nodes.values()):
        return graph
    return without_markers(with_markers(graph))


def with_markers(graph: Graph) -> Graph:
    """The graph with its gradients expanded, and with what says how those that are still to come go on."""
    for loss, ids in _losses(graph):
        graph = _expanded(graph, loss, ids)
    return graph


def _losses(graph: Graph) -> list[tuple[Loss, list[int]]]:
    """The placeholders by loss, those that a loss goes through before those of that loss."""
    groups: dict[Loss, list[int]] = {}
    for node in graph.nodes.values():
        if node.op == "gradient":
            groups.setdefault(Loss(node.attr("loss"), node.attr("over")), []).append(node.id)
    reads = {id: [edge.node for edge in differentiable_reads(graph, node)] for id, node in graph.nodes.items()}
    owner = {id: loss for loss, ids in groups.items() for id in ids}
    reads |= {id: [loss.edge.node] for id, loss in owner.items()}
    for component in strongly_connected(owner, reads):
        inside = [id for id in component if id in owner]
        if len(component) > 1 and inside:
            raise UnsupportedError(
                "a gradient is part of the loss that it differentiates",
                location=graph.nodes[inside[0]].location,
                hint="Declare what is updated with it as a tp.parameter, which is a leaf, "
                "or stop it with tp.stop_gradient.",
            )
    below = {loss: reached([loss.edge.node], reads.__getitem__) for loss in groups}
    # By how many other losses each goes through, one in another.
    return sorted(groups.items(), key=lambda item: len({owner[id] for id in below[item[0]] if id in owner}))


def _expanded(graph: Graph, loss: Loss, ids: list[int]) -> Graph:
    nodes = Nodes(graph, graph.nodes[ids[0]].location)
    wanted = {graph.nodes[id].attr("wrt") for id in ids}
    backward = Backward(nodes, [loss.seed(nodes)], wanted)
    check_rows(graph, backward, nodes.location)
    for id in ids:
        placeholder = graph.nodes[id]
        value = placeholder.attr("wrt")
        merge = nodes.declare(placeholder.domain, placeholder.type, placeholder.name)
        nodes.define(merge.id, backward.gradient(value))
        nodes.nodes[id] = replace(nodes.nodes.pop(merge.id), id=id, location=placeholder.location)
    return nodes.finished()


def check_rows(graph: Graph, backward: Backward, location: Location | None) -> None:
    for stop in graph.stops.values():
        if stop.rows and _goes_through_rows(graph, backward, stop):
            names = ", ".join(symbol.name for symbol in stop.rows)
            raise UnsupportedError(
                f"the gradient goes through what each point of {names} ends by itself along {stop.name}",
                location=location,
                hint="leave each= out of the stop, or stop the gradient with tp.stop_gradient",
            )


def _goes_through_rows(graph: Graph, backward: Backward, stop: Output) -> bool:
    """Through what varies along the stop's domain, or through a fold of rows, whose adjoint would be of all of them."""
    if any(is_ragged(stop, graph.nodes[id].domain) for id in backward.active):
        return True
    masks = row_masks(backward.alone(_marked_as_copies(graph)), stop)
    return any(graph.nodes[id].operands[number].node in backward.reads.get(id, ()) for id, number in masks)


def _marked_as_copies(graph: Graph) -> dict[int, Node]:
    """All nodes; `stop_gradient` and `custom_gradient` are their first operand."""
    return {
        id: replace(node, op="copy", operands=node.operands[:1], attrs=()) if node.op in _NAMES else node
        for id, node in graph.nodes.items()
    }


def without_markers(graph: Graph) -> Graph:
    """Markers are copies; what reads a cotangent was only a pattern."""
    cotangents = [node.id for node in graph.nodes.values() if node.op == "cotangent"]
    patterns = reached(cotangents, lambda id: [reader for reader, _ in graph.consumers[id]])
    return replace(graph, nodes={id: node for id, node in _marked_as_copies(graph).items() if id not in patterns})
