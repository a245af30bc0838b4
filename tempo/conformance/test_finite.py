"""Family 12, errors: `tp.Options(check_finite=True)` names the first tensor that is not finite, and the point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target

HERE = Path(__file__).name


def training(init: float = 1.0) -> tp.Program:
    """A state through time inside training: what is not finite in one spreads to all that comes later."""
    with tp.Program("training") as program:
        i, t = tp.dims("i t")
        x = tp.input("x", shape=(3,), dims=(i, t))
        w = tp.parameter("w", shape=(3,), init=np.full(3, init, np.float32), dims=(i,))
        h = tp.recurrent("h", shape=(3,), dims=(i, t))
        h[i, 0] = 1.0
        h[i, t + 1] = tp.log(h * w) + x
        loss = (h[i, -1] ** 2).sum()
        w[i + 1] = w - 0.01 * tp.grad(loss, w)
        tp.output("loss", loss)
    return program


def inputs(iterations: int = 4, steps: int = 6) -> np.ndarray:
    return np.full((iterations, steps, 3), 3, np.float32)


def assert_here(error: tp.TempoError, text: str) -> None:
    assert error.location is not None
    assert error.location.path.endswith(HERE)
    assert text in error.location.text


@pytest.mark.one_process
def test_the_first_of_all_that_is_not_finite_is_named(target: Target) -> None:
    run = target.compile(training(), check_finite=True)
    x = inputs()
    x[2, 3, 1] = -5  # h[i=2, t=4] is negative, so the logarithm at t = 5 is NaN, and with it loss and w
    with pytest.raises(tp.NotFiniteError, match=r"h is NaN at i = 2, t = 5") as caught:
        run(x=x)
    assert_here(caught.value, 'tp.recurrent("h"')
    assert "tp.log(h * w) + x" in str(caught.value)  # the line of the case
    assert isinstance(caught.value, FloatingPointError)
    again = run(x=inputs())
    np.testing.assert_allclose(
        target.to_numpy(again["loss"]), np.asarray(tp.compile(training())(x=inputs())["loss"]), rtol=1e-4
    )


def test_without_the_option_nothing_is_said(target: Target) -> None:
    x = inputs()
    x[2, 3, 1] = -5
    loss = target.to_numpy(target.compile(training())(x=x)["loss"])
    assert np.isfinite(loss[:2]).all()
    assert np.isnan(loss[2:]).all()


@pytest.mark.one_process
def test_a_gradient_that_is_not_finite_shows_in_the_parameter(target: Target) -> None:
    with tp.Program("root") as program:
        i = tp.dim("i", 5)
        w = tp.parameter("w", shape=(), init=2.0, dims=(i,))
        loss = tp.sqrt(w)
        w[i + 1] = w - 1.0 + 0.0 * tp.grad(loss, w)  # w[2] is 0, where the slope is infinite
        tp.output("loss", loss)
    with pytest.raises(tp.NotFiniteError, match=r"w is NaN at i = 3") as caught:
        target.compile(program, check_finite=True)()
    assert_here(caught.value, 'tp.parameter("w"')


@pytest.mark.one_process
def test_an_output_is_named_where_no_definition_is_to_blame(target: Target) -> None:
    with tp.Program("quotient") as program:
        t = tp.dim("t", 6)
        tp.output("inverse", 1.0 / tp.as_tensor(t - 3))
    with pytest.raises(tp.NotFiniteError, match=r"output 'inverse' is infinite at t = 3") as caught:
        target.compile(program, check_finite=True)()
    assert_here(caught.value, 'tp.output("inverse"')


def running_maximum() -> tp.Program:
    with tp.Program("running_maximum") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        largest = tp.recurrent("largest", shape=(), dims=(t,))
        largest[0] = -np.inf
        largest[t + 1] = tp.maximum(largest, x)
        scores = tp.where(tp.arange(4) < 3, tp.as_tensor(t, dtype=tp.float32), -np.inf)
        tp.output("largest", largest)
        tp.output("chances", tp.softmax(scores, axis=0))
    return program


def test_infinities_that_were_written_are_no_error(target: Target) -> None:
    run = target.compile(running_maximum(), check_finite=True)
    found = run(x=np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(target.to_numpy(found["largest"]), [-np.inf, 0, 1, 2])
    found = run(x=np.array([1, -np.inf, 2], np.float32))  # nor are those that were given
    np.testing.assert_array_equal(target.to_numpy(found["largest"]), [-np.inf, 1, 1])


@pytest.mark.one_process
def test_an_input_that_is_nan_is_refused_before_anything_runs(target: Target) -> None:
    run = target.compile(running_maximum(), check_finite=True)
    with pytest.raises(tp.NotFiniteError, match=r"the input 'x' is NaN at t = 2") as caught:
        run(x=np.array([1, 2, np.nan, 4], np.float32))
    assert_here(caught.value, 'tp.input("x"')
    run = target.compile(training(), check_finite=True)
    with pytest.raises(tp.NotFiniteError, match=r"the state of the parameter 'w' is NaN"):
        run(x=inputs(), state={"w": np.full(3, np.nan, np.float32)})


def test_what_never_exists_is_not_looked_at(target: Target) -> None:
    """At `t == 0` no case of `quotient` is asked for, and would be infinite."""
    with tp.Program("guarded") as program:
        t = tp.dim("t", 5)
        quotient = tp.recurrent("quotient", shape=(), dims=(t,))
        quotient[True] = 1.0 / tp.as_tensor(t)
        total = tp.recurrent("total", shape=(), dims=(t,))
        total[0] = 0.0
        total[t >= 1] = total[t - 1] + quotient
        tp.output("total", total)
    found = target.compile(program, check_finite=True)()
    np.testing.assert_allclose(target.to_numpy(found["total"]), [0, 1, 1.5, 11 / 6, 25 / 12], rtol=1e-5)


def environment(breaks: int, raises: bool = False, points: int = 9) -> tp.Program:
    """What it gives after `breaks` steps is NaN; it may refuse to be given one."""
    steps = [0]

    def reset() -> np.ndarray:
        steps[0] = 0
        return np.ones(2, np.float32)

    def step(action: np.ndarray) -> np.ndarray:
        if raises and np.isnan(action).any():
            raise ValueError("no such action")
        steps[0] += 1
        return np.full(2, np.nan if steps[0] > breaks else 1.0, np.float32)

    with tp.Program("acting") as program:
        t = tp.dim("t", points)
        (first,) = tp.host_call(reset, out=[((2,), tp.float32)], resource=steps)
        seen = tp.recurrent("seen", shape=(2,), dims=(t,))
        (after,) = tp.host_call(step, seen * 2, out=[((2,), tp.float32)], ordered_by=(t,), resource=steps)
        seen[0] = first
        seen[t + 1] = after
        tp.output("seen", seen)
    return program


@pytest.mark.one_process
def test_an_environment_that_gives_nan_is_named(target: Target) -> None:
    run = target.compile(environment(4), check_finite=True)
    for _ in range(2):  # an executable can be run again
        with pytest.raises(tp.NotFiniteError, match=r"step is NaN at t = 4") as caught:
            run()
        assert_here(caught.value, "tp.host_call(step")


@pytest.mark.one_process
def test_a_call_that_fails_for_what_it_was_given_is_not_blamed(target: Target) -> None:
    run = target.compile(environment(4, raises=True, points=300), check_finite=True)
    with pytest.raises(tp.NotFiniteError, match=r"step is NaN at t = 4") as caught:
        run()
    assert isinstance(caught.value.__context__, tp.HostCallError)


@pytest.mark.one_process
def test_a_run_that_ends_early_is_looked_at_as_far_as_it_went(target: Target) -> None:
    with tp.Program("ends") as program:
        t = tp.dim("t", 20)
        limit = tp.input("limit", shape=(), dims=())
        x = tp.recurrent("x", shape=(), dims=(t,))
        x[0] = 1.0
        x[t + 1] = tp.log(x + 0.5)  # 1, 0.4, -0.1, -0.9, NaN
        tp.output("x", x)
        tp.stop_when(t, x < limit)
    run = target.compile(program, check_finite=True)
    assert np.isfinite(target.to_numpy(run(limit=-0.5)["x"])).all()
    with pytest.raises(tp.NotFiniteError, match=r"x is NaN at t = 4"):
        run(limit=-5.0)


@pytest.mark.planned
@pytest.mark.one_process
def test_a_stream_ends_at_the_step_that_is_not_finite(target: Target) -> None:
    x = inputs()
    x[2, 3, 1] = -5
    steps = target.compile(training(), check_finite=True).stream("i", x=x)
    assert [next(steps).start, next(steps).start] == [0, 1]
    with pytest.raises(tp.NotFiniteError, match=r"h is NaN at i = 2, t = 5"):
        next(steps)
