"""Contractions: `dot`, whose form is chosen by shape, and `conv`. Linear algebra; what has no answer is not finite, as
JAX has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from math import prod
from operator import sub

import jax
import jax.numpy as jnp
from jax import lax

from tempo import dtypes
from tempo.backends.operators import Builder, Call
from tempo_jax.operators.values import HALF, Function, Value, converted, full, in_float32
from tempo_jax.precision import HIGHEST

Axes = tuple[int, ...]
Numbers = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]
"""XLA's: which axes are contracted, and which are of the batch."""
_MOST_FUSED = 4032
"""The elements of a vector that XLA multiplies with a matrix in loops of its own: less than 16 KiB of float32."""
_LEAST_ELEMENTS = 1 << 14
"""A copy of a smaller matrix takes no time."""
_LEAST_MATRIX, _MOST_ROWS = 1 << 12, 256
"""Which side of a product is packed does not count where the matrix is smaller, or by more rows."""
_FEW_ROWS = 8
"""Up to so many rows of bfloat16 come first."""


@dataclass(frozen=True)
class _DotOperand:
    """One operand of a contraction: its shape and dtype, and what its axes are."""

    shape: tuple[int, ...]
    dtype: str
    batch: Axes
    contract: Axes

    @property
    def free(self) -> Axes:
        return tuple(axis for axis in range(len(self.shape)) if axis not in (*self.batch, *self.contract))

    def sizes(self, axes: Axes) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in axes)

    def long(self, axes: Axes) -> Axes:
        """Those along which it has several positions."""
        return tuple(axis for axis in axes if self.shape[axis] > 1)


def _dot(call: Call, is_whole: bool = True) -> Function:
    """What is int8 beside a float becomes one here, inside the executable, and in each product: the barrier keeps XLA
    from making it one before a loop, which would read that. `is_whole`: no axis lies in parts; one that does may not be
    joined with others in front of it."""
    multiply, dtype = _of_one_dtype(call, is_whole), call.result.dtype
    if all(operand.dtype == dtype for operand in call.operands):
        return multiply
    return lambda *given: multiply(*(converted(each, dtype) for each in lax.optimization_barrier(given)))


def _of_one_dtype(call: Call, is_whole: bool) -> Function:
    attrs, (lhs, rhs) = call.attrs, call.operands
    left = _DotOperand(lhs.shape, lhs.dtype, tuple(attrs["lhs_batch"]), tuple(attrs["lhs_contract"]))
    right = _DotOperand(rhs.shape, rhs.dtype, tuple(attrs["rhs_batch"]), tuple(attrs["rhs_contract"]))
    if 0 in (*lhs.shape, *rhs.shape):
        return lambda x, y: full(call.result.shape, 0, call.result.dtype)
    general, of_vector = _general(left, right, call, is_whole), _of_vector(left, right, call)
    if of_vector is None:
        return general
    return lambda x, y: lax.platform_dependent(x, y, cpu=of_vector, default=general)


def _general(left: _DotOperand, right: _DotOperand, call: Call, is_whole: bool) -> Function:
    numbers = ((left.contract, right.contract), (left.batch, right.batch))
    if _of_rows(left, right, call):
        return _rows_by_matrix(left, right, call, numbers)
    if _swapped(left, right):
        turned = ((right.contract, left.contract), (right.batch, left.batch))
        return lambda x, y: _dot_general(y, x, turned, call.result.dtype)
    if is_whole and len(left.contract) > 1 and left.free and right.free and _over_rows(left, right):
        return _product_of_rows(left, right, call)
    return lambda x, y: _dot_general(x, y, numbers, call.result.dtype)


def _swapped(left: _DotOperand, right: _DotOperand) -> bool:
    """Whether one side is a vector (has no free axis) and the product is faster with the sides swapped.

    XLA reads a matrix of axes (..., contracted, free) in order as `vector @ matrix`, and one of axes
    (..., free, contracted) as `matrix @ vector`. The other way round it transposes the matrix first: five times as slow
    on a CPU for a query against a cache of axes (position, batch, head, feature). The result has the same axes.
    """
    if not left.contract or bool(left.free) == bool(right.free):
        return False
    matrix, matrix_first = (left, True) if left.free else (right, False)
    return matrix_first == (min(matrix.contract) < min(matrix.free))


