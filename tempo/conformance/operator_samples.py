"""Applications of every operator, for tests that walk the operator table: the core's own, and those of backends.

>>> sample = SAMPLES[0]
>>> call = sample.call("float32")
>>> expected = OPERATORS[sample.op].numpy(call)(*sample.arrays(call), *sample.scalars)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import DTypeError
from tempo.sdg.call import Array, ArrayValue, Call, StaticType, static_type
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS, call_for
from tempo.sdg.operators.elementwise import BINARY, UNARY
from tempo.symbolic import Ge, as_expr, dim


@dataclass(frozen=True)
class Sample:
    """Attributes, operand shapes, operand dtypes ("*" is the dtype under test) and run-time scalars.

    `definite`: square operands under test are positive definite matrices.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    attrs: dict[str, Any]
    dtypes: tuple[str, ...]
    scalars: tuple[int, ...] = ()
    indices: int = 2  # integer operands that are not "*" hold indices below this
    definite: bool = False

    def types(self, dtype: str) -> tuple[TensorType, ...]:
        return tuple(
            TensorType(tuple(as_expr(size) for size in shape), dtype if given == "*" else given)
            for shape, given in zip(self.shapes, self.dtypes)
        )

    def call(self, dtype: str) -> Call | None:
        """None where the operator does not take the dtype."""
        types = self.types(dtype)
        try:
            result = OPERATORS[self.op].infer(self.attrs, types)
        except DTypeError:
            return None
        operands = [static_type(type, as_int) for type in types]
        return call_for(self.op, self.attrs, operands, static_type(result, as_int), as_int)

    def arrays(self, call: Call, seed: int = 0) -> list[Array]:
        random = np.random.default_rng(seed)
        return [
            self.fit(values(random, type, None if given == "*" else self.indices))
            for type, given in zip(call.operands, self.dtypes)
        ]

    def fit(self, array: Array) -> Array:
        """What the operator is defined on, made of any values."""
        if not self.definite or array.shape[-1] != array.shape[-2]:
            return array
        product = array @ np.swapaxes(array, -1, -2)
        return (product + np.eye(array.shape[-1])).astype(array.dtype)

    def __str__(self) -> str:
        return f"{self.op}-{'-'.join('x'.join(map(str, shape)) or '1' for shape in self.shapes)}"


def as_int(value: Any) -> int:
    return as_expr(value).as_int()


def values(random: np.random.Generator, type: StaticType, below: int | None) -> Array:
    if below is not None:
        return random.integers(0, below, type.shape).astype(type.numpy_dtype)
    low = 0 if dtypes.kind(type.dtype) in ("uint", "bool") else -3
    return random.integers(low, 5, type.shape).astype(type.numpy_dtype)


def sample(op: str, *shapes: tuple[int, ...], dtypes: tuple[str, ...] | None = None, **other: Any) -> Sample:
    scalars, indices, definite = other.pop("scalars", ()), other.pop("indices", 2), other.pop("definite", False)
    return Sample(op, shapes, other, dtypes or ("*",) * len(shapes), scalars, indices, definite)


def elementwise() -> Iterator[Sample]:
    for operator in UNARY:
        yield sample(operator.name, ())
        yield sample(operator.name, (2, 3))
    for operator in BINARY:
        for shapes in [((), ()), ((2, 3), (2, 3)), ((3,), (2, 3)), ((2, 1), (1, 3)), ((2, 3), ()), ((0, 3), (3,))]:
            yield sample(operator.name, *shapes)
    for target in dtypes.DTYPES:
        yield sample("cast", (2, 3), dtype=target)
    mask = ("bool", "*", "*")
    yield sample("where", (2, 3), (2, 3), (2, 3), dtypes=mask)
    yield sample("where", (3,), (), (2, 3), dtypes=mask)
    yield sample("where", (), (), (), dtypes=mask)
    for shapes in [((), ()), ((2, 3), ()), ((3,), (2, 3))]:
        yield sample("after", *shapes, dtypes=("*", "float32"))


