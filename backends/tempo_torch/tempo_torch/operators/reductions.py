"""Reductions, scans and sorts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tempo.backends.operators import Call
from tempo_torch.operators.builder import HALF, Builder, Function, by_numpy, converter, result_dtype, unless_unsigned


def _axes(call: Call) -> tuple[int, ...]:
    return tuple(call.attrs["axes"])


def _of_nothing(call: Call, axes: tuple[int, ...]) -> bool:
    """Torch gives extremes of nothing no value; the core does, for points that nothing needs."""
    return any(call.operands[0].shape[axis] == 0 for axis in axes)


def _wide(call: Call) -> torch.dtype:
    """What sums are carried in."""
    return torch.float32 if call.result.dtype in HALF else result_dtype(call)


def _rounded(function: Function, call: Call) -> Function:
    if call.result.dtype not in HALF:
        return function
    rounded = converter(call.result.dtype)
    return lambda x: rounded(function(x))


def _sum(call: Call, device: torch.device) -> Function:
    axes, wide = _axes(call), _wide(call)
    if not axes:
        return torch.clone
    if call.result.dtype in ("float32", "float64"):  # torch's own choice, found in less time
        return lambda x: x.sum(axes)
    return _rounded(lambda x: x.sum(axes, dtype=wide), call)


def _prod(call: Call, device: torch.device) -> Function:
    """Torch multiplies along one axis at a time."""
    axes, wide = sorted(_axes(call), reverse=True), _wide(call)
    if not axes:
        return torch.clone

    def product(x: torch.Tensor) -> torch.Tensor:
        for axis in axes:
            x = x.prod(axis, dtype=wide)
        return x

    return _rounded(product, call)


def _extreme(name: str) -> Builder:
    """Maxima and minima; NaN where an element is NaN."""

    def builder(call: Call, device: torch.device) -> Function:
        axes = _axes(call)
        if not axes:
            return torch.clone
        if _of_nothing(call, axes):
            return by_numpy(call, device)
        function = getattr(torch, name)
        return lambda x: function(x, axes)

    return builder


def _quantified(name: str) -> Builder:
    def builder(call: Call, device: torch.device) -> Function:
        axes, function = _axes(call), getattr(torch, name)
        if not axes:
            return lambda x: x != 0
        if call.operands[0].dtype == "bool":
            return lambda x: function(x, axes)
        return lambda x: function(x != 0, axes)

    return builder


def _position(name: str) -> Builder:
    """The first position of the extreme, or of NaN."""

    def builder(call: Call, device: torch.device) -> Function:
        axis, function = call.attrs["axis"], getattr(torch, name)
        if _of_nothing(call, (axis,)):
            return by_numpy(call, device)
        if call.operands[0].dtype == "bool":
            return lambda x: function(x.view(torch.uint8), axis).int()
        return lambda x: function(x, axis).int()

    return builder


def _running(function: Callable[..., torch.Tensor]) -> Builder:
    def builder(call: Call, device: torch.device) -> Function:
        axis, wide = call.attrs["axis"], _wide(call)
        return _rounded(lambda x: function(x, axis, dtype=wide), call)

    return builder


def _sort(call: Call, device: torch.device) -> Function:
    axis = call.attrs["axis"]
    return lambda x: torch.sort(x, dim=axis, stable=True).values


def _argsort(call: Call, device: torch.device) -> Function:
    axis = call.attrs["axis"]
    return lambda x: torch.sort(x, dim=axis, stable=True).indices.int()


def _top_k_indices(call: Call, device: torch.device) -> Function:
    """By a stable sort: `torch.topk` takes equal elements in any order."""
    axis, k = call.attrs["axis"], call.attrs["k"]
    return lambda x: torch.sort(x, dim=axis, descending=True, stable=True).indices.narrow(axis, 0, k).int()


_REDUCTIONS: Mapping[str, Builder] = {
    "reduce_sum": _sum,
    "reduce_prod": _prod,
    "reduce_max": _extreme("amax"),
    "reduce_min": _extreme("amin"),
    "argmax": _position("argmax"),
    "argmin": _position("argmin"),
    "cumsum": _running(torch.cumsum),
    "cumprod": _running(torch.cumprod),
    "sort": _sort,
    "argsort": _argsort,
    "top_k_indices": _top_k_indices,
}

REDUCTIONS: Mapping[str, Builder] = {
    **{name: unless_unsigned(builder) for name, builder in _REDUCTIONS.items()},
    "reduce_any": _quantified("any"),
    "reduce_all": _quantified("all"),
}
