"""Matrices that a loop multiplies by are laid out for oneDNN once, where that pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.operators import packing

import tempo as tp

pytestmark = pytest.mark.skipif(not packing._HAS_ONEDNN, reason="this PyTorch has no oneDNN")
WIDTH, ROWS = 512, 3
DRAW = np.random.default_rng(0)


def recurrence(turned: bool, dims: int) -> tp.Program:
    """Rows by a matrix, or each layer's own, as it is or transposed."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (ROWS, WIDTH), (t,))
        if dims == 1:
            w = tp.input("w", (WIDTH, WIDTH))
            h = tp.recurrent("h", (ROWS, WIDTH), (t,))
            h[0] = x
            h[t + 1] = tp.tanh(h @ (w.T if turned else w)) + x[t + 1]
            tp.output("last", h[t.size - 1])
            return program
        layer = tp.dim("l")
        w = tp.input("w", (WIDTH, WIDTH), (layer,))
        h = tp.recurrent("h", (ROWS, WIDTH), (t, layer))
        h[t, 0] = x + tp.cases((t > 0, h[t - 1, layer.size - 1]), 0.0)
        h[t, layer + 1] = tp.tanh(h @ (w.T if turned else w)) + h
        tp.output("last", h[t.size - 1, layer.size - 1])
    return program


def given(steps: int, dims: int) -> dict[str, Any]:
    shape = (2, WIDTH, WIDTH) if dims == 2 else (WIDTH, WIDTH)
    w = DRAW.normal(0, WIDTH**-0.5, shape).astype(np.float32)
    return {"w": w, "x": DRAW.normal(size=(steps, ROWS, WIDTH)).astype(np.float32)}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    pack = packing.packed

    def counting(matrix: torch.Tensor) -> torch.Tensor:
        found.append(matrix)
        return pack(matrix)

    monkeypatch.setattr(packing, "packed", counting)
    return found


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_a_long_loop_packs_each_matrix_once(turned: bool, dims: int, counted: list[torch.Tensor]) -> None:
    program, arrays = recurrence(turned, dims), given(40, dims)
    found = tp.compile(program, backend="torch")(**arrays)["last"]
    assert len(counted) == dims
    np.testing.assert_allclose(np.asarray(found), tp.compile(program, backend="numpy")(**arrays)["last"], atol=1e-3)


@pytest.mark.parametrize("turned", [False, True])
def test_a_short_loop_packs_nothing(turned: bool, counted: list[torch.Tensor]) -> None:
    program, arrays = recurrence(turned, 1), given(4, 1)
    found = tp.compile(program, backend="torch")(**arrays)["last"]
    assert not counted
    np.testing.assert_allclose(np.asarray(found), tp.compile(program, backend="numpy")(**arrays)["last"], atol=1e-4)


def test_a_stream_packs_nothing_at_each_step(counted: list[torch.Tensor]) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        w, x = tp.input("w", (WIDTH, WIDTH)), tp.input("x", (ROWS, WIDTH), (t,))
        h = tp.recurrent("h", (ROWS, WIDTH), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(h @ w) + x[t + 1]
        tp.output("h", h)
    for _ in tp.compile(program, backend="torch").stream("t", **given(40, 1)):
        pass
    assert not counted