def movement() -> Iterator[Sample]:
    yield sample("reshape", (2, 6), shape=(3, 4))
    yield sample("reshape", (), shape=(1, 1))
    yield sample("transpose", (2, 3, 4), axes=(2, 0, 1))
    yield sample("transpose", (), axes=())
    yield sample("broadcast", (3,), shape=(2, 3))
    yield sample("broadcast", (), shape=(2, 3))
    yield sample("broadcast", (2, 1), shape=(2, 3))
    yield sample("broadcast", (1, 3), shape=(90, 70, 3))
    yield sample("broadcast", (2, 3), shape=(2, 4, 3), batch=1)
    yield sample("concat", (2, 3), (2, 1), (2, 2), axis=1)
    yield sample("concat", (2, 3), axis=0)
    yield sample("flip", (2, 3, 2), axes=(0, 2))
    yield sample("copy", (2, 3))
    yield sample("pad", (2, 3), low=(0, 1), high=(2, 0), value=1)
    yield sample("pad", (2, 0), low=(1, 1), high=(0, 1))
    zero, start = as_expr(0), dim("t")
    yield sample("slice", (5, 3), starts=(as_expr(1), zero), lengths=(2, 3), steps=(2, 1), scalars=(1, 0))
    yield sample("slice", (5, 3), starts=(as_expr(4), as_expr(2)), lengths=(3, 2), steps=(-2, -1), scalars=(4, 2))
    yield sample("slice", (5, 3), starts=(start, zero), lengths=(2, 3), steps=(1, 1), scalars=(3, 0))
    yield sample("slice", (5, 3), starts=(start, start), lengths=(2, 1), steps=(2, -1), scalars=(1, 1))
    yield sample("slice", (5, 3), starts=(start, zero), lengths=(0, 3), steps=(1, 1), scalars=(5, 0))
    yield sample("slice", (0, 0), starts=(start, zero), lengths=(1, 0), steps=(1, 1), scalars=(0, 0))
    yield sample("slice", (), starts=(), lengths=(), steps=())
    for distance in (1, -2, 5):
        yield sample("shift", (4, 3), axis=0, distance=distance)
        yield sample("shift", (2, 3), axis=1, distance=-distance)
    yield sample("mask", (4, 3), axis=0, fill=0, length=start, scalars=(2,))
    yield sample("mask", (4, 3), axis=1, fill=1, length=start, scalars=(3,))


def reductions() -> Iterator[Sample]:
    for op in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all"):
        yield sample(op, (2, 3, 2), axes=(0, 2))
        yield sample(op, (4,), axes=(0,))
        yield sample(op, (2, 3), axes=())
        yield sample(op, (0, 3), axes=(1,))
    for op in ("reduce_sum", "reduce_prod", "reduce_any", "reduce_all"):
        yield sample(op, (0, 3), axes=(0,))
    for op in ("argmax", "argmin", "cumsum", "cumprod", "sort", "argsort"):
        yield sample(op, (2, 4), axis=1)
        yield sample(op, (3,), axis=0)

    yield sample("top_k_indices", (2, 4), axis=1, k=2)
    yield sample("top_k_indices", (4, 2), axis=0, k=3)
    yield sample("top_k_indices", (2, 0), axis=1, k=0)


def dot(*shapes: tuple[int, ...], contract: Any, batch: Any = ((), ())) -> Sample:
    return sample(
        "dot",
        *shapes,
        lhs_contract=contract[0],
        rhs_contract=contract[1],
        lhs_batch=batch[0],
        rhs_batch=batch[1],
    )


