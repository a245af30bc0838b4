"""Random draws: `tp.random`.

Every call is a declaration of its own. Its numbers are a function of the seed of the run, the number of the
declaration, the point and the position of the element: Threefry-2x32 with 20 rounds, so they are the same under every
backend, schedule and size. Without `dims` a draw has the domain of its tensor arguments; with it, exactly those dims.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError, user_location
from tempo.language.apply import view
from tempo.language.builder import SEED_DECLARATION
from tempo.language.conversion import TensorLike, as_dtype, as_tensor, cast, is_python_scalar, operand, promoted
from tempo.language.functions.arithmetic import less, subtract
from tempo.language.functions.elementwise import log
from tempo.language.functions.normal_distribution import erfinv
from tempo.language.functions.reductions import argmax, argsort
from tempo.language.indexing.expression import IndexExpression
from tempo.language.program import Program, current_program
from tempo.language.shapes import Shape, normalize_axis, to_shape
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Edge, TensorType
from tempo.symbolic import Symbol, var

_WIDTHS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def bits(shape: Any = (), *, dims: Any = (), dtype: Any = "uint32") -> RecurrentTensor:
    """Random bits of `shape`, uint8 to uint64, independent at every point of `dims`."""
    name = as_dtype(dtype)
    if name not in _WIDTHS:
        raise DTypeError(f"random bits have dtype {name}", location=user_location(), hint=f"use {', '.join(_WIDTHS)}")
    program = current_program()
    domain = program.check_dims(dims, "the dims of a random draw")
    return _draw(program, to_shape(program, shape), domain, _WIDTHS[name])


def uniform(
    shape: Any = (), low: TensorLike = 0.0, high: TensorLike = 1.0, *, dims: Any = None, dtype: Any = "float32"
) -> RecurrentTensor:
    """Uniform in `[low, high)`: multiples of 2**-24 (of 2**-53 for float64) scaled; shape `shape`."""
    program = current_program()
    name = _float(dtype)
    sizes, domain = to_shape(program, shape), _domain(program, dims, low, high)
    unit = cast(_unit(program, sizes, domain, name), name)
    width = _scale(high, low, name)
    scaled = unit if _is(width, 1.0) else unit * width
    return cast(scaled if _is(low, 0.0) else scaled + low, name)


def normal(
    shape: Any = (), loc: TensorLike = 0.0, scale: TensorLike = 1.0, *, dims: Any = None, dtype: Any = "float32"
) -> RecurrentTensor:
    """Normal with mean `loc` and standard deviation `scale`; shape `shape`."""
    program = current_program()
    name = _float(dtype)
    sizes, domain = to_shape(program, shape), _domain(program, dims, loc, scale)
    standard = cast(erfinv(_symmetric(program, sizes, domain, name)) * 1.4142135623730951, name)
    scaled = standard if _is(scale, 1.0) else standard * scale
    return cast(scaled if _is(loc, 0.0) else scaled + loc, name)


def bernoulli(p: TensorLike = 0.5, shape: Any = None, *, dims: Any = None) -> RecurrentTensor:
    """True with probability `p`; bool, of the shape of `p` where none is given."""
    program = current_program()
    (probability,) = promoted(p, to_float=True)
    sizes = probability.type.shape if shape is None else to_shape(program, shape)
    unit = _unit(program, sizes, _domain(program, dims, probability), "float32")
    return less(unit, probability)


def categorical(logits: TensorLike, axis: int = -1, *, dims: Any = None) -> RecurrentTensor:
    """A position along `axis` with probability `softmax(logits)`, int32; the shape of `logits` without the axis.

    The largest of the logits with Gumbel noise.
    """
    program = current_program()
    (tensor,) = promoted(logits, to_float=True)
    along = normalize_axis(axis, tensor.ndim)
    name = tensor.dtype if tensor.dtype == "float64" else "float32"
    symmetric = _symmetric(program, tensor.type.shape, _domain(program, dims, tensor), name)
    unit = symmetric * 0.5 + 0.5  # in (0, 1), both excluded
    return argmax(tensor - log(-log(unit)), along)


def permutation(n: int | IndexExpression, *, dims: Any = ()) -> RecurrentTensor:
    """The numbers 0 to `n - 1` in random order, int32, shape (n,)."""
    return argsort(bits(_one_axis(n), dims=dims), 0)


def _one_axis(n: Any) -> tuple[Any, ...]:
    if isinstance(n, (tuple, list)):
        raise ShapeError("a permutation has one size", location=user_location(), hint="write permutation(n)")
    return (n,)


def _float(dtype: Any) -> str:
    name = as_dtype(dtype)
    if not dtypes.is_float(name):
        raise DTypeError(
            f"a draw of dtype {name}", location=user_location(), hint="draw floats, then cast: .astype(...)"
        )
    return name


def _is(value: TensorLike, number: float) -> bool:
    return is_python_scalar(value) and bool(value == number)


def _scale(high: TensorLike, low: TensorLike, dtype: str) -> TensorLike:
    if is_python_scalar(high) and is_python_scalar(low):
        return float(high) - float(low)
    given = map(operand, (high, low))
    ends = (as_tensor(end, dtype) if isinstance(end, np.ndarray) else end for end in given)
    return cast(subtract(*ends), dtype)


def _domain(program: Program, dims: Any, *values: TensorLike) -> tuple[Symbol, ...]:
    if dims is not None:
        return program.check_dims(dims, "the dims of a random draw")
    tensors = (value for value in map(operand, values) if isinstance(value, RecurrentTensor))
    return program.builder.canonical(symbol for tensor in tensors for symbol in tensor.symbols)


def _unit(program: Program, shape: Shape, domain: tuple[Symbol, ...], dtype: str) -> RecurrentTensor:
    """In [0, 1): float64 from the high 53 of 64 bits, else float32 from the high 24 of 32."""
    if dtype == "float64":
        return cast(_draw(program, shape, domain, 64) >> 11, "float64") * 2.0**-53
    return cast(_draw(program, shape, domain, 32) >> 8, "float32") * 2.0**-24


def _symmetric(program: Program, shape: Shape, domain: tuple[Symbol, ...], dtype: str) -> RecurrentTensor:
    """In (-1, 1), symmetric about 0 and never 0: odd multiples of 2**-24 (of 2**-53 for float64), all exact."""
    if dtype == "float64":
        whole = cast(_draw(program, shape, domain, 64) >> 11, "int64") - 2**52
        return (cast(whole, "float64") + 0.5) * 2.0**-52
    whole = cast(_draw(program, shape, domain, 32) >> 8, "int32") - 2**23
    return (cast(whole, "float32") + 0.5) * 2.0**-23


def _draw(program: Program, shape: Shape, domain: tuple[Symbol, ...], width: int) -> RecurrentTensor:
    """The node: counter words are the point's coordinates, then the element's, never a position that a size scales."""
    builder = program.builder
    varying = {symbol for size in shape for symbol in size.dims()}
    declaration = builder.new_declaration()
    attrs = {
        "declaration": declaration,
        "coordinates": (*(var(symbol) for symbol in domain), *range(len(shape))),
        "shape": shape,
        "bits": width,
    }
    id = builder.nominal(
        "random_bits",
        builder.canonical({*domain, *varying}),
        (TensorType(shape, f"uint{width}"),),
        (_seed(program),),
        attrs=attrs,
        declaration=declaration,
    )
    return view(program, builder.identity(id))


def _seed(program: Program) -> Edge:
    """The program's one seed, declared by its first draw."""
    builder = program.builder
    if builder.seed is not None:
        return Edge(builder.seed)
    attrs = {"name": "seed", "role": "seed", "layout": ()}
    seed = TensorType((), "uint32")
    builder.seed = builder.nominal("input", (), (seed,), attrs=attrs, declaration=SEED_DECLARATION, name="seed")
    return Edge(builder.seed)
