"""Declaring streamed inputs, and what they keep in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tempo as tp
from tempo.plugins.manager import get_backend


def test_it_is_a_tensor_over_its_dims() -> None:
    with tp.Program():
        i, b = tp.dims("i b")
        x = tp.stream_input("x", (3,), (i, b), dtype=tp.int32)
        assert (x.domain, x.shape, x.dtype) == ((i, b), (3,), "int32")


def test_a_dim_is_needed() -> None:
    with tp.Program(), pytest.raises(tp.ProgramError, match="no dim along which its arrays come"):
        tp.stream_input("x", (3,))


def test_names_are_those_of_inputs() -> None:
    with tp.Program():
        i = tp.dim("i")
        tp.stream_input("x", (), (i,))
        tp.input("y")
        for declare in (tp.input, tp.stream_input):
            for name in "xy":
                with pytest.raises(tp.ProgramError, match=f"has an input '{name}' already"):
                    declare(name, (), (i,))
        with pytest.raises(tp.ProgramError, match="'seed' cannot name an input"):
            tp.stream_input("seed", (), (i,))


def test_a_misspelt_name_is_told() -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        tp.output("x", tp.stream_input("batches", (), (i,)) + 0)
    with pytest.raises(tp.InputError, match="did you mean 'batches'"):
        tp.compile(program)(batch=[1.0, 2.0])


def test_what_a_parameter_begins_with_cannot_be_streamed() -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (), (i,))
        w = tp.parameter("w", (), init=x[0], dims=(i,))
        w[i + 1] = w + x
        tp.output("w", w)
    with pytest.raises(tp.UnsupportedError, match="use tp.input"):
        tp.compile(program)(x=[1.0, 2.0])


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_measured_bytes_do_not_grow_with_what_came(backend: str) -> None:
    """40 MB come through a program that keeps a window of two."""
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    rows, count = 10_000, 1000

    def arrays() -> Iterator[np.ndarray]:
        for at in range(count):
            yield np.full(rows, at, np.float32)

    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (rows,), (i,))
        tp.output("change", (x - tp.cases((i > 0, x[i - 1]), 0.0)).mean())
    run = tp.compile(program, backend, sizes={"i": count})
    found = [run(x=arrays())]  # what is made once is not of a run
    measured = get_backend(backend).measured_peak(lambda: found.append(run(x=arrays())))
    np.testing.assert_array_equal(np.asarray(found[-1]["change"]), [0, *[1] * (count - 1)])
    assert run.memory.peak_bytes < 50 * 4 * rows  # of which 32 are taken ahead
    assert measured < 20 * 4 * rows
