"""Which axes of an operator's result are axes of its operands, for axes whose positions move with a dim.

Axes that one operator takes together hold the same elements at the same positions, so they are one class and get one
frame (`tempo.passes.ragged.alignment`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from tempo.sdg.builder import expressions
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS, Operator, Role
from tempo.sdg.operators.axes import Factor, Factors
from tempo.symbolic import Condition, Expr, Symbol


@dataclass(frozen=True)
class Frame:
    """Position p holds element p - shift, and means something where 0 <= p - shift < length."""

    shift: Expr
    length: Expr
    extent: Expr

    def valid(self, position: Expr) -> Condition:
        return position.ge(self.shift) & position.lt(self.shift + self.length)


@dataclass(frozen=True)
class Window:
    """What one axis of a read shows: `start, ..., start + length - 1` of a dim of which `lo, ..., hi - 1` exist."""

    start: Expr
    lo: Expr
    hi: Expr


@dataclass
class AxisClass:
    """Axes that hold the elements of the same positions, as far as they are known to: a class of a union-find."""

    length: Expr
    windows: list[Window] = field(default_factory=list)
    members: list[Node] = field(default_factory=list)
    rigid: bool = False  # element 0 is at position 0
    into: AxisClass | None = None
    frame: Frame | None = None

    def root(self) -> AxisClass:
        return self if self.into is None else self.into.root()


Axes = tuple[AxisClass | None, ...]
"""For every axis of a value, what it is an axis of; None where its positions do not move."""


class Refused(Exception):
    """The operator cannot be made to work on axes in frames."""


@dataclass(frozen=True)
class FrameRules:
    """The rules for axes that move with `symbol`."""

    graph: Graph
    symbol: Symbol

    def mentions(self, *exprs: Expr) -> bool:
        return any(self.symbol in expr.symbols() for expr in exprs)

    def axes(self, node: Node, views: Sequence[Axes]) -> Axes:
        """The axes of the result, of what a node sees, by the axis rule of its operator; raises Refused."""
        operator = OPERATORS[node.op]
        if node.attr("checked") or self._is_told(node, operator):
            raise Refused
        factors = self.factors(node)
        moving = {(n, at) for n, view in enumerate(views) for at, axis in enumerate(view) if axis is not None}
        if not moving <= {place for factor in factors for place in factor.places}:
            raise Refused  # one that repeats
        found = {factor.result: self._followed(node, operator, factor, views) for factor in factors}
        return tuple(found.get(place) for place in range(len(node.shape)))

    def factors(self, node: Node) -> Factors:
        shapes = [self.graph.seen_type(edge).shape for edge in node.operands]
        return OPERATORS[node.op].axes(node.attributes, shapes, node.shape)

    def _is_told(self, node: Node, operator: Operator) -> bool:
        """Whether what varies along the dim is more than sizes and places, or the value of an expression."""
        plain = {key: value for key, value in node.attrs if key not in operator.entries}
        return operator.kind != "creation" and any(self.symbol in e.symbols() for e in expressions(node.op, plain))

    def _followed(self, node: Node, operator: Operator, factor: Factor, views: Sequence[Axes]) -> AxisClass | None:
        """What the result's axis is, if the factor has one."""
        seen = [views[number][axis] for number, axis in factor.places]
        size = None if factor.result is None else node.shape[factor.result]
        axis: AxisClass | None = reduce(self._joined, seen, None)
        if factor.role in (Role.MOVING, Role.OPAQUE):
            if axis is not None or (size is not None and self.mentions(size)):
                raise Refused
            return None
        if not seen or (factor.role is Role.WINDOW and operator.kind == "movement"):
            return self._loose(size)  # padding goes where the axis that it makes begins
        if axis is None:
            return None
        counts = factor.ordered or factor.role in (Role.SCANNING, Role.WINDOW)
        axis.root().rigid = axis.root().rigid or counts or None in seen
        return AxisClass(size, rigid=True) if factor.role is Role.WINDOW and size is not None else axis

    def _loose(self, size: Expr | None) -> AxisClass | None:
        """An axis that any frame suits."""
        return AxisClass(size) if size is not None and self.mentions(size) else None

    @staticmethod
    def _joined(one: AxisClass | None, other: AxisClass | None) -> AxisClass | None:
        """One class for both, where both are given."""
        if one is None or other is None:
            return one or other
        left, right = one.root(), other.root()
        if left is right:
            return left
        if left.length != right.length:
            raise Refused
        left.windows += right.windows
        left.members += right.members
        left.rigid = left.rigid or right.rigid
        right.into = left
        return left
