"""Learning while acting, and while data come: what is kept is what learning looks back at, however long the run."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import numpy as np
import pytest

import tempo as tp
from examples import online_regression
from tempo.compiler.plan import Plan
from tempo.conformance.target import typical
from tempo.lowering.scheduling.places import Place
from tempo.plugins.manager import get_backend
from tempo.schedule.tree import For, walk
from tempo.symbolic import const

BACKENDS = ["numpy", *(name for name in ("jax", "torch") if util.find_spec(f"tempo_{name}"))]
SCHEDULERS = ["greedy", *(["polyhedral"] if util.find_spec("tempo_polyhedral") else [])]
SHORT, LONG = 1_000, 4_000
SEQUENTIAL = tp.Options(mapping={"t": "sequential"})

# -- acting --------------------------------------------------------------------------------------------------------

ENVIRONMENTS, PIXELS, ACTIONS, N, LATER, GAMMA, RATE = 8, 768, 2, 3, 4, 0.9, 0.05
OBSERVATION = 4 * ENVIRONMENTS * PIXELS
Tensor = tp.RecurrentTensor


def monte_carlo(reward: Tensor, value: Tensor, done: Tensor, t: tp.Dim) -> Tensor:
    return tp.rl.monte_carlo(reward, done, t, GAMMA)


def td_zero(reward: Tensor, value: Tensor, done: Tensor, t: tp.Dim) -> Tensor:
    return tp.rl.td_zero(reward, value, done, t, GAMMA)


def n_step(reward: Tensor, value: Tensor, done: Tensor, t: tp.Dim) -> Tensor:
    return tp.rl.n_step(reward, value, done, t, N, GAMMA)


def centred(reward: Tensor, value: Tensor, done: Tensor, t: tp.Dim) -> Tensor:
    """Of a reward the mean of the next ones, itself among them, is taken off."""
    return n_step(reward - reward[t : tp.min(t + LATER, t.size)].mean(axis=0), value, done, t)


def normalised(reward: Tensor, value: Tensor, done: Tensor, t: tp.Dim) -> Tensor:
    """By the running mean and variance of the rewards up to some steps later."""
    mean, square = tp.recurrent("mean", reward.shape, (t,)), tp.recurrent("square", reward.shape, (t,))
    for running, new in ((mean, reward), (square, reward * reward)):
        running[0] = new
        running[t] = 0.9 * running[t - 1] + 0.1 * new
    at = tp.min(t + LATER, t.size - 1)
    return n_step((reward - mean[at]) / tp.sqrt(square[at] - mean[at] ** 2 + 0.01), value, done, t)


@dataclass(frozen=True)
class Returns:
    """`behind`: how many steps after acting all is known that a point's part of the gradient is made of."""

    of: Callable[[Tensor, Tensor, Tensor, tp.Dim], Tensor]
    behind: int


RETURNS = {
    "TD(0)": Returns(td_zero, 1),
    "n-step": Returns(n_step, N),
    "centred": Returns(centred, N - 1 + LATER - 1),
    "normalised": Returns(normalised, N - 1 + LATER),
}


def actor(returns: Callable[..., Tensor], steps: int, behind: int | None = None) -> tp.Program:
    """A policy and a value in an environment that only has shapes, which gives what they have become at the end.

    `behind`: the weights at t + 1 have learned from step t - behind. None: the weights change at the end, by the
    gradient of all steps.
    """
    with tp.Program("actor") as program:
        t = tp.dim("t", steps)
        dims = () if behind is None else (t,)
        policy = tp.nn.Linear(PIXELS, ACTIONS, name="policy", dims=dims)
        baseline = tp.nn.Linear(PIXELS, 1, name="baseline", dims=dims)
        observation = tp.recurrent("observation", (ENVIRONMENTS, PIXELS), (t,))
        choice = tp.rl.Categorical(policy(observation))
        action = choice.sample(dims=(t,))
        following = 0.9 * observation + 0.1 * action.astype(tp.float32).reshape(ENVIRONMENTS, 1)
        observation[0] = tp.random.uniform((ENVIRONMENTS, PIXELS), dims=())
        observation[t + 1] = following
        reward, estimate = following.mean(axis=-1), baseline(observation).spatial[..., 0]
        target = tp.stop_gradient(returns(reward, estimate, reward > 0.9, t))
        gain = choice.log_prob(action) * (target - tp.stop_gradient(estimate))
        loss = ((estimate - target) ** 2 - gain).mean()
        learned = {**policy.parameters(), **baseline.parameters()}
        for name, gradient in tp.grad(loss, learned).items():
            w = learned[name]
            if behind is None:
                tp.output(name, w - RATE * gradient)
            else:
                w[t + 1] = w - RATE * tp.cases((t >= behind, gradient[t - behind]), tp.zeros(w.shape))
                tp.output(name, w[-1])
    return program


