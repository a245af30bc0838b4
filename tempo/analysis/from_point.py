"""A program that goes on at a later point of a dim, from parameters alone: `run(state=..., from_point={"i": 400})`.

Its point 0 is the program's point 400: draws, and what else is computed from the number of a point, are those of there,
and parameters, which a point before would have handed on, begin with what is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tempo.errors import UnsupportedError
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.graph import Case, Edge, Graph, Node, Point
from tempo.symbolic import Context, Expr, Symbol, var


def starting_at(graph: Graph, dim: Symbol, point: int) -> Graph:
    """The graph over the points of `dim` from there on. What is read of points before has no value in it.

    Raises `UnsupportedError` where the size of the dim is made of those of others.
    """
    size, declared = Symbol(dim.name, "size"), graph.dim(dim).size
    if declared != var(size) and not declared.is_const:
        raise UnsupportedError(f"from_point= is along {dim.name}, whose size is {declared}: it has no size of its own")
    new, within = NodeBuilder(graph.dims, graph.nodes), {dim: var(dim) + point, size: var(size) + point}

    def read(edge: Edge) -> Edge:
        own = edge.substitute(within)
        domain = graph.nodes[edge.node].domain
        if dim not in domain:
            return own
        at = domain.index(dim)
        index = own.map[at]
        moved = Point(index.index - point) if isinstance(index, Point) else replace(index, start=index.start - point)
        return replace(own, map=(*own.map[:at], moved, *own.map[at + 1 :]))

    nodes = {}
    for node in graph.nodes.values():
        copy = new.copied(node, node.id, dim, (dim,), within[dim])
        told = copy.attr("origin")
        copy = replace(new.copied(copy, node.id, size, (), within[size]), declaration=node.declaration)
        if told is not None:  # the size is no dim
            copy = replace(copy, attrs=tuple(sorted({**copy.attributes, "origin": told}.items())))
        begins = node.attr("role") == "parameter" and dim in node.domain
        first = var(dim).ge(1)  # before that a parameter is what was given
        cases = tuple(
            replace(
                made,
                condition=made.condition & first if begins and _reads_before(graph, case.edge, dim) else made.condition,
                edge=read(case.edge),
            )
            for case, made in zip(node.cases, copy.cases, strict=True)
        )
        operands = tuple(map(read, node.operands))
        nodes[node.id] = replace(copy, operands=operands, cases=_possible(graph, node, cases))
    shorter = replace(graph.dim(dim), size=declared - point if declared.is_const else declared)
    others = (replace(each, size=each.size.substitute(within)) for each in graph.dims)
    dims = tuple(shorter if each.symbol == dim else each for each in others)
    outputs = tuple(
        replace(each, edge=read(each.edge), type=replace(each.type, shape=_within(each.type.shape, within)))
        for each in graph.outputs
    )
    return replace(graph, dims=dims, nodes=nodes, outputs=outputs)


def _possible(graph: Graph, node: Node, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Without those that only points before could take."""
    here, found = Context.of(graph.domain_dims(node)), []
    for case in cases:
        if not here.excludes(case.condition):
            found.append(case)
        here = here.assume(~case.condition)
    return tuple(found) or cases[-1:]


def begins_with(graph: Graph, dim: Symbol) -> list[Node]:
    """The parameters that a point of the dim hands on to the next one."""
    merges = (node for node in graph.nodes.values() if node.attr("role") == "parameter" and dim in node.domain)
    return [node for node in merges if any(_reads_before(graph, case.edge, dim) for case in node.cases)]


def _reads_before(graph: Graph, edge: Edge, dim: Symbol) -> bool:
    """Whether it reads, itself or through values of its own point, what an earlier point of the dim has made."""
    seen, left = set[int](), [edge]
    while left:
        edge = left.pop()
        node = graph.nodes[edge.node]
        if dim not in node.domain:
            continue
        index = edge.map[node.domain.index(dim)]
        ago = var(dim) - (index.index if isinstance(index, Point) else index.start)
        if not ago.is_const or ago.as_int() > 0:
            return True
        if ago.as_int() == 0 and not node.is_nominal and node.id not in seen:
            seen.add(node.id)
            left += node.operands
    return False


def _within(shape: tuple[Expr, ...], within: Mapping[Symbol, Expr]) -> tuple[Expr, ...]:
    return tuple(size.substitute(within) for size in shape)
