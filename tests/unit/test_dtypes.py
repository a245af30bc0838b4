import itertools

import ml_dtypes
import numpy as np
import pytest

from tempo import dtypes
from tempo.errors import DTypeError

STRONG = [(name, False) for name in dtypes.DTYPES]
ALL = [*STRONG, ("int32", True), ("float32", True)]


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_names_and_numpy_dtypes_are_inverse(name: str):
    assert dtypes.from_numpy(dtypes.to_numpy(name)) == name
    assert dtypes.as_dtype(dtypes.to_numpy(name)) == name
    assert dtypes.as_dtype(name) == name


def test_bfloat16_is_that_of_ml_dtypes():
    assert dtypes.to_numpy("bfloat16") == np.dtype(ml_dtypes.bfloat16)
    assert dtypes.as_dtype(ml_dtypes.bfloat16) == "bfloat16"
    assert dtypes.kind("bfloat16") == "float"


def test_what_users_write_for_a_dtype():
    assert [dtypes.as_dtype(each) for each in (bool, int, float, np.float16, np.dtype("uint8"), np.dtype(">f4"))] == [
        "bool",
        "int32",
        "float32",
        "float16",
        "uint8",
        "float32",
    ]


@pytest.mark.parametrize("wrong", ["complex64", "float31", np.complex64, object, 3])
def test_what_is_no_dtype_raises(wrong: object):
    with pytest.raises(DTypeError):
        dtypes.as_dtype(wrong)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("bool", "int8", "int8"),
        ("int8", "uint8", "int16"),
        ("int32", "uint8", "int32"),
        ("int32", "uint32", "int64"),
        ("uint8", "uint32", "uint32"),
        ("int8", "int64", "int64"),
        ("int64", "float16", "float16"),
        ("int32", "float32", "float32"),
        ("int8", "bfloat16", "bfloat16"),
        ("bfloat16", "float16", "float32"),
        ("float16", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("bool", "float16", "float16"),
    ],
)
def test_promotion_of_strong_dtypes_is_jaxs(left: str, right: str, expected: str):
    assert dtypes.promote((left, False), (right, False)) == (expected, False)
    assert dtypes.promote((right, False), (left, False))[0] == expected


@pytest.mark.parametrize(
    ("strong", "weak", "expected"),
    [
        ("float16", "float32", ("float16", False)),
        ("float64", "float32", ("float64", False)),
        ("int8", "int32", ("int8", False)),
        ("uint8", "int32", ("uint8", False)),
        ("bfloat16", "int32", ("bfloat16", False)),
        ("int8", "float32", ("float32", True)),
        ("bool", "int32", ("int32", True)),
        ("bool", "float32", ("float32", True)),
    ],
)
def test_weak_scalars_take_the_dtype_of_what_they_meet(strong: str, weak: str, expected: tuple[str, bool]):
    assert dtypes.promote((strong, False), (weak, True)) == expected


def test_weak_with_weak_stays_weak():
    assert dtypes.promote(("int32", True), ("int32", True)) == ("int32", True)
    assert dtypes.promote(("int32", True), ("float32", True)) == ("float32", True)


@pytest.mark.parametrize("left", ALL)
def test_promotion_is_commutative_and_idempotent(left: tuple[str, bool]):
    assert dtypes.promote(left, left) == left
    for right in ALL:
        joined = dtypes.promote(left, right)
        assert joined == dtypes.promote(right, left)
        assert dtypes.promote(joined, left) == joined


def test_promotion_is_associative():
    for a, b, c in itertools.product(ALL, repeat=3):
        assert (
            dtypes.promote(dtypes.promote(a, b), c)
            == dtypes.promote(a, dtypes.promote(b, c))
            == dtypes.promote(a, b, c)
        )


def test_python_scalars_are_weak_but_bool():
    assert dtypes.scalar_dtype(True) == ("bool", False)
    assert dtypes.scalar_dtype(3) == ("int32", True)
    assert dtypes.scalar_dtype(3.0) == ("float32", True)


def test_arrays_of_64_bits_become_32_unless_asked_for():
    assert dtypes.convert(np.arange(3.0)).dtype == np.float32
    assert dtypes.convert(np.arange(3)).dtype == np.int32
    assert dtypes.convert([1, 2]).dtype == np.int32
    assert dtypes.convert(np.arange(3.0), "float64").dtype == np.float64
    assert dtypes.convert(np.arange(3), "int64").dtype == np.int64
    assert dtypes.convert(np.arange(3, dtype=np.int8)).dtype == np.int8


def test_an_int64_value_out_of_range_raises_and_an_explicit_dtype_keeps_it():
    with pytest.raises(DTypeError, match="int32"):
        dtypes.convert(np.array([0, 2**31]))
    assert dtypes.convert(np.array([0, 2**31]), "int64")[1] == 2**31
    assert dtypes.convert(np.array([-(2**31), 2**31 - 1])).tolist() == [-(2**31), 2**31 - 1]
    assert dtypes.convert(np.zeros(0, np.int64)).shape == (0,)


def test_what_is_already_right_is_not_copied():
    array = np.zeros(3, np.float32)
    assert dtypes.convert(array) is array


def test_an_array_of_objects_raises():
    with pytest.raises(DTypeError, match="object"):
        dtypes.convert(np.array([object()]))


def test_casts_within_a_kind_or_upwards_are_allowed():
    for source, target in itertools.product(set(dtypes.DTYPES) - {"bfloat16"}, repeat=2):
        assert dtypes.can_cast(source, target) == np.can_cast(source, target, "same_kind"), (source, target)
    assert dtypes.can_cast("float64", "bfloat16")
    assert not dtypes.can_cast("bfloat16", "int64")


def test_a_cast_to_another_kind_names_the_value():
    dtypes.check_cast("float64", "float32", "the value of h")
    with pytest.raises(DTypeError, match="the value of h has dtype float32"):
        dtypes.check_cast("float32", "int32", "the value of h")


def test_kinds():
    assert dtypes.same_kind("uint8", "int64")
    assert dtypes.same_kind("bfloat16", "float64")
    assert not dtypes.same_kind("bool", "int8")
    assert not dtypes.same_kind("int32", "float32")


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_lowest_and_highest_bound_every_value(name: str):
    dtype = dtypes.to_numpy(name)
    assert (
        np.array(dtypes.lowest(name)).astype(dtype)
        <= np.zeros((), dtype)
        < np.array(dtypes.highest(name)).astype(dtype)
    )


@pytest.mark.parametrize(
    ("value", "dtype"), [([300], "int8"), (-1, "uint8"), (2**70, "int64"), (np.int64(2**40), "int32")]
)
def test_integers_must_fit_an_explicit_dtype(value: object, dtype: str):
    with pytest.raises(DTypeError, match=f"an integer is out of the range of {dtype}") as caught:
        dtypes.convert(value, dtype)
    assert str(value[0] if isinstance(value, list) else value) in caught.value.message
