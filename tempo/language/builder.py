"""The nodes of a program while it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tempo.errors import user_location
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.exact import exact
from tempo.sdg.graph import Case, Edge, Node, Output, Port, TensorType
from tempo.symbolic import Context, Dim, Expr, Symbol

SEED_DECLARATION = 0
"""The number of the program's seed, whenever it is declared, so that no other number depends on when that is."""


class GraphBuilder(NodeBuilder):
    """The nodes of a program while it is written. `changes` grows with every change."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[Port, Output] = {}
        self.inputs: dict[str, int] = {}  # the nodes that are given when a program runs, by name
        self.seed: int | None = None
        self.sinks: list[int] = []
        self.changes = 0
        self._declaration = SEED_DECLARATION + 1
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

    def size(self, symbol: Symbol) -> Expr:
        return next(dim.size for dim in self.dims if dim.symbol == symbol)

    def new_declaration(self) -> int:
        if self._block is None:
            return super().new_declaration()
        self._block += 1
        return self._block - 1

    @contextmanager
    def declarations_from(self, first: int) -> Iterator[None]:
        """Inside, declarations are numbered from `first`, and do not count among the others."""
        outer, self._block = self._block, first
        try:
            yield
        finally:
            self._block = outer

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
        items = tuple(sorted(attrs.items()))
        number = self.new_declaration() if declaration is None else declaration
        node = Node(self.new_number(), op, domain, results, operands, items, (), number, name, user_location())
        return self._put(node)

    def placeholder(
        self, op: str, domain: tuple[Symbol, ...], type: TensorType, attrs: Mapping[str, Any], name: str = ""
    ) -> int:
        """A node that stands for another until the program is compiled; equal ones are one node."""
        items = tuple(sorted(attrs.items()))
        key = (op, domain, type, exact(items))
        if key not in self._interned:
            node = Node(self.new_number(), op, domain, (type,), attrs=items, name=name, location=user_location())
            self._interned[key] = self._put(node)
        return self._interned[key]

    def add_case(self, id: int, case: Case) -> None:
        """One more case of a declared tensor."""
        node = self.nodes[id]
        self._put(replace(node, cases=(*node.cases, case)))

    def add_output(self, output: Output) -> None:
        self.outputs[output.port] = output
        self.changes += 1

    def add_sink(self, id: int) -> None:
        self.sinks.append(id)
        self.changes += 1

    def _put(self, node: Node) -> int:
        self.changes += 1
        return super()._put(node)
