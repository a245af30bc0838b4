"""One application of an operator with everything static known: what a backend builds a function for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.sdg.exact import same
from tempo.sdg.graph import TensorType
from tempo.symbolic import Expr

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StaticType:
    """A shape of numbers and a dtype."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return dtypes.to_numpy(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Call:
    """One application.

    `attrs` are the node's, with every expression that `Operator.static` names replaced by its value; expressions that
    are passed at run time (`Operator.scalars`) stay.
    """

    op: str
    attrs: Mapping[str, Any]
    operands: tuple[StaticType, ...]
    result: StaticType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        one, two = ((call.op, call.operands, call.result) for call in (self, other))
        return one == two and same(self.attrs, other.attrs)

    def __hash__(self) -> int:
        return hash((self.op, tuple(sorted(self.attrs)), self.operands, self.result))


class ArrayValue:
    """A constant array as an attribute: equal to another where dtype, shape and bytes are, hence hashable.

    The digest of the bytes is computed once, when it is first needed. The array is read-only.
    """

    __slots__ = ("_digest", "array")

    def __init__(self, array: Any) -> None:
        given = np.asarray(array)
        contiguous = given if given.flags.c_contiguous else np.array(given, order="C")
        if contiguous.flags.writeable and contiguous is given:
            contiguous = given.copy()
        contiguous.flags.writeable = False
        self.array: Array = contiguous
        self._digest: bytes | None = None

    @property
    def dtype(self) -> str:
        return dtypes.from_numpy(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = hashlib.blake2b(self.array.reshape(-1).view(np.uint8).data, digest_size=16).digest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ArrayValue):
            return NotImplemented
        same_type = self.array.dtype == other.array.dtype and self.shape == other.shape
        return same_type and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.array.dtype, self.shape, self.digest))

    def __repr__(self) -> str:
        return f"ArrayValue({self.dtype}{list(self.shape)}, {self.digest.hex()[:8]})"


def static_type(type: TensorType, resolve: Callable[[Expr], int]) -> StaticType:
    """The type with every size of the shape replaced by its value."""
    return StaticType(tuple(resolve(size) for size in type.shape), type.dtype)
