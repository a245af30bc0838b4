"""Contractions: `dot` by the form of a product that fits its shapes, `conv` by torch's convolutions. Linear algebra by
the forms that check nothing on the host; what has no answer is NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import torch

from tempo import dtypes
from tempo.backends.operators import Call
from tempo_torch.operators.builder import (
    HALF,
    Ahead,
    Builder,
    Function,
    Operation,
    by_numpy,
    in_float32,
    is_unsigned,
    result_dtype,
)
from tempo_torch.operators.packing import (
    by_matrix,
    by_prepared,
    is_worth_packing,
    may_be_packed,
    multiplies,
    preparing,
    turned,
    vector_by_matrix,
    vector_by_turned,
)
from tempo_torch.operators.widening import product

# Elements of a matrix of lhs from which a batched product with a narrower rhs is made as its transpose, measured:
# 1,024 x 64 by 64 x 1, eight of them, takes 430 us as it stands and 60 to 120 us turned.
_WORTH_TURNING = 1024

Axes = tuple[int, ...]
Ints = tuple[int, ...]


def _dot(call: Call, device: torch.device) -> Function:
    whole = not dtypes.is_float(call.result.dtype)
    if is_unsigned(call) or (whole and device.type != "cpu"):  # no integer products on other devices
        return by_numpy(call, device)
    if any(operand.dtype != call.result.dtype for operand in call.operands):
        return _with_int8(call, device)
    lhs, rhs = (operand.shape for operand in call.operands)
    axes = _axes(call)
    dtype = result_dtype(call)
    packs = dtype if may_be_packed(dtype, device) else None
    if call.result.dtype in HALF and device.type == "cpu":
        if multiplies(dtype):
            return _of_matrices(lhs, rhs, axes, packs)
        return _matrix_by_vector(call) or contraction(lhs, rhs, *axes, multiply=_of_halves)
    return contraction(lhs, rhs, *axes, packs)


def _axes(call: Call) -> list[Axes]:
    """As `contraction` takes them."""
    return [tuple(call.attrs[name]) for name in ("lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch")]


def _of_matrices(lhs: Ints, rhs: Ints, axes: Sequence[Axes], packs: torch.dtype | None) -> Function:
    """A contraction of which a vector is a matrix of one row."""
    lhs_contract, rhs_contract = axes[:2]
    if not lhs_contract or min(len(lhs), len(rhs)) > 1:
        return contraction(lhs, rhs, *axes, packs)
    if len(rhs) == 2 and len(lhs) == 1:
        return _rows_by_matrix(1, rhs, rhs_contract[0], packs)
    shape = (*_left(lhs, lhs_contract), *_left(rhs, rhs_contract))
    rows = [(1, *each) if len(each) == 1 else each for each in (lhs, rhs)]
    at = [(1,) if len(each) == 1 else own for each, own in ((lhs, lhs_contract), (rhs, rhs_contract))]
    multiply = _called(contraction(*rows, *at, (), ()))
    return lambda x, y: multiply(x.reshape(rows[0]), y.reshape(rows[1])).reshape(shape)


def _called(function: Function) -> Function:
    """Without what it says of operands that are prepared."""
    return function.function if isinstance(function, Operation) else function


def _left(shape: Ints, contracted: Axes) -> Ints:
    return tuple(shape[axis] for axis in _without(len(shape), contracted))


_FEW = 4  # rows up to which torch's kernels for few bits are faster than a copy as floats and a product of these
_STEP = 32  # a multiple of the kernel's steps along the width: it reads past the end where these do not divide it


def _with_int8(call: Call, device: torch.device) -> Function:
    """Numbers that are stored in 8 bits: few rows of bfloat16 by a matrix, outputs first, are what torch has a kernel
    for, which reads the matrix as it is; else it is copied as floats for each product."""
    made, shapes = result_dtype(call), [operand.shape for operand in call.operands]
    axes = _axes(call)
    if device.type != "cpu":
        multiply = _called(contraction(*shapes, *axes))
        return lambda x, y: multiply(x.to(made), y.to(made))
    lhs, rhs = call.operands
    rows, width = prod(lhs.shape[:-1]), lhs.shape[-1] if lhs.shape else 0
    is_plain = axes == [(len(lhs.shape) - 1,), (1,), (), ()] and len(rhs.shape) == 2 and rhs.dtype == "int8"
    if not (is_plain and made is torch.bfloat16 and width % _STEP == 0 and 0 < rows <= _FEW):
        dtype = torch.float32 if call.result.dtype in HALF and not multiplies(made) else made
        return contraction(*shapes, *axes, multiply=lambda x, y: _rounded(product(x, y, dtype), made))
    ones = torch.ones(rhs.shape[0], dtype=made, device=device)

    def by_kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = torch._weight_int8pack_mm(_aligned(x.reshape(rows, width), 32), _aligned(y, 16), ones)
        return found.reshape(call.result.shape)

    return by_kernel


def _aligned(x: torch.Tensor, to: int) -> torch.Tensor:
    """Contiguous, at an address that `to` divides, as the kernel's loads need it; a slice may begin at any."""
    x = x.contiguous()
    return x if x.data_ptr() % to == 0 else x.clone()


