"""Tests that walk the operator table, one to an operator: it goes through all samples."""

from itertools import product

import numpy as np
import pytest

from tempo import dtypes
from tempo.conformance.by_operator import each_sample
from tempo.conformance.operator_samples import SAMPLES, Sample, as_int, values
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS, Operator, call_for
from tempo.symbolic import as_expr

NOMINAL = {
    "all_reduce", "all_gather", "exchange",
    "input", "merge", "host_call", "backend_call", "backend_result", "sink", "gradient", "stop_gradient",
    "custom_gradient", "cotangent",
}  # fmt: skip
LIFTED = 3  # elements along the lifted axis


@pytest.fixture(autouse=True)
def _silent():
    """Floating-point warnings are those of NumPy itself."""
    with np.errstate(all="ignore"):
        yield


def test_every_operator_of_the_design_is_in_the_table():
    named = """
    neg abs sign exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf
    logistic floor ceil round logical_not bitwise_not isnan isinf isfinite cast add sub mul div floordiv mod pow maximum
    minimum atan2 bitwise_and bitwise_or bitwise_xor shift_left shift_right logical_and logical_or logical_xor eq ne lt
    le gt ge where after reshape transpose broadcast pad slice concat flip reduce_sum reduce_max reduce_min reduce_prod
    reduce_any reduce_all argmax argmin cumsum sort argsort dot conv gather gather_pairs scatter_add constant iota
    cumprod top_k_indices solve cholesky det
    index_value condition_value random_bits mask shift input merge host_call backend_call
    backend_result sink copy all_reduce all_gather exchange
    softmax log_softmax logsumexp layer_norm rms_norm silu gelu gelu_by_tanh attention banded_attention
    gradient stop_gradient custom_gradient cotangent"""
    assert set(OPERATORS) == set(named.split())


@pytest.mark.parametrize("name", OPERATORS)
def test_a_name_is_the_key(name: str):
    assert OPERATORS[name].name == name


def test_every_operator_but_nominal_ones_has_a_sample():
    assert {sample.op for sample in SAMPLES} == set(OPERATORS) - NOMINAL


@each_sample(SAMPLES)
def test_numpy_gives_what_infer_says_for_every_dtype(sample: Sample):
    operator, accepted = OPERATORS[sample.op], 0
    for dtype in dtypes.DTYPES:
        call = sample.call(dtype)
        if call is None:
            continue
        accepted += 1
        result = operator.numpy(call)(*sample.arrays(call), *sample.scalars)
        assert (result.dtype, result.shape) == (call.result.numpy_dtype, call.result.shape), dtype
        assert operator.cost(call) >= 0
    assert accepted


@each_sample(SAMPLES)
def test_only_operators_that_are_said_to_give_views_share_memory_with_an_operand(sample: Sample):
    calls = [call for dtype in dtypes.DTYPES if (call := sample.call(dtype)) is not None]
    for call in [] if OPERATORS[sample.op].views else calls:
        arrays = sample.arrays(call)
        result = OPERATORS[sample.op].numpy(call)(*arrays, *sample.scalars)
        assert not any(np.shares_memory(result, array) for array in arrays), call


@each_sample(SAMPLES)
def test_scalars_are_as_many_as_the_function_takes_and_static_ones_become_numbers(sample: Sample):
    operator = OPERATORS[sample.op]
    assert len(operator.scalars(sample.attrs)) == len(sample.scalars)
    seen = []
    operator.with_exprs(sample.attrs, lambda expr: seen.append(expr) or expr)
    scalars = list(operator.scalars(sample.attrs))
    assert seen[: len(scalars)] == scalars


def stacked(operator: Operator, call: Call, lifted: tuple[bool, ...], sample: Sample):
    """Operands, some with a new leading axis, and the results of the elements, stacked."""
    random = np.random.default_rng(1)
    below = [None if given == "*" else sample.indices for given in sample.dtypes]
    arrays = [
        values(random, StaticType((LIFTED, *type.shape) if new else type.shape, type.dtype), limit)
        for type, new, limit in zip(call.operands, lifted, below)
    ]
    function = operator.numpy(call)
    results = [
        function(*(array[i] if new else array for array, new in zip(arrays, lifted)), *sample.scalars)
        for i in range(LIFTED)
    ]
    return arrays, np.stack(results)


