"""How the NumPy backend reads windows of buffers and stores what host calls return."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend, clamped, host_write, wrapped
from tempo.sdg.cache_blocks import BLOCK_BYTES

ROWS = np.arange(12).reshape(3, 4)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("start", [-3, -1, 0, 1, 3, 6])
def test_windows(axis: int, extent: int, start: int) -> None:
    positions = np.arange(start, start + extent)
    size = ROWS.shape[axis]
    np.testing.assert_array_equal(wrapped(ROWS, axis, start, extent), ROWS.take(positions % size, axis))
    np.testing.assert_array_equal(clamped(ROWS, axis, start, extent), ROWS.take(positions.clip(0, size - 1), axis))


def test_a_window_inside_is_a_view() -> None:
    assert np.shares_memory(clamped(ROWS, 1, 1, 2), ROWS)
    assert np.shares_memory(wrapped(ROWS, 1, 5, 2), ROWS)


def test_a_slot_is_replaced_and_an_array_written_in_place() -> None:
    slot, value = np.zeros(2), np.ones(2)
    assert host_write(slot, (), value) is value
    rows = np.zeros((2, 2))
    assert host_write(rows, (1,), value) is rows
    assert rows.tolist() == [[0, 0], [1, 1]]


MANY = BLOCK_BYTES  # elements; of several blocks in each dtype


def _mixed(given: np.ndarray, scale: np.ndarray) -> tp.Program:
    """Two shapes, operands that repeat, a value used inside and outside of what runs in blocks, and a reduction."""
    with tp.Program() as program:
        x, y = tp.constant(given), tp.constant(scale)
        wide = tp.exp(x * y) + 1.0
        row = tp.tanh(y) * 2.0
        column = x[()].sum(axis=1, keepdims=True) if x.ndim > 1 else x
        tp.output("wide", wide)
        tp.output("both", tp.where(wide > 1.5, wide * row, column - tp.log(wide)))
        tp.output("sum", (wide * row).sum())
    return program


@pytest.mark.parametrize("shape", [(MANY,), (3, MANY), (MANY, 3), (5, 1, MANY // 3), (MANY // 64, 70)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_of_large_arrays_are_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch, shape, dtype) -> None:
    """As if each operator went over all of its arrays."""
    generator = np.random.default_rng(0)
    program = _mixed(generator.normal(size=shape).astype(dtype), generator.normal(size=shape[-1:]).astype(dtype))
    run = tp.compile(program, "numpy")
    assert "for k_0" in run.explain("all")
    monkeypatch.setattr("tempo.backends.numpy.emitter._LARGE", float("inf"))
    whole = tp.compile(program, "numpy")
    assert "for k_0" not in whole.explain("all")
    found, wanted = run(), whole()
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_draw_of_normals_needs_at_once(dtype: str) -> None:
    """It was 53 times the draw, and 135 times in float64."""
    with tp.Program() as program:
        tp.output("x", tp.random.normal((300_000,), dtype=dtype))
    backend = NumpyBackend()
    run = tp.compile(program, backend)
    size = run()["x"].nbytes
    assert backend.measured_peak(run) < 5 * size


def test_large_values_are_let_go_of() -> None:
    """Each sort is of all elements, so nothing runs in blocks."""
    with tp.Program() as program:
        x = tp.constant(np.arange(100_000.0, dtype=np.float32))
        for _ in range(20):
            x = tp.cumsum(x, axis=0)
        tp.output("x", x)
    backend = NumpyBackend()
    run = tp.compile(program, backend)
    assert backend.measured_peak(run) < 5 * 400_000


def test_dims_may_be_called_as_chains_of_operators_call_theirs() -> None:
    def program(first: str, second: str) -> tp.Program:
        with tp.Program() as made:
            i, j = tp.dim(first, 2), tp.dim(second, 2)
            x = tp.input("x", shape=(256, 256), dims=(i, j))
            h = tp.recurrent("h", shape=(256, 256), dims=(i, j))
            h[0, j] = x
            h[i, j] = tp.tanh(h[i - 1, j] * 0.5 + x) * (i + 3 * j) + 1.0
            tp.output("h", h)
        return made

    x = np.random.default_rng(0).normal(size=(2, 2, 256, 256)).astype(np.float32)
    options = tp.Options(mapping="sequential")
    want = tp.compile(program("i", "j"), options=options)
    assert "blocks_0" in want.explain("all")
    for names in (("k_0", "blocks_0"), ("empty_0", "k_0"), ("k", "blocks"), ("h_5_0", "h_4_0")):
        np.testing.assert_array_equal(tp.compile(program(*names), options=options)(x=x)["h"], want(x=x)["h"])