def contractions() -> Iterator[Sample]:
    yield dot((3,), (3,), contract=((0,), (0,)))
    yield dot((3,), (3, 4), contract=((0,), (0,)))
    yield dot((2, 3), (3,), contract=((1,), (0,)))
    yield dot((2, 3), (3, 4), contract=((1,), (0,)))
    yield dot((3, 2), (4, 3), contract=((0,), (1,)))
    yield dot((3, 2), (3, 4), contract=((0,), (0,)))
    yield dot((2, 3), (4, 3), contract=((1,), (1,)))
    yield dot((2, 5, 3), (3, 4), contract=((2,), (0,)))
    yield dot((2, 0), (0, 4), contract=((1,), (0,)))
    yield dot((2, 3), (2, 3, 4), contract=((1,), (1,)), batch=((0,), (0,)))
    yield dot((2, 3), (2, 3), contract=((1,), (1,)), batch=((0,), (0,)))
    yield dot((2, 5, 3), (5, 3, 2), contract=((2,), (1,)), batch=((1, 0), (0, 2)))
    yield dot((2, 5, 3), (4, 2, 5, 3), contract=((2,), (3,)), batch=((0, 1), (1, 2)))
    yield dot((2, 3, 4), (4, 3, 5), contract=((1, 2), (1, 0)))
    yield dot((2, 3), (4,), contract=((), ()))
    yield dot((2, 3), (4, 2), contract=((), ()), batch=((0,), (1,)))
    yield dot((), (4,), contract=((), ()))
    line: dict[str, Any] = {"strides": (2,), "padding": ((1, 2),), "dilation": (2,)}
    yield sample("conv", (2, 3, 7), (4, 3, 2), **line)
    yield sample("conv", (3, 7), (4, 3, 2), **line)
    yield sample("conv", (2, 2, 3, 7), (2, 4, 3, 2), batch=1, **line)
    yield sample("conv", (1, 2, 5, 6), (3, 2, 3, 2), strides=(1, 2), padding=((0, 0), (1, 1)), dilation=(1, 1))
    yield sample("conv", (0, 3, 7), (4, 3, 2), **line)
    yield sample("conv", (2, 0, 7), (4, 0, 2), **line)
    yield sample("conv", (2, 3), (4, 3), strides=(), padding=(), dilation=())


def linalg() -> Iterator[Sample]:
    for op in ("cholesky", "det"):
        yield sample(op, (3, 3), definite=True)
        yield sample(op, (2, 2, 3, 3), definite=True)
        yield sample(op, (1, 1), definite=True)
    yield sample("solve", (3, 3), (3, 2), definite=True)
    yield sample("solve", (2, 3, 3), (2, 3, 1), definite=True)


def indexing() -> Iterator[Sample]:
    for checked in (True, False):
        index = ("*", "int32")
        yield sample("gather", (4, 3), (2, 5), axis=0, checked=checked, dtypes=index)
        yield sample("gather", (4, 3), (), axis=1, checked=checked, dtypes=index)
        yield sample("gather", (3, 4, 2), (3, 5), axis=1, batch=1, checked=checked, dtypes=index)
        yield sample("gather", (3, 2, 4, 2), (3, 5, 1), axis=2, batch=1, checked=checked, dtypes=("*", "uint8"))
        yield sample("gather", (3, 4), (3,), axis=1, batch=1, checked=checked, dtypes=index)
        length = dim("t") + 2
        some: dict[str, Any] = {"checked": checked, "indices": 2 if checked else 4}
        both: dict[str, Any] = {**some, "lengths": (length, length), "scalars": (2, 3)}
        some |= {"lengths": (length,), "scalars": (2,)}
        yield sample("gather", (4, 3), (2, 5), axis=0, dtypes=index, **some)
        yield sample("gather", (4, 3), (), axis=1, dtypes=index, **some)
        yield sample("gather", (4,), (), axis=0, dtypes=("*", "uint8"), **some)
        yield sample("gather", (3, 4, 2), (3, 5), axis=1, batch=1, dtypes=("*", "int64"), **some)
        pair = ("*", "int64", "int64")
        yield sample("gather_pairs", (2, 4, 3), (5,), (5,), axis=1, count=2, dtypes=pair, **both)
        yield sample("gather_pairs", (2, 4, 3), (5,), (5,), axis=1, count=2, checked=checked, dtypes=pair)
        yield sample("gather_pairs", (4, 3), (), (), axis=0, count=2, checked=checked, dtypes=pair)
        yield sample("gather_pairs", (3, 2, 4, 3), (3, 5), (3, 5), axis=2, count=2, batch=1, dtypes=pair)
        update = ("*", "int32", "*")
        yield sample("scatter_add", (4, 3), (2, 5), (2, 5, 3), axis=0, checked=checked, dtypes=update)
        yield sample("scatter_add", (2, 4, 3), (5,), (2, 5, 3), axis=1, checked=checked, dtypes=update)
        yield sample("scatter_add", (4,), (), (), axis=0, checked=checked, dtypes=update)
        yield sample("scatter_add", (3, 2, 4), (3, 5), (3, 2, 5), axis=2, batch=1, checked=checked, dtypes=update)
        many = ("*", "int32", "int32", "*")
        yield sample("scatter_add", (2, 4, 3), (5,), (5,), (5, 3), axis=0, count=2, checked=checked, dtypes=many)
        shapes = (3, 2, 4, 3), (3, 5), (3, 5), (3, 5, 3)
        yield sample("scatter_add", *shapes, axis=1, batch=1, count=2, checked=checked, dtypes=many)


