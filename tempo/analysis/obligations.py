"""What must hold at every demanded point of a program: the conditions that checks prove or look for violations of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tempo.analysis.reports import (
    elements_needed,
    empty_error,
    negative_error,
    output_reader,
    outside_error,
    reduced_axes,
    slice_text,
    uncovered_error,
)
from tempo.errors import TempoError
from tempo.sdg.graph import Case, Edge, Graph, Node, Point, Slice
from tempo.symbolic import TRUE, Condition, Expr, Symbol, conjunction, disjunction, var

Where = Mapping[Symbol, Expr]


@dataclass(frozen=True)
class Obligation:
    """At every demanded point of `reader` where `guard` holds, `goal` holds too; `error` is what to raise otherwise.

    The reader is a node of the graph or stands for an output (then its id is -1). `error` is given the point: an
    expression of sizes, or a number, per dim of the reader (and per size symbol, where sizes are known).
    """

    reader: Node
    guard: Condition
    goal: Condition
    error: Callable[[Where], TempoError]


def obligations(graph: Graph) -> Iterator[Obligation]:
    """Everything that the program's reachable nodes and outputs oblige it to, but for what is plain to see."""
    reachable = graph.reachable()
    for node in graph.nodes.values():
        if node.id in reachable:
            yield from obligations_of(graph, node)
    for output in graph.outputs:
        yield from _reads_in_range(graph, output_reader(output))


def obligations_of(graph: Graph, node: Node) -> Iterator[Obligation]:
    yield from _reads_in_range(graph, node)
    yield from _not_negative(graph, node)
    if node.is_merge:
        yield from _covered(node)
    elif needed := elements_needed(node):
        yield from _not_empty(graph, node, needed)


def _reads_in_range(graph: Graph, node: Node) -> Iterator[Obligation]:
    for case, (guard, edge) in zip((*(None for _ in node.operands), *node.cases), node.guarded_reads()):
        reader = node if case is None or case.location is None else replace(node, location=case.location)
        for axis, dim in enumerate(graph.domain_dims(graph.nodes[edge.node])):
            index = edge.map[axis]
            # A dim that the reader shares, read at itself, is in range.
            if index == Point(var(dim.symbol)):
                continue
            goal = _in_range(index, dim.size)
            if goal != TRUE:
                yield Obligation(reader, guard, goal, _outside(graph, reader, edge, axis))


def _in_range(index: Point | Slice, size: Expr) -> Condition:
    if isinstance(index, Point):
        return index.index.ge(0) & index.index.lt(size)
    start, length = index.start, index.length
    # The language makes the length of a slice negative where its stop is.
    return conjunction((start.ge(0), start.le(size), length.ge(0), (start + length).le(size)))


def _outside(graph: Graph, reader: Node, edge: Edge, axis: int) -> Callable[[Where], TempoError]:
    producer = graph.nodes[edge.node]
    index, size = edge.map[axis], graph.domain_dims(producer)[axis].size

    def error(where: Where) -> TempoError:
        if isinstance(index, Point):
            text = str(index.index.substitute(where))
        else:
            text = slice_text(index.start.substitute(where), index.length.substitute(where))
        return outside_error(reader, producer, axis, text, size.substitute(where), _point(reader, where))

    return error


def _point(node: Node, where: Where) -> list[Expr]:
    return [where[symbol] for symbol in node.domain]


def _covered(node: Node) -> Iterator[Obligation]:
    goal = disjunction(case.condition for case in node.cases)
    if goal != TRUE:
        yield Obligation(node, TRUE, goal, lambda where: uncovered_error(node, _point(node, where)))


def _not_negative(graph: Graph, node: Node) -> Iterator[Obligation]:
    """The sizes that the node brings in, which no operand has, are not negative."""
    if node.is_merge or node.is_input:
        return  # they show what other nodes made, or what was given
    given = {size for edge in node.operands for size in graph.seen_type(edge).shape}
    for type in node.results:
        goal = conjunction(size.ge(0) for size in type.shape if not size.is_const and size not in given)
        if goal != TRUE:
            yield Obligation(node, TRUE, goal, _negative(node, type.shape))


def _negative(node: Node, shape: tuple[Expr, ...]) -> Callable[[Where], TempoError]:
    return lambda where: negative_error(node, _point(node, where), [size.substitute(where) for size in shape])


def _not_empty(graph: Graph, node: Node, needed: int) -> Iterator[Obligation]:
    """Each reduced axis has as many elements as the reduction needs, or the result has none."""
    shape = graph.seen_type(node.operands[0]).shape
    axes = reduced_axes(node)
    reduced = conjunction(shape[axis].ge(needed) for axis in axes)
    goal = disjunction((reduced, *(size.le(0) for axis, size in enumerate(shape) if axis not in axes)))
    if goal != TRUE:
        yield Obligation(node, TRUE, goal, lambda where: empty_error(node, _point(node, where)))


@dataclass(frozen=True)
class ChosenCase:
    """A case of a definition, with the condition under which it is the first that holds."""

    node: Node
    case: Case
    condition: Condition


def written_cases(graph: Graph) -> Iterator[ChosenCase]:
    """Every case that a user wrote, reachable from an output or not.

    A parameter's initial value and the default of `tp.cases` are not written as cases: they may be out of reach. Nor
    are those of gradients, which the user never sees.
    """
    for node in graph.nodes.values():
        if not node.is_merge or node.attr("role") == "gradient":
            continue
        chosen = [ChosenCase(node, case, guard) for case, (guard, _) in zip(node.cases, node.guarded_reads())]
        is_default = node.attr("role") in {"parameter", "cases"} and chosen and chosen[-1].case.condition == TRUE
        yield from chosen[:-1] if is_default else chosen
