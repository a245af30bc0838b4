"""One place of an axis is one view, wherever the tensor comes from and whatever its length."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.picks import picked, picker

import tempo as tp

DRAW = np.random.default_rng(0)


def recurrence(reads: Any) -> tp.Program:
    """A state that adds up what `reads` makes of `x @ w`, which is computed before the loop."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(3,), dims=(b, t))
        w = tp.input("w", shape=(3, 3), dims=())
        h = tp.recurrent("h", shape=(3,), dims=(b, t))
        h[b, 0] = tp.zeros((3,))
        h[b, t + 1] = tp.tanh(h @ w + reads(x @ w, b, t))
        tp.output("h", h)
    return program


@pytest.mark.parametrize("steps", [1, 5, 1500])
def test_a_lifted_tensor_is_read_by_its_places(steps: int):
    program = recurrence(lambda y, b, t: y)
    given = {"x": DRAW.normal(size=(2, steps, 3)), "w": DRAW.normal(size=(3, 3))}
    run = tp.compile(program, backend="torch", sizes={"b": 2, "t": steps})
    code = run.explain("all").split("# code")[1]
    assert len(re.findall(r"b\d+_places_of_axis_1\(t\)", code)) == 1
    assert "reshape" not in code
    expected = tp.compile(program, backend="numpy")(**given)["h"]
    np.testing.assert_allclose(run(**given)["h"], expected, rtol=1e-5, atol=1e-5)


def test_places_of_two_axes_of_one_tensor():
    with tp.Program() as program:
        t = tp.dim("t", 4)
        x = tp.input("x", shape=(5, 5), dims=())
        h = tp.recurrent("h", shape=(5,), dims=(t,))
        h[0] = tp.zeros((5,))
        y = tp.sin(x)
        h[t + 1] = tp.tanh(h @ x) + y.spatial[t] * y.spatial[:, t + 1]
        tp.output("h", h)
    given = {"x": DRAW.normal(size=(5, 5))}
    run = tp.compile(program, backend="torch")
    assert all(f"places_of_axis_{axis}" in run.explain("all") for axis in (0, 1))
    expected = tp.compile(program, backend="reference")(**given)["h"]
    np.testing.assert_allclose(run(**given)["h"], expected, rtol=1e-5, atol=1e-6)


def test_what_is_used_twice_stays_a_slice():
    with tp.Program() as program:
        t = tp.dim("t", 4)
        x = tp.input("x", shape=(5, 2), dims=())
        h = tp.recurrent("h", shape=(2,), dims=(t,))
        h[0] = tp.zeros((2,))
        row = x.spatial[t + 1 : t + 2]
        h[t + 1] = tp.sin(h) + row.spatial[0] * tp.sum(row)
        tp.output("h", h)
    given = {"x": DRAW.normal(size=(5, 2))}
    run = tp.compile(program, backend="torch")
    np.testing.assert_allclose(
        run(**given)["h"], tp.compile(program, backend="reference")(**given)["h"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("size", [3, 1200])
def test_places_outside_are_clamped(size: int):
    tensor = torch.arange(2 * size).reshape(2, size)
    for place, expected in ((-2, 0), (0, 0), (2, 2), (size, size - 1)):
        assert torch.equal(picked(tensor, 1, place), tensor[:, expected])
        assert torch.equal(picker(1)(tensor)(place), tensor[:, expected])
        assert picked(tensor, 1, place).untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_an_axis_without_places():
    tensor = torch.zeros(2, 0, 3)
    assert picked(tensor, 1, 0).shape == picker(1)(tensor)(0).shape == (2, 3)


def test_what_is_let_go_after_its_place_was_taken():
    with tp.Program() as program:
        b, t = tp.dim("b", 2), tp.dim("t", 20_000)
        x = tp.input("x", (), (b, t))
        h = tp.recurrent("h", (), (b, t))
        h[b, t.size - 1] = tp.sin(x)
        h[b, t] = 0.5 * h[b, t + 1] + tp.sin(x)
        tp.output("h", h[b, 0])
    x = DRAW.normal(size=(2, 20_000))
    expected = (np.sin(x[:, :60]) * 0.5 ** np.arange(60)).sum(axis=1)
    np.testing.assert_allclose(tp.compile(program, backend="torch")(x=x)["h"], expected, rtol=1e-5)