def aligned(operator: Operator, array: np.ndarray, rank: int, ranks: tuple[int, ...]) -> np.ndarray:
    """What the pass does to lifted operands of elementwise operators of several ranks: ones after the leading axis."""
    if operator.kind != "elementwise":
        return array
    return array.reshape(array.shape[0], *(1,) * (max(ranks) - rank), *array.shape[1:])


def apply_lifted(operator: Operator, sample: Sample, arrays, lifted: tuple[bool, ...], dtype: str) -> np.ndarray:
    ranks = tuple(len(shape) for shape in sample.shapes)
    how = operator.lift(sample.attrs, lifted, ranks, as_expr(LIFTED))
    operands = [
        aligned(operator, array, rank, ranks) if new else array for array, rank, new in zip(arrays, ranks, lifted)
    ]
    if how.broadcast:
        operands = [
            array if new else np.broadcast_to(array, (LIFTED, *array.shape)) for array, new in zip(operands, lifted)
        ]
    operands = how.ordered([np.moveaxis(array, 0, how.at) if new else array for array, new in zip(operands, lifted)])
    types = [StaticType(array.shape, dtypes.from_numpy(array.dtype)) for array in operands]
    symbolic = tuple(TensorType(tuple(map(as_expr, type.shape)), type.dtype) for type in types)
    result = operator.infer(how.attrs, symbolic)
    call = call_for(sample.op, how.attrs, types, StaticType(tuple(map(as_int, result.shape)), result.dtype), as_int)
    new_scalars = len(operator.scalars(how.attrs)) - len(sample.scalars)
    found = operator.numpy(call)(*operands, *(0,) * new_scalars, *sample.scalars)
    assert (found.shape, found.dtype) == (call.result.shape, call.result.numpy_dtype)
    return np.moveaxis(found, how.axis, 0)


LIFTABLE = [sample for sample in SAMPLES if not OPERATORS[sample.op].lift_note]


def check_lifting(sample: Sample):
    operator = OPERATORS[sample.op]
    dtype = next(dtype for dtype in ("float32", "int32", "bool") if sample.call(dtype) is not None)
    for lifted in product((False, True), repeat=len(sample.shapes)):
        if not any(lifted):
            continue
        arrays, expected = stacked(operator, sample.call(dtype), lifted, sample)
        found = apply_lifted(operator, sample, arrays, lifted, dtype)
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=1e-6)


@each_sample(LIFTABLE)
def test_lifting_equals_stacking_the_elements(sample: Sample):
    check_lifting(sample)


def lifted_sample(sample: Sample, lifted: tuple[bool, ...]) -> Sample:
    """The sample as lifting leaves it, to be lifted once more along another dim."""
    operator, ranks = OPERATORS[sample.op], tuple(len(shape) for shape in sample.shapes)
    how = operator.lift(sample.attrs, lifted, ranks, as_expr(2))
    shapes = tuple(
        (*shape[: how.at], 2, *shape[how.at :]) if new or how.broadcast else shape
        for shape, new in zip(sample.shapes, lifted, strict=True)
    )
    scalars = (0,) * (len(operator.scalars(how.attrs)) - len(sample.scalars)) + sample.scalars
    return Sample(sample.op, how.ordered(shapes), dict(how.attrs), sample.dtypes, scalars, sample.indices)


LIFTED_ONCE = [
    lifted_sample(sample, lifted)
    for sample in LIFTABLE
    if OPERATORS[sample.op].kind != "elementwise"
    for lifted in product((False, True), repeat=len(sample.shapes))
    if any(lifted)
]


@pytest.mark.slow
@each_sample(LIFTED_ONCE)
def test_what_is_lifted_can_be_lifted_again(sample: Sample):
    check_lifting(sample)
