"""Algebraic identities that hold bit for bit (NaN, infinities and signed zeros included), and constant folding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tempo import dtypes
from tempo.passes.manager import PassContext
from tempo.passes.rewrite import Match, Rule, RuleTable
from tempo.passes.sweep import Draft, Rewrite, Sweep, Term, rewrite_graph
from tempo.sdg.call import Array, ArrayValue, StaticType, call_for
from tempo.sdg.graph import Edge, Graph
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Expr, as_expr


@dataclass(frozen=True)
class Simplify:
    """Rules to a fixed point. `extra` rules come from plugins; at most `fold_elements` elements are folded."""

    name: ClassVar[str] = "simplify"
    fold_elements: int = 1024
    extra: tuple[Rule, ...] = ()

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        rewrites: list[Rewrite] = [RuleTable(RULES + self.extra)]
        if self.fold_elements:
            rewrites.append(FoldConstants(self.fold_elements))
        return rewrite_graph(graph, context, rewrites)


# Conditions ----------------------------------------------------------------------------------------------------------


def _same_type(match: Match) -> bool:
    return match.type == match.type_of("x")


def _is_integer(match: Match) -> bool:
    return dtypes.is_integer(match.type.dtype)


def _is_bool(match: Match) -> bool:
    return match.type.dtype == "bool"


def _is_identity_order(match: Match) -> bool:
    axes = match.root.attr("axes")
    return tuple(axes) == tuple(range(len(axes)))


def _is_full_slice(match: Match) -> bool:
    starts, steps = match.root.attr("starts"), match.root.attr("steps")
    return _same_type(match) and all(as_expr(start) == as_expr(0) for start in starts) and all(s == 1 for s in steps)


def _pads_nothing(match: Match) -> bool:
    return all(as_expr(n) == as_expr(0) for n in (*match.root.attr("low"), *match.root.attr("high")))


def _without_batch(match: Match) -> bool:
    return not any("batch" in dict(match.nodes[name].attrs) for name in ("q", "p"))


def _loses_nothing(match: Match) -> bool:
    """The inner cast of x keeps every value, and the outer one goes back."""
    source, between = match.type_of("x").dtype, match.nodes["p"].type.dtype
    if match.type.dtype != source or dtypes.kind(source) != dtypes.kind(between):
        return False
    return dtypes.promote_dtypes((source, between)) == between


def _drops_no_call(match: Match) -> bool:
    """What the right side no longer reads is needed for its effects alone, and there are none."""
    return not match.sweep.calls_host


# Right sides ---------------------------------------------------------------------------------------------------------


def _transposed(match: Match) -> Term:
    inner, outer = match.attr("p", "axes"), match.attr("q", "axes")
    return match.term("transpose", "x", axes=tuple(inner[axis] for axis in outer))


def _reshaped(match: Match) -> Term:
    return match.term("reshape", "x", shape=match.attr("q", "shape"))


def _broadcast(match: Match) -> Term:
    return match.term("broadcast", "x", shape=match.attr("q", "shape"))


def _flipped(match: Match) -> Term:
    inner, outer = set(match.attr("p", "axes")), set(match.attr("q", "axes"))
    return match.term("flip", "x", axes=tuple(sorted(inner ^ outer)))


MOVEMENT: tuple[Rule, ...] = (
    Rule("cast(x) = x", _same_type),
    Rule("reshape(x) = x", _same_type),
    Rule("broadcast(x) = x", _same_type),
    Rule("transpose(x) = x", _is_identity_order),
    Rule("slice(x) = x", _is_full_slice),
    Rule("pad(x) = x", _pads_nothing),
    Rule("flip(x) = x", lambda match: not match.root.attr("axes")),
    Rule("concat(x) = x"),
    # reshape(reshape(x, s), r) = reshape(x, r)
    Rule("q:reshape(p:reshape(x))", replace=_reshaped),
    # broadcast(broadcast(x, s), r) = broadcast(x, r)
    Rule("q:broadcast(p:broadcast(x))", _without_batch, _broadcast),
    # transpose(transpose(x, p), q) = transpose(x, p[q])
    Rule("q:transpose(p:transpose(x))", replace=_transposed),
    # flip(flip(x, p), q) = flip(x, p xor q)
    Rule("q:flip(p:flip(x))", replace=_flipped),
    # a value that fits in the wider dtype comes back from it
    Rule("cast(p:cast(x)) = x", _loses_nothing),
)

ARITHMETIC: tuple[Rule, ...] = (
    Rule("mul(x, 1) = x"),
    Rule("mul(1, x) = x"),
    Rule("div(x, 1) = x"),
    Rule("sub(x, 0) = x"),  # -0.0 - 0.0 is -0.0
    Rule("add(x, 0) = x", _is_integer),  # -0.0 + 0.0 is 0.0
    Rule("add(0, x) = x", _is_integer),
    Rule("neg(neg(x)) = x"),
    Rule("add(x, neg(y)) = sub(x, y)"),
    Rule("sub(x, neg(y)) = add(x, y)"),
    Rule("abs(neg(x)) = abs(x)"),
    Rule("abs(abs(x)) = abs(x)"),
    Rule("floor(floor(x)) = floor(x)"),
    Rule("ceil(ceil(x)) = ceil(x)"),
    Rule("round(round(x)) = round(x)"),
    Rule("maximum(x, x) = x"),
    Rule("minimum(x, x) = x"),
)

LOGIC: tuple[Rule, ...] = (
    Rule("where(m, x, x) = x", _drops_no_call),
    Rule("where(1, x, y) = x", _drops_no_call),
    Rule("where(0, x, y) = y", _drops_no_call),
    Rule("logical_not(logical_not(x)) = x", _is_bool),
    Rule("logical_and(x, x) = x", _is_bool),
    Rule("logical_or(x, x) = x", _is_bool),
    Rule("bitwise_not(bitwise_not(x)) = x"),
    Rule("bitwise_and(x, x) = x"),
    Rule("bitwise_or(x, x) = x"),
)

RULES: tuple[Rule, ...] = MOVEMENT + ARITHMETIC + LOGIC


# Constant folding ----------------------------------------------------------------------------------------------------

# Indexing may have to raise an error, at the point where it happens; constants are folded already.
_NOT_FOLDED = frozenset({"indexing", "nominal", "random"})


@dataclass(frozen=True)
class FoldConstants:
    """f(constants) = constant, computed by the operator's NumPy meaning, where the result is small."""

    elements: int

    def __call__(self, draft: Draft, sweep: Sweep) -> Term | None:
        if draft.op in ("constant", "copy") or OPERATORS[draft.op].kind in _NOT_FOLDED:
            return None
        values = [_constant(edge, sweep) for edge in draft.operands]
        arrays = [value.array for value in values if value is not None]
        if len(arrays) != len(values) or not self._is_small(draft, arrays):
            return None
        return Term("constant", attrs={"value": ArrayValue(_evaluated(draft, arrays))})

    def _is_small(self, draft: Draft, arrays: list[Array]) -> bool:
        operator = OPERATORS[draft.op]
        needed = (*draft.type.shape, *operator.static(dict(draft.attrs)))
        if not all(size.is_const for size in needed):
            return False
        if any(scalar.symbols() for scalar in operator.scalars(dict(draft.attrs))):
            return False
        elements = int(np.prod([size.as_int() for size in draft.type.shape], dtype=np.int64))
        return max([elements, *(array.size for array in arrays)]) <= self.elements


def _constant(edge: Edge, sweep: Sweep) -> ArrayValue | None:
    draft = sweep.view(edge)
    return draft.attr("value") if draft is not None and draft.op == "constant" else None


def _evaluated(draft: Draft, arrays: list[Array]) -> Array:
    operator = OPERATORS[draft.op]
    operands = [StaticType(array.shape, dtypes.from_numpy(array.dtype)) for array in arrays]
    shape = tuple(size.as_int() for size in draft.type.shape)
    call = call_for(draft.op, draft.attrs, operands, StaticType(shape, draft.type.dtype), Expr.as_int)
    scalars = [scalar.evaluate({}) for scalar in operator.scalars(dict(draft.attrs))]
    with np.errstate(all="ignore"):
        found = np.asarray(operator.numpy(call)(*arrays, *scalars))
    return found.astype(dtypes.to_numpy(draft.type.dtype), copy=False).reshape(shape)
