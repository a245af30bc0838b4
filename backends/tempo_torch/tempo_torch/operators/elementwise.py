"""Elementwise operators: torch's own, but where its meaning is another or it has no kernel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from tempo import dtypes
from tempo.backends.operators import Call
from tempo_torch.operators.builder import (
    Builder,
    Function,
    Operation,
    always,
    by_numpy,
    converter,
    in_place_of,
    on_bits,
    result_dtype,
)

_COMMUTING = frozenset({"add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor"})


def _torch_s(name: str, function: Function) -> Operation:
    return Operation(function, in_place_of(function), (0, 1) if name in _COMMUTING else (0,))


def _where(x: torch.Tensor, condition: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(condition, x, y, out=x)


_WHERE = Operation(torch.where, _where, (1,))


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_MANY, _REPEATED = 1 << 14, 8


def _selection(call: Call, device: torch.device) -> Function:
    """Torch's kernel takes elements one by one on a CPU, 0.7 ns each. Where each element of the mask stands for many,
    as in a mask of rows, bits are taken by vectors: a tenth of that."""
    bits, elements = _BITS.get(dtypes.itemsize(call.result.dtype)), call.result.elements
    if bits is None or device.type != "cpu" or elements < max(_MANY, _REPEATED * call.operands[0].elements):
        return on_bits(_WHERE)(call, device)
    made, shape = result_dtype(call), call.result.shape

    def selected(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mask, other = condition.to(bits).neg_(), y.view(bits)
        found = x.view(bits) ^ other
        found = found.bitwise_and_(mask) if found.shape == shape else found & mask
        return found.bitwise_xor_(other).view(made)

    def in_place(x: torch.Tensor, condition: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        other = y.view(bits)
        x.view(bits).bitwise_xor_(other).bitwise_and_(condition.to(bits).neg_()).bitwise_xor_(other)
        return x

    return Operation(selected, in_place, (1,))


def _of_floats(function: Function) -> Builder:
    """Torch's function for floats; for integers NumPy's: torch raises or traps at a division by zero."""
    return lambda call, device: function if dtypes.is_float(call.result.dtype) else by_numpy(call, device)


def _mod(call: Call, device: torch.device) -> Function:
    """NumPy's on the CPU, where torch's remainder of floats is NaN for large quotients."""
    exact = device.type != "cpu" and dtypes.is_float(call.result.dtype)
    return torch.remainder if exact else by_numpy(call, device)


def _sign(call: Call, device: torch.device) -> Function:
    """NaN stays NaN; torch makes it 0."""
    if not dtypes.is_float(call.result.dtype):
        return always(torch.sign)(call, device)
    return lambda x: torch.where(x.isnan(), x, x.sign())


def _cast(call: Call, device: torch.device) -> Function:
    source, target = call.operands[0].dtype, call.result.dtype
    if source == target:
        return torch.clone
    if dtypes.is_float(source) and dtypes.is_integer(target):
        return _saturating(call, device)
    return converter(target)


def _saturating(call: Call, device: torch.device) -> Function:
    """Towards zero, into the range of the target, NaN to 0. A float64 holds every integer of up to 32 bits."""
    limits, dtype = np.iinfo(call.result.numpy_dtype), result_dtype(call)
    if dtypes.itemsize(call.result.dtype) > 4:
        return by_numpy(call, device)
    lowest, highest = float(limits.min), float(limits.max)
    return lambda x: x.double().nan_to_num(0.0, highest, lowest).clamp_(lowest, highest).long().to(dtype)


def _after(call: Call, device: torch.device) -> Function:
    shape = call.result.shape
    return (lambda x, y: x) if call.operands[0].shape == shape else (lambda x, y: x.expand(shape))


_PLAIN: Mapping[str, Function] = {
    "abs": torch.abs,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "logistic": torch.sigmoid,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "div": torch.true_divide,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": torch.atan2,
    "shift_right": torch.bitwise_right_shift,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}

_ON_BITS: Mapping[str, Function] = {
    "neg": torch.neg,
    "logical_not": torch.logical_not,
    "bitwise_not": torch.bitwise_not,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "shift_left": torch.bitwise_left_shift,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "eq": torch.eq,
    "ne": torch.ne,
}

ELEMENTWISE: Mapping[str, Builder] = {
    **{name: always(_torch_s(name, function)) for name, function in _PLAIN.items()},
    **{name: on_bits(_torch_s(name, function)) for name, function in _ON_BITS.items()},
    "where": _selection,
    "floordiv": _of_floats(torch.floor_divide),
    "mod": _mod,
    "pow": _of_floats(torch.pow),
    "sign": _sign,
    "cast": _cast,
    "after": _after,
}
