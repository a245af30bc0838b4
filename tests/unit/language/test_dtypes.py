"""Rules of the page "The language": Dtypes."""

import ml_dtypes
import numpy as np
import pytest

import tempo as tp
from tempo.errors import DTypeError


@pytest.fixture(autouse=True)
def program():
    with tp.Program("dtypes") as program:
        yield program


def of(dtype):
    return tp.recurrent("x", (2,), (), dtype)


PROMOTIONS = {
    ("bool", "uint8"): "uint8",
    ("uint8", "int8"): "int16",
    ("uint8", "int32"): "int32",
    ("int8", "int32"): "int32",
    ("int32", "int64"): "int64",
    ("uint32", "int32"): "int64",
    ("int32", "float16"): "float16",
    ("int64", "float32"): "float32",
    ("bfloat16", "float16"): "float32",
    ("float16", "float32"): "float32",
    ("float32", "float64"): "float64",
    ("bool", "float32"): "float32",
}


@pytest.mark.parametrize("pair", PROMOTIONS)
def test_the_lattice(pair):
    """JAX's promotion lattice without 64-bit defaults:"""
    left, right = (of(dtype) for dtype in pair)
    assert (left + right).dtype == (right * left).dtype == PROMOTIONS[pair]
    assert tp.where(left > 0, left, right).dtype == PROMOTIONS[pair]
    assert tp.concatenate([left, right]).dtype == PROMOTIONS[pair]
    assert (left < right).dtype == "bool"


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "bfloat16", "float16", "float32", "float64"])
def test_python_scalars_are_weak(dtype):
    """Python scalars and index expressions are weak;"""
    t = tp.dim("t")
    x = of(dtype)
    assert (x + 1).dtype == (2 * x).dtype == (x * t).dtype == (x + tp.as_tensor(3)).dtype == dtype
    assert (x - True).dtype == dtype
    wanted = dtype if "float" in dtype else "float32"
    assert (x * 0.5).dtype == (tp.as_tensor(0.5) + x).dtype == wanted
    assert tp.maximum(x, 0).dtype == tp.clip(x, 0, 1).dtype == tp.where(x > 0, x, 0).dtype == dtype


def test_weak_stays_weak_until_it_meets_something():
    half = of("float16")
    weak = tp.sqrt(tp.as_tensor(2.0) * 3) + 1
    assert (weak.dtype, (weak * half).dtype) == ("float32", "float16")
    assert (weak.astype(tp.float32) * half).dtype == "float32"
    assert (tp.full((2,), 1.0) * half).dtype == "float32"


def test_numpy_scalars_and_arrays_are_not_weak():
    half = of("float16")
    assert (half * np.float32(2)).dtype == "float32"
    assert (half * np.ones(2, np.float16)).dtype == "float16"
    assert (np.float32(2) * half).dtype == (np.ones(2, np.float32) * half).dtype == "float32"


def test_defaults():
    """int32 and float32 are the defaults, also for float64 and int64 arrays given without `dtype=`"""
    assert tp.constant(np.arange(3)).dtype == "int32"
    assert tp.constant(np.ones(3)).dtype == "float32"
    assert tp.constant([1, 2]).dtype == "int32"
    assert tp.constant([1.5, 2]).dtype == "float32"
    assert (of("float32") + np.ones(2)).dtype == "float32"
    assert tp.arange(3).dtype == tp.argmax(of("float32")).dtype == "int32"
    assert tp.zeros(3).dtype == tp.input("y").dtype == tp.recurrent("h", (), ()).dtype == "float32"
    assert tp.full((2,), 7).dtype == "int32"


def test_an_integer_out_of_range():
    """(an int64 value out of range is an error);"""
    with pytest.raises(DTypeError, match="int32") as caught:
        tp.constant(np.array([2**31]))
    assert caught.value.location.path == __file__
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(DTypeError, match="int32"):
            tp.as_tensor(value)
    with pytest.raises(DTypeError, match="300"):
        of("uint8") + 300
    assert tp.constant(np.array([2**31]), dtype=tp.int64).dtype == "int64"
    assert (of("int64") + 2**40).dtype == "int64"


def test_division_and_mean_of_integers():
    """int `/` and `mean` give float32;"""
    for dtype in ("int8", "int32", "int64", "bool"):
        assert (of(dtype) / 2).dtype == of_mean(dtype) == "float32"
    assert (of("float16") / 2).dtype == "float16"
    assert (tp.constant(1) / 2).dtype == tp.exp(tp.constant(1)).dtype == "float32"


