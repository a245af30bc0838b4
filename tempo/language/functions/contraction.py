"""Products that sum over axes: `dot`, `matmul`, `einsum`, `conv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tempo.errors import ShapeError, user_location
from tempo.language.conversion import (
    TensorLike,
    broadcast,
    broadcast_together,
    cast,
    normalize_axis,
    promoted,
    reshaped,
    several,
    show,
    to_int,
    transposed,
)
from tempo.language.functions.movement import moveaxis
from tempo.language.functions.reductions import sum
from tempo.language.tensor import RecurrentTensor, apply
from tempo.symbolic import Expr, const


def _factors(a: TensorLike, b: TensorLike) -> tuple[RecurrentTensor, RecurrentTensor]:
    """Promoted; products of bools are summed as int32."""
    left, right = promoted(a, b)
    return (cast(left, "int32"), cast(right, "int32")) if left.dtype == "bool" else (left, right)


def dot_general(
    a: RecurrentTensor,
    b: RecurrentTensor,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> RecurrentTensor:
    """Summed over the axes `contract` of both; the result has the batch axes, then those left of `a`, then of `b`."""
    attrs = {
        "lhs_contract": tuple(contract[0]),
        "rhs_contract": tuple(contract[1]),
        "lhs_batch": tuple(batch[0]),
        "rhs_batch": tuple(batch[1]),
    }
    return apply("dot", a, b, attrs=attrs, weak=a.weak and b.weak)


def matmul(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """`a @ b`: the last axis of `a` with the last but one of `b`; leading axes broadcast, vectors stay vectors."""
    left, right = _factors(a, b)
    if not left.ndim or not right.ndim:
        raise ShapeError("matmul of a tensor without axes", location=user_location(), hint="multiply with *")
    if right.ndim <= 2:
        return dot_general(left, right, ((left.ndim - 1,), (max(right.ndim - 2, 0),)))
    if left.ndim == 1:
        return dot_general(left, right, ((0,), (right.ndim - 2,)))
    if left.ndim == 2:
        return moveaxis(dot_general(left, right, ((1,), (right.ndim - 2,))), 0, -2)
    left, right = broadcast_together([left, right], "matmul", but_last=2)
    batch = range(left.ndim - 2)
    return dot_general(left, right, ((left.ndim - 1,), (right.ndim - 2,)), (batch, batch))


def dot(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """NumPy's `dot`: the last axis of `a` with the last but one of `b`, all others apart; scalars multiply."""
    left, right = _factors(a, b)
    if not left.ndim or not right.ndim:
        return left * right
    return dot_general(left, right, ((left.ndim - 1,), (max(right.ndim - 2, 0),)))


