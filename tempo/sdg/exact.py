"""One key for attributes, by bits: Python holds 0.0 and -0.0 to be equal, and 1, 1.0 and True, and no NaN to be."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np


def exact(value: Any) -> Hashable:
    """A key for `value`, for what it holds and for the pairs of a node's attributes.

    >>> exact(0.0) == exact(-0.0), exact(1) == exact(True), exact(float("nan")) == exact(float("nan"))
    (False, False, True)
    """
    kind = type(value)
    if kind is tuple:
        return tuple(map(exact, value))
    if kind is float:
        return float, struct.pack("d", value)
    if kind is int or kind is bool:
        return kind, value
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((name, exact(value[name])) for name in sorted(value))
    return value  # type: ignore[no-any-return]


def same(left: Any, right: Any) -> bool:
    """Whether two attributes, or all of two nodes, are the same by bits."""
    return left is right or exact(left) == exact(right)