def _of_rows(left: _DotOperand, right: _DotOperand, call: Call) -> bool:
    """Whether it is one of some rows by a matrix of (free, contracted)."""
    of_matrix = len(right.shape) == 2 and right.contract == (1,) and len(left.contract) == 1 and not left.batch
    rows, dtype = prod(left.sizes(left.free)), call.result.dtype
    return of_matrix and 2 <= rows <= _MOST_ROWS and prod(right.shape) >= _LEAST_MATRIX and dtype in (*HALF, "float32")


def _rows_by_matrix(left: _DotOperand, right: _DotOperand, call: Call, numbers: Numbers) -> Function:
    """XLA's library for a processor packs the second side anew in every call, and reads the first as it lies. So the
    matrix is first, and what is made of it is turned; without the barrier XLA turns the product again. Few rows of
    bfloat16 come first all the same, which is measured: of 8 rows 10 GB of a matrix in a second for 8, of 2 14 for 8.
    Rows of halves that were made so XLA takes for columns, which the library does not take: it makes the matrix one of
    float32. From three axes they are made rows again."""
    dtype = call.result.dtype
    rows_first = dtype == "bfloat16" and prod(left.sizes(left.free)) <= _FEW_ROWS
    other_way = ((right.contract, left.contract), ((), ()))
    order = (*range(1, len(call.result.shape)), 0)
    may_be_columns = dtype in HALF and len(left.shape) == 2
    plain = partial(_dot_general, numbers=numbers, dtype=dtype)

    def on_cpu(x: Value, y: Value) -> Value:
        if may_be_columns:
            x = lax.reshape(lax.optimization_barrier(lax.expand_dims(x, (0,))), x.shape)
        if rows_first:
            return plain(x, y)
        return lax.transpose(lax.optimization_barrier(_dot_general(y, x, other_way, dtype)), order)

    return lambda x, y: lax.platform_dependent(x, y, cpu=on_cpu, default=plain)


def _over_rows(left: _DotOperand, right: _DotOperand) -> bool:
    """Whether both sides are contracted over all their first axes, as for the gradient of weights.

    As matrices they are multiplied as they lie. Where XLA itself makes matrices of more axes, it copies the first side
    transposed: what a way forward has kept, as soon as that is there, and then both are kept.
    """
    first = tuple(range(len(left.contract)))
    return not left.batch and left.contract == right.contract == first


def _product_of_rows(left: _DotOperand, right: _DotOperand, call: Call) -> Function:
    rows = prod(left.sizes(left.contract))
    widths = [prod(side.sizes(side.free)) for side in (left, right)]

    def product(x: Value, y: Value) -> Value:
        x, y = (lax.reshape(each, (rows, width)) for each, width in zip((x, y), widths, strict=True))
        return lax.reshape(_dot_general(x, y, (((0,), (0,)), ((), ())), call.result.dtype), call.result.shape)

    return product


def _dot_general(x: Value, y: Value, numbers: Numbers, dtype: str) -> Value:
    """Halves are multiplied as they are, accumulated in float32 and rounded once."""
    return converted(_wide(x, y, numbers), dtype)


def _wide(x: Value, y: Value, numbers: Numbers) -> Value:
    """Of halves the sums in float32."""
    wide = dtypes.to_numpy("float32") if x.dtype.name in HALF else x.dtype
    return lax.dot_general(x, y, numbers, precision=HIGHEST, preferred_element_type=wide)


# -- a large matrix of few bits by a vector, on a CPU ------------------------------------------------------------------
#
# No library of XLA's multiplies a vector of halves, or one of floats by a matrix of int8: XLA makes a matrix of float32
# first, before a loop if there is one.


def _of_vector(left: _DotOperand, right: _DotOperand, call: Call) -> Function | None:
    """The product with the matrix read as it lies; None for what is no such product, or where there is no way."""
    ways = ((left, right), (right, left))
    one_way, other_way = (_Matrix.of(*each, call) or _Matrices.of(*each, call) for each in ways)
    if one_way is not None:
        return lambda x, y: one_way(x, y)
    return None if other_way is None else lambda x, y: other_way(y, x)