def vdot(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """The sum of the products of all elements."""
    left, right = _factors(a, b)
    return dot_general(left, right, (range(left.ndim), range(right.ndim)))


def inner(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Summed over the last axis of both."""
    left, right = _factors(a, b)
    if not left.ndim or not right.ndim:
        return left * right
    return dot_general(left, right, ((left.ndim - 1,), (right.ndim - 1,)))


def outer(a: TensorLike, b: TensorLike) -> RecurrentTensor:
    """Every product of an element of `a` with one of `b`, both flattened."""
    left, right = promoted(a, b)
    return left.reshape(-1, 1) * right.reshape(1, -1)


def tensordot(a: TensorLike, b: TensorLike, axes: int | Sequence[int | Sequence[int]] = 2) -> RecurrentTensor:
    """Summed over the last `axes` axes of `a` and the first of `b`, or over a pair of axes or lists of axes."""
    left, right = _factors(a, b)
    given = several(axes)
    if len(given) not in (1, 2):
        raise ShapeError("tensordot takes a number of axes, or a pair", location=user_location())
    if len(given) == 1:
        count = to_int(given[0], "the number of axes")
        if not 0 <= count <= min(left.ndim, right.ndim):
            message = f"tensordot over {count} axes of {left.ndim} and {right.ndim}"
            raise ShapeError(message, location=user_location())
        return dot_general(left, right, (range(left.ndim - count, left.ndim), range(count)))
    first, second = several(given[0]), several(given[1])
    lhs = [normalize_axis(axis, left.ndim) for axis in first]
    rhs = [normalize_axis(axis, right.ndim) for axis in second]
    return dot_general(left, right, (lhs, rhs))


def einsum(subscripts: Any, *operands: TensorLike) -> RecurrentTensor:
    """Sums of products by named axes: `tp.einsum("bhd,bsd->bhs", q, k)`.

    Axes of one name have one size (or 1, which is broadcast); `...` stands for leading axes that broadcast. Without
    `->` the result has the names that occur once, sorted. A name occurs at most once per operand.
    """
    if not isinstance(subscripts, str) or not operands:
        raise ShapeError(
            "einsum takes the subscripts and at least one tensor",
            location=user_location(),
            hint='write tp.einsum("ij,jk->ik", a, b)',
        )
    tensors = promoted(*operands)
    tensors = [cast(tensor, "int32") if tensor.dtype == "bool" else tensor for tensor in tensors]
    inputs, result = _parse(subscripts, [tensor.ndim for tensor in tensors])
    sizes = _sizes(inputs, tensors, subscripts)
    pairs = [_without_ones(tensor, names, sizes) for tensor, names in zip(tensors, inputs)]
    tensor, names = pairs[0]
    for place, (other, theirs) in enumerate(pairs[1:], 1):
        later = {name for _, rest in pairs[place + 1 :] for name in rest} | set(result)
        tensor, names = _contract(tensor, names, other, theirs, later)
    tensor, names = _summed(tensor, names, set(result))
    return _arranged(tensor, names, result, sizes)


Names = tuple[str, ...]


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[Names], Names]:
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ShapeError(
            f"einsum: {subscripts!r} names {len(parts)} operands, given are {len(ranks)}", location=user_location()
        )
    hidden = max((rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks) if "..." in part), default=0)
    inputs = [_names(part, rank, hidden, subscripts) for part, rank in zip(parts, ranks)]
    every = [name for names in inputs for name in names]
    if not arrow:
        once = sorted(name for name in set(every) if every.count(name) == 1 and len(name) == 1)
        return inputs, (*_hidden(hidden), *once)
    result = _names(right, None, hidden, subscripts)
    unknown = [name for name in result if name not in every]
    if unknown:
        raise ShapeError(
            f"einsum: {unknown[0]!r} of the result of {subscripts!r} is in no operand", location=user_location()
        )
    return inputs, result


def _hidden(count: int) -> Names:
    """Names of the axes behind `...`, the last of which is 1."""
    return tuple(f"...{place}" for place in range(count, 0, -1))


def _names(part: str, rank: int | None, hidden: int, subscripts: str) -> Names:
    before, dots, after = part.partition("...")
    letters = before + after
    count = hidden if rank is None else rank - len(letters)
    if not all(letter.isalpha() for letter in letters) or (not dots and rank is not None and count):
        raise ShapeError(f"einsum: {part!r} in {subscripts!r} does not name {rank} axes", location=user_location())
    if len(set(letters)) != len(letters):
        raise ShapeError(
            f"einsum: {part!r} in {subscripts!r} names an axis twice",
            location=user_location(),
            hint="take a diagonal with tp.eye: (x * tp.eye(n)).sum(axis)",
        )
    return (*before, *(_hidden(count) if dots else ()), *after)


def _sizes(inputs: Sequence[Names], tensors: Sequence[RecurrentTensor], subscripts: str) -> dict[str, Expr]:
    sizes: dict[str, Expr] = {}
    pairs = (pair for names, tensor in zip(inputs, tensors) for pair in zip(names, tensor.type.shape))
    for name, size in pairs:
        known = sizes.get(name, const(1))
        if known != const(1) and size != const(1) and known != size:
            raise ShapeError(f"einsum: {name!r} in {subscripts!r} is both {known} and {size}", location=user_location())
        sizes[name] = size if known == const(1) else known
    return sizes


def _without_ones(x: RecurrentTensor, names: Names, sizes: dict[str, Expr]) -> tuple[RecurrentTensor, Names]:
    """An axis of size 1 that broadcasts is left out."""
    kept = [place for place, name in enumerate(names) if x.type.shape[place] == sizes[name]]
    return reshaped(x, tuple(x.type.shape[place] for place in kept)), tuple(names[place] for place in kept)


def _summed(x: RecurrentTensor, names: Names, kept: set[str]) -> tuple[RecurrentTensor, Names]:
    axes = tuple(place for place, name in enumerate(names) if name not in kept)
    return (sum(x, axes), tuple(name for name in names if name in kept)) if axes else (x, names)


def _contract(
    a: RecurrentTensor, left: Names, b: RecurrentTensor, right: Names, later: set[str]
) -> tuple[RecurrentTensor, Names]:
    """The product of two operands, summed over what both have and nothing needs later."""
    a, left = _summed(a, left, later | set(right))
    b, right = _summed(b, right, later | set(left))
    batch = tuple(name for name in left if name in right and name in later)
    over = tuple(name for name in left if name in right and name not in later)
    contract = [left.index(name) for name in over], [right.index(name) for name in over]
    shared = [left.index(name) for name in batch], [right.index(name) for name in batch]
    free = tuple(name for name in (*left, *right) if name not in batch and name not in over)
    return dot_general(a, b, contract, shared), (*batch, *free)


def _arranged(x: RecurrentTensor, names: Names, result: Names, sizes: dict[str, Expr]) -> RecurrentTensor:
    order = [names.index(name) for name in result if name in names]
    x = transposed(x, order)
    present = reshaped(x, tuple(sizes[name] if name in names else const(1) for name in result))
    return broadcast(present, tuple(sizes[name] for name in result))


def conv(
    x: TensorLike,
    kernel: TensorLike,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int | tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
) -> RecurrentTensor:
    """Convolution (without reversing the kernel) over the axes after the second.

    `x` has shape `(N, C, *spatial)`, `kernel` `(O, C, *window)`, the result `(N, O, *spatial')`; `strides`, `dilation`
    and `padding` (zeros before and after) are one number or one per spatial axis.
    """
    left, right = _factors(x, kernel)
    if left.ndim < 3 or left.ndim != right.ndim:
        raise ShapeError(
            f"conv of shapes {show(left.type.shape)} and {show(right.type.shape)}",
            location=user_location(),
            hint="x needs the shape (N, C, ...), the kernel (O, C, ...)",
        )
    count = left.ndim - 2
    pairs = [padding] * count if isinstance(padding, int) else list(padding)
    attrs = {
        "strides": (strides,) * count if isinstance(strides, int) else tuple(strides),
        "dilation": (dilation,) * count if isinstance(dilation, int) else tuple(dilation),
        "padding": tuple((pair, pair) if isinstance(pair, int) else tuple(pair) for pair in pairs),
    }
    return apply("conv", left, right, attrs=attrs, weak=left.weak)
