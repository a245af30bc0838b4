"""Every primitive, every dtype, jitted: the same as its NumPy meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from tempo_jax.operators import OPERATORS
from tempo_jax.operators.reductions import first_of
from tempo_jax.precision import x64

from tempo import dtypes
from tempo.conformance.operator_samples import SAMPLES, Sample, as_int
from tempo.errors import IndexOutOfRangeError
from tempo.sdg.call import ArrayValue, Call, StaticType, static_type
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS as MEANING
from tempo.sdg.operators import call_for
from tempo.sdg.operators.elementwise import BINARY, UNARY
from tempo.symbolic import as_expr, dim

CALLS = {"backend_call", "backend_result"}
TAKEN = {"banded_attention"}  # composites, in tests of their own
OTHERS = {name for name, operator in MEANING.items() if operator.kind in ("nominal", "composite")} - CALLS - TAKEN
OWN = [sample for sample in SAMPLES if sample.op not in OTHERS | TAKEN]
NAMES = list(dict.fromkeys(sample.op for sample in OWN))
ULPS = {"float16": 1, "bfloat16": 1, "float32": 8, "float64": 8}  # halves are computed in float32, rounded once
LOOSE = {"sinh": 32, "cosh": 32}  # where float32 comes out of exp of a great argument
# LAPACKs round in orders of their own, by the processor: n cond(x) of the samples, n = 3 (Higham 2002, chapter 9).
LOOSE |= dict.fromkeys(("solve", "cholesky", "det"), 96)
WILD = (0, 1, -1, 2, -2, 3, 0.5, -0.5, 1.5, 2.5, -7, 7.25, 30, -30, 87, -87, 1e-3, -1e-3, 300.7, -300.7, 1e10, -1e10)
LIMITS = (np.inf, -np.inf, np.nan, -0.0)
t, s = dim("t"), dim("s")
Application = tuple[Call, Sequence[Any], Sequence[Any]]  # a call, its arrays, its run-time scalars


@pytest.fixture(autouse=True)
def _silent():
    with np.errstate(all="ignore"):
        yield


def call_of(op: str, *types: tuple[tuple[int, ...], str], **attrs: Any) -> Call:
    given = tuple(TensorType(tuple(as_expr(size) for size in shape), dtype) for shape, dtype in types)
    result = MEANING[op].infer(attrs, given)
    operands = [static_type(type, as_int) for type in given]
    return call_for(op, attrs, operands, static_type(result, as_int), as_int)


def application(op: str, *arrays: Any, scalars: Sequence[Any] = (), **attrs: Any) -> Application:
    types = [(np.shape(array), dtypes.from_numpy(np.asarray(array).dtype)) for array in arrays]
    return call_of(op, *types, **attrs), arrays, scalars


def traced(scalar: Any) -> Any:
    return np.asarray(scalar, np.bool_ if isinstance(scalar, bool) else np.int32)


def run(*applications: Application, trace: bool = True) -> list[np.ndarray]:
    """The results on JAX, compiled together; the scalars are traced, or numbers that are known when tracing."""
    functions = [OPERATORS[call.op](call) for call, _, _ in applications]
    arrays = [list(arrays) for _, arrays, _ in applications]
    scalars = [list(map(traced, scalars)) for _, _, scalars in applications]

    def together(arrays: Any, scalars: Any) -> Any:
        used = scalars if trace else [scalars for _, _, scalars in applications]
        return [f(*xs, *numbers) for f, xs, numbers in zip(functions, arrays, used, strict=True)]

    with x64():
        found = jax.jit(together)(arrays, scalars)
        for (call, _, _), value in zip(applications, found, strict=True):
            assert (value.shape, str(value.dtype), value.weak_type) == (call.result.shape, call.result.dtype, False)
        return [np.asarray(value) for value in found]


def meaning(call: Call, arrays: Sequence[Any], scalars: Sequence[Any]) -> np.ndarray:
    return MEANING[call.op].numpy(call)(*arrays, *scalars)


def check_equal(found: np.ndarray, expected: np.ndarray, dtype: str, ulps: int | None = None, what: str = "") -> None:
    """Equal bits; floats may differ by a few units in the last place, and by what is below the normal numbers."""
    if not dtypes.is_float(dtype):
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    wide, wanted = found.astype(np.float64), expected.astype(np.float64)
    limits = ml_dtypes.finfo(dtypes.to_numpy(dtype))
    relative = float(limits.eps) * (ULPS[dtype] if ulps is None else ulps)
    np.testing.assert_allclose(wide, wanted, rtol=relative, atol=float(limits.tiny), equal_nan=True, err_msg=what)


def check(*applications: Application, trace: bool = True) -> None:
    for each, found in zip(applications, run(*applications, trace=trace), strict=True):
        call = each[0]
        check_equal(found, meaning(*each), call.result.dtype, LOOSE.get(call.op), f"{call.op} of {call.operands}")


def test_the_table_has_every_primitive():
    assert set(OPERATORS) == set(MEANING) - OTHERS


def applications(op: str, named: Sequence[str]) -> Iterator[tuple[Sample, Application]]:
    """All samples of an operator with all of these dtypes that it takes."""
    for sample in OWN:
        calls = [call for dtype in named if sample.op == op and (call := sample.call(dtype)) is not None]
        yield from ((sample, (call, sample.arrays(call, seed), sample.scalars)) for seed, call in enumerate(calls))


# XLA takes long over draws for every dtype; those of the usual ones are tested below.
@pytest.mark.parametrize(
    "op", [pytest.param(name, marks=pytest.mark.slow) if name == "random_bits" else name for name in NAMES]
)
def test_jitted_gives_the_numpy_meaning_for_every_dtype(op: str):
    check(*(each for _, each in applications(op, dtypes.DTYPES)))


@pytest.mark.parametrize("op", list(dict.fromkeys(sample.op for sample in OWN if sample.scalars)))
def test_scalars_that_are_known_when_tracing_give_the_same(op: str):
    check(*(each for sample, each in applications(op, ("float32", "uint8")) if sample.scalars), trace=False)


def wild(dtype: str) -> np.ndarray:
    """Values over the whole range of the dtype, with its extremes."""
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_float(dtype):
        return np.array([*WILD, *LIMITS]).astype(dtypes.to_numpy(dtype))
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2, 3, 7, 31, 100]
    values += [-1, -2, -3, -7, -100] if limits.min < 0 else []
    return np.array(values, dtypes.to_numpy(dtype))


@pytest.mark.parametrize("name", [operator.name for operator in UNARY])
def test_unary_functions_over_the_whole_range(name: str):
    accepted = [dtype for dtype in dtypes.DTYPES if takes(name, dtype, 1)]
    check(*(application(name, wild(dtype)) for dtype in accepted))


def takes(op: str, dtype: str, count: int) -> bool:
    try:
        call_of(op, *[((), dtype)] * count)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("name", [operator.name for operator in BINARY])
def test_binary_functions_over_the_whole_range(name: str):
    accepted = [dtype for dtype in dtypes.DTYPES if takes(name, dtype, 2)]
    check(*(application(name, *np.meshgrid(wild(dtype), wild(dtype))) for dtype in accepted))


@pytest.mark.parametrize("name", ["floordiv", "mod", "sign", "round", "floor", "neg"])
def test_zeros_have_the_sign_that_numpy_gives_them(name: str):
    count = 2 if name in ("floordiv", "mod") else 1
    x = wild("float32")
    each = application(name, *(np.meshgrid(x, x) if count == 2 else [x]))
    found, expected = run(each)[0], meaning(*each)
    zero = (found == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("source", dtypes.DTYPES)
def test_casts_over_the_whole_range(source: str):
    check(*(application("cast", wild(source), dtype=target) for target in dtypes.DTYPES))


def test_powers_of_integers_with_great_exponents_wrap():
    for dtype in filter(dtypes.is_integer, dtypes.DTYPES):
        great = wild(dtype)[wild(dtype) > 50]
        check(application("pow", *np.meshgrid(wild(dtype), great)))


def with_nan(dtype: str) -> np.ndarray:
    values = [3, np.nan, 1, -0.0, 0.0, 2, -np.inf, np.nan, 3, np.inf, 1]
    return np.array([values, values[::-1]]).astype(dtypes.to_numpy(dtype))


@pytest.mark.parametrize("dtype", list(filter(dtypes.is_float, dtypes.DTYPES)))
@pytest.mark.parametrize("op", ["reduce_max", "reduce_min", "argmax", "argmin", "sort", "argsort", "cumsum"])
def test_nan_propagates_is_the_extreme_and_comes_last(op: str, dtype: str):
    attrs = [{"axes": (axis,)} if op.startswith("reduce") else {"axis": axis} for axis in (0, 1)]
    check(*(application(op, with_nan(dtype), **each) for each in attrs))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32", "bool"])
def test_sorts_are_stable(dtype: str):
    x = np.random.default_rng(0).integers(0, 3, (4, 50)).astype(dtype)
    check(application("sort", x, axis=1), application("argsort", x, axis=1), application("argsort", x, axis=0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_accumulated_in_float32(dtype: str):
    ones = np.ones((5000,), dtypes.to_numpy(dtype))
    products = np.full((60,), 1.1, dtypes.to_numpy(dtype))
    contract = {"lhs_contract": (0,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    check(
        application("reduce_sum", ones, axes=(0,)),
        application("cumsum", ones, axis=0),
        application("dot", ones, ones, **contract),
        application("reduce_prod", products, axes=(0,)),
        application("scatter_add", ones[:2], np.zeros((3000,), np.int32), ones[:3000], axis=0),
    )


def test_float32_products_are_not_rounded_to_a_shorter_mantissa():
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    dot = application("dot", x, y, lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=())
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert np.abs(run(dot)[0] - exact).max() < 1e-4


CONTRACTIONS = """
bhd,bhsd->bhs bhs,bhsd->bhd bhd,hbsd->bhs bhd,sbhd->bhs bhs,sbhd->bhd d,dn->n nd,d->n d,nd->n dn,d->n dn,dm->nm bd,db->b
d,d-> ij,ijk->k ij,jik->k bij,bijk->bk bjk,bk->bj bdhe,bhdk->bhek n,m->nm
"""


@pytest.mark.parametrize("spec", CONTRACTIONS.split())
def test_every_form_of_a_contraction(spec: str):
    """Queries against caches, vectors, matrices, axes in any order, each with its operands swapped."""
    inputs, result = spec.split("->")
    turned = inputs.split(",")[::-1]
    names = ("float32", "float64", "bfloat16", "int32", "uint8")
    check(*(contraction(*sides, result, dtype) for sides in (inputs.split(","), turned) for dtype in names))


def contraction(left: str, right: str, result: str, dtype: str) -> Application:
    sizes, random = dict(zip("bhdsnmijke", (2, 3, 4, 5, 3, 2, 2, 4, 3, 3))), np.random.default_rng(0)
    shared = [letter for letter in left if letter in right]
    batch = [letter for letter in result if letter in shared]
    contract = [letter for letter in shared if letter not in batch]
    attrs = {}
    for name, side in (("lhs", left), ("rhs", right)):
        attrs[f"{name}_batch"] = tuple(map(side.index, batch))
        attrs[f"{name}_contract"] = tuple(map(side.index, contract))
    arrays = [random.integers(0, 4, [sizes[letter] for letter in side]) for side in (left, right)]
    return application("dot", *(array.astype(dtypes.to_numpy(dtype)) for array in arrays), **attrs)


@pytest.mark.parametrize("spec", ["bhd,sbhd->bhs", "bhs,sbhd->bhd", "d,dn->n", "d,nd->n", "dn,d->n", "nd,d->n"])
def test_a_matrix_that_meets_a_vector_is_read_in_its_own_order(spec: str):
    """What XLA would transpose at every step; `benchmarks/contractions.py` measures it."""
    call, arrays, _ = contraction(*spec.split("->")[0].split(","), spec.split("->")[1], "float32")
    lowered = jax.make_jaxpr(OPERATORS["dot"](call))(*arrays)
    (product,) = [each for each in lowered.eqns if each.primitive.name == "dot_general"]
    matrix = max(range(2), key=lambda side: product.invars[side].aval.ndim)
    (contract, batch) = product.params["dimension_numbers"]
    ((contracted,), batched) = contract[matrix], batch[matrix]
    (free,) = set(range(product.invars[matrix].aval.ndim)) - {contracted, *batched}
    assert (matrix == 0) == (free < contracted)


def slices(size: int) -> list[tuple[int, int, int]]:
    """(start, length, step), also such that leave the axis, as static tiling reads them."""
    return [(a, n, k) for a in range(-2, size + 2) for n in (0, 1, 2, size, size + 2) for k in (1, 2, -1, -3)]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_slices_clamp_each_position_outside_an_axis(size: int):
    x = np.arange(10, 10 + size, dtype=np.int32)
    moving = [
        application("slice", x, scalars=(start,), starts=(t,), lengths=(length,), steps=(step,))
        for start, length, step in slices(size)
    ]
    check(*moving)
    check(*moving, trace=False)


def test_slices_along_several_axes():
    x = np.arange(60).reshape(3, 4, 5)
    one = as_expr(1)
    cases = [
        ((t, one, s), (2, 3, 2), (1, 1, 2), (2, 1, 1)),
        ((t, s, one), (1, 1, 4), (1, 1, 1), (2, 3, 1)),
        ((t, as_expr(3), as_expr(0)), (2, 2, 5), (1, -2, 1), (-1, 3, 0)),
    ]
    for starts, lengths, steps, scalars in cases:
        check(application("slice", x, scalars=scalars, starts=starts, lengths=lengths, steps=steps))


@pytest.mark.parametrize("length", [-1, 0, 2, 3, 9])
def test_masks_of_any_length(length: int):
    x = np.full((2, 3), np.nan, np.float32)
    check(application("mask", x, scalars=(length,), axis=1, fill=-np.inf, length=t))


@pytest.mark.parametrize("dtype", list(filter(dtypes.is_integer, dtypes.DTYPES)))
@pytest.mark.parametrize("size", [1, 4, 300])
def test_indices_out_of_range_are_clamped_whatever_their_dtype(dtype: str, size: int):
    data, index = np.arange(2 * size, dtype=np.float32).reshape(size, 2), wild(dtype)
    updates = np.ones((len(index), 2), np.float32)
    calls = [
        application("gather", data, index, axis=0, checked=False),
        application("gather", data, index[0], axis=0, checked=False),
        application("gather_pairs", data, index, index, axis=0, count=2, checked=False),
        application("scatter_add", data, index, updates, axis=0, checked=False),
    ]
    check(*calls)


def test_checked_indices_are_clamped_in_compiled_code():
    data, index = np.arange(3.0), np.array([-1, 1, 7])
    assert run(application("gather", data, index, axis=0, checked=True))[0].tolist() == [0, 1, 2]


def test_gathers_of_nothing_and_from_nothing():
    none, empty = np.zeros((0, 3)), np.zeros((0,), np.int32)
    check(
        application("gather", none, empty, axis=0, checked=False),
        application("gather", np.ones((4, 3)), empty, axis=0, checked=True),
        application("gather", np.ones((4, 0)), np.zeros((2,), np.int32), axis=0, checked=False),
        application("scatter_add", none, empty, none, axis=0, checked=False),
        application("scatter_add", np.ones((4, 3)), empty, none, axis=0, checked=False),
    )
    with pytest.raises(IndexOutOfRangeError):
        run(application("gather", none, np.zeros((1,), np.int32), axis=0, checked=False))


def test_extremes_over_nothing_have_some_value():
    """Checks raise where one is needed; it may still be compiled for points that nothing needs."""
    for op, attrs in [("reduce_max", {"axes": (0,)}), ("argmin", {"axis": 0})]:
        result = StaticType((2,), "int32" if op == "argmin" else "float32")
        found = OPERATORS[op](Call(op, attrs, (StaticType((0, 2), "float32"),), result))(jnp.zeros((0, 2)))
        assert (found.shape, str(found.dtype)) == (result.shape, result.dtype)
    check(application("reduce_max", np.zeros((0, 3)), axes=(1,)), application("argmax", np.zeros((0, 3)), axis=1))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_draws_are_the_same_bits(bits: int):
    """Coordinates are traced, known, negative, axes in any order; seeds take all 32 bits."""
    cases: list[tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...]]] = [
        ((), (), ()),
        ((t,), (), (-1,)),
        ((t, 0), (7,), (2**31 - 1,)),
        ((1, t, 0, s), (3, 5), (4, -(2**31))),
        ((0, 1, 2), (2, 1, 3), ()),
    ]
    calls = [
        application(
            "random_bits", seed, scalars=scalars, coordinates=c, shape=shape, bits=bits, declaration=declaration
        )
        for c, shape, scalars in cases
        for seed, declaration in [(np.uint32(0), 0), (np.uint32(2**32 - 1), 2**32 + 3)]
    ]
    check(*calls)
    check(*calls, trace=False)


@pytest.mark.parametrize("dtype", dtypes.DTYPES)
def test_constants_and_iotas(dtype: str):
    check(
        application("constant", value=ArrayValue(wild(dtype))),
        application("constant", value=ArrayValue(wild(dtype)[0])),
        application("iota", shape=(300,), axis=0, dtype=dtype),
        application("iota", shape=(0, 2), axis=0, dtype=dtype),
        application("pad", wild(dtype), low=(1,), high=(2,), value=1),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32", "uint8"])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_convolutions(dtype: str, batch: int):
    random = np.random.default_rng(0)
    lead = (2, 3)[:batch]
    x = random.integers(0, 4, (*lead, 2, 3, 9, 6)).astype(dtypes.to_numpy(dtype))
    w = random.integers(0, 3, (*lead, 4, 3, 3, 2)).astype(dtypes.to_numpy(dtype))
    attrs = {"strides": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (2, 3), "batch": batch}
    check(application("conv", x, w, **attrs))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_convolutions_without_spatial_axes(dtype: str, batch: int):
    random = np.random.default_rng(0)
    lead = (2, 3)[:batch]
    x = random.integers(0, 4, (*lead, 2, 3)).astype(dtypes.to_numpy(dtype))
    w = random.integers(0, 3, (*lead, 4, 3)).astype(dtypes.to_numpy(dtype))
    check(application("conv", x, w, strides=(), padding=(), dilation=(), batch=batch))


@pytest.mark.parametrize("op", ["add", "reduce_sum", "index_value", "gather", "slice", "mask"])
def test_without_64_bits_nothing_is_widened_or_weak(op: str):
    cases: dict[str, Application] = {
        "add": application("add", np.ones((2,), np.float32), np.ones((2,), np.float32)),
        "reduce_sum": application("reduce_sum", np.ones((2,), np.int8), axes=(0,)),
        "index_value": application("index_value", scalars=(3,), expr=t),
        "gather": application("gather", np.ones((2,), np.float32), np.array([1], np.int32), axis=0),
        "slice": application("slice", np.arange(5, dtype=np.int8), scalars=(3,), starts=(t,), lengths=(2,), steps=(1,)),
        "mask": application("mask", np.ones((3,), np.float16), scalars=(1,), axis=0, fill=0, length=t),
    }
    call, arrays, scalars = cases[op]
    function: Callable[..., Any] = OPERATORS[op](call)
    for numbers in (scalars, list(map(traced, scalars))):
        found = jax.jit(function)(*arrays, *numbers)
        assert (str(found.dtype), found.weak_type) == (call.result.dtype, False)
        check_equal(np.asarray(found), meaning(call, arrays, scalars), call.result.dtype)


def test_a_product_over_several_first_axes_copies_neither_side() -> None:
    axes = {"lhs_contract": (0, 1), "rhs_contract": (0, 1), "lhs_batch": (), "rhs_batch": ()}
    random = np.random.default_rng(0)
    first, second = (random.normal(size=shape).astype(np.float32) for shape in ((50, 8, 16), (50, 8, 4, 3)))
    call, _, _ = application("dot", first, second, **axes)
    compiled = jax.jit(OPERATORS["dot"](call)).lower(first, second).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < first.nbytes // 2
    assert np.allclose(compiled(first, second), np.tensordot(first, second, ([0, 1], [0, 1])), atol=1e-4)


@pytest.mark.parametrize(("before", "last", "named"), [(lax.gt, -np.inf, np.argmax), (lax.lt, np.inf, np.argmin)])
def test_the_first_extreme_is_found_in_any_order(before: Callable[..., Any], last: float, named: Callable[..., Any]):
    """As a GPU reduces: of several NaN, of equal values, of zeros of both signs, of infinities."""
    values = (np.nan, 1.0, np.nan, last, -last, -last, 0.0, -0.0, 1.0)
    draw, reducer = np.random.default_rng(0), first_of(before)
    for _ in range(40):
        array = draw.choice(values, 6).astype(np.float32)
        pairs = [(jnp.float32(last), jnp.int32(2**31 - 1)), *zip(map(jnp.float32, array), map(jnp.int32, range(6)))]
        while len(pairs) > 1:
            left, right = (pairs.pop(draw.integers(len(pairs))) for _ in range(2))
            pairs.append(reducer(left, right))
        assert pairs[0][1] == named(array), array
