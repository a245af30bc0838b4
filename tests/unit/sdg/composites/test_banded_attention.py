"""Attention in blocks of points is what its decomposition says, whatever is infinite or NaN."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo import dtypes
from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.sdg.call import Call
from tempo.sdg.composites.attention import Band, band_of, points_at_once
from tempo.sdg.composites.normalization import stepwise, widened
from tempo.sdg.graph import Edge
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.making import Formula
from tempo.symbolic import Expr

OPERATOR = OPERATORS["banded_attention"]
OWN = [sample for sample in SAMPLES if sample.op == "banded_attention"]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-14}
numbers = st.integers(-9, 9)


@widened
def in_steps(f: Formula) -> Edge:
    """All pairs: values that a point does not see are masked for that point: a weight of 0 does not hide NaN."""
    queries, keys, values, *rest = f.operands
    keys, values = f.transpose(keys, f.attrs["key_axes"]), f.transpose(values, f.attrs["value_axes"])
    rank = f.rank(queries)
    batch, last = tuple(range(rank - 3)), rank - 1
    scores = f.mul(f.dot(queries, keys, ((last,), (last - 1,)), (batch, batch)), f.attrs["scale"])
    scores = f.add(scores, rest[0]) if f.attrs["biased"] else scores
    scores = f.where(rest[-1], scores, f.attrs["fill"]) if f.attrs["masked"] else scores
    seen = seen_by(f, f.shape(scores)[-3], f.shape(scores)[-1])
    points, count = f.shape(seen)
    scores = f.where(f.reshape(seen, (points, 1, count)), scores, -math.inf)
    weights = f.apply("softmax", scores, axes=(last,))
    shape = f.shape(values)
    values = f.reshape(values, (*shape[:-2], 1, *shape[-2:]))
    values = f.where(f.reshape(seen, (points, count, 1)), values, 0)
    return f.dot(weights, values, ((last,), (last - 1,)), ((*batch, last - 2), (*batch, last - 2)))


def seen_by(f: Formula, points: Expr, keys: Expr) -> Edge:
    """Which keys each point sees, (points, keys)."""
    at = [f.apply("iota", shape=(points, keys), axis=axis, dtype="int32") for axis in (0, 1)]
    low, high = (f.add(at[0], f.number(f.attrs[name], at[0])) for name in ("low", "high"))
    return f.apply("logical_and", f.compare("ge", at[1], low), f.compare("lt", at[1], high))


def check(call: Call, arrays: list[Any]) -> None:
    with np.errstate(all="ignore"):
        found, wanted = OPERATOR.numpy(call)(*arrays), stepwise(in_steps)(call)(*arrays)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE[call.result.dtype], atol=TOLERANCE[call.result.dtype])


@pytest.mark.parametrize("sample", OWN, ids=str)
def test_blocks_give_what_the_steps_do(sample: Sample) -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        call = sample.call(dtype)
        assert call is not None
        check(call, sample.arrays(call))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("sample", OWN, ids=str)
def test_what_is_not_finite_is_seen_where_it_is(sample: Sample, operand: int, value: float) -> None:
    """Among queries, keys and values: by the points that see it, and by no others."""
    call = sample.call("float32")
    assert call is not None
    arrays = sample.arrays(call)
    random = np.random.default_rng(1)
    arrays[operand][random.random(arrays[operand].shape) < 0.1] = value
    check(call, arrays)


@given(st.integers(0, 9), st.integers(0, 9), numbers, numbers, st.integers(1, 5))
def test_blocks_hold_what_their_points_see(points: int, keys: int, low: int, high: int, size: int) -> None:
    band = Band(points, keys, low, high)
    seen = {(i, p) for i in range(points) for p in range(keys) if i + low <= p < i + high}
    found: set[tuple[int, int]] = set()
    for block in band.blocks(size):
        mask = band.mask(block)
        assert (mask is None) == band.all_see_all(block)
        shape = block.last - block.first, block.stop - block.start
        mask = np.ones(shape, bool) if mask is None else mask
        assert mask.shape == shape
        found |= {(block.first + i, block.start + p) for i, p in np.argwhere(mask).tolist()}
    assert found == seen
    assert band.pairs == len(seen)
    assert all(len([p for at, p in seen if at == i]) <= band.widest for i in range(points))


def test_scores_of_a_block_are_few() -> None:
    """Of a long prompt a block holds a few MB, where all pairs would be 2 GB."""
    sample = next(sample for sample in OWN if sample.shapes[0] == (40, 2, 3))
    call = sample.call("float32")
    assert call is not None
    queries, keys, values = (replace(each, shape=(1 << 14, *each.shape[1:])) for each in call.operands)
    result = replace(call.result, shape=(1 << 14, *call.result.shape[1:]))
    long = replace(call, operands=(queries, keys, values), result=result, attrs={**call.attrs, "low": 1 - (1 << 14)})
    assert points_at_once(long) * 2 * (1 << 14) <= 1 << 20
    assert band_of(long).is_causal


def test_no_points_see_no_keys() -> None:
    call = OWN[0].call("float32")
    assert call is not None
    operands = tuple(replace(each, shape=(0, *each.shape[1:])) for each in call.operands)
    empty = replace(call, operands=operands, result=replace(call.result, shape=(0, *call.result.shape[1:])))
    arrays = [np.zeros(each.shape, np.float32) for each in operands]
    assert OPERATOR.numpy(empty)(*arrays).shape == empty.result.shape


def test_halves_are_rounded_once() -> None:
    sample = OWN[2]
    half, single = sample.call("bfloat16"), sample.call("float32")
    assert half is not None
    assert single is not None
    arrays = sample.arrays(half)
    wide = OPERATOR.numpy(single)(*(array.astype(np.float32) for array in arrays))
    np.testing.assert_array_equal(OPERATOR.numpy(half)(*arrays), wide.astype(dtypes.to_numpy("bfloat16")))
