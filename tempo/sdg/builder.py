"""Making the nodes of a graph: numbers, declarations, types by the operator table. Equal nodes are one node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tempo.errors import Location, TempoError
from tempo.sdg.exact import exact
from tempo.sdg.graph import Case, Edge, Node, TensorType, canonical, identity_map, seen_type
from tempo.sdg.operators.table import OPERATORS
from tempo.symbolic import Condition, Dim, Expr, Symbol

Attributes = tuple[tuple[str, Any], ...]
Locate = Callable[[], Location | None]


class NodeBuilder:
    """The nodes of a graph while it is made.

    Of pure nodes that are equal by bits (`tempo.sdg.exact`) there is one, and of definitions by cases that are
    expressions. A pure node varies along no more dims than it must.
    """

    def __init__(
        self,
        dims: tuple[Dim, ...] = (),
        nodes: Mapping[int, Node] | None = None,
        *,
        taken: Collection[Node] | None = None,
    ) -> None:
        """`taken`: nodes whose numbers and declarations are not given again, if they are not those of `nodes`."""
        self.dims = dims
        self.nodes: dict[int, Node] = dict(nodes or {})
        taken = self.nodes.values() if taken is None else taken
        declared = (node.declaration for node in taken if node.declaration is not None)
        self._number = 1 + max((node.id for node in taken), default=-1)
        self._declaration = 1 + max(declared, default=-1)
        self._interned: dict[Hashable, int] = {}

    # What is there.

    def canonical(self, symbols: Iterable[Symbol]) -> tuple[Symbol, ...]:
        """The given dims, each once, in canonical order."""
        return canonical(self.dims, symbols)

    def seen_type(self, edge: Edge) -> TensorType:
        """Shape and dtype of what a read through `edge` gives."""
        producer = self.nodes[edge.node]
        return seen_type(producer.results[edge.result], producer.domain, edge.map)

    def identity(self, id: int, result: int = 0) -> Edge:
        """The read of every dim at itself."""
        return Edge(id, identity_map(self.nodes[id].domain), result)

    # What is made.

    def new_number(self) -> int:
        self._number += 1
        return self._number - 1

    def new_declaration(self) -> int:
        """The number of the next nominal node."""
        self._declaration += 1
        return self._declaration - 1

    def numbered(self, node: Node) -> Edge:
        """A node as it is, under a new number."""
        return self.identity(self._put(replace(node, id=self.new_number())))

    def declare(self, node: Node) -> Edge:
        """A nominal node, under a new number and as a new declaration: one of its own, however equal to another."""
        declared = replace(node, id=self.new_number(), declaration=self.new_declaration())
        return self.identity(self._put(declared))

    def define(self, declared: Edge, cases: tuple[Case, ...]) -> None:
        """The cases of what was declared before there were any: they may read it."""
        self.nodes[declared.node] = replace(self.nodes[declared.node], cases=cases)

    def pure(
        self, op: str, operands: tuple[Edge, ...], attrs: Mapping[str, Any], locate: Locate = lambda: None
    ) -> Edge:
        """The node of operator `op`, typed by its rule; one that exists already where it is equal.

        Raises what the rule raises, at the location.
        """
        items = tuple(sorted(attrs.items()))
        key = (op, operands, exact(items))
        if key not in self._interned:
            location = locate()
            try:
                type = OPERATORS[op].infer(attrs, tuple(map(self.seen_type, operands)))
            except TempoError as error:
                error.location = error.location or location
                raise
            domain = self.canonical(_varying(op, operands, attrs, (type,)))
            node = Node(self.new_number(), op, domain, (type,), operands, items, location=location)
            self._interned[key] = self._put(node)
        return self.identity(self._interned[key])

    def typed(self, node: Node) -> Edge:
        """The pure node, over what it varies along, under its own number where that is free; or an equal one."""
        key = (node.op, node.operands, exact(node.attrs))
        if key not in self._interned:
            is_free = node.id not in self.nodes and node.id < self._number
            id = node.id if is_free else self.new_number()
            domain = self.canonical(varying_dims(node))
            is_same = id == node.id and domain == node.domain
            self._interned[key] = self._put(node if is_same else replace(node, id=id, domain=domain))
        return self.identity(self._interned[key])

    def cases(
        self,
        cases: tuple[Case, ...],
        type: TensorType,
        name: str = "cases",
        role: str = "cases",
        locate: Locate = lambda: None,
    ) -> Edge:
        """A definition by cases that is an expression."""
        key = ("merge", role, cases, type)
        if key not in self._interned:
            attrs = (("name", name), ("role", role))
            node = Node(-1, "merge", (), (type,), (), attrs, cases, 0, name, locate())
            self._interned[key] = self.declare(self.over_what_varies(node)).node
        return self.identity(self._interned[key])

    def copied(self, node: Node, id: int, symbol: Symbol, parts: tuple[Symbol, ...], point: Expr) -> Node:
        """The node under the number `id`, over `parts` in place of the dim, which is `point`; its reads are as before.

        A checked index says where it came from.
        """
        within = {symbol: point}
        attrs = OPERATORS[node.op].with_exprs(node.attributes, lambda value: value.substitute(within))
        if attrs.get("checked"):
            attrs["origin"] = (*attrs.get("origin", ()), (symbol, point))
        results = (
            TensorType(tuple(size.substitute(within) for size in each.shape), each.dtype) for each in node.results
        )
        return replace(
            node,
            id=id,
            domain=tuple(part for each in node.domain for part in (parts if each == symbol else (each,))),
            attrs=tuple(sorted(attrs.items())),
            results=tuple(results),
            cases=tuple(replace(case, condition=case.condition.substitute(within)) for case in node.cases),
            declaration=None if node.declaration is None else self.new_declaration(),
        )

    def over_what_varies(self, node: Node) -> Node:
        """Over those dims alone along which it varies."""
        return replace(node, domain=self.canonical(varying_dims(node)))

    def _put(self, node: Node) -> int:
        self.nodes[node.id] = node
        return node.id


def varying_dims(node: Node) -> frozenset[Symbol]:
    """The dims that a node's reads, conditions, attributes and shapes use."""
    return _varying(node.op, node.operands, node.attributes, node.results, node.cases)


def _varying(
    op: str,
    operands: tuple[Edge, ...],
    attrs: Mapping[str, Any],
    results: tuple[TensorType, ...],
    cases: tuple[Case, ...] = (),
) -> frozenset[Symbol]:
    found = {symbol for edge in operands for symbol in edge.dims()}
    for case in cases:
        found |= case.edge.dims() | case.condition.dims()
    for type in results:
        for size in type.shape:
            found |= size.dims()
    for expr in expressions(op, attrs):
        found |= expr.dims()
    return frozenset(found)


def attribute_exprs(node: Node) -> tuple[Expr | Condition, ...]:
    """Every expression and condition in the attributes."""
    return expressions(node.op, node.attributes)


def expressions(op: str, attrs: Mapping[str, Any]) -> tuple[Expr | Condition, ...]:
    """Every expression and condition in attributes of an operator."""
    return (*OPERATORS[op].scalars(attrs), *OPERATORS[op].static(attrs))


def fresh_dim(name: str, taken: Iterable[str]) -> Symbol:
    """A dim of that name, or the next one that is not taken."""
    names = frozenset(taken)
    while name in names:
        name += "_"
    return Symbol(name, "dim")
