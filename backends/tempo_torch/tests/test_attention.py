"""Attention of one point: the kernel where it gives what the steps do, else these."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.arrays import TORCH_DTYPES, from_host, to_host
from tempo_torch.operators import TABLE, attention, builder

from tempo.sdg.call import Call, StaticType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Symbol, var

CPU = torch.device("cpu")


def called(keys: int, biased: bool, rows: int = 5, width: int = 4, dtype: str = "float32") -> Call:
    attrs = {"key_axes": (0, 1), "value_axes": (0, 1), "scale": 0.5, "masked": False, "fill": 0.0}
    shapes = [(rows, width), (keys, width), (keys, width), *[(rows, keys)] * biased]
    operands = tuple(StaticType(shape, dtype) for shape in shapes)
    return Call("attention", {**attrs, "biased": biased, "length": var(Symbol("t", "dim"))}, operands, operands[0])


def drawn(call: Call) -> list[Any]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=each.shape).astype(each.dtype) for each in call.operands]


@contextmanager
def in_parts_of(elements: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.Tensor]]:
    """Gives what is made wider, part by part, in memory of its own."""
    found, memory = [], builder._memory

    def noted(like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        found.append(like)
        return memory(like, dtype)

    with monkeypatch.context() as patch:
        for name, value in {"_LARGE": elements, "_SMALL": 0, "_kept": threading.local(), "_memory": noted}.items():
            patch.setattr(builder, name, value)
        yield found


def by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_MANY_SCORES", 0)


@pytest.fixture(params=[True, False], ids=["by torch's kernel", "in steps"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        by_kernel(monkeypatch)


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


def test_many_scores_go_through_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    call = called(7, biased=True)
    by_kernel(monkeypatch)
    monkeypatch.setattr(attention, "in_steps", lambda *given: pytest.fail("it went in steps"))
    check(call, drawn(call), 7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("at_once", [1, 3, 4, 7, 8])
def test_halves_are_made_float32_in_parts(dtype: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    call = called(7, biased=True, rows=2, dtype=dtype)
    arrays = [from_host(each.astype(np.float32), CPU).to(TORCH_DTYPES[dtype]) for each in drawn(call)]
    whole = TABLE["attention"](call, CPU)(*arrays, 7)
    with in_parts_of(4 * at_once, monkeypatch) as made:
        parts = TABLE["attention"](call, CPU)(*arrays, 7)
    assert len(made) == 2 * -(-7 // at_once)
    assert parts.dtype == whole.dtype
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_int8_is_made_wider_in_parts(dtype: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are not of the memory that the parts are in, whatever the default device is when that is made."""
    axes = {"lhs_contract": (1,), "rhs_contract": (1,), "lhs_batch": (), "rhs_batch": ()}
    call = Call("dot", axes, (StaticType((2, 4), dtype), StaticType((7, 4), "int8")), StaticType((2, 7), dtype))
    multiply, draw = TABLE["dot"](call, CPU), np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(size=(2, 4))).to(TORCH_DTYPES[dtype])
    matrices = [torch.from_numpy(draw.integers(-127, 128, (7, 4), np.int8)) for _ in range(2)]
    with in_parts_of(4 * at_once, monkeypatch) as made, torch.device("meta"):
        found = [multiply(x, matrix) for matrix in matrices]
    assert len(made) == 2 * -(-7 // at_once)
    for each, matrix in zip(found, matrices):
        torch.testing.assert_close(each, x @ matrix.to(x.dtype).T)
