"""`run.memory`: what a run holds, told before it and measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tempo as tp
from tempo.plugins.manager import get_backend

ROWS, WIDTH = 512, 256
BYTES = ROWS * WIDTH * 4


def chain(steps: int = 5, every: bool = False) -> tp.Program:
    """A large state that every step replaces; the last one is returned, or every one is."""
    with tp.Program("chain") as program:
        t = tp.dim("t", steps)
        start = tp.input("start", (ROWS, WIDTH), ())
        s = tp.recurrent("s", (ROWS, WIDTH), (t,))
        s[0] = start
        s[t + 1] = tp.tanh(s)
        tp.output("result", s if every else s[-1])
    return program


def test_what_is_given_returned_and_in_between_are_told_apart() -> None:
    memory = tp.compile(chain(every=True), sizes={}).memory
    assert memory.given_bytes >= BYTES
    assert memory.returned_bytes == 5 * BYTES
    assert memory.peak_bytes == memory.given_bytes + memory.returned_bytes + memory.working_bytes


def test_what_lives_at_the_peak_has_the_user_s_names_and_lines() -> None:
    memory = tp.compile(chain(), sizes={}).memory
    largest = [piece for piece in memory.at_peak if piece.bytes == BYTES]
    assert {"start", "tanh"} <= {piece.name for piece in largest}
    made = next(piece for piece in largest if piece.role == "between" and piece.location is not None)
    assert made.location is not None
    assert made.location.path == __file__
    assert made.shape == (ROWS, WIDTH)
    assert "test_memory.py" in str(memory)


def test_names_of_large_values_are_not_kept_for_an_iteration_longer() -> None:
    """Of a state there are the old one and the new one."""
    memory = tp.compile(chain(), sizes={}).memory
    assert memory.peak_bytes - memory.given_bytes <= 2 * BYTES + 1024


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_a_training_step_holds_what_an_optimizer_keeps_and_the_gradient(backend: str, steps: int) -> None:
    """Weights and two moments, of which one is being made anew, the gradient, and what becomes an update."""
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    rows, width = 8, 512  # of which NumPy's blocks of a cache are small parts
    with tp.Program("training") as program:
        i = tp.dim("i")
        x, y = tp.input("x", (rows, width), (i,)), tp.input("y", (rows, width), (i,))
        w = tp.parameter("w", (width, width), 0.0, dims=(i,))
        loss = ((x @ w - y) ** 2).mean()
        tp.optim.Adam(0.001).minimize(loss, {"w": w})
        tp.output("loss", loss)
    run = tp.compile(program, backend, sizes={"i": steps})
    measures = get_backend(backend)
    ones = np.ones((steps, rows, width), np.float32)
    given = run.device_put(x=ones, y=ones)
    state = run(**given).state
    measured = measures.measured_peak(lambda: run(**given, state=state))
    planned = run.memory.peak_bytes - run.memory.given_bytes
    one = width * width * 4
    assert planned <= 5.5 * one
    assert 0.85 < planned / measured < 1.1


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_a_plan_is_of_the_backend_that_runs_it(backend: str) -> None:
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    run = tp.compile(chain(20), backend)
    start = np.ones((ROWS, WIDTH), np.float32)
    before = tp.compile(chain(20), backend, sizes={}).memory.peak_bytes
    run(start=start)
    assert run.memory.peak_bytes == before


def test_a_state_and_what_becomes_it_have_one_buffer() -> None:
    """All points of `h` are needed by its gradient, and those of the value that it becomes."""
    with tp.Program() as program:
        t = tp.dim("t")
        w = tp.input("w", (8, 8), ())
        x = tp.input("x", (4, 8), (t,))
        h = tp.recurrent("h", (4, 8), (t,))
        h[0] = tp.zeros((4, 8))
        h[t + 1] = tp.tanh(h @ w + x)
        out = tp.tanh(h @ w + x)
        tp.output("dw", tp.grad((out[:] ** 2).sum(), {"w": w})["w"])
    sizes = {"t": 50}
    run = tp.compile(program, sizes=sizes)
    kept = [buffer for buffer in run.memory.buffers if buffer.storage == "full" and buffer.role == "internal"]
    states = [buffer for buffer in kept if buffer.shape[0] in (50, 51) and buffer.name in ("h", "out")]
    assert len(states) <= 1
    given = {"w": np.eye(8, dtype=np.float32), "x": np.ones((50, 4, 8), np.float32)}
    wanted = tp.compile(program, "reference")(**given)
    np.testing.assert_allclose(run(**given)["dw"], wanted["dw"], rtol=1e-5)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_plan_as_a_picture(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"memory.{suffix}"
    tp.compile(chain(), sizes={}).memory.plot(path)
    assert path.stat().st_size > 1000


def test_a_picture_without_matplotlib_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(tp.TempoError, match="plot"):
        tp.compile(chain(), sizes={}).memory.plot("memory.png")


def test_the_reference_plans_nothing() -> None:
    with pytest.raises(tp.UnsupportedError, match="plans nothing"):
        _ = tp.compile(chain(), "reference").memory
