"""Convolutions: `conv`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tempo.errors import ShapeError
from tempo.sdg.call import Call
from tempo.sdg.graph import Edge
from tempo.sdg.operators.axes import NUMBER, Attrs, Factor, Factors, Fold, Role, Shape, in_float32, show, typed
from tempo.sdg.operators.linalg import contraction
from tempo.sdg.operators.making import Formula, Reverse
from tempo.sdg.operators.operator import Function, Lifted, Operator
from tempo.symbolic import Expr, as_expr, const, maximum

# conv {strides, padding, dilation, batch}: x is batch + (N..., C, *spatial), w is batch + (O, C, *kernel), the result
# batch + (N..., O, *spatial); cross-correlation. One stride, (low, high) padding with zeros and dilation of the kernel
# per spatial axis; `batch` is 0 unless given. Only lifting makes `batch`, or several axes N.


def _conv_split(attrs: Attrs, x_rank: int, w_rank: int) -> tuple[int, int]:
    """The axis of C in x, and the number of spatial axes."""
    spatial = w_rank - 2 - attrs.get("batch", 0)
    return x_rank - spatial - 1, spatial


def _convolved(attrs: Attrs, x: Shape, w: Shape) -> Shape:
    batch = attrs.get("batch", 0)
    channel, spatial = _conv_split(attrs, len(x), len(w))
    if spatial < 0 or channel < batch or x[:batch] != w[:batch] or x[channel] != w[batch + 1]:
        raise ShapeError(
            f"conv: {show(x)} does not fit weights {show(w)}", hint="x is (N, C, ...), weights (O, C, ...)"
        )
    if not spatial == len(attrs["strides"]) == len(attrs["padding"]) == len(attrs["dilation"]):
        raise ShapeError(f"conv: strides, padding and dilation do not name each of the {spatial} spatial axes once")
    sizes = zip(x[channel + 1 :], w[batch + 2 :], attrs["strides"], attrs["padding"], attrs["dilation"])
    return (*x[:channel], w[batch], *(_conv_size(*axis) for axis in sizes))


def _conv_size(size: Expr, kernel: Expr, stride: int, padding: tuple[int, int], dilation: int) -> Expr:
    if stride < 1 or dilation < 1 or min(padding) < 0:
        raise ShapeError("conv: strides and dilation are at least 1, padding at least 0")
    positions = (size + sum(padding) - (kernel - 1) * dilation - 1) // stride + 1
    if positions.is_const and positions.as_int() < 1:
        raise ShapeError(f"conv: a kernel of {kernel} does not fit in {size} padded by {padding}")
    return as_expr(positions)


def _conv_axes(attrs: Attrs, operands: Sequence[Shape], result: Shape) -> Factors:
    batch, channel = attrs.get("batch", 0), _conv_split(attrs, *map(len, operands))[0]
    kept = [*((axis, axis) for axis in range(batch)), *((axis, None) for axis in range(batch, channel)), (None, batch)]
    found = [Factor(Role.PARALLEL, pair, axis) for axis, pair in enumerate(kept)]
    found.append(Factor(Role.REDUCING, (channel, batch + 1)))
    for number, stride in enumerate(attrs["strides"]):
        place = channel + 1 + number
        found.append(Factor(Role.WINDOW, (place, None), place, stride=stride))
        found.append(Factor(Role.OPAQUE, (None, batch + 2 + number)))
    return tuple(found)


def _lift_conv(attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
    if lifted == (True, False) and attrs.get("batch", 0) == 0:
        return Lifted(attrs)
    return Lifted({**attrs, "batch": attrs.get("batch", 0) + 1}, broadcast=True)


def _conv_cost(call: Call) -> float:
    batch: int = call.attrs.get("batch", 0)
    return 2.0 * call.result.elements * prod(call.operands[1].shape[batch + 1 :])


def _numpy_conv(call: Call) -> Function:
    attrs, x, w = call.attrs, call.operands[0], call.operands[1]
    if call.result.elements == 0:  # a kernel that is longer by one than what it goes along has no position
        return lambda a, b: np.zeros(call.result.shape, call.result.numpy_dtype)
    batch = attrs.get("batch", 0)
    channel, spatial = _conv_split(attrs, x.rank, w.rank)
    windows = _windows(attrs, channel, w.shape[batch + 2 :])
    out = call.result.shape[channel + 1 :]
    view = (*x.shape[: channel + 1], *out, *w.shape[batch + 2 :])
    kernel = tuple(range(channel + 1 + spatial, channel + 1 + 2 * spatial))
    shared = tuple(range(batch))
    contract = contraction(
        view, w.shape, (channel, *kernel), tuple(range(batch + 1, w.rank)), shared, shared
    )  # batch + N... + spatial + O
    order = (*range(channel), channel + spatial, *range(channel, channel + spatial))
    return in_float32(call.result.dtype, lambda a, b: contract(windows(a), b).transpose(order))


def _windows(attrs: Attrs, channel: int, kernel: tuple[int, ...]) -> Function:
    """From x to a view of its windows: in place of the spatial axes those of the result, then those of the kernel."""
    spatial = len(kernel)
    padding = [(0, 0)] * (channel + 1) + [tuple(pair) for pair in attrs["padding"]]
    extents = tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, attrs["dilation"]))
    axes = tuple(range(channel + 1, channel + 1 + spatial))
    thinned: Any = (..., *(slice(None, None, step) for step in (*attrs["strides"], *attrs["dilation"])))
    padded = any(sum(pair) for pair in padding)

    def windows(x: Any) -> Any:
        x = np.pad(x, padding) if padded else x
        return sliding_window_view(x, extents, axes)[thinned] if spatial else x

    return windows


def _windowed(f: Formula) -> Edge:
    """As a contraction of the windows that positions of the result see, which is told apart from padding."""
    batch = f.attrs.get("batch", 0)
    channel, spatial = _conv_split(f.attrs, f.rank(f.x), f.rank(f.y))
    kernel = f.shape(f.y)[batch + 2 :]
    x = f.x
    for number, taps in enumerate(kernel):
        stride, dilation, padding = (f.attrs[key][number] for key in ("strides", "dilation", "padding"))
        axis, (low, high) = channel + 1 + 2 * number, padding
        out = _conv_size(f.shape(x)[axis], taps, stride, padding, dilation)
        x = _window(f, f.surrounded(x, axis, const(low), const(high)), axis, (out, taps), (stride, dilation))
    taps_of_x = tuple(range(channel + 2, channel + 1 + 2 * spatial, 2))
    contract = (channel, *taps_of_x), range(batch + 1, f.rank(f.y))
    found = f.dot(x, f.y, contract, (range(batch), range(batch)))  # batch + N... + spatial + O
    return f.transpose(found, (*range(channel), channel + spatial, *range(channel, channel + spatial)))


def _window(f: Formula, x: Edge, axis: int, sizes: tuple[Expr, Expr], steps: tuple[int, int]) -> Edge:
    """In place of an axis those of the result and of the kernel: position `stride * o + dilation * k` at (o, k)."""
    shape = f.shape(x)
    if sizes[0] == const(1) and steps[1] == 1:
        return f.reshape(f.cut(x, axis, const(0), sizes[1]), (*shape[:axis], *sizes, *shape[axis + 1 :]))
    places = [
        f.mul(f.apply("iota", shape=sizes, axis=number, dtype="int32"), step) for number, step in enumerate(steps)
    ]
    return f.apply("gather", x, f.add(*places), axis=axis, batch=0, checked=False)


# The gradient of conv. For operands x of (N, C, ...), w of (O, C, ...), with N exactly one axis.


def _conv_gradient(r: Reverse) -> tuple[Edge, Edge]:
    """Of the data: the cotangent, its strides undone, convolved with the flipped kernel. Of the weights: x convolved
    with the cotangent; samples are channels, strides and dilation change places."""
    batch, (strides, dilation) = r.attrs.get("batch", 0), (r.attrs[key] for key in ("strides", "dilation"))
    channel, spatial = _conv_split(r.attrs, r.rank(r.x), r.rank(r.y))
    shape, samples = r.shape(r.x), prod(r.shape(r.x)[batch:channel], start=const(1))
    x, g = (r.reshape(of, (*shape[:batch], samples, *r.shape(of)[channel:])) for of in (r.x, r.g))
    spread, seen = g, x
    for number, (low, _) in enumerate(r.attrs["padding"]):
        place = batch + 2 + number
        size, taps, out = (r.shape(of)[place] for of in (x, r.y, g))
        reach = (taps - 1) * dilation[number]
        spread = _shifted(r, _dilated(r, spread, place, strides[number]), place, reach - low, size + reach)
        seen = _shifted(r, seen, place, const(low), (out - 1) * strides[number] + reach + 1)
    plain = {"strides": (1,) * spatial, "padding": ((0, 0),) * spatial, **({"batch": batch} if batch else {})}
    kernel = r.apply("flip", r.y, axes=tuple(range(batch + 2, batch + 2 + spatial)))
    of_data = r.apply("conv", spread, _swapped(r, kernel, batch), **{**plain, "dilation": dilation})
    turned = {**plain, "strides": dilation, "dilation": strides}
    of_weights = r.apply("conv", _swapped(r, seen, batch), _swapped(r, g, batch), **turned)
    return r.reshape(of_data, shape), r.reshape(_swapped(r, of_weights, batch), r.shape(r.y))


def _swapped(r: Reverse, edge: Edge, batch: int) -> Edge:
    """With the two axes behind the batch exchanged."""
    rank = r.rank(edge)
    return r.transpose(edge, (*range(batch), batch + 1, batch, *range(batch + 2, rank)))


def _dilated(r: Reverse, edge: Edge, axis: int, by: int) -> Edge:
    """`by - 1` zeros between neighbours."""
    if by == 1:
        return edge
    shape = r.shape(edge)
    apart = r.reshape(edge, (*shape[: axis + 1], const(1), *shape[axis + 1 :]))
    spaced = r.surrounded(apart, axis + 1, const(0), const(by - 1))
    joined = r.reshape(spaced, (*shape[:axis], shape[axis] * by, *shape[axis + 1 :]))
    return r.cut(joined, axis, const(0), (shape[axis] - 1) * by + 1)


def _shifted(r: Reverse, edge: Edge, axis: int, low: Expr, size: Expr) -> Edge:
    """`low` zeros in front (positions dropped where it is negative), then as many after as make `size`."""
    front, after = maximum(low, 0), maximum(size - low - r.shape(edge)[axis], 0)
    return r.cut(r.surrounded(edge, axis, front, after), axis, front - low, size)


CONV = Operator(
    name="conv",
    kind="contraction",
    infer=typed("conv", 2, _convolved, NUMBER),
    axes=_conv_axes,
    cost=_conv_cost,
    numpy=_numpy_conv,
    fold=Fold(lambda dtype: 0, "add"),
    inserts=_lift_conv,
    gradient=_conv_gradient,
    decompose=_windowed,
)
