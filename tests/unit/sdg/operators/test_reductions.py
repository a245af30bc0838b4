import numpy as np
import pytest

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError
from tempo.sdg.call import Call, StaticType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import const, size
from tests.unit.sdg.operators.apply import apply, infer

F32 = "float32"


def test_axes_are_removed():
    assert infer("reduce_sum", ((size("t"), 3, 4), F32), axes=(0, 2)).shape == (const(3),)
    for axes in [(3,), (-1,), (0, 0)]:
        with pytest.raises(ShapeError, match="axis"):
            infer("reduce_sum", ((2, 3, 4), F32), axes=axes)


def test_sums_and_products_of_nothing_are_0_and_1_and_quantifiers_hold_or_not():
    empty = np.zeros((0, 2), np.float32)
    assert apply("reduce_sum", empty, axes=(0,)).tolist() == [0, 0]
    assert apply("reduce_prod", empty, axes=(0,)).tolist() == [1, 1]
    assert apply("reduce_any", empty, axes=(0,)).tolist() == [False, False]
    assert apply("reduce_all", empty, axes=(0,)).tolist() == [True, True]


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min", "argmax", "argmin"])
def test_an_extreme_of_nothing_raises(op: str):
    attrs = {"axes": (0,)} if op.startswith("reduce") else {"axis": 0}
    with pytest.raises(ShapeError, match=f"{op} over an empty axis"):
        infer(op, ((0, 2), F32), **attrs)


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min", "argmax", "argmin"])
def test_an_extreme_of_nothing_that_nothing_needs_has_some_value(op: str):
    attrs, dtype = ({"axes": (0,)}, F32) if op.startswith("reduce") else ({"axis": 0}, "int32")
    call = Call(op, attrs, (StaticType((0, 2), F32),), StaticType((2,), dtype))
    value = OPERATORS[op].numpy(call)(np.zeros((0, 2), np.float32))
    assert value.shape == (2,)
    assert value.dtype == dtype


@pytest.mark.parametrize("dtype", list(filter(dtypes.is_float, dtypes.DTYPES)))
def test_nan_propagates_in_extremes(dtype: str):
    x = np.array([[1, np.nan, 3], [1, 2, 3]], dtypes.to_numpy(dtype))
    for op, other in (("reduce_max", 3), ("reduce_min", 1)):
        found = apply(op, x, axes=(1,)).astype(np.float32)
        assert np.isnan(found[0])
        assert found[1] == other
    assert apply("argmax", x, axis=1).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("op", "attrs"), [("reduce_sum", {"axes": (0,)}), ("cumsum", {"axis": 0})])
def test_halves_accumulate_in_float32(dtype: str, op: str, attrs: dict):
    x = np.ones(3000, dtypes.to_numpy(dtype))  # above 2048 (256), adding 1 to a float16 (bfloat16) changes nothing
    assert float(np.asarray(apply(op, x, **attrs)).reshape(-1)[-1]) == float(np.array(3000).astype(x.dtype))


def test_integers_keep_their_dtype_and_wrap():
    assert apply("reduce_sum", np.full(3, 100, np.int8), axes=(0,)) == 44
    assert apply("cumsum", np.full(3, 100, np.int8), axis=0).tolist() == [100, -56, 44]


def test_sums_of_bools_need_a_cast():
    for op in ("reduce_sum", "reduce_prod"):
        with pytest.raises(DTypeError):
            infer(op, ((3,), "bool"), axes=(0,))


def test_positions_are_int32_and_the_first_of_equals():
    x = np.array([2, 5, 5, 2], np.int64)
    assert apply("argmax", x, axis=0) == 1
    assert apply("argmin", x, axis=0) == 0
    assert apply("argmax", x, axis=0).dtype == np.int32


@pytest.mark.parametrize("dtype", list(filter(dtypes.is_float, dtypes.DTYPES)))
def test_sorts_put_nan_last_and_are_stable(dtype: str):
    x = np.array([3, np.nan, 1, 3, -np.inf, 1], dtypes.to_numpy(dtype))
    assert apply("argsort", x, axis=0).tolist() == [4, 2, 5, 0, 3, 1]
    np.testing.assert_array_equal(
        apply("sort", x, axis=0).astype(np.float32), np.array([-np.inf, 1, 1, 3, 3, np.nan], np.float32)
    )


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize(("shape", "axis"), [((1000,), 0), ((3, 1000), 1), ((1000, 3), 0), ((2, 1000, 2), 1)])
def test_argsort_of_many_integers_keeps_equal_ones_in_order(dtype, shape, axis):
    """Where words of key and position are sorted."""
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    x.ravel()[::3] //= 2**28  # many equal ones
    x.ravel()[:2] = limits.min, limits.max
    found = apply("argsort", x, axis=axis)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, np.argsort(x, axis=axis, kind="stable"))
    turned = x.T[::-1]
    np.testing.assert_array_equal(apply("argsort", turned, axis=0), np.argsort(turned, axis=0, kind="stable"))