def _of_halves(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Torch's own product of a matrix, outputs first, by few rows reads it as it is (4 rows by 3,584 x 1,024: 1.7 ms,
    4 as floats). It takes twice as long for twice as many, and ten times as long where inputs lie first."""
    if x.ndim == 2 and len(x) <= _FEW and y.stride(0) == 1:
        return torch.mm(x, y)
    if x.ndim == 2 and y.shape[1] <= _FEW and x.stride(1) == 1:
        return _rounded(torch.mm(y.mT, x.mT).mT, x.dtype)
    return _rounded(product(x, y, torch.float32), x.dtype)


def _rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Row by row: operators that follow take several times as long where one operand lies otherwise."""
    return x.to(dtype, memory_format=torch.contiguous_format)


def _matrix_by_vector(call: Call) -> Function | None:
    """A matrix of halves by a vector, without copying it to float32; None for other products.

    Torch sums all products of halves in float32 and rounds once. Those of two matrices take several times as long on a
    processor as in float32; this one takes as long as reading the matrix (0.6 ms for 3,584 x 1,024, by float32 1.4).
    """
    shapes = [operand.shape for operand in call.operands]
    axes = [tuple(call.attrs[name]) for name in ("lhs_contract", "rhs_contract")]
    if call.attrs["lhs_batch"] or any(len(each) != 1 for each in axes):
        return None
    for at, shape in enumerate(shapes):
        free = _without(len(shapes[1 - at]), axes[1 - at])
        if len(shape) == 2 and all(shapes[1 - at][axis] == 1 for axis in free):
            return partial(_mv, at, axes[at][0] == 0, call.result.shape)
    return None


def _mv(place: int, is_turned: bool, shape: Ints, *given: torch.Tensor) -> torch.Tensor:
    """The matrix is operand `place`, turned where its first axis is contracted."""
    matrix, vector = given[place], given[1 - place]
    return torch.mv(matrix.t() if is_turned else matrix, vector.reshape(-1)).reshape(shape)


