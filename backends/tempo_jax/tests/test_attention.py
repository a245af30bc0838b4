"""Attention of many points at once is its NumPy meaning, in one block, in pieces and in loops of blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from tempo_jax.operators import OPERATORS
from tempo_jax.operators import attention as own
from tempo_jax.precision import x64

from tempo import dtypes
from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.sdg.call import Call
from tempo.sdg.operators import OPERATORS as MEANING

SAMPLES_HERE = [sample for sample in SAMPLES if sample.op == "banded_attention"]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 1e-14}


def check(calls: list[Call], *data: list[list[Any]]) -> None:
    """All are compiled together, once for all that they are given."""
    functions = [OPERATORS[call.op](call) for call in calls]
    together = jax.jit(lambda given: [f(*arrays) for f, arrays in zip(functions, given, strict=True)])
    with x64(), np.errstate(all="ignore"):
        for given in data:
            _hold(calls, given, together(given))


def _hold(calls: list[Call], given: list[list[Any]], results: list[Any]) -> None:
    for call, arrays, result in zip(calls, given, results, strict=True):
        found, wanted = np.asarray(result), MEANING[call.op].numpy(call)(*arrays)
        assert (found.dtype, found.shape) == (call.result.numpy_dtype, call.result.shape)
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        tolerance = TOLERANCE[call.result.dtype]
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=str(call))


def called(sample: Sample, dtype: str = "float32") -> Call:
    call = sample.call(dtype)
    assert call is not None
    return call


@pytest.fixture(params=[None, 64, 3, 1], ids=["few", "one block", "blocks of 3", "blocks of 1"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of fewer points, so that few points are pieces of several blocks."""
    if request.param is not None:
        monkeypatch.setattr(own, "points_at_once", lambda call, **given: request.param)
        monkeypatch.setattr(own, "_FEW", 0)


@pytest.mark.usefixtures("blocks")
def test_jitted_gives_the_numpy_meaning() -> None:
    """Also where a query, a key or a value is not finite: that is seen where it is."""
    calls = [called(sample) for sample in SAMPLES_HERE]
    check(calls, drawn(calls), *(not_finite(calls, operand) for operand in range(3)))


def drawn(calls: list[Call]) -> list[list[Any]]:
    return [sample.arrays(call) for sample, call in zip(SAMPLES_HERE, calls, strict=True)]


def not_finite(calls: list[Call], operand: int) -> list[list[Any]]:
    given = drawn(calls)
    for arrays in given:
        random = np.random.default_rng(1)
        for value in (np.nan, np.inf):
            arrays[operand][random.random(arrays[operand].shape) < 0.05] = value
    return given


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_every_dtype(dtype: str) -> None:
    assert dtype in dtypes.DTYPES
    calls = [called(sample, dtype) for sample in SAMPLES_HERE]
    check(calls, drawn(calls))


def test_no_points_see_no_keys() -> None:
    call = called(SAMPLES_HERE[0])
    operands = tuple(replace(each, shape=(0, *each.shape[1:])) for each in call.operands)
    empty = replace(call, operands=operands, result=replace(call.result, shape=(0, *call.result.shape[1:])))
    check([empty], [[np.zeros(each.shape, np.float32) for each in operands]])
