"""Every primitive against the core's NumPy meaning, for every dtype that it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tempo_torch.arrays import from_host, to_host
from tempo_torch.operators import TABLE

from tempo import dtypes
from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.sdg.operators import OPERATORS

CPU = torch.device("cpu")
NOMINAL = {"input", "merge", "host_call", "sink"}
# Units in the last place of a result's dtype by which libraries may differ, relative to its magnitude.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-14}


def assert_same(found: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    if dtypes.is_float(dtype):
        tolerance = TOLERANCE[dtype]
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


def test_the_table_has_every_operator_that_a_backend_runs():
    assert set(TABLE) == set(OPERATORS) - NOMINAL


@pytest.mark.parametrize("dtype", dtypes.DTYPES)
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_an_operator_is_the_numpy_meaning(sample: Sample, dtype: str):
    call = sample.call(dtype)
    if call is None:
        pytest.skip(f"{sample.op} takes no {dtype}")
    arrays = sample.arrays(call)
    with np.errstate(all="ignore"):
        expected = np.asarray(OPERATORS[sample.op].numpy(call)(*arrays, *sample.scalars))
    tensors = [from_host(np.array(array), CPU) for array in arrays]
    result = TABLE[sample.op](call, CPU)(*tensors, *sample.scalars)
    found = to_host(result)
    assert (found.shape, found.dtype) == (call.result.shape, call.result.numpy_dtype)
    assert_same(found, expected, call.result.dtype)
    for tensor, array in zip(tensors, arrays):
        np.testing.assert_array_equal(to_host(tensor), array)  # operands are as they were
