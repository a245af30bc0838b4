"""Forms of operators on scalars have the bits of NumPy's functions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import dtypes
from tempo.loop_ir.codegen.scalar_emitter import OPERATOR, TYPES, form_of
from tempo.loop_ir.ir import Compute
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS

ELEMENTWISE = [name for name, operator in OPERATORS.items() if operator.kind == "elementwise"]


def _special(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_float(dtype):
        least = float(np.finfo(dtype).smallest_subnormal)
        found = [0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 1e30, -1e30, least, -least, np.inf, -np.inf, np.nan]
        return np.array([*found, *np.random.default_rng(0).normal(0, 3, 20)]).astype(dtype)
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, limits.max - 1, 0, 1, 2, 7, 31, 63, *([-1, -7] * (limits.min < 0))], dtype)


def _applications() -> list[tuple[str, tuple[str, ...], str]]:
    """Operator, dtypes of the operands and of the result, of all that has a form."""
    found = []
    for op, dtype in itertools.product(ELEMENTWISE, TYPES):
        if op == "cast":
            found += [(op, (dtype,), target) for target in TYPES]
            continue
        count = {"where": 3}.get(op, 1 if op in ("neg", "abs", "isnan", "bitwise_not", "logical_not") else 2)
        operands = ("bool", dtype, dtype) if op == "where" else (dtype,) * count
        try:
            result = OPERATORS[op].infer({}, tuple(TensorType((), each) for each in operands))
        except tp.TempoError:
            continue
        found.append((op, operands, result.dtype))
    return [each for each in found if form_of(_compute(*each)) is not None]


def _compute(op: str, operands: tuple[str, ...], result: str) -> Compute:
    types = tuple(TensorType((), each) for each in operands)
    attrs = {"dtype": result} if op == "cast" else {}
    return Compute("v", op, attrs, ("x", "y", "z")[: len(operands)], types, TensorType((), result))


@pytest.mark.parametrize("op", list(dict.fromkeys(op for op, _, _ in _applications())))
def test_a_form_has_the_bits_of_the_operator(op: str) -> None:
    for name, operands, result in _applications():
        if name == op:
            _check_form(op, operands, result)


def _check_form(op: str, operands: tuple[str, ...], result: str) -> None:
    types, to = tuple(StaticType((), each) for each in operands), StaticType((), result)
    compute = _compute(op, operands, result)
    function = OPERATORS[op].numpy(Call(op, compute.attrs, types, to))
    form: Any = eval(f"lambda x, y=None, z=None: {form_of(compute)}", {**TYPES, OPERATOR: function})
    with np.errstate(all="ignore"):
        for values in itertools.product(*map(_special, operands)):
            found, wanted = form(*values), np.asarray(function(*values))[()]
            assert type(found) is type(wanted), (operands, values)
            same = found.tobytes() == wanted.tobytes()
            assert same or (found != found and wanted != wanted), (operands, values)


def test_what_has_a_form() -> None:
    """The lists above are not empty by mistake."""
    found = {(op, operands[0]) for op, operands, _ in _applications()}
    assert {("add", "float32"), ("minimum", "int32"), ("where", "bool"), ("logical_and", "bool")} <= found
    assert not any(op in ("sin", "pow") for op, _ in found)
    assert not any(op == "mod" and dtypes.is_float(dtype) for op, dtype in found)
