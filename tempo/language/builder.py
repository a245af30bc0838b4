"""Making nodes: equal pure nodes become one, domains are what varies, types come from the operator table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tempo.errors import Location, TempoError, user_location
from tempo.sdg.exact import exact
from tempo.sdg.graph import Case, Edge, Node, Output, TensorType, identity_map, seen_type
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Condition, Context, Dim, Expr, Symbol

Attributes = tuple[tuple[str, Any], ...]

SEED_DECLARATION = 0
"""The number of the program's seed, whenever it is declared, so that no other number depends on when that is."""


class GraphBuilder:
    """The nodes of a program while it is written. `changes` grows with every change."""

    def __init__(self) -> None:
        self.dims: tuple[Dim, ...] = ()
        self.nodes: dict[int, Node] = {}
        self.outputs: list[Output] = []
        self.sinks: list[int] = []
        self.changes = 0
        self._interned: dict[Any, int] = {}
        self._ids = 0
        self._declarations = SEED_DECLARATION + 1
        self._block: int | None = None
        self._context: Context | None = None

    def add_dim(self, dim: Dim) -> None:
        self.dims = (*self.dims, dim)
        self._context = None
        self.changes += 1

    @property
    def context(self) -> Context:
        """What holds for every dim: it lies between 0 and its size."""
        if self._context is None:
            self._context = Context.of(self.dims)
        return self._context

    def canonical(self, symbols: Iterable[Symbol]) -> tuple[Symbol, ...]:
        """The given dims, each once, in the order of declaration."""
        wanted = set(symbols)
        return tuple(dim.symbol for dim in self.dims if dim.symbol in wanted)

    def size(self, symbol: Symbol) -> Expr:
        return next(dim.size for dim in self.dims if dim.symbol == symbol)

    def seen_type(self, edge: Edge) -> TensorType:
        """Shape and dtype of what a read through `edge` gives."""
        producer = self.nodes[edge.node]
        return seen_type(producer.results[edge.result], producer.domain, edge.map)

    def identity(self, node: int, result: int = 0) -> Edge:
        """The read of every dim at itself."""
        return Edge(node, identity_map(self.nodes[node].domain), result)

    def new_id(self) -> int:
        self._ids += 1
        return self._ids - 1

    def new_declaration(self) -> int:
        """The number of the next nominal node."""
        if self._block is not None:
            self._block += 1
            return self._block - 1
        self._declarations += 1
        return self._declarations - 1

    @contextmanager
    def declarations_from(self, first: int) -> Iterator[None]:
        """Inside, declarations are numbered from `first`, and do not count among the others."""
        outer, self._block = self._block, first
        try:
            yield
        finally:
            self._block = outer

    def pure(self, op: str, operands: tuple[Edge, ...], attrs: Mapping[str, Any]) -> int:
        """The node of operator `op`; one that exists already where it is equal.

        Raises what the operator's rule raises, at the user's line.
        """
        items = tuple(sorted(attrs.items()))
        key = (op, operands, exact(items))
        if key in self._interned:
            return self._interned[key]
        location = user_location()
        types = tuple(self.seen_type(edge) for edge in operands)
        inferred = self._infer(op, types, attrs, location)
        domain = self.canonical(_varying(op, operands, attrs, inferred))
        node = Node(self.new_id(), op, domain, (inferred,), operands, items, location=location)
        self._interned[key] = self._add(node)
        return node.id

    def nominal(
        self,
        op: str,
        domain: tuple[Symbol, ...],
        results: tuple[TensorType, ...],
        operands: tuple[Edge, ...] = (),
        *,
        attrs: Mapping[str, Any],
        declaration: int | None = None,
        name: str = "",
    ) -> int:
        """A node of its own, however equal to another."""
        number = self.new_declaration() if declaration is None else declaration
        items: Attributes = tuple(sorted(attrs.items()))
        node = Node(
            self.new_id(), op, domain, results, operands, items, (), number, name=name, location=user_location()
        )
        return self._add(node)

    def placeholder(
        self, op: str, domain: tuple[Symbol, ...], type: TensorType, attrs: Mapping[str, Any], name: str = ""
    ) -> int:
        """A node that stands for another until the program is compiled; equal ones are one node."""
        items: Attributes = tuple(sorted(attrs.items()))
        key = (op, domain, type, exact(items))
        if key not in self._interned:
            node = Node(self.new_id(), op, domain, (type,), attrs=items, name=name, location=user_location())
            self._interned[key] = self._add(node)
        return self._interned[key]

    def cases(self, cases: tuple[Case, ...], type: TensorType) -> int:
        """A merge that is an expression: equal cases are one node."""
        key = ("merge", cases, type)
        if key not in self._interned:
            symbols = {symbol for case in cases for symbol in case.edge.dims() | _dims(case.condition)}
            domain = self.canonical(symbols | {symbol for size in type.shape for symbol in size.dims()})
            id = self.nominal("merge", domain, (type,), attrs={"name": "cases", "role": "cases"}, name="cases")
            self.nodes[id] = replace(self.nodes[id], cases=cases)
            self._interned[key] = id
        return self._interned[key]

    def add_case(self, id: int, case: Case) -> None:
        """One more case of a declared tensor."""
        node = self.nodes[id]
        self.nodes[id] = replace(node, cases=(*node.cases, case))
        self.changes += 1

    def add_output(self, output: Output) -> None:
        self.outputs.append(output)
        self.changes += 1

    def add_sink(self, id: int) -> None:
        self.sinks.append(id)
        self.changes += 1

    def _add(self, node: Node) -> int:
        self.nodes[node.id] = node
        self.changes += 1
        return node.id

    def _infer(
        self, op: str, types: tuple[TensorType, ...], attrs: Mapping[str, Any], location: Location | None
    ) -> TensorType:
        try:
            return OPERATORS[op].infer(attrs, types)
        except TempoError as error:
            error.location = error.location or location
            raise


def _varying(op: str, operands: tuple[Edge, ...], attrs: Mapping[str, Any], result: TensorType) -> set[Symbol]:
    """The dims of the operands' maps, of the attributes and of the shape."""
    found: list[Expr | Condition] = list(result.shape)

    def note(expression: Any) -> Any:
        found.append(expression)
        return expression

    OPERATORS[op].with_exprs(attrs, note)
    in_maps = {symbol for edge in operands for symbol in edge.dims()}
    return in_maps | {symbol for expression in found for symbol in _dims(expression)}


def _dims(expression: Expr | Condition) -> frozenset[Symbol]:
    return frozenset(symbol for symbol in expression.symbols() if symbol.kind == "dim")
