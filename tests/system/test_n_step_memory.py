"""How much REINFORCE keeps follows from its returns: one line of the program."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from benchmarks.n_step_memory import SEQUENTIAL, all_returns, inputs, reinforce

RETURNS = all_returns(3)
KEPT = {"Monte Carlo": None, "3-step": 4, "TD(0)": 2}  # None: all


@pytest.mark.parametrize("name", RETURNS)
@pytest.mark.parametrize("steps", [12, 40])
def test_observations_kept(name: str, steps: int) -> None:
    """The memory plan's own word, at two lengths: the window is that of the returns, not that of the run."""
    run = tp.compile(reinforce(RETURNS[name], steps), "numpy", options=SEQUENTIAL)
    assert run.memory["observation"].shape[0] == (KEPT[name] or steps)


@pytest.mark.slow
@pytest.mark.xfail(reason="within iterations, isl's orders act to the end before anything is learned from it")
def test_observations_kept_by_the_polyhedral_schedule() -> None:
    pytest.importorskip("tempo_polyhedral")
    run = tp.compile(reinforce(RETURNS["TD(0)"], 40), "numpy", "polyhedral", options=SEQUENTIAL)
    assert run.memory["observation"].shape[0] == KEPT["TD(0)"]


@pytest.mark.parametrize("name", RETURNS)
def test_the_result_is_that_of_keeping_everything(name: str) -> None:
    program, given = reinforce(RETURNS[name], 12), inputs(12)
    found = tp.compile(program, "numpy", options=SEQUENTIAL)(seed=0, **given)
    wanted = tp.compile(program, "reference")(seed=0, **given)
    for output in ("loss", "norm"):
        np.testing.assert_allclose(found[output], wanted[output], rtol=1e-4)


def test_measured_bytes_do_not_grow_with_the_run() -> None:
    from tempo.backends.numpy.backend import NumpyBackend

    measured = []
    for steps in (20, 80):
        backend, given = NumpyBackend(), inputs(steps)
        run = tp.compile(reinforce(RETURNS["3-step"], steps), backend, options=SEQUENTIAL)
        run(seed=0, **given)
        measured.append(backend.measured_peak(lambda run=run, given=given: run(seed=0, **given)))
    # Scalars of every step are outputs or kept in full; an observation has 24 KiB.
    assert measured[1] < measured[0] + 24 * 1024
