"""Random draws: `tp.random`.

Every call is a declaration of its own. Its numbers are a function of the seed of the run, the number of the
declaration, the point and the position of the element: Threefry-2x32 with 20 rounds, so they are the same under every
backend, schedule and size. Without `dims` a draw has the domain of its tensor arguments; with it, exactly those dims.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError, user_location
from tempo.language.conversion import (
    Shape,
    TensorLike,
    as_dtype,
    as_tensor,
    cast,
    is_python_scalar,
    normalize_axis,
    operand,
    promoted,
    to_shape,
)
from tempo.language.functions.elementwise import less, log, maximum, minimum, sqrt, subtract, where
from tempo.language.functions.reductions import argmax, argsort
from tempo.language.indexing.expression import IndexExpression
from tempo.language.program import SEED_DECLARATION, Program, current_program
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
    return _draw(program, to_shape(program, shape), _domain(program, dims), _WIDTHS[name])


def uniform(
    shape: Any = (), low: TensorLike = 0.0, high: TensorLike = 1.0, *, dims: Any = None, dtype: Any = "float32"
) -> RecurrentTensor:
    """Uniform in `[low, high)`: multiples of 2**-24 (of 2**-53 for float64) scaled; shape `shape`."""
    program = current_program()
    name = _float(dtype)
    sizes, domain = to_shape(program, shape), _domain(program, dims, low, high)
    unit = cast(_unit(program, sizes, domain, name), name)
    return _moved(unit, _scale(high, low, name), low)


def normal(
    shape: Any = (), loc: TensorLike = 0.0, scale: TensorLike = 1.0, *, dims: Any = None, dtype: Any = "float32"
) -> RecurrentTensor:
    """Normal with mean `loc` and standard deviation `scale`; shape `shape`."""
    program = current_program()
    name = _float(dtype)
    sizes, domain = to_shape(program, shape), _domain(program, dims, loc, scale)
    standard = cast(_erfinv(_symmetric(program, sizes, domain, name)) * 1.4142135623730951, name)
    return _moved(standard, scale, loc)


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
    if hasattr(n, "__len__"):
        raise ShapeError("a permutation has one size", location=user_location(), hint="write permutation(n)")
    return argsort(bits((n,), dims=dims), 0)


def _float(dtype: Any) -> str:
    name = as_dtype(dtype)
    if not dtypes.is_float(name):
        raise DTypeError(
            f"a draw of dtype {name}", location=user_location(), hint="draw floats, then cast: .astype(...)"
        )
    return name


def _moved(x: RecurrentTensor, scale: TensorLike, start: TensorLike) -> RecurrentTensor:
    """`start + scale * x` in the dtype of `x`, without what changes nothing."""
    scaled = x if is_python_scalar(scale) and scale == 1 else x * scale
    return cast(scaled if is_python_scalar(start) and start == 0 else scaled + start, x.dtype)


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
    width, digits, float = _precision(dtype)
    return cast(_draw(program, shape, domain, width) >> width - digits, float) * 2.0**-digits


def _symmetric(program: Program, shape: Shape, domain: tuple[Symbol, ...], dtype: str) -> RecurrentTensor:
    """In (-1, 1), symmetric about 0 and never 0: odd multiples of 2**-24 (of 2**-53 for float64), all exact."""
    width, digits, float = _precision(dtype)
    whole = cast(_draw(program, shape, domain, width) >> width - digits, f"int{width}") - 2 ** (digits - 1)
    return (cast(whole, float) + 0.5) * 2.0 ** (1 - digits)


def _precision(dtype: str) -> tuple[int, int, str]:
    """How many bits are drawn for a number of the dtype, how many of them it takes, and the dtype that has them."""
    return (64, 53, "float64") if dtype == "float64" else (32, 24, "float32")


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
    return RecurrentTensor(program, builder.identity(id))


def _seed(program: Program) -> Edge:
    """The program's one seed, declared by its first draw."""
    builder = program.builder
    if builder.seed is not None:
        return Edge(builder.seed)
    attrs = {"name": "seed", "role": "seed", "layout": ()}
    seed = TensorType((), "uint32")
    builder.seed = builder.nominal("input", (), (seed,), attrs=attrs, declaration=SEED_DECLARATION, name="seed")
    return Edge(builder.seed)


# Single precision: the polynomial in w - 2.5 where w < 5, in sqrt(w) - 3 elsewhere; highest power first.
_SINGLE_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_SINGLE_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip

# Double precision: in w - 3.125 where w < 6.25, in sqrt(w) - 3.25 where w < 16, in sqrt(w) - 5 elsewhere.
_DOUBLE_CENTRE = (
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18, 1.115787767802518096e-17,
    -1.333171662854620906e-16, 2.0972767875968561637e-17, 6.6376381343583238325e-15, -4.0545662729752068639e-14,
    -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
    -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352, -0.00074070253416626697512,
    -0.0060336708714301490533, 0.24015818242558961693, 1.6536545626831027356,
)  # fmt: skip
_DOUBLE_MIDDLE = (
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
    1.5027403968909827627e-06, -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
    -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066, -0.0037512085075692412107,
    0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635,
)  # fmt: skip
_DOUBLE_TAIL = (
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
    7.6157012080783393804e-09, -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
    2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
    4.8499064014085844221,
)  # fmt: skip


def _erfinv(x: RecurrentTensor) -> RecurrentTensor:
    """The inverse of `erf` on (-1, 1), for float32 and float64; relative error at most 4 ulp.

    By polynomials, so that normal draws agree on every backend. Source: M. Giles, "Approximating the _erfinv function",
    GPU Computing Gems, Jade edition, 2011; tables 4 and 6.
    """
    w = -log((1 - x) * (1 + x))  # both factors are exact or nearly so, where log1p(-x * x) cancels near 1
    if x.dtype == "float64":
        root = sqrt(maximum(w, 6.25))
        tail = where(w < 16.0, _polynomial(_DOUBLE_MIDDLE, root - 3.25), _polynomial(_DOUBLE_TAIL, root - 5.0))
        return x * where(w < 6.25, _polynomial(_DOUBLE_CENTRE, minimum(w, 6.25) - 3.125), tail)
    tail = _polynomial(_SINGLE_TAIL, sqrt(maximum(w, 5.0)) - 3.0)
    return x * where(w < 5.0, _polynomial(_SINGLE_CENTRE, minimum(w, 5.0) - 2.5), tail)


def _polynomial(coefficients: tuple[float, ...], x: RecurrentTensor) -> RecurrentTensor:
    """Horner's rule."""
    first, second, *others = coefficients
    return functools.reduce(lambda total, each: total * x + each, others, first * x + second)
