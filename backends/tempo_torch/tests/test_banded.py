"""Attention of many points at once: the kernel where it gives what the steps do, else these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.arrays import from_host, to_host
from tempo_torch.operators import TABLE, banded

from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.sdg.call import Call
from tempo.sdg.composites.attention import band_of
from tempo.sdg.operators import OPERATORS

CPU = torch.device("cpu")
SHARED = [sample for sample in SAMPLES if sample.op == "banded_attention"]
OWN = [*SHARED, replace(SHARED[-1], attrs={**SHARED[-1].attrs, "low": -149})]  # of which points see all before


def called(sample: Sample) -> Call:
    call = sample.call("float32")
    assert call is not None
    return call


def tensors(arrays: list[Any]) -> list[torch.Tensor]:
    return [from_host(np.array(array), CPU) for array in arrays]


def meaning(call: Call, arrays: list[Any]) -> Any:
    with np.errstate(all="ignore"):
        return OPERATORS[call.op].numpy(call)(*arrays)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("sample", OWN, ids=str)
def test_what_is_not_finite_is_seen_where_it_is(sample: Sample, operand: int, value: float) -> None:
    call = called(sample)
    arrays = sample.arrays(call)
    arrays[operand][np.random.default_rng(1).random(arrays[operand].shape) < 0.1] = value
    found = to_host(TABLE[call.op](call, CPU)(*tensors(arrays)))
    np.testing.assert_allclose(found, meaning(call, arrays), rtol=2e-6, atol=2e-6)


def test_an_accelerator_rounds_steps_once() -> None:
    sample = next(sample for sample in OWN if sample.attrs["masked"] and not sample.attrs["biased"])
    call = replace(sample, attrs={**sample.attrs, "fill": -2.0}).call("bfloat16")
    assert call is not None
    arrays = sample.arrays(call)
    attention = banded._BandedKernel(call, band_of(call), on_cpu=False)
    found, wanted = to_host(attention(*tensors(arrays))), meaning(call, arrays)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=2**-8)


@pytest.mark.parametrize(("fill", "kernel"), [(-1e9, True), (-np.inf, True), (-2.0, False), (1e9, False)])
def test_a_mask_is_the_kernel_s_where_what_it_hides_has_no_weight(
    fill: float, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = next(sample for sample in OWN if sample.attrs["masked"] and not sample.attrs["biased"])
    call = called(replace(sample, attrs={**sample.attrs, "fill": fill}))
    arrays, taken = sample.arrays(call), list[torch.Tensor]()
    plain = banded.by_kernel
    monkeypatch.setattr(banded, "by_kernel", lambda *given, **more: taken.append(plain(*given, **more)) or taken[-1])
    found = to_host(TABLE[call.op](call, CPU)(*tensors(arrays)))
    np.testing.assert_allclose(found, meaning(call, arrays), rtol=2e-6, atol=2e-6)
    assert bool(taken) == kernel


def test_a_bias_may_hide_all_that_a_point_sees() -> None:
    sample = next(sample for sample in OWN if sample.attrs["biased"] and not sample.attrs["masked"])
    call = called(sample)
    arrays = sample.arrays(call)
    arrays[3][0, 0, :, :2] = -np.inf
    found = to_host(TABLE[call.op](call, CPU)(*tensors(arrays)))
    assert np.isnan(found[0, :2]).all()
    np.testing.assert_allclose(found, meaning(call, arrays), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("size", [4, 1024])
@pytest.mark.parametrize("sample", OWN, ids=str)
def test_what_an_accelerator_is_asked_for(sample: Sample, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at the values; causal attention is one call."""
    monkeypatch.setattr(banded, "_MANY", size)
    call = called(sample)
    arrays = sample.arrays(call)
    attention = banded._BandedKernel(call, band_of(call), on_cpu=False)
    found = to_host(attention(*tensors(arrays)))
    np.testing.assert_allclose(found, meaning(call, arrays), rtol=2e-6, atol=2e-6)