def contraction(
    lhs: Ints,
    rhs: Ints,
    lhs_contract: Axes,
    rhs_contract: Axes,
    lhs_batch: Axes,
    rhs_batch: Axes,
    packs: torch.dtype | None = None,
    multiply: Function | None = None,
) -> Function:
    """A function of two tensors of the shapes `lhs` and `rhs`; the axes of the result are batch, free lhs, free rhs.

    `packs`: the dtype, where a matrix that stays may be laid out for oneDNN (`packing.py`). `multiply`: all that is
    contracted is so by it, in place of `torch.mm` and `torch.bmm`.
    """
    lhs_free = _without(len(lhs), (*lhs_batch, *lhs_contract))
    rhs_free = _without(len(rhs), (*rhs_batch, *rhs_contract))
    shape = tuple(lhs[a] for a in (*lhs_batch, *lhs_free)) + tuple(rhs[a] for a in rhs_free)
    if not lhs_contract:
        return _product(lhs, rhs, (lhs_batch, lhs_free), (rhs_batch, rhs_free))
    is_simple = multiply is None and not lhs_batch and len(lhs_contract) == 1
    if is_simple and len(lhs_free) <= 1 and len(rhs_free) <= 1:
        return _plain(lhs, rhs, lhs_contract[0], rhs_contract[0], packs)
    if is_simple and len(rhs) == 2:
        return _by_matrix(lhs, rhs, lhs_contract[0], rhs_contract[0], packs)
    high, wide = prod(lhs[a] for a in lhs_free), prod(rhs[a] for a in rhs_free)
    turn = bool(lhs_batch) and high > wide and high * prod(lhs[a] for a in lhs_contract) >= _WORTH_TURNING
    left = _arranged(lhs, (lhs_batch, lhs_contract, lhs_free) if turn else (lhs_batch, lhs_free, lhs_contract))
    right = _arranged(rhs, (rhs_batch, rhs_free, rhs_contract) if turn else (rhs_batch, rhs_contract, rhs_free))
    multiply = multiply or (torch.bmm if lhs_batch else torch.mm)
    if turn:
        turned = _combine(multiply, right, left)
        return lambda x, y: turned(y, x).mT.reshape(shape)
    multiplied = _combine(multiply, left, right)
    batch = (prod(lhs[axis] for axis in lhs_batch),) if lhs_batch else ()
    return multiplied if (*batch, high, wide) == shape else lambda x, y: multiplied(x, y).reshape(shape)


def _without(rank: int, axes: Axes) -> Axes:
    return tuple(axis for axis in range(rank) if axis not in axes)


def _plain(lhs: Ints, rhs: Ints, lhs_axis: int, rhs_axis: int, packs: torch.dtype | None) -> Function:
    """Vectors and matrices, by the function with the least overhead."""
    if len(lhs) == len(rhs) == 1:
        return torch.dot
    if len(rhs) == 1:
        return torch.mv if lhs_axis == 1 else lambda x, y: torch.mv(x.t(), y)
    if len(lhs) == 1:
        multiply = vector_by_matrix(rhs_axis)
        return multiply if rhs_axis == 1 else Operation(multiply, ahead=Ahead(1, turned, vector_by_turned))
    return _by_matrix(lhs, rhs, lhs_axis, rhs_axis, packs)


def _by_matrix(lhs: Ints, rhs: Ints, lhs_axis: int, rhs_axis: int, packs: torch.dtype | None) -> Function:
    """Of any axes, one of which is contracted with one of a matrix."""
    free = _without(len(lhs), (lhs_axis,))
    rows, shape = prod(lhs[axis] for axis in free), (*(lhs[axis] for axis in free), rhs[1 - rhs_axis])
    left = torch.t if len(lhs) == 2 and lhs_axis == 0 else _arranged(lhs, ((), free, (lhs_axis,)))
    made = _rows_by_matrix(rows, rhs, rhs_axis, packs)
    multiply, ahead = _combine(made.function, left, None), made.ahead
    if ahead is not None:
        ahead = replace(ahead, function=_combine(ahead.function, left, None))
    if len(free) == 1:
        return Operation(multiply, ahead=ahead)
    if ahead is not None:
        later = ahead.function
        ahead = replace(ahead, function=lambda x, y: later(x, y).reshape(shape))
    return Operation(lambda x, y: multiply(x, y).reshape(shape), ahead=ahead)


def _rows_by_matrix(rows: int, rhs: Ints, axis: int, packs: torch.dtype | None) -> Operation:
    gains = packs is not None and is_worth_packing(rows, prod(rhs), packs, axis)
    ahead = Ahead(1, preparing(axis, gains), by_prepared, gains) if axis == 1 or gains else None
    return Operation(by_matrix(axis), ahead=ahead)


def _product(lhs: Ints, rhs: Ints, lhs_axes: tuple[Axes, Axes], rhs_axes: tuple[Axes, Axes]) -> Function:
    """Nothing is contracted: the product of every free pair."""
    left = _shaped(lhs, lhs_axes, (1,) * 0, (1,) * len(rhs_axes[1]))
    right = _shaped(rhs, rhs_axes, (1,) * len(lhs_axes[1]), ())
    return _combine(torch.mul, left, right)


