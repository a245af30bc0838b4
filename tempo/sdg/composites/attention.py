"""Attention as one operator: `softmax(scale * q k^T + bias) v`, over the keys before a length known at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.composites.normalization import softmax, widened
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.axes import Attrs, Factor, Factors, Fold, Role, Shape, matching, only
from tempo.sdg.operators.gradients import Formula
from tempo.sdg.operators.operator import Lifted, Operator
from tempo.sdg.operators.shapes import broadcast_shapes, check_axes, check_kind, check_same_dtype
from tempo.symbolic import Expr

# attention {key_axes, value_axes, scale, biased, masked, fill, length}
#   queries (batch..., rows, width); keys and values: `transpose(keys, key_axes)` is (batch..., keys, width), and values
#   likewise (batch..., keys, out), so that both are read as they lie in memory; where `biased` a bias, where `masked` a
#   mask: either has as many axes as the scores, (batch..., rows, keys), and is broadcast to them. The
#   result is (batch..., rows, out).
#   scores = scale * q k^T + bias, `fill` where the mask is False; keys at or after `length` do not count.
# Queries that share keys (grouped queries) are rows of one batch element.


def arranged(shape: Shape, axes: Sequence[int]) -> Shape:
    return tuple(shape[axis] for axis in axes)


def inferred(name: str, attrs: Attrs, operands: tuple[TensorType, ...], more: int = 0) -> TensorType:
    """The result of attention whose queries have `more` axes, in front of their rows, than keys and values have."""
    if len(operands) != 3 + attrs["biased"] + attrs["masked"]:
        raise ShapeError(f"{name} takes queries, keys, values, bias and mask as its attributes say: {operands}")
    dtype = check_same_dtype(name, operands[: len(operands) - attrs["masked"]])
    check_kind(name, dtype, ("float",))
    queries = operands[0].shape
    rank = len(queries) - more
    for number, axes in ((1, "key_axes"), (2, "value_axes")):
        check_axes(name, attrs[axes], rank)
        if len(operands[number].shape) != rank or len(attrs[axes]) != rank:
            raise ShapeError(f"{name}: keys and values have as many axes as the queries{f', less {more}' * (more > 0)}")
    keys, values = (arranged(operands[at].shape, attrs[axes]) for at, axes in ((1, "key_axes"), (2, "value_axes")))
    if (*queries[: -2 - more], queries[-1]) != (*keys[:-2], keys[-1]) or values[:-1] != keys[:-1]:
        raise ShapeError(f"{name}: queries {queries}, keys {keys} and values {values} do not fit")
    scores = (*queries[:-1], keys[-2])
    for extra in operands[3:]:
        if len(extra.shape) != len(scores) or broadcast_shapes((scores, extra.shape), name) != scores:
            raise ShapeError(f"{name}: {extra.shape} is not broadcast to the scores, {scores}")
    if attrs["masked"]:
        check_kind(name, operands[-1].dtype, ("bool",))
    return TensorType((*queries[:-1], values[-1]), dtype)


def axes(attrs: Attrs, operands: Sequence[Shape], result: Shape, more: int = 0) -> Factors:
    """Which keys count it is told, or it knows by their positions: along those `more` axes, which are a band, too."""
    count, last = len(operands), len(result) - 1
    keys, values, extras = attrs["key_axes"], attrs["value_axes"], operands[3:]
    scores = (*operands[0][:-1], operands[1][keys[-2]])
    shown = [tuple(matching(extra, scores)) for extra in extras]

    def along(place: int) -> list[int | None]:
        return [of[place] for of in shown]

    batch, band = range(last - 1 - more), range(last - 1 - more, last - 1)
    none: list[int | None] = [None] * len(extras)
    of_keys = Role.OPAQUE if more else Role.REDUCING
    return (
        *(Factor(Role.PARALLEL, (at, keys[at], values[at], *along(at)), at) for at in batch),
        *(Factor(Role.OPAQUE, (at, None, None, *along(at)), at) for at in band),
        Factor(Role.PARALLEL, (last - 1, None, None, *along(last - 1)), last - 1),
        Factor(Role.OPAQUE, (last, keys[-1], None, *none)),
        Factor(of_keys, (None, keys[-2], values[-2], *along(last)), ordered=True),
        Factor(Role.PARALLEL, only(2, values[-1], count), last),
    )


def lift(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    """One more axis of the batch, along which bias and mask may repeat."""
    changed = {**attrs, **{name: (0, *(axis + 1 for axis in attrs[name])) for name in ("key_axes", "value_axes")}}
    return Lifted(changed, broadcast=True, repeats=tuple(range(3, len(lifted))))


def _cost(call: Call) -> float:
    queries, keys = call.operands[0].elements, call.operands[1].shape[call.attrs["key_axes"][-2]]
    return float(4 * queries * keys)


def _decomposed(f: Formula) -> Edge:
    queries, keys, values, *rest = f.operands
    keys, values = f.transpose(keys, f.attrs["key_axes"]), f.transpose(values, f.attrs["value_axes"])
    last = f.rank(queries) - 1
    batch = range(last - 1), range(last - 1)
    scores, length = scored(f, f.dot(queries, keys, ((last,), (last,)), batch), rest), f.attrs["length"]
    scores = f.apply("mask", scores, axis=last, fill=-math.inf, length=length)
    weights = softmax(Formula({"axes": (last,)}, (scores,), f.maker))
    values = f.apply("mask", values, axis=last - 1, fill=0, length=length)
    return f.dot(weights, values, ((last,), (last - 1,)), batch)


def scored(f: Formula, products: Edge, rest: Sequence[Edge]) -> Edge:
    """The scores, from q k^T, of all keys."""
    scores = products if f.attrs["scale"] == 1 else f.mul(products, f.attrs["scale"])
    scores = f.add(scores, rest[0]) if f.attrs["biased"] else scores
    return f.where(rest[-1], scores, f.attrs["fill"]) if f.attrs["masked"] else scores


ATTENTION = Operator(
    name="attention",
    kind="composite",
    infer=partial(inferred, "attention"),
    axes=axes,
    fold=Fold(None),
    cost=_cost,
    inserts=lift,
    scalar_attrs=("length",),
    gradient_note="the pass `compose` makes it, long after gradients are taken",
    decompose=widened(_decomposed),
)
