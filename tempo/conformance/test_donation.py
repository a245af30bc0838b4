"""`run(..., donate=True)`: the same results, in the memory of what is given where the backend can take that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers

ROWS, WIDTH = 4, 160  # a weight is large enough to be let go of by name


def training() -> tp.Program:
    with tp.Program("training") as program:
        i = tp.dim("i")
        x, y = tp.input("x", (ROWS, WIDTH), (i,)), tp.input("y", (ROWS, WIDTH), (i,))
        w = tp.parameter("w", (WIDTH, WIDTH), 0.0, dims=(i,))
        loss = ((x @ w - y) ** 2).mean()
        tp.optim.Adam(0.01).minimize(loss, {"w": w})
        tp.output("loss", loss)
        tp.output("x", x[i.size - 1 - i])
    return program


def layers() -> tp.Program:
    """Weights that are given by point, or whole, and given back as well."""
    with tp.Program("layers") as program:
        n = tp.dim("n", 3)
        w = tp.input("w", (WIDTH, WIDTH), (n,))
        h = tp.recurrent("h", (WIDTH,), (n,))
        h[0] = tp.ones(WIDTH)
        h[n + 1] = tp.tanh(w @ h)
        tp.output("h", h[n.size - 1])
        tp.output("w", w)
    return program


def calls() -> tp.Program:
    """What a run that fails in a call of the host still has to know."""
    with tp.Program("calls") as program:
        t = tp.dim("t", 3)
        w = tp.input("w", (WIDTH, WIDTH), ())
        (y,) = tp.host_call(lambda x: x * 2.0, w * 1.0, out=[((WIDTH, WIDTH), tp.float32)], ordered_by=(t,))
        tp.output("y", y)
    return program


def checked() -> tp.Program:
    """Indices that are looked up before it is known whether anybody asks."""
    with tp.Program("checked") as program:
        t = tp.dim("t", 4)
        data, at = tp.input("data", (WIDTH, WIDTH), ()), tp.input("at", (), (t,), tp.int32)
        y = tp.recurrent("y", (WIDTH,), (t,))
        y[t < 2] = data.spatial[at]
        y[t] = tp.zeros(WIDTH)
        tp.output("y", y)
    return program


def given(make: Callable[[], tp.Program]) -> dict[str, Any]:
    square = numbers((WIDTH, WIDTH)) / WIDTH
    if make is training:
        return {"x": numbers((3, ROWS, WIDTH)), "y": numbers((3, ROWS, WIDTH), seed=1)}
    if make is checked:
        return {"data": square, "at": np.array([3, 0, WIDTH + 7, -WIDTH * 2], np.int32)}
    return {"w": np.stack([square, square.T, square]) if make is layers else square}


@pytest.mark.parametrize("make", [training, layers, calls, checked])
def test_results_are_those_of_any_run(target: Target, make: Callable[[], tp.Program]) -> None:
    arrays, run = given(make), target.compile(make())
    wanted = target.arrays(run(**arrays))
    for _ in range(2):
        found = target.arrays(run(**run.device_put(**arrays), donate=True))
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value)
    assert_same(target.arrays(run(**arrays)), wanted)


def assert_same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_state_goes_from_run_to_run(target: Target) -> None:
    arrays, run = given(training), target.compile(training())
    wanted, state = run(**arrays), run(**arrays).state
    for _ in range(3):
        wanted, state = run(**arrays, state=wanted.state), run(**arrays, state=state, donate=True).state
    assert_same(target.arrays(state), target.arrays(wanted.state))


@pytest.mark.parametrize("make", [training, layers, calls])
def test_what_was_given_is_gone_where_it_can_be_taken(target: Target, make: Callable[[], tp.Program]) -> None:
    run = target.compile(make())
    mine = run.device_put(**given(make))
    outputs = run(**mine, donate=True)
    for array in mine.values():
        taken = getattr(target.backend, "donates", False) and target.backend.native(array) is not None
        assert taken == _is_gone(array)
    assert all(np.isfinite(array).all() for array in target.arrays(outputs).values())


def _is_gone(array: Any) -> bool:
    is_deleted = getattr(array, "is_deleted", None)  # of JAX; PyTorch's are empty
    return is_deleted() if is_deleted is not None else 0 in array.shape


def test_lists_are_given_up_point_by_point(target: Target) -> None:
    run, arrays = target.compile(layers()), given(layers)
    wanted = target.arrays(run(w=list(arrays["w"])))
    mine = run.device_put(w=list(arrays["w"]))
    assert_same(target.arrays(run(**mine, donate=True)), wanted)


def test_with_progress_and_with_checks_nothing_is_lost(target: Target) -> None:
    arrays = given(training)
    run = target.compile(training())
    wanted = target.arrays(run(**arrays))
    told = list[tuple[int, int]]()
    assert_same(
        target.arrays(run(**run.device_put(**arrays), donate=True, progress=lambda *at: told.append(at))), wanted
    )


def test_the_plan_is_of_the_run_before(target: Target) -> None:
    """State that is given up is not there beside the one that is made of it, but for what a compiler copies for itself,
    where it has no memory of the results to write to meanwhile."""
    if not getattr(target.backend, "donates", False):
        pytest.skip("it takes no memory from whoever gave it")
    arrays, run = given(training), target.compile(training())
    state = run(**arrays).state
    state = run(**run.device_put(**arrays), state=state).state
    kept = run.memory.peak_bytes
    run(**run.device_put(**arrays), state=state, donate=True)
    assert run.memory.peak_bytes <= kept - WIDTH * WIDTH * 4 // (target.mesh or 1)


@pytest.mark.one_device
def test_one_array_is_given_up_once(target: Target) -> None:
    arrays, run = given(training), target.compile(training())
    mine = run.device_put(x=arrays["x"])["x"]
    if target.backend.native(mine) is None:
        pytest.skip("its arrays are NumPy's, of which nothing is taken")
    with pytest.raises(tp.InputError, match="one array twice, for 'x' and 'y'") as caught:
        run(x=mine, y=mine, donate=True)
    assert caught.value.location is not None
    assert caught.value.location.path == __file__
    assert not _is_gone(mine)
    run(x=mine, y=mine)


def test_it_is_yes_or_no(target: Target) -> None:
    arrays, run = given(training), target.compile(training())
    with pytest.raises(tp.InputError, match="donate='w' is a str"):
        run(**arrays, donate="w")  # type: ignore[arg-type]


def test_a_run_that_is_refused_before_it_begins_takes_nothing(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        v, h = tp.parameter("v", (WIDTH,), 0.0), tp.recurrent("h", (WIDTH,), (t,))
        h[0] = v
        h[t + 1] = h * 0.5
        tp.output("h", h)
    run = target.compile(program)
    state = run(sizes={"t": 2}).state
    with pytest.raises(tp.MemoryLimitError):
        run(state=state, sizes={"t": 10**9}, donate=True)
    assert not _is_gone(state["v"])


def test_what_the_caller_keeps_counts(target: Target) -> None:
    """Of two inputs one is NumPy's."""
    if not getattr(target.backend, "donates", False):
        pytest.skip("it takes no memory from whoever gave it")
    with tp.Program() as program:
        t = tp.dim("t", 3)
        a, b = (tp.input(name, (WIDTH, WIDTH), ()) for name in "ab")
        h = tp.recurrent("h", (WIDTH, WIDTH), (t,))
        h[0] = a @ b
        h[t + 1] = tp.tanh(h) @ h
        tp.output("h", h[t.size - 1])
    run, one = target.compile(program), numbers((WIDTH, WIDTH)) / WIDTH
    peaks = []
    for names in ("", "b", "ab"):
        mine = run.device_put(**dict.fromkeys(names, one))
        run(**{**dict.fromkeys("ab", one), **mine}, donate=True)
        peaks.append(run.memory.peak_bytes)
    assert peaks[0] >= peaks[1] >= peaks[2]
    assert peaks[0] > peaks[2]
