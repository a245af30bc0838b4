"""Dtypes are strings: NumPy's names, and "bfloat16".

Promotion is JAX's lattice (docs.jax.dev, "Type promotion semantics"): Python scalars and index expressions are *weak*,
so they take the dtype of what they meet; int32 and float32 are the defaults. NumPy makes float64 of any number, so its
float64 values are weak too; alone they are float32. 64 bits come only from an explicit dtype, or
where two strong dtypes have no smaller common one (uint32 with int32).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from tempo.errors import DTypeError, InputError

Kind = Literal["bool", "uint", "int", "float"]

_KINDS: dict[str, Kind] = {
    "bool": "bool",
    "uint8": "uint",
    "uint16": "uint",
    "uint32": "uint",
    "uint64": "uint",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "int",
    "bfloat16": "float",
    "float16": "float",
    "float32": "float",
    "float64": "float",
}
_NUMPY: dict[str, np.dtype[Any]] = {
    name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in _KINDS
}
_NAMES = {dtype: name for name, dtype in _NUMPY.items()}
_PYTHON: dict[type, str] = {bool: "bool", int: "int32", float: "float32"}
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}

# Direct successors. "int*" and "float*" are the weak integer and float: what a Python scalar is.
_LATTICE: dict[str, tuple[str, ...]] = {
    "bool": ("int*",),
    "int*": ("uint8", "int8"),
    "uint8": ("uint16", "int16"),
    "uint16": ("uint32", "int32"),
    "uint32": ("uint64", "int64"),
    "uint64": ("float*",),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float*",),
    "float*": ("bfloat16", "float16"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64",),
    "float64": (),
}

DTYPES: tuple[str, ...] = tuple(_KINDS)
"""The dtypes of the language, each of which `tp` has under its name."""


def to_numpy(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name. Raises `DTypeError` for a name that is none."""
    try:
        return _NUMPY[name]
    except KeyError:
        raise DTypeError(f"{name!r} is no dtype", hint=_instead_of(name)) from None


def from_numpy(dtype: Any) -> str:
    """The name of a NumPy dtype or scalar type. Raises `DTypeError` for one that Tempo has not (complex, object)."""
    found = np.dtype(dtype)
    try:
        return _NAMES[found.newbyteorder("=")]
    except KeyError:
        raise DTypeError(f"dtype {found} is not supported", hint=_instead_of(found)) from None


def _instead_of(dtype: Any) -> str:
    if str(dtype).startswith("complex"):
        return "keep real and imaginary parts as two tensors, or as an axis of size 2"
    return f"use one of {', '.join(DTYPES)}"


def as_dtype(value: Any) -> str:
    """The name of anything that users write for a dtype: a name, NumPy's dtypes and types, `bool`, `int`, `float`.

    >>> as_dtype("float32"), as_dtype(np.int8), as_dtype(float)
    ('float32', 'int8', 'float32')
    """
    if isinstance(value, str):
        return from_numpy(to_numpy(value))
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    if value is None:  # NumPy takes it for float64
        raise DTypeError("None is no dtype", hint=f"use one of {', '.join(DTYPES)}")
    try:
        return from_numpy(value)
    except DTypeError:
        raise
    except TypeError:
        raise DTypeError(f"{value!r} is no dtype", hint=f"use one of {', '.join(DTYPES)}") from None


def kind(name: str) -> Kind:
    """`"bool"`, `"uint"`, `"int"` or `"float"`."""
    to_numpy(name)
    return _KINDS[name]


def is_float(name: str) -> bool:
    return kind(name) == "float"


def is_integer(name: str) -> bool:
    """Whether signed or unsigned integers; bool is none."""
    return kind(name) in ("int", "uint")


def itemsize(name: str) -> int:
    """Bytes of one element."""
    return to_numpy(name).itemsize


def same_kind(source: str, target: str) -> bool:
    """Whether both are bool, both integers (signed or not), or both floats."""
    return kind(source) == kind(target) or (is_integer(source) and is_integer(target))


def can_cast(source: str, target: str) -> bool:
    """NumPy's `casting="same_kind"`: within a kind, or up the order bool, uint, int, float.

    >>> can_cast("float64", "float16"), can_cast("int32", "float32"), can_cast("float32", "int32")
    (True, True, False)
    """
    order = ("bool", "uint", "int", "float")
    return order.index(kind(source)) <= order.index(kind(target))


def check_cast(source: str, target: str, what: str) -> None:
    """Raises `DTypeError` where `can_cast` does not hold; `what` names the value."""
    if not can_cast(source, target):
        raise DTypeError(
            f"{what} has dtype {source}, which is of another kind than {target}",
            hint=f'cast it explicitly: .astype("{target}")',
        )


@cache
def _above(element: str) -> frozenset[str]:
    """The element and everything above it in the lattice."""
    return frozenset({element}).union(*(_above(successor) for successor in _LATTICE[element]))


def _element(dtype: str, weak: bool) -> str:
    if not weak or dtype == "bool":
        return dtype
    return "float*" if is_float(dtype) else "int*"


@cache
def _join(left: str, right: str) -> str:
    """The least upper bound: the common upper bound that is below all others."""
    common = _above(left) & _above(right)
    return max(common, key=lambda element: len(_above(element)))


def promote(*types: tuple[str, bool]) -> tuple[str, bool]:
    """The common dtype of pairs `(dtype, weak)`, as a pair of the same form.

    >>> promote(("float16", False), ("float32", True))         # an array and a Python float
    ('float16', False)
    >>> promote(("int32", False), ("float32", True))
    ('float32', True)
    """
    if not types:
        raise DTypeError("nothing to promote")
    if len(types) == 1:
        return types[0]
    joined = _element(*types[0])
    for dtype, weak in types[1:]:
        joined = _join(joined, _element(dtype, weak))
    if joined == "int*":
        return "int32", True
    return ("float32", True) if joined == "float*" else (joined, False)


