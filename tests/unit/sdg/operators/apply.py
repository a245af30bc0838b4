"""Apply one operator to NumPy arrays: infer, build, run."""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo import dtypes
from tempo.sdg.call import StaticType, static_type
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS, call_for
from tempo.symbolic import Expr, as_expr


def as_int(expr: Expr | int) -> int:
    return as_expr(expr).as_int()


def apply(op: str, *arrays: Any, scalars: tuple[Any, ...] = (), **attrs: Any) -> np.ndarray:
    operands = [np.asarray(array) for array in arrays]
    types = [StaticType(array.shape, dtypes.from_numpy(array.dtype)) for array in operands]
    result = infer(op, *((type.shape, type.dtype) for type in types), **attrs)
    call = call_for(op, attrs, types, static_type(result, as_int), as_int)
    return OPERATORS[op].numpy(call)(*operands, *scalars)


def infer(op: str, *types: tuple[tuple[Any, ...], str], **attrs: Any) -> TensorType:
    operands = tuple(TensorType(tuple(as_expr(size) for size in shape), dtype) for shape, dtype in types)
    return OPERATORS[op].infer(attrs, operands)