def creation() -> Iterator[Sample]:
    yield sample("constant", value=ArrayValue(np.arange(6, dtype=np.int8).reshape(2, 3)))
    yield sample("iota", shape=(2, 3), axis=1, dtype="float32")
    yield sample("iota", shape=(2, 3), axis=0, dtype="int64")
    yield sample("index_value", expr=dim("t"), scalars=(7,))
    yield sample("condition_value", condition=Ge(dim("t")), scalars=(True,))
    for bits in (8, 16, 32, 64):
        coordinates, seed = (dim("t"), 0, 1), ("uint32",)
        attrs = {"declaration": 3, "coordinates": coordinates, "shape": (2, 3), "bits": bits}
        yield Sample("random_bits", ((),), attrs, seed, (5,))
        yield Sample("random_bits", ((),), {**attrs, "coordinates": (), "shape": ()}, seed)


def composites() -> Iterator[Sample]:
    for op in ("softmax", "log_softmax", "logsumexp"):
        yield sample(op, (5,), axes=(0,))
        yield sample(op, (2, 3, 4), axes=(1,))
        yield sample(op, (2, 3, 4), axes=(0, 2))
        yield sample(op, (0, 3), axes=(1,))
    for op in ("layer_norm", "rms_norm"):
        yield sample(op, (5,), axes=(0,), epsilon=1e-5)
        yield sample(op, (2, 3, 4), axes=(2,), epsilon=1e-3)
        yield sample(op, (2, 3, 4), axes=(0, 1), epsilon=1e-5)
        yield sample(op, (0, 3), axes=(1,), epsilon=1e-5)
    for op in ("silu", "gelu", "gelu_by_tanh"):
        yield sample(op, (2, 3, 4))
        yield sample(op, (0, 3))


def attention() -> Iterator[Sample]:
    """Heads before or behind the keys; rows that share them; a length, NaN behind which does not matter."""
    plain: dict[str, Any] = {"scale": 0.5, "biased": False, "masked": False, "fill": 0.0, "length": dim("t") + 1}
    straight = {"key_axes": (0, 1, 2), "value_axes": (0, 1, 2), **plain}
    turned = {"key_axes": (1, 0, 2), "value_axes": (1, 2, 0), **plain}
    yield sample(
        "attention", (2, 3), (4, 3), (4, 5), **{**straight, "key_axes": (0, 1), "value_axes": (0, 1)}, scalars=(4,)
    )
    yield sample("attention", (2, 1, 3), (2, 4, 3), (2, 4, 3), **straight, scalars=(3,))
    yield sample("attention", (2, 3, 3), (4, 2, 3), (3, 2, 4), **turned, scalars=(2,))
    yield sample("attention", (2, 3, 3), (2, 4, 3), (2, 4, 3), (2, 1, 4), **{**straight, "biased": True}, scalars=(3,))
    masked = ("*", "*", "*", "bool")
    hidden = {**straight, "masked": True, "fill": -1e9}
    yield sample("attention", (2, 3, 3), (2, 4, 3), (2, 4, 3), (1, 3, 4), **hidden, scalars=(3,), dtypes=masked)
    both = ("*", "*", "*", "*", "bool")
    more = {"key_axes": (0, 1, 2, 3), "value_axes": (0, 1, 2, 3), **plain, "biased": True, "masked": True, "fill": -2.0}
    shapes = ((2, 2, 3, 3), (2, 2, 4, 3), (2, 2, 4, 3), (1, 2, 3, 4), (2, 1, 1, 4))
    yield sample("attention", *shapes, **more, scalars=(4,), dtypes=both)