def default_dtype(dtype: str) -> str:
    """What an array of `dtype` becomes where no dtype was asked for: 64 bits become 32.

    >>> default_dtype("float64"), default_dtype("int8")
    ('float32', 'int8')
    """
    return _NARROW.get(dtype, dtype)


def scalar_dtype(value: bool | int | float) -> tuple[str, bool]:
    """`(dtype, weak)` of a Python scalar."""
    if isinstance(value, bool):
        return "bool", False
    return "int32" if isinstance(value, int) else "float32", True


def numbers(value: Any) -> np.ndarray[Any, Any]:
    """`value` as an array of a dtype that Tempo has, with the bits that it came with. Raises `DTypeError`."""
    array = np.asarray(value)
    if isinstance(value, int) and array.dtype == object:  # beyond 64 bits
        _check_integers(array, "int64", default=False)
    if array.dtype.kind in "OSUMm" or array.dtype.names:
        named = value is None or isinstance(value, str | bytes)
        what = repr(value) if named else f"a {type(value).__name__} of dtype {array.dtype}"
        raise DTypeError(f"{what} is no number and no array of numbers", hint="give numbers, or arrays of numbers")
    from_numpy(array.dtype)
    return array


def convert(value: Any, dtype: str | None = None) -> np.ndarray[Any, Any]:
    """An array of `dtype`, or of the default for `value`. Not copied where it is one already.

    Raises `DTypeError` where the value is no array of numbers, or an integer does not fit; `InputError` where a finite
    number would become infinite.
    """
    array = numbers(value)
    source = from_numpy(array.dtype)
    target = default_dtype(source) if dtype is None else dtype
    if is_integer(target) and target != source and kind(source) != "bool":
        _check_integers(np.trunc(array) if is_float(source) else array, target, default=dtype is None)
    return rounded(array, target)


def rounded(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """`array` in another dtype, each number rounded once; the array itself where it has that dtype.

    Raises `InputError` with the position of a finite number that would become infinite. NaN and infinities pass.
    """
    target = to_numpy(dtype)
    if array.dtype == target:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        exact = array if dtype != "bfloat16" else _odd(array)
        result = exact.astype(target)
    if is_float(dtype) and not np.isfinite(result).all():
        lost = np.isinf(result) & np.isfinite(array)
        if lost.any():
            raise _too_large(first_of(array, lost), dtype)
    return result


def rounded_scalar(value: bool | int | float, dtype: str) -> np.ndarray[Any, Any]:
    """A Python number as an array of shape (). Raises as `rounded`."""
    array = np.asarray(value)
    if array.dtype != object:
        return rounded(array, dtype)
    try:
        return rounded(np.asarray(float(value)), dtype)  # an int beyond 64 bits
    except OverflowError:
        raise _too_large("an integer", dtype) from None


def _odd(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As float32, rounded to odd: what is rounded to fewer bits after that is as if it were rounded once.

    ml_dtypes makes bfloat16 of float32, so a float64 near the middle of two would be rounded twice. Source: Boldo and
    Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd".
    """
    if array.dtype.kind not in "fiu" or array.dtype.itemsize < 4 or array.dtype == np.float32:
        return array
    wide = array.astype(np.float64)
    near = wide.astype(np.float32)
    within = np.where(np.abs(near) > np.abs(wide), np.nextafter(near, np.float32(0)), near)
    inexact = (within != wide) & ~np.isnan(wide)
    odd: np.ndarray[Any, Any] = within.view(np.uint32) | inexact
    return odd.view(np.float32)


def first_of(array: np.ndarray[Any, Any], wrong: np.ndarray[Any, Any]) -> str:
    """The first element that is `wrong`, and where it is, for messages: `300 at [0, 2]`."""
    at = tuple(int(place) for place in np.argwhere(wrong)[0])
    return f"{array[at]}{f' at {list(at)}' if at else ''}"


def _too_large(what: str, dtype: str) -> InputError:
    largest = float(ml_dtypes.finfo(to_numpy(dtype)).max)  # type: ignore[no-untyped-call]
    return InputError(
        f"{what} would become infinite in {dtype}, which holds up to {largest:.5g}",
        hint='use a wider dtype, or write the infinity that is meant: float("inf")',
    )


def _check_integers(array: np.ndarray[Any, Any], target: str, default: bool = True) -> None:
    limits = np.iinfo(to_numpy(target))
    if array.dtype == object or (array.size and not limits.min <= array.min() <= array.max() <= limits.max):
        told = first_of(array, ~((array >= limits.min) & (array <= limits.max)))
        which = ", the default dtype of integers" if default else ""
        raise DTypeError(
            f"an integer is out of the range of {target}{which}: {told}",
            hint='give dtype="int64" explicitly, or values that fit' if default else "give a wider dtype",
        )


def lowest(dtype: str) -> bool | int | float:
    """The least value of a dtype: minus infinity for floats. Nothing is changed by a maximum with it."""
    if dtype == "bool":
        return False
    return -np.inf if is_float(dtype) else int(np.iinfo(to_numpy(dtype)).min)


def highest(dtype: str) -> bool | int | float:
    """The greatest value of a dtype: infinity for floats. Nothing is changed by a minimum with it."""
    if dtype == "bool":
        return True
    return np.inf if is_float(dtype) else int(np.iinfo(to_numpy(dtype)).max)
