import math

import numpy as np
import pytest

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError
from tempo.symbolic import const, dim, size
from tests.unit.sdg.operators.apply import apply, infer

F32 = "float32"
T = size("t")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((T, 3), (T, 3), (T, 3)),
        ((T, 3), (3,), (T, 3)),
        ((), (T,), (T,)),
        ((T, 1), (1, dim("t") + 1), (T, dim("t") + 1)),
        ((1,), (dim("t") + 1,), (dim("t") + 1,)),
    ],
)
def test_symbolic_shapes_broadcast_where_equal_or_one(left, right, expected):
    assert infer("add", (left, F32), (right, F32)).shape == tuple(
        const(s) if isinstance(s, int) else s for s in expected
    )
    assert infer("add", (right, F32), (left, F32)) == infer("add", (left, F32), (right, F32))


def test_shapes_that_do_not_broadcast_are_both_named():
    with pytest.raises(ShapeError, match=r"add: shapes \(3, t\.size\) and \(t\.size \+ 1,\) do not broadcast"):
        infer("add", ((3, T), F32), ((T + 1,), F32))
    with pytest.raises(ShapeError, match=r"\(3,\) and \(4,\)"):
        infer("where", ((), "bool"), ((3,), F32), ((4,), F32))


def test_dtypes_that_differ_or_are_not_defined_raise():
    with pytest.raises(DTypeError, match="float32 and int32 are not equal"):
        infer("add", ((), F32), ((), "int32"))
    for op, dtype in [
        ("exp", "int32"),
        ("div", "int32"),
        ("neg", "bool"),
        ("bitwise_and", F32),
        ("shift_left", "bool"),
    ]:
        with pytest.raises(DTypeError, match=f"of {dtype} is not defined"):
            infer(op, *[((), dtype)] * (1 if op in ("exp", "neg") else 2))
    with pytest.raises(DTypeError, match="mask"):
        infer("where", ((), "int32"), ((), F32), ((), F32))


def test_comparisons_and_predicates_are_bool():
    assert infer("lt", ((3,), F32), ((), F32)).dtype == "bool"
    assert infer("isnan", ((3,), F32)).dtype == "bool"
    assert infer("logical_and", ((3,), "int32"), ((), "int32")).dtype == "bool"


@pytest.mark.filterwarnings("error")
def test_integer_division_by_zero_is_zero_without_a_warning():
    assert apply("floordiv", i32(7, -7, 0), i32(0, 0, 0)).tolist() == [0, 0, 0]
    assert apply("mod", i32(7, -7, 0), i32(0, 0, 0)).tolist() == [0, 0, 0]
    assert apply("floordiv", i32(-(2**31)), i32(-1)).tolist() == [-(2**31)]


def test_floordiv_and_mod_round_down_as_in_numpy():
    assert apply("floordiv", i32(7, -7, 7, -7), i32(2, 2, -2, -2)).tolist() == [3, -4, -4, 3]
    assert apply("mod", i32(7, -7, 7, -7), i32(2, 2, -2, -2)).tolist() == [1, 1, -1, -1]
    assert apply("mod", f32(-7.5), f32(2)).tolist() == [0.5]


def test_integer_powers_wrap_and_negative_exponents_truncate():
    assert apply("pow", i32(2, -3, 0, 10), i32(10, 3, 0, 20)).tolist() == [
        1024,
        -27,
        1,
        (10**20 + 2**31) % 2**32 - 2**31,
    ]
    assert apply("pow", i32(2, 1, -1, -1, 0), i32(-1, -5, -3, -2, -1)).tolist() == [0, 1, -1, 1, 0]


def test_nan_propagates_in_maximum_and_minimum():
    for op in ("maximum", "minimum"):
        assert np.isnan(apply(op, f32(1, np.nan), f32(np.nan, 1))).all()


def test_round_is_to_even():
    assert apply("round", f32(0.5, 1.5, 2.5, -0.5, -1.5)).tolist() == [0, 2, 2, 0, -2]


def test_shifts_are_arithmetic_and_beyond_the_width_nothing_is_left():
    assert apply("shift_right", i32(-8, 8), i32(1, 1)).tolist() == [-4, 4]
    assert apply("shift_left", np.array([1, 1], np.uint32), np.array([31, 32], np.uint32)).tolist() == [2**31, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_erf_is_within_an_ulp(dtype: str):
    x = np.concatenate([np.linspace(-7, 7, 1001), [np.inf, -np.inf, 1e-30, 0.0]]).astype(dtypes.to_numpy(dtype))
    exact = np.array([math.erf(value) for value in x.astype(np.float64)])
    spacing = np.abs(np.spacing(exact.astype(x.dtype).astype(np.float32 if dtype != "float64" else np.float64)))
    tolerance = {"float16": 2**13, "bfloat16": 2**16}.get(dtype, 1) * spacing.astype(np.float64)
    assert (np.abs(apply("erf", x).astype(np.float64) - exact) <= tolerance).all()
    assert np.isnan(apply("erf", np.array([np.nan], x.dtype))).all()


def test_logistic_is_precise_at_both_ends():
    with np.errstate(over="ignore"):
        found = apply("logistic", f32(-200, -80, 0, 20, np.inf, -np.inf))
    np.testing.assert_allclose(found, [0, math.exp(-80), 0.5, 1 / (1 + math.exp(-20)), 1, 0], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["logistic", "rsqrt"])
def test_composed_functions_of_halves_are_rounded_once(dtype: str, op: str):
    x = np.linspace(0.1, 8, 50).astype(dtypes.to_numpy(dtype))
    np.testing.assert_array_equal(apply(op, x), apply(op, x.astype(np.float32)).astype(x.dtype))


@pytest.mark.filterwarnings("error")
def test_casts_of_floats_saturate_and_nan_becomes_zero():
    wild = f32(-1e10, -300.7, -1.5, 1.5, 300.7, 1e10, np.inf, -np.inf, np.nan)
    assert apply("cast", wild, dtype="int8").tolist() == [-128, -128, -1, 1, 127, 127, 127, -128, 0]
    assert apply("cast", wild, dtype="uint8").tolist() == [0, 0, 0, 1, 255, 255, 255, 0, 0]
    top, bottom = 2**31 - 1, -(2**31)
    assert apply("cast", wild, dtype="int32").tolist() == [bottom, -300, -1, 1, 300, top, top, bottom, 0]
    assert apply("cast", f32(1.9, -1.9), dtype="int64").tolist() == [1, -1]
    assert apply("cast", np.float32(-2.5), dtype="int32") == -2


def test_casts_between_integers_wrap_and_to_bool_compare_with_zero():
    assert apply("cast", i32(300, -1), dtype="uint8").tolist() == [44, 255]
    assert apply("cast", f32(0, -0.5, np.nan), dtype="bool").tolist() == [False, True, True]


def test_where_selects_and_broadcasts():
    mask = np.array([True, False])
    assert apply("where", mask, f32(1), np.array([[5.0, 6.0]], np.float32)).tolist() == [[1, 6]]
