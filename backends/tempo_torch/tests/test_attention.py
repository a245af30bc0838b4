"""Attention of one point: the kernel where it gives what the steps do, else these."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.arrays import TORCH_DTYPES, from_host, to_host
from tempo_torch.operators import TABLE, attention

from tempo.sdg.call import Call, StaticType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Symbol, var

CPU = torch.device("cpu")
InParts = Callable[[int], AbstractContextManager[list[torch.Tensor]]]


def called(
    keys: int, biased: bool, rows: int = 5, width: int = 4, dtype: str = "float32", fill: float | None = None
) -> Call:
    attrs = {"key_axes": (0, 1), "value_axes": (0, 1), "scale": 0.5, "masked": fill is not None, "fill": fill or 0.0}
    shapes = [(rows, width), (keys, width), (keys, width), *[(rows, keys)] * biased]
    operands = tuple(StaticType(shape, dtype) for shape in shapes)
    mask = () if fill is None else (StaticType((rows, keys), "bool"),)
    attrs |= {"biased": biased, "length": var(Symbol("t", "dim"))}
    return Call("attention", attrs, (*operands, *mask), operands[0])


def drawn(call: Call) -> list[Any]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=each.shape).astype(each.dtype) for each in call.operands]


def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_FEW_KEYS", 0)


@pytest.fixture(params=[True, False], ids=["by torch's kernel", "in steps"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        in_steps(monkeypatch)


def check(call: Call, arrays: list[Any], length: int) -> None:
    with np.errstate(all="ignore"):
        wanted = OPERATORS["attention"].numpy(call)(*arrays, length)
    found = TABLE["attention"](call, CPU)(*(from_host(each.copy(), CPU) for each in arrays), length)
    np.testing.assert_allclose(to_host(found), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("keys", [1, 3, 7, 8, 40])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2, 3])
@pytest.mark.usefixtures("either_way")
def test_what_is_not_finite_is_seen_where_it_is(keys: int, value: float, operand: int) -> None:
    """Torch's kernel makes 0 of a row whose scores are all NaN, where it has few keys, or all -inf."""
    call = called(keys, biased=operand == 3)
    arrays = drawn(call)
    arrays[0], arrays[operand] = np.abs(arrays[0]), arrays[operand].copy()
    arrays[operand][-1] = value
    check(call, arrays, keys)
    arrays[operand][:] = value
    check(call, arrays, keys)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("length", [1, 5])
def test_zeros_and_lengths(length: int) -> None:
    call = called(5, biased=False)
    arrays = drawn(call)
    check(call, arrays, length)
    arrays[2][:] = 0
    check(call, arrays, length)


@pytest.mark.parametrize("fill", [-np.inf, -1e30, -1e4, -1.0])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("hidden", ["few", "rows", "the last", "all"])
@pytest.mark.parametrize("scores", [1.0, 1e17, -1e17, 0.0])
@pytest.mark.usefixtures("either_way")
def test_what_a_mask_hides(fill: float, biased: bool, hidden: str, scores: float) -> None:
    """Where all is hidden, or what is seen is as low as the fill, this counts."""
    call = called(7, biased, fill=fill)
    *arrays, _ = drawn(call)
    arrays[0], arrays[1] = np.abs(arrays[0]) * abs(scores), np.abs(arrays[1]) * scores
    seen = np.arange(7) != 6 if hidden == "the last" else np.random.default_rng(1).random((5, 7)) > 0.3
    if hidden in ("rows", "all"):
        seen = np.arange(5)[:, None] > (1 if hidden == "rows" else 5)
    arrays = [*arrays, np.broadcast_to(seen, (5, 7)).copy()]
    check(call, arrays, 7)
    check(call, arrays, 5)
    for operand, value in [(1, np.nan), (1, np.inf), (1, -np.inf), (2, np.nan), (2, np.inf)]:
        given = [each.copy() for each in arrays]
        given[operand][-1] = value
        check(call, given, 7)


@pytest.mark.parametrize("value", [1e38, np.inf])
@pytest.mark.usefixtures("either_way")
def test_the_greatest_values(value: float) -> None:
    """Of equal weights, and of a weight that is denormal."""
    call = called(8, biased=False)
    arrays = [np.zeros(each.shape, each.dtype) for each in call.operands]
    arrays[2][:] = value
    check(call, arrays, 8)
    if np.isinf(value):
        arrays[0][:], arrays[1][0], arrays[2][1:] = 1, -46, 0
        check(call, arrays, 8)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("fill", [None, -1e30, -np.inf])
def test_few_keys_and_many_scores_go_through_the_kernel(
    many: bool, fill: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = called(7, biased=True, rows=60, fill=fill)
    *arrays, last = drawn(call)
    if many:
        monkeypatch.setattr(attention, "_FEW_KEYS", 0)
        monkeypatch.setattr(attention, "_MANY_SCORES", 0)
    if fill is not None:
        last[:, 0] = True
    monkeypatch.setattr(attention, "in_steps", lambda *given: pytest.fail("it went in steps"))
    check(call, [*arrays, last], 7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("at_once", [1, 3, 4, 7, 8])
def test_halves_are_made_float32_in_parts(
    dtype: str, at_once: int, in_parts_of: InParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = called(7, biased=True, rows=2, dtype=dtype)
    arrays = [from_host(each.astype(np.float32), CPU).to(TORCH_DTYPES[dtype]) for each in drawn(call)]
    in_steps(monkeypatch)
    whole = TABLE["attention"](call, CPU)(*arrays, 7)
    with in_parts_of(4 * at_once) as made:
        parts = TABLE["attention"](call, CPU)(*arrays, 7)
    assert len(made) == 2 * -(-7 // at_once)
    assert parts.dtype == whole.dtype
    torch.testing.assert_close(parts, whole)
