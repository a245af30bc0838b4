"""Arrays go in and out without copies where the memory is the CPU's; what a run returns is its own; x64 is scoped."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from tempo_jax.backend import JaxBackend

import tempo as tp

ALIGNMENT = 64  # bytes; XLA takes nothing less aligned as it is


def aligned(*shape: int) -> np.ndarray:
    raw = np.zeros(4 * int(np.prod(shape)) + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)


def address(array: jax.Array) -> int:
    return int(array.unsafe_buffer_pointer())


@pytest.fixture
def backend() -> JaxBackend:
    return JaxBackend().with_device("cpu")


def test_arrays_go_in_without_copies(backend: JaxBackend):
    array = aligned(100, 8)
    given = backend.from_host(array)
    assert address(given) == array.ctypes.data
    assert backend.from_host(given) is given


def test_arrays_come_out_without_copies(backend: JaxBackend):
    made = backend.allocate((100, 8), "float32", 1.0)
    assert backend.to_host(made).ctypes.data == address(made)
    assert np.from_dlpack(made).ctypes.data == address(made)


def test_what_a_run_returns_is_no_view_of_what_it_was_given():
    with tp.Program("same") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(8,), dims=(t,))
        y = tp.input("y", shape=(64,), dims=())
        tp.output("x", x)
        tp.output("y", y)
    given, slot = aligned(16, 8), aligned(64)
    out = tp.compile(program, backend="jax")(x=given, y=slot)
    given[:], slot[:] = 7.0, 7.0
    assert not np.asarray(out["x"]).any()
    assert not np.asarray(out["y"]).any()


def test_a_program_of_64_bits_leaves_the_switch_alone():
    with tp.Program("wide") as program:
        t = tp.dim("t")
        x = tp.recurrent("x", shape=(3,), dims=(t,), dtype=tp.float64)
        x[0] = tp.constant(np.full(3, 1 / 3), dtype=tp.float64)
        x[t + 1] = x * 1.5
        tp.output("x", x)
    out = tp.compile(program, backend="jax", sizes={"t": 4})()
    assert out["x"].dtype == np.float64
    np.testing.assert_allclose(np.asarray(out["x"])[-1], np.full(3, 1.5**3 / 3), rtol=1e-15)
    assert not jax.config.jax_enable_x64
    assert jax.numpy.arange(3.0).dtype == np.float32
