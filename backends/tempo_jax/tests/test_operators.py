"""Every primitive, every dtype, jitted: the same as its NumPy meaning."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from tempo_jax.operators import OPERATORS
from tempo_jax.precision import x64

from tempo import dtypes
from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.sdg.call import Call
from tempo.sdg.operators import OPERATORS as MEANING

NOMINAL = {"input", "merge", "host_call", "sink"}
ULPS = {"float16": 1, "bfloat16": 1, "float32": 8, "float64": 8}  # halves are computed in float32, rounded once


@pytest.fixture(autouse=True)
def _silent():
    with np.errstate(all="ignore"):
        yield


def run(call: Call, *arguments: Any, static_scalars: bool = False) -> np.ndarray:
    """The operator, jitted; its run-time scalars traced unless `static_scalars`."""
    arrays, scalars = arguments[: len(call.operands)], arguments[len(call.operands) :]
    function = OPERATORS[call.op](call)
    with x64():
        if static_scalars:
            found = jax.jit(lambda *arrays: function(*arrays, *scalars))(*arrays)
        else:
            traced = [np.asarray(scalar, np.bool_ if isinstance(scalar, bool) else np.int32) for scalar in scalars]
            found = jax.jit(function)(*arrays, *traced)
        assert (found.shape, str(found.dtype)) == (call.result.shape, call.result.dtype)
        assert not found.weak_type
        return np.asarray(found)


def check_equal(found: np.ndarray, expected: np.ndarray, dtype: str, ulps: int | None = None) -> None:
    """Equal bits; for floats, up to a few units in the last place of the greatest element, the NaN in one place."""
    if not dtypes.is_float(dtype):
        np.testing.assert_array_equal(found, expected)
        return
    wide, wanted = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(wide), np.isfinite(wanted))
    np.testing.assert_array_equal(wide[~np.isfinite(wide)], wanted[~np.isfinite(wanted)])
    inside = np.isfinite(wide)
    limits = dtypes_finfo(dtype)
    allowed = (ULPS[dtype] if ulps is None else ulps) * limits.eps * np.abs(wanted[inside]) + limits.tiny
    assert (np.abs(wide[inside] - wanted[inside]) <= allowed).all(), (wide, wanted)


def dtypes_finfo(dtype: str) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtypes.to_numpy(dtype))


def test_the_table_has_every_primitive():
    assert set(OPERATORS) == set(MEANING) - NOMINAL


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_jitted_gives_the_numpy_meaning_for_every_dtype(sample: Sample):
    for dtype in dtypes.DTYPES:
        call = sample.call(dtype)
        if call is None:
            continue
        arguments = (*sample.arrays(call), *sample.scalars)
        expected = MEANING[sample.op].numpy(call)(*arguments)
        check_equal(run(call, *arguments), expected, call.result.dtype)