def _shaped(shape: Ints, axes: tuple[Axes, Axes], between: Ints, after: Ints) -> Function | None:
    """Batch axes, ones, free axes, ones."""
    batch, free = (tuple(shape[axis] for axis in group) for group in axes)
    return _moved(shape, (*axes[0], *axes[1]), (*batch, *between, *free, *after))


def _arranged(shape: Ints, groups: Sequence[Axes]) -> Function | None:
    """Axes in the order of the groups, each of which becomes one axis; the first (batch) only where it has axes."""
    merged = [prod(shape[axis] for axis in group) for at, group in enumerate(groups) if at or group]
    return _moved(shape, tuple(axis for group in groups for axis in group), tuple(merged))


def _moved(shape: Ints, order: Axes, target: Ints) -> Function | None:
    """Axes in `order`, then the shape `target`; None where a tensor already is as wanted."""
    ordered = tuple(shape[axis] for axis in order)
    if order == tuple(range(len(shape))):
        return None if target == shape else lambda x: x.reshape(target)
    if ordered == target:
        return lambda x: x.permute(order)
    return lambda x: x.permute(order).reshape(target)


def _combine(function: Function, left: Function | None, right: Function | None) -> Function:
    """`function(left(x), right(y))`, where None is the identity."""
    if left is None and right is None:
        return function
    if right is None:
        return lambda x, y: function(left(x), y)  # type: ignore[misc]
    if left is None:
        return lambda x, y: function(x, right(y))
    return lambda x, y: function(left(x), right(y))


_CONVOLUTIONS: Mapping[int, Function] = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


def _conv(call: Call, device: torch.device) -> Function:
    """Batch axes become groups, N one axis; without spatial axes there is one of size 1."""
    attrs, x, w = call.attrs, call.operands[0].shape, call.operands[1].shape
    if 0 in (*(operand.elements for operand in call.operands), call.result.elements):
        return lambda a, b: a.new_zeros(call.result.shape)
    batch = attrs.get("batch", 0)
    spatial = len(w) - 2 - batch
    if spatial > max(_CONVOLUTIONS) or not dtypes.is_float(call.result.dtype):
        return by_numpy(call, device)
    channel = len(x) - spatial - 1
    groups, many = prod(x[:batch]), prod(x[batch:channel])
    ones = () if spatial else (1,)
    pads = [size for pair in reversed(attrs["padding"]) for size in pair]
    strides, dilation = attrs["strides"] or (1,), attrs["dilation"] or (1,)
    images = (groups, many, x[channel], *x[channel + 1 :], *ones)
    kernels = (groups * w[batch], *w[batch + 1 :], *ones)
    sizes = (*call.result.shape[channel + 1 :], *ones)
    convolve = _CONVOLUTIONS[max(spatial, 1)]

    def conv(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a = a.reshape(images).transpose(0, 1).reshape(many, groups * x[channel], *images[3:])
        a = torch.constant_pad_nd(a, pads) if any(pads) else a
        made = convolve(a, b.reshape(kernels), None, strides, 0, dilation, groups)
        return made.reshape(many, groups, w[batch], *sizes).transpose(0, 1).reshape(call.result.shape)

    return in_float32(conv, call)


def _or_nan(function: Function) -> Builder:
    """`function` gives a result and for each matrix a number that is not 0 where it has none."""

    def run(*given: torch.Tensor) -> torch.Tensor:
        made, failed = function(*given)
        return made.masked_fill(failed.ne(0)[..., None, None], torch.nan)

    return _rounded_once(run)


def _rounded_once(function: Function) -> Builder:
    return lambda call, device: in_float32(function, call)


CONTRACTIONS: Mapping[str, Builder] = {
    "dot": _dot,
    "conv": _conv,
    "solve": _or_nan(torch.linalg.solve_ex),
    "cholesky": _or_nan(torch.linalg.cholesky_ex),
    "det": _rounded_once(torch.linalg.det),
}