def learner(name: str, steps: int, while_acting: bool) -> tp.Program:
    returns = RETURNS[name]
    return actor(returns.of, steps, returns.behind if while_acting else None)


def compiled(program: tp.Program, backend: object = "numpy", scheduler: str = "greedy") -> tp.Executable:
    run: tp.Executable = tp.compile(program, backend, scheduler, options=SEQUENTIAL)
    return run


def loops_and_lags(run: tp.Executable) -> tuple[int, list[int]]:
    """How many loops the schedule has, and how many iterations after acting on a point, in the same loop, its part of
    the gradient of the policy's weights is computed; nothing for a part that another loop computes."""
    plan: Plan = run._engine.plan()  # type: ignore[union-attr]
    statement = {id: cluster.name for id, cluster in plan.program.cluster_of().items()}
    nodes = [node for node in plan.graph.nodes.values() if node.id in statement and node.domain]
    weights = (const(PIXELS), const(ACTIONS))
    parts = [node for node in nodes if node.op == "dot" and node.results[0].shape == weights]
    assert parts
    (acting,) = (place for node in nodes if node.name == "observation" for place in plan.places[statement[node.id]])
    learning = [place for node in parts for place in plan.places[statement[node.id]]]
    lags = [ahead(acting) - ahead(place) for place in learning if acting.shared_loops(place)]
    return sum(isinstance(each, For) for each in walk(plan.tree)), lags


def points(run: tp.Executable, name: str) -> int:
    return run.memory[name].shape[0]


def ahead(place: Place) -> int:
    """c of a statement that iteration t runs at t + c."""
    found = place.offset(0)
    assert found is not None
    return found[1].as_int()


@pytest.mark.parametrize("scheduler", typical(SCHEDULERS, ["greedy"]))
@pytest.mark.parametrize("while_acting", [False, True])
@pytest.mark.parametrize("name", RETURNS)
def test_a_step_is_learned_from_as_soon_as_its_return_is_known(name: str, while_acting: bool, scheduler: str) -> None:
    """There is one loop, and in it learning is so many steps behind acting, also where no weight waits for it."""
    run = compiled(learner(name, 40, while_acting), scheduler=scheduler)
    assert loops_and_lags(run) == (1, [RETURNS[name].behind])


@pytest.mark.parametrize("scheduler", typical(SCHEDULERS, ["greedy"]))
def test_with_monte_carlo_returns_learning_waits_for_the_end(scheduler: str) -> None:
    run = compiled(actor(monte_carlo, 40), scheduler=scheduler)
    assert loops_and_lags(run) == (2, [])
    assert points(run, "observation") >= 40
    with pytest.raises(tp.CycleError):
        compiled(actor(monte_carlo, 40, behind=N), scheduler=scheduler)


@pytest.mark.parametrize("name", RETURNS)
def test_nothing_could_be_learned_a_step_sooner(name: str) -> None:
    with pytest.raises(tp.CycleError):
        compiled(actor(RETURNS[name].of, 40, RETURNS[name].behind - 1))


@pytest.mark.parametrize("scheduler", typical(SCHEDULERS, ["greedy"]))
@pytest.mark.parametrize("while_acting", [False, True])
@pytest.mark.parametrize("name", RETURNS)
def test_the_plan_is_that_of_the_returns_window_at_any_length(name: str, while_acting: bool, scheduler: str) -> None:
    """To the byte, and as many observations as are acted on until the first of them is learned from."""
    short, long = (compiled(learner(name, steps, while_acting), scheduler=scheduler) for steps in (SHORT, LONG))
    assert short.memory.peak_bytes == long.memory.peak_bytes
    assert points(short, "observation") == points(long, "observation") == RETURNS[name].behind + 1


