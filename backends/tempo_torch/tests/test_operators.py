"""Every primitive against the core's NumPy meaning, for every dtype that it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tempo_torch.arrays import from_host, to_host
from tempo_torch.operators import TABLE, Operation

from tempo import dtypes
from tempo.conformance.by_operator import each_sample
from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.errors import IndexOutOfRangeError
from tempo.sdg.call import Call, StaticType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.elementwise import BINARY, UNARY
from tempo.symbolic import as_expr, dim

CPU = torch.device("cpu")
CALLS = {"backend_call", "backend_result"}
NOMINAL = {name for name, operator in OPERATORS.items() if operator.kind == "nominal"} - CALLS
# Units in the last place of a result's dtype by which libraries may differ, relative to its magnitude.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-14}


def assert_same(found: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    if dtypes.is_float(dtype):
        tolerance = TOLERANCE[dtype]
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


def test_the_table_has_every_operator_that_a_backend_runs():
    assert set(TABLE) == set(OPERATORS) - NOMINAL


@each_sample(SAMPLES)
def test_an_operator_is_the_numpy_meaning_for_every_dtype(sample: Sample):
    for dtype in dtypes.DTYPES:
        call = sample.call(dtype)
        if call is not None:
            check_sample(sample, call)


def check_sample(sample: Sample, call: Call) -> None:
    arrays = sample.arrays(call)
    with np.errstate(all="ignore"):
        expected = np.asarray(OPERATORS[sample.op].numpy(call)(*arrays, *sample.scalars))
    tensors = [from_host(np.array(array), CPU) for array in arrays]
    result = TABLE[sample.op](call, CPU)(*tensors, *sample.scalars)
    found = to_host(result)
    assert (found.shape, found.dtype) == (call.result.shape, call.result.numpy_dtype)
    assert_same(found, expected, call.result.dtype)
    for tensor, array in zip(tensors, arrays):
        np.testing.assert_array_equal(to_host(tensor), array)  # operands are as they were


SPECIAL_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 12.25, 0.1, 1e-3, 88.0, -88.0, 255.0, 256.0, -100.0,
    65535.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, np.inf, -np.inf, np.nan,
)  # fmt: skip


def special(dtype: str) -> np.ndarray:
    """The values at which libraries differ: limits, signs, halves, shifts by a word, infinities."""
    numpy_dtype = dtypes.to_numpy(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            return np.array(SPECIAL_FLOATS).astype(numpy_dtype)
    limits = np.iinfo(numpy_dtype)
    near = {0, 1, 2, 3, 7, 100, limits.bits - 1, limits.bits, limits.bits + 1, limits.max, limits.max - 1, limits.min}
    near |= {limits.min + 1, -1, -2, -7, -limits.bits, int(limits.max) // 2 + 1}
    return np.array(sorted(value for value in near if limits.min <= value <= limits.max), numpy_dtype)


def call_of(op: str, attrs: dict[str, object], *arrays: np.ndarray) -> Call | None:
    shapes, named = tuple(array.shape for array in arrays), tuple(dtypes.from_numpy(array.dtype) for array in arrays)
    return Sample(op, shapes, dict(attrs), named).call("")


def check_special(op: str, attrs: dict[str, object], *arrays: np.ndarray) -> None:
    call = call_of(op, attrs, *arrays)
    if call is None:  # it takes no such dtype
        return
    with np.errstate(all="ignore"):
        expected = np.asarray(OPERATORS[op].numpy(call)(*arrays))
    found = to_host(TABLE[op](call, CPU)(*(from_host(np.array(array), CPU) for array in arrays)))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if not dtypes.is_float(call.result.dtype):
        np.testing.assert_array_equal(found, expected)
        return
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(
        found, expected, rtol=2 * TOLERANCE[call.result.dtype], atol=1e-14 if op == "dot" else 1e-37
    )


@pytest.mark.parametrize("op", [operator.name for operator in UNARY])
def test_a_unary_operator_at_special_values(op: str):
    for dtype in dtypes.DTYPES:
        check_special(op, {}, np.tile(special(dtype), 3))  # long enough for vector instructions


@pytest.mark.parametrize("op", [operator.name for operator in BINARY])
def test_a_binary_operator_at_all_pairs_of_special_values(op: str):
    for values in map(special, dtypes.DTYPES):
        check_special(op, {}, values[:, None], values)


@pytest.mark.parametrize("target", dtypes.DTYPES)
def test_a_cast_of_special_values(target: str):
    for dtype in dtypes.DTYPES:
        check_special("cast", {"dtype": target}, special(dtype))


@pytest.mark.parametrize("op", ["argmax", "argmin", "sort", "argsort"])
def test_order_with_ties_and_nan(op: str):
    for values in map(special, dtypes.DTYPES):
        check_special(op, {"axis": 0}, np.concatenate([values[::-1], values]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["reduce_sum", "cumsum", "dot"])
def test_halves_are_accumulated_in_float32(op: str, dtype: str):
    """In halves, adding 1 to 2048 (or 256) gives 2048 (256) again."""
    ones = np.ones((1, 4096), dtypes.to_numpy(dtype))
    contract = {"lhs_contract": (1,), "rhs_contract": (1,), "lhs_batch": (), "rhs_batch": ()}
    attrs: dict[str, object] = {"reduce_sum": {"axes": (1,)}, "cumsum": {"axis": 1}, "dot": contract}[op]
    check_special(op, attrs, *(ones,) * (2 if op == "dot" else 1))


@pytest.mark.parametrize("wide", [1, 3])
@pytest.mark.parametrize("axes", [((2,), (1,), (0,), (0,)), ((1,), (1,), (2,), (0,)), ((0,), (2,), (2,), (0,))])
def test_a_high_batched_product_is_made_as_its_transpose(axes: tuple[tuple[int, ...], ...], wide: int):
    random = np.random.default_rng(0)
    sizes = {"batch": 2, "contract": 16, "free": 70}
    kinds = {axes[0][0]: "contract", axes[2][0]: "batch"}
    x = random.normal(size=[sizes[kinds.get(axis, "free")] for axis in range(3)])
    y = random.normal(size=(2, 16, wide) if axes[1] == (1,) else (2, wide, 16))
    names = ("lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch")
    check_special("dot", dict(zip(names, axes)), x, y)


@pytest.mark.parametrize("rows", [(), (1,), (2,)])
@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, -0.5])
@pytest.mark.parametrize("first", [0.0, 1e-30, 1.0, 3e4, 1e20, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_norms_of_one_row_and_of_several(
    dtype: str, first: float, epsilon: float, width: int, rows: tuple[int, ...]
) -> None:
    x = np.zeros((*rows, width), dtypes.to_numpy(dtype))
    with np.errstate(over="ignore"):
        x[..., 0] = first
    check_special("rms_norm", {"axes": (len(rows),), "epsilon": epsilon}, x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint32"])
def test_operands_may_be_views(dtype: str):
    """Transposed, broadcast, and not where their memory starts."""
    base = np.arange(24).reshape(2, 3, 4).astype(dtypes.to_numpy(dtype))
    tensor = from_host(base, CPU)
    for op, attrs in (
        ("reduce_sum", {"axes": (0,)}),
        ("reshape", {"shape": (4, 1)}),
        ("neg", {}),
        ("flip", {"axes": (1,)}),
    ):
        array = base[:, 1:, 2].T
        call = call_of(op, attrs, np.zeros(array.shape, array.dtype))
        assert call is not None
        found = TABLE[op](call, CPU)(tensor[:, 1:, 2].permute(1, 0))
        np.testing.assert_array_equal(to_host(found), OPERATORS[op].numpy(call)(array))


def test_a_slice_read_beyond_its_length_is_clamped():
    starts, lengths = (dim("t"), as_expr(1)), (3, 2)
    call = Sample("slice", ((5, 3),), {"starts": starts, "lengths": lengths, "steps": (1, 1)}, ("int32",)).call("")
    assert call is not None
    array = np.arange(15, dtype=np.int32).reshape(5, 3)
    for start in (-2, 0, 2, 4, 6):
        found = TABLE["slice"](call, CPU)(from_host(array, CPU), start, 1)
        np.testing.assert_array_equal(to_host(found), OPERATORS["slice"].numpy(call)(array, start, 1))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_in_place(dtype: str):
    """In the memory of the first operand, whose dtype they keep."""
    array = np.array([0, 1, 2**15, 2**16 - 1]).astype(dtypes.to_numpy(dtype))
    for op in ("add", "sub", "mul", "shift_left", "bitwise_and", "bitwise_or", "bitwise_xor"):
        call = call_of(op, {}, array, array[::-1])
        assert call is not None
        tensor, operation = from_host(array.copy(), CPU), TABLE[op](call, CPU)
        assert isinstance(operation, Operation)
        assert operation.in_place is not None
        found = operation.in_place(tensor, from_host(array[::-1].copy(), CPU))
        np.testing.assert_array_equal(to_host(found), OPERATORS[op].numpy(call)(array, array[::-1]))
        np.testing.assert_array_equal(to_host(tensor), to_host(found))
        assert found.dtype == tensor.dtype


@pytest.mark.parametrize("op", ["gather", "scatter_add"])
@pytest.mark.parametrize("wrong", [-1, 4, 2**31 - 1])
def test_an_index_out_of_range(op: str, wrong: int):
    data, index = np.arange(8.0).reshape(4, 2), np.array([1, wrong], np.int32)
    updates = (np.ones((2, 2)),) if op == "scatter_add" else ()
    arrays = (data, index, *updates)
    tensors = [from_host(array, CPU) for array in arrays]
    clamping = call_of(op, {"axis": 0, "checked": False}, *arrays)
    checking = call_of(op, {"axis": 0, "checked": True}, *arrays)
    assert clamping is not None
    assert checking is not None
    np.testing.assert_array_equal(to_host(TABLE[op](clamping, CPU)(*tensors)), OPERATORS[op].numpy(clamping)(*arrays))
    with pytest.raises(IndexOutOfRangeError, match=f"index {wrong} is out of range for an axis of size 4"):
        TABLE[op](checking, CPU)(*tensors)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint64", "bool"])
@pytest.mark.parametrize(
    "shapes",
    [((64, 1), (64, 512), ()), ((64, 1), (1, 512), (64, 512)), ((), (64, 1), (1, 512)), ((64, 512), (64, 512), ())],
    ids=["a scalar", "a row", "an outer shape", "a whole mask"],
)
def test_a_selection_of_many_by_few_is_bit_for_bit(shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    types = [StaticType(shape, kind) for shape, kind in zip(shapes, ("bool", dtype, dtype))]
    call, draw = Call("where", {}, tuple(types), StaticType((64, 512), dtype)), np.random.default_rng(0)
    condition, *values = (draw.normal(0, 100, shape) for shape in shapes)
    for value in values:
        value.flat[: min(value.size, 3)] = [np.nan, -0.0, np.inf][: value.size] if dtypes.is_float(dtype) else 1
    with np.errstate(invalid="ignore"):
        x, y = (value.astype(dtypes.to_numpy(dtype)) for value in values)
    mask = condition > 0
    operation, tensors = TABLE["where"](call, CPU), [from_host(np.array(each), CPU) for each in (mask, x, y)]
    expected = np.where(mask, x, y).tobytes()
    assert to_host(operation(*tensors)).tobytes() == expected
    assert isinstance(operation, Operation)
    assert operation.in_place is not None
    if x.shape == call.result.shape:
        assert to_host(operation.in_place(tensors[1], tensors[0], tensors[2])).tobytes() == expected