@dataclass(frozen=True)
class _Matrix:
    """Of (free, contracted) positions in this order, or the other way round where not `by_rows`."""

    free: int
    contracted: int
    by_rows: bool
    call: Call

    @staticmethod
    def of(matrix: _DotOperand, vector: _DotOperand, call: Call) -> _Matrix | None:
        free, contract, along = matrix.long(matrix.free), matrix.long(matrix.contract), vector.long(vector.contract)
        one_vector = not (vector.long(vector.free) or matrix.long(matrix.batch)) and list(along) == sorted(along)
        is_widened = call.result.dtype in HALF or matrix.dtype != call.result.dtype
        if not is_widened or not one_vector or prod(matrix.shape) < _LEAST_ELEMENTS:
            return None
        by_rows, by_columns = ([*each] == sorted(each) for each in ((*free, *contract), (*contract, *free)))
        if not free or not contract or not (by_rows or (by_columns and call.result.dtype == "bfloat16")):
            return None
        return _Matrix(prod(matrix.sizes(free)), prod(matrix.sizes(contract)), by_rows, call)

    def __call__(self, matrix: Value, vector: Value) -> Value:
        vector = lax.reshape(vector, (self.contracted,))
        made = self.rows_by(matrix, vector) if self.by_rows else self.columns_by(matrix, vector)
        return lax.reshape(made, self.call.result.shape)

    def columns_by(self, matrix: Value, vector: Value) -> Value:
        columns = lax.reshape(matrix, (self.contracted, self.free))
        return _by_two(vector, columns, (((0,), (0,)), ((), ())), self.call.result.dtype)

    def rows_by(self, matrix: Value, vector: Value) -> Value:
        """In loops that XLA writes, and converts in: for a short vector without other axes (which the barrier keeps
        away from it), in front of a matrix that is given transposed. So a long one is taken in parts; and since XLA
        puts an addition in the place of the conversion, what the negated parts behind the first make is subtracted.
        By two rows of bfloat16 through the library there is nothing to compile, but where memory gives more than 15 GB
        in a second that is slower: it packs the matrix first.

        A vector that was made with several axes, as by the heads of attention, XLA would take apart by them in the
        innermost loop, six times as slow: what is put together has one axis."""
        rows = lax.reshape(matrix, (self.free, self.contracted))
        half = self.contracted // 2
        vector = lax.concatenate(lax.optimization_barrier([vector[:half], vector[half:]]), 0)
        step = -(-self.contracted // -(-self.contracted // _MOST_FUSED))
        first, *rest = [slice(start, start + step) for start in range(0, self.contracted, step)]
        parts = lax.optimization_barrier([vector[first], *(-vector[each] for each in rest)])
        numbers = (((0,), (0,)), ((), ()))
        sums = [_wide(part, rows[:, at].T, numbers) for part, at in zip(parts, (first, *rest), strict=True)]
        return converted(reduce(sub, sums), self.call.result.dtype)


@dataclass(frozen=True)
class _Matrices:
    """Several such products at once, as a step of attention has them: one for each position of batch axes. By one
    vector XLA makes float32 of all matrices, turns some, and compiles a kernel for each place where this is done."""

    matrix: _DotOperand
    vector: _DotOperand
    call: Call

    @staticmethod
    def of(matrix: _DotOperand, vector: _DotOperand, call: Call) -> _Matrices | None:
        is_one = not vector.long(vector.free) and matrix.long(matrix.free) and matrix.long(matrix.contract)
        is_many = call.result.dtype in HALF and matrix.long(matrix.batch)
        return _Matrices(matrix, vector, call) if is_one and is_many else None

    def __call__(self, matrices: Value, vectors: Value) -> Value:
        numbers = ((self.vector.contract, self.matrix.contract), (self.vector.batch, self.matrix.batch))
        result = self.call.result
        return lax.reshape(_by_two(vectors, matrices, numbers, result.dtype), result.shape)


def _by_two(vectors: Value, matrices: Value, numbers: Numbers, dtype: str) -> Value:
    """The product with each vector taken twice, of which one is as good as the other: for several rows there is a
    library."""
    (contract, of_matrix), (batch, of_batch) = numbers
    contract, batch = (tuple(axis + 1 for axis in axes) for axes in (contract, batch))
    twice = lax.optimization_barrier(lax.broadcast(vectors, (2,)))
    made = _wide(twice, matrices, ((contract, of_matrix), (batch, of_batch)))
    return converted(lax.index_in_dim(made, 0, len(batch), keepdims=False), dtype)


@dataclass(frozen=True)
class _Convolution:
    """A convolution along spatial axes, of x (N, C, *spatial) with w (O, C, *kernel)."""

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    out: tuple[int, ...]

    def floats(self, x: Value, w: Value) -> Value:
        if not self.out:  # no spatial axes: XLA of JAX 0.6 pairs the wrong elements where several such are one call
            return lax.dot_general(x, w, (((1,), (1,)), ((), ())), precision=HIGHEST)
        return lax.conv_general_dilated(x, w, self.strides, self.padding, rhs_dilation=self.dilation, precision=HIGHEST)

    def integers(self, x: Value, w: Value) -> Value:
        """One product per position of the kernel: not every platform of XLA convolves integers."""
        padded = lax.pad(x, x.dtype.type(0), [(0, 0, 0), (0, 0, 0), *((low, high, 0) for low, high in self.padding)])
        total = jnp.zeros((x.shape[0], *self.out, w.shape[0]), x.dtype)
        for position in product(*(range(size) for size in w.shape[2:])):
            taken = self._seen(padded, position)
            total = total + lax.dot_general(
                taken, w[(..., *position)], (((1,), (1,)), ((), ())), preferred_element_type=x.dtype
            )
        return jnp.moveaxis(total, -1, 1)

    def _seen(self, x: Value, position: tuple[int, ...]) -> Value:
        """What the position of the kernel is multiplied with, at every position of the result."""
        low = [at * dilation for at, dilation in zip(position, self.dilation)]
        high = [start + (size - 1) * stride + 1 for start, size, stride in zip(low, self.out, self.strides)]
        return lax.slice(x, (0, 0, *low), (*x.shape[:2], *high), (1, 1, *self.strides))


def _conv(call: Call) -> Function:
    attrs, (x, w), dtype = call.attrs, call.operands, call.result.dtype
    batch = attrs.get("batch", 0)
    spatial = w.rank - 2 - batch
    channel = x.rank - spatial - 1
    if 0 in (x.elements, w.elements, call.result.elements):
        return lambda x, w: full(call.result.shape, 0, dtype)
    out = call.result.shape[channel + 1 :]
    window = _Convolution(tuple(attrs["strides"]), tuple(attrs["padding"]), tuple(attrs["dilation"]), out)
    convolve = window.floats if dtypes.is_float(dtype) else window.integers
    shared = x.shape[:batch]
    x_shape = (prod(shared), prod(x.shape[batch:channel]), *x.shape[channel:])
    w_shape = (prod(shared), *w.shape[batch:])
    each = in_float32(convolve, dtype)

    def conv(x: Value, w: Value) -> Value:
        x, w = lax.reshape(x, x_shape), lax.reshape(w, w_shape)
        found = jax.vmap(each)(x, w) if batch else each(x[0], w[0])
        return lax.reshape(found, call.result.shape)

    return conv


def _in_float32(function: Function) -> Builder:
    def builder(call: Call) -> Function:
        return in_float32(function, call.result.dtype)

    return builder


CONTRACTIONS: Mapping[str, Builder] = {
    "dot": _dot,
    "conv": _conv,
    "solve": _in_float32(jnp.linalg.solve),
    "cholesky": _in_float32(lambda a: lax.linalg.cholesky(a, symmetrize_input=False)),
    "det": _in_float32(jnp.linalg.det),
}
IN_PARTS: Mapping[str, Builder] = {"dot": partial(_dot, is_whole=False)}
"""Of these another one where axes may lie in parts, on a mesh."""