@pytest.mark.parametrize("backend", typical(BACKENDS, ["numpy"]))
@pytest.mark.parametrize("while_acting", [False, True])
@pytest.mark.parametrize("name", RETURNS)
def test_what_is_learned_is_what_the_program_says(name: str, while_acting: bool, backend: str) -> None:
    program = learner(name, 12, while_acting)
    found, wanted = compiled(program, backend)(seed=0), tp.compile(program, "reference")(seed=0)
    for weights in wanted:
        np.testing.assert_allclose(np.asarray(found[weights]), wanted[weights], rtol=1e-3, atol=1e-5, err_msg=weights)


ACTED = 1_000, 2_000
"""Steps of runs whose bytes are measured."""
MEASURED = [(backend, name) for backend in ("numpy", "jax") for name in ("TD(0)", "n-step", "normalised")]
MEASURED += [("torch", "normalised")]  # whose profiler takes a minute
BRIEFLY = [("numpy", "n-step"), ("jax", "normalised")]
"""In `make test-all`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "name"),
    [pytest.param(*each, marks=() if each in BRIEFLY else pytest.mark.sweep) for each in MEASURED],
)
def test_measured_bytes_do_not_grow_with_the_steps_acted(backend: str, name: str) -> None:
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    short, long = (measured(learner(name, steps, while_acting=False), backend) for steps in ACTED)
    assert abs(long - short) < OBSERVATION


def measured(program: tp.Program, backend: str) -> int:
    """The most bytes that live at once in a run, which is not the first: what is made once is not of it."""
    on = get_backend(backend)
    run = compiled(program, on)
    run(seed=0)
    gc.collect()
    peak: int = on.measured_peak(lambda: run(seed=0))
    return peak


# -- regression over a window --------------------------------------------------------------------------------------

WINDOW, INPUTS = 16, 256
SAMPLE = 4 * (INPUTS + 1)


@pytest.mark.parametrize("backend", typical(BACKENDS, ["numpy"]))
def test_regression_over_a_window_learns(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "regression.png"
    pytest.importorskip("matplotlib")
    arguments = ["--backend", backend, "--samples", "1050", "--check", "--plot", str(picture)]
    assert online_regression.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "equal to the NumPy loop" in printed
    found = re.search(r"error ([\d.]+) at first, ([\d.]+) at last", printed)
    assert found is not None, printed
    first, last = map(float, found.groups())
    assert first > 0.1 and last < 0.02
    assert picture.stat().st_size > 0


def test_regression_over_a_window_is_what_the_program_says() -> None:
    program, given = online_regression.online_regression(4, 3), list(online_regression.samples(9, 3, seed=0))
    found, wanted = tp.compile(program)(sample=given), tp.compile(program, "reference")(sample=given)
    np.testing.assert_allclose(found["error"], wanted["error"], rtol=1e-4)
    np.testing.assert_allclose(found.state["w"], wanted.state["w"], rtol=1e-4)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("backend", typical(BACKENDS, ["numpy"]))
def test_regression_over_a_window_is_planned_to_keep_the_window(backend: str, scheduler: str) -> None:
    """At any length the same, to the byte, but the error that is returned of each sample."""
    program = online_regression.online_regression(WINDOW, INPUTS)
    short, long = (tp.compile(program, backend, scheduler, sizes={"t": each}).memory for each in (SHORT, LONG))
    assert short["sample"].shape[0] == long["sample"].shape[0] == WINDOW
    assert short.working_bytes == long.working_bytes
    assert long.peak_bytes - short.peak_bytes == 4 * (LONG - SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("backend", typical(BACKENDS, ["numpy"], pytest.mark.sweep))
def test_measured_bytes_do_not_grow_with_the_samples_that_come(backend: str) -> None:
    """A stream whose end is not known: 4 MB come, of which a window of 16 kB is kept."""
    on = get_backend(backend)
    run = tp.compile(online_regression.online_regression(WINDOW, INPUTS), on)
    peaks = []
    for count in (100, SHORT, LONG):  # what is made once is not of a run

        def learn(count: int = count) -> None:
            online_regression.learn(run, online_regression.samples(count, INPUTS, seed=0))

        gc.collect()
        peaks.append(on.measured_peak(learn))
    assert abs(peaks[2] - peaks[1]) < 64 * SAMPLE