def of_mean(dtype):
    return of(dtype).mean().dtype


def test_sums_and_argmax():
    """sums of int32 and argmax are int32; bool sums int32."""
    assert of("int32").sum().dtype == of("bool").sum().dtype == of("int8").sum().dtype == "int32"
    assert of("uint8").sum().dtype == "uint32"
    assert of("int64").sum().dtype == "int64"
    assert of("float16").sum().dtype == "float16"
    assert of("float32").argmax().dtype == "int32"
    assert of("bfloat16").cumsum(0).dtype == "bfloat16"


@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32", "bool"],
)
def test_every_dtype_runs(program, run_program, dtype):
    """float16, bfloat16, float32, float64, int8 to int64, uint8, uint32, bool; an explicit `dtype=tp.float64` is
    honoured on every backend"""
    x = tp.input("x", shape=(3,), dtype=getattr(tp, dtype))
    tp.output("y", x)
    tp.output("double", x + x)
    values = np.array([0, 1, 1]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    out = run_program(program, x=values)
    assert out["y"].dtype == out["double"].dtype == values.dtype
    np.testing.assert_array_equal(out["double"].astype(np.float64), (values + values).astype(np.float64))


def test_an_input_of_the_same_kind_is_cast(program, run_program):
    """An input of the same kind is cast; another kind is a `DTypeError`."""
    tp.output("x", tp.input("x", shape=(2,)) * 2)
    tp.output("n", tp.input("n", shape=(2,), dtype=tp.int32) * 2)
    out = run_program(program, x=np.array([1.0, 2.0]), n=np.array([1, 2], np.int64))
    assert (out["x"].dtype, out["n"].dtype) == (np.float32, np.int32)
    with pytest.raises(DTypeError, match="'n'"):
        run_program(program, x=np.array([1.0, 2.0]), n=np.array([1.0, 2.0]))
    with pytest.raises(DTypeError, match="'x'"):
        run_program(program, x=np.array([1, 2]), n=np.array([1, 2]))


def test_dtypes_are_named_in_many_ways():
    for written in ("float16", np.float16, np.dtype("float16"), tp.float16):
        assert tp.zeros((), dtype=written).dtype == "float16"
    assert tp.zeros((), dtype=float).dtype == "float32"
    assert tp.zeros((), dtype=bool).dtype == tp.bool == "bool"
    assert tp.zeros((), dtype=ml_dtypes.bfloat16).dtype == tp.bfloat16
    for wrong in ("complex64", "float31", object, np.complex128, 3):
        with pytest.raises(DTypeError):
            tp.zeros((), dtype=wrong)


def test_what_is_no_array():
    for value in (object(), "text", [1, [2, 3]], {"a": 1}, 1j):
        with pytest.raises(DTypeError) as caught:
            tp.as_tensor(value)
        assert caught.value.location.path == __file__
    with pytest.raises(tp.TempoError):
        tp.as_tensor([tp.zeros(()), tp.zeros(())])


def test_operators_that_a_dtype_has_not():
    with pytest.raises(DTypeError, match="float32"):
        of("float32") & 1
    with pytest.raises(DTypeError, match="float32"):
        ~tp.input("y")
    assert (of("bool") & True).dtype == (~of_bool()).dtype == (of_bool() | of_bool()).dtype == "bool"
    assert (-of_bool()).dtype == (of_bool() - of_bool()).dtype == "int32"


def of_bool():
    return tp.as_tensor(True)


def test_arrays_of_other_libraries():
    """Arrays go in as anything with `__array__` or `__dlpack__`"""

    class OnlyArray:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3, dtype=np.float32)

    class OnlyDlpack:
        array = np.arange(3, dtype=np.float32)

        def __dlpack__(self, **arguments):
            return self.array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    for given in (OnlyArray(), OnlyDlpack()):
        assert tp.constant(given).shape == (3,)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**80])
def test_an_int_beyond_32_bits_raises(value: int):
    x = tp.input("x", dtype=tp.int32)
    with pytest.raises(DTypeError, match=f"{value} is out of the range of int32"):
        tp.as_tensor(value)
    with pytest.raises(DTypeError, match=f"{value} is out of the range of int32"):
        x + value