def banded_attention() -> Iterator[Sample]:
    """Causal, with windows, on all keys; more keys than points; heads before or behind the keys; bias and mask."""
    plain: dict[str, Any] = {"scale": 0.5, "biased": False, "masked": False, "fill": 0.0}
    straight = {"key_axes": (0, 1, 2), "value_axes": (0, 1, 2), **plain}
    turned = {"key_axes": (1, 0, 2), "value_axes": (1, 2, 0), **plain}
    flat = {"key_axes": (0, 1), "value_axes": (0, 1), **plain}
    yield sample("banded_attention", (4, 1, 3), (4, 3), (4, 5), **flat, low=-3, high=1)
    yield sample("banded_attention", (0, 1, 3), (4, 3), (4, 5), **flat, low=1, high=4)
    yield sample("banded_attention", (40, 2, 3), (40, 3), (40, 5), **flat, low=-39, high=1)
    yield sample("banded_attention", (40, 1, 3), (40, 3), (40, 5), **flat, low=-6, high=1)
    yield sample("banded_attention", (40, 1, 3), (40, 3), (40, 5), **flat, low=-6, high=9)
    yield sample("banded_attention", (3, 1, 3), (40, 3), (40, 5), **flat, low=30, high=38)
    yield sample("banded_attention", (2, 4, 1, 3), (2, 6, 3), (2, 6, 3), **straight, low=-3, high=6)
    yield sample("banded_attention", (2, 4, 3, 3), (4, 2, 3), (3, 2, 4), **turned, low=-3, high=1)
    both = {**straight, "biased": True, "masked": True, "fill": -2.0}
    biased = {**straight, "biased": True}
    dtypes = ("*", "*", "*", "*", "bool")
    shapes = ((2, 4, 3, 3), (2, 4, 3), (2, 4, 3))
    yield sample("banded_attention", *shapes, (2, 1, 3, 4), **biased, low=-3, high=1)
    yield sample("banded_attention", *shapes, (2, 4, 1, 1), (1, 1, 1, 4), **both, low=-1, high=1, dtypes=dtypes)
    hidden = {**straight, "masked": True, "fill": -1e9}
    for low, high, fill in ((-3, 4, -1e9), (-3, 1, -1e9), (-3, 1, -np.inf), (0, 1, -np.inf)):  # some rows see nothing
        masked = {**hidden, "fill": fill, "low": low, "high": high}
        yield sample("banded_attention", *shapes, (1, 4, 3, 4), **masked, dtypes=("*", "*", "*", "bool"))
    both = {**both, "fill": -1e30}
    long = ((2, 150, 2, 3), (2, 150, 3), (2, 150, 3), (1, 1, 2, 150), (2, 150, 1, 150))  # in several blocks
    yield sample("banded_attention", *long, **both, low=-2, high=1, dtypes=dtypes)


SAMPLES = (
    *elementwise(),
    *movement(),
    *reductions(),
    *contractions(),
    *linalg(),
    *composites(),
    *attention(),
    *banded_attention(),
    *indexing(),
    *creation(),
)
