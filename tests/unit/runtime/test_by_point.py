"""Inputs given by point stay where they are, as far as the backend reads them at points."""

import numpy as np
import pytest

import tempo as tp
from tempo.backends import ByPoint


def program() -> tp.Program:
    with tp.Program() as program:
        n, e = tp.dim("n", 3), tp.dim("e", 2)
        w, v = tp.input("w", (2, 2), (n,)), tp.input("v", (2, 2), (n, e))
        x = tp.recurrent("x", (2,), (n,))
        x[0] = tp.ones(2)
        x[n + 1] = w @ (v[n, 0 : e.size] @ x).sum(axis=0)
        tp.output("x", x)
    return program


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_nothing_is_copied_that_is_read_at_points(backend: str) -> None:
    pytest.importorskip("tempo_torch") if backend == "torch" else None
    w = [np.full((2, 2), at, np.float32) for at in range(3)]
    w[1].setflags(write=False)
    v = [[np.ones((2, 2), np.float32) for _ in range(2)] for _ in range(3)]
    run = tp.compile(program(), backend=backend)
    held = run.device_put(w=w, v=v)
    assert isinstance(held["w"], ByPoint) and isinstance(held["v"], ByPoint)
    assert all(np.shares_memory(np.asarray(mine), given) for mine, given in zip(held["w"], w, strict=True))
    assert [np.asarray(each).shape for each in held["v"]] == [(2, 2, 2)] * 3  # all of a layer's are read at once
    assert np.asarray(run(**held)["x"])[1].tolist() == [0, 0]
    w[0][:] = 1
    assert np.asarray(run(**held)["x"])[1].tolist() == [8, 8]


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_weights_are_put_in_place_before_any_size_is_known(backend: str) -> None:
    pytest.importorskip(f"tempo_{backend}") if backend != "numpy" else None
    with tp.Program() as unsized:
        n = tp.dim("n")
        w = tp.input("w", (2, 2), (n,))
        x = tp.recurrent("x", (2,), (n,))
        x[0] = tp.ones(2)
        x[n + 1] = w @ x
        tp.output("x", x)
    run = tp.compile(unsized, backend=backend)
    held = run.device_put(w=[np.full((2, 2), at, np.float32) for at in range(3)])
    assert np.asarray(run(**held)["x"]).tolist() == [[1, 1], [0, 0], [0, 0]]
