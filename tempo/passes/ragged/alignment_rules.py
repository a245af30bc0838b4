"""Which axes of an operator's result are axes of its operands, for axes whose positions move with a dim.

Axes that one operator takes together hold the same elements at the same positions, so they are one class and get one
frame (`tempo.passes.ragged.alignment`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tempo.passes.ragged.reshaping import groups
from tempo.sdg.builder import attribute_exprs
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Condition, Expr, Symbol, const


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
        """The axes of the result, of what a node sees; raises Refused."""
        kind = OPERATORS[node.op].kind
        moving = {symbol for expr in attribute_exprs(node) for symbol in expr.symbols()}
        if node.op == "copy" or kind == "elementwise":
            return self._elementwise(node, views)
        if node.op in ("iota", "index_value", "condition_value"):
            return self._loose(node.shape)
        if node.op.startswith("reduce_") and kind == "reduction":
            return tuple(axis for place, axis in enumerate(views[0]) if place not in node.attr("axes"))
        if node.op in _RULES:
            return _RULES[node.op](self, node, views)
        if self.symbol in moving or any(axis is not None for view in views for axis in view):
            raise Refused
        return (None,) * len(node.shape)

    def _loose(self, shape: Sequence[Expr]) -> Axes:
        """Axes that any frame suits."""
        return tuple(AxisClass(size) if self.mentions(size) else None for size in shape)

    def _elementwise(self, node: Node, views: Sequence[Axes]) -> Axes:
        shape = node.shape
        found: list[AxisClass | None] = []
        for place in range(len(shape)):
            axis, plain = None, False
            for view, edge in zip(views, node.operands):
                own, sizes = place - len(shape) + len(view), self.graph.seen_type(edge).shape
                if own < 0 or (view[own] is None and sizes[own] == const(1)):
                    continue
                plain = plain or view[own] is None
                axis = self._joined(axis, view[own])
            if axis is not None and plain:
                axis.root().rigid = True
            found.append(axis)
        return tuple(found)

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

    def _dot(self, node: Node, views: Sequence[Axes]) -> Axes:
        lhs, rhs = views
        for kind in ("contract", "batch"):
            for left, right in zip(node.attr(f"lhs_{kind}"), node.attr(f"rhs_{kind}"), strict=True):
                joined = self._joined(lhs[left], rhs[right])
                if joined is not None and (lhs[left] is None or rhs[right] is None):
                    joined.rigid = True
        found = [lhs[left] or rhs[right] for left, right in zip(node.attr("lhs_batch"), node.attr("rhs_batch"))]
        for side, view in (("lhs", lhs), ("rhs", rhs)):
            named = {*node.attr(f"{side}_contract"), *node.attr(f"{side}_batch")}
            found += [axis for place, axis in enumerate(view) if place not in named]
        return tuple(found)

    def _conv(self, node: Node, views: Sequence[Axes]) -> Axes:
        """Samples and filters stay, channels are contracted. A position of the result sees those from its own on."""
        data, kernel = views
        batch, spatial = node.attr("batch", 0), len(node.attr("strides"))
        channel = len(data) - spatial - 1
        if any(axis is not None for axis in kernel[batch + 2 :]):
            raise Refused
        pairs = [*((place, place) for place in range(batch)), (channel, batch + 1)]
        joined = [self._joined(data[left], kernel[right]) for left, right in pairs]
        for (left, right), axis in zip(pairs, joined):
            if axis is not None and (data[left] is None or kernel[right] is None):
                axis.root().rigid = True
        seen = [self._followed(axis, size) for axis, size in zip(data[channel + 1 :], node.shape[-spatial:])]
        return (*joined[:batch], *data[batch:channel], kernel[batch], *seen)

    def _followed(self, axis: AxisClass | None, size: Expr) -> AxisClass | None:
        """The axis of a convolution's result that has its element 0 where the data has."""
        if axis is None:
            return None
        axis.root().rigid = True
        return AxisClass(size, rigid=True)

    def _transpose(self, node: Node, views: Sequence[Axes]) -> Axes:
        return tuple(views[0][axis] for axis in node.attr("axes"))

    def _broadcast(self, node: Node, views: Sequence[Axes]) -> Axes:
        view, given, batch = views[0], self.graph.seen_type(node.operands[0]).shape, node.attr("batch", 0)
        found = list(self._loose(node.shape))
        for place, axis in enumerate(view):
            target = place if place < batch else place + len(found) - len(view)
            if axis is not None or given[place] == node.shape[target]:
                found[target] = axis
        return tuple(found)

    def _reshape(self, node: Node, views: Sequence[Axes]) -> Axes:
        given = self.graph.seen_type(node.operands[0]).shape
        found: list[AxisClass | None] = [None] * len(node.shape)
        for group in groups(given, node.shape):
            moving = [place for place in group.left if views[0][place] is not None]
            if not moving:
                continue
            left = [place for place in group.left if given[place] != const(1) or place in moving]
            right = [place for place in group.right if node.shape[place] != const(1)]
            if len(left) != 1 or len(right) != 1:
                raise Refused
            found[right[0]] = views[0][left[0]]
        return tuple(found)

    def _slice(self, node: Node, views: Sequence[Axes]) -> Axes:
        given = self.graph.seen_type(node.operands[0]).shape
        found: list[AxisClass | None] = []
        for place, axis in enumerate(views[0]):
            start, length, step = (node.attr(key)[place] for key in ("starts", "lengths", "steps"))
            if axis is not None and not (start == const(0) and step == 1 and length == given[place]):
                raise Refused
            if axis is None and self.mentions(length):
                raise Refused
            found.append(axis)
        return tuple(found)

    def _pad(self, node: Node, views: Sequence[Axes]) -> Axes:
        """An axis that is padded becomes an axis of its own."""
        found: list[AxisClass | None] = []
        for place, axis in enumerate(views[0]):
            low, high = node.attr("low")[place], node.attr("high")[place]
            padded = low != const(0) or high != const(0)
            found.append(self._loose((node.shape[place],))[0] if padded else axis)
        return tuple(found)

    def _gather(self, node: Node, views: Sequence[Axes]) -> Axes:
        """Along an axis that does not move, at indices in frames; batches agree."""
        data, indices = views
        axis, batch = node.attr("axis"), node.attr("batch", 0)
        if node.attr("checked") or data[axis] is not None:
            raise Refused
        shared = []
        for left, right in zip(data[:batch], indices[:batch]):
            joined = self._joined(left, right)
            if joined is not None and (left is None or right is None):
                joined.rigid = True
            shared.append(joined)
        return (*shared, *data[batch:axis], *indices[batch:], *data[axis + 1 :])


_RULES: Mapping[str, Callable[[FrameRules, Node, Sequence[Axes]], Axes]] = {
    "broadcast": FrameRules._broadcast,
    "conv": FrameRules._conv,
    "dot": FrameRules._dot,
    "gather": FrameRules._gather,
    "pad": FrameRules._pad,
    "reshape": FrameRules._reshape,
    "slice": FrameRules._slice,
    "transpose": FrameRules._transpose,
}
