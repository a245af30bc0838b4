"""`run(state=..., from_point={"i": 4})`: the second part of a run, from the parameters of the first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import numbers

SIZE, POINT = 10, 4


def program(learned: str = "adam") -> tp.Program:
    """Draws, a schedule, inputs over the dim, conditions on it, and a dim inside."""
    with tp.Program() as made:
        i, e = tp.dims("i e")
        x, w = tp.input("x", (3,), (i,)), tp.parameter("w", (3,), init=numbers((3,)), dims=(i,))
        rate = tp.optim.linear(0.1, 0.01, SIZE)
        noise = tp.random.normal((3,), dims=(i, e))[i, :].sum(axis=0)
        target = tp.cases((i % 3 == 0, x), (i < 6, noise), x * tp.as_tensor(i))
        loss = ((w - target) ** 2).sum()
        gradient = tp.grad(loss, w)
        if learned == "adam":
            tp.optim.Adam(rate, dim=i).apply({"w": w}, {"w": gradient})
        else:
            w[i + 1] = w - rate(tp.as_tensor(i)) * gradient
        tp.output("loss", loss)
        tp.output("mean", loss[i : tp.min(i + 2, i.size)].mean(axis=0))
        tp.output("last", w[i.size - 1])
        tp.output("number", tp.as_tensor(i.size - i))
    return made


X = numbers((SIZE, 3), seed=1)


@pytest.mark.parametrize("learned", ["adam", "descent"])
@pytest.mark.parametrize("backend", ["reference", "numpy", "jax", "torch"])
def test_two_parts_are_one_run(backend: str, learned: str) -> None:
    if backend in ("jax", "torch"):
        pytest.importorskip(f"tempo_{backend}")
    run = tp.compile(program(learned), backend)
    whole = run(x=X, sizes={"e": 2}, seed=7)
    first = run(x=X[: POINT + 1], sizes={"e": 2}, seed=7)  # up to where the parameters are those of the point
    later = run(x=X, sizes={"e": 2}, seed=7, state=first.state, from_point={"i": POINT})
    for name in ("loss", "mean", "number"):
        np.testing.assert_allclose(np.asarray(later[name]), np.asarray(whole[name])[POINT:], rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(np.asarray(later["last"]), np.asarray(whole["last"]), rtol=1e-5)
    assert later.sizes["i"] == SIZE - POINT
    for name, array in whole.state.items():
        np.testing.assert_allclose(np.asarray(later.state[name]), np.asarray(array), rtol=1e-5)


def test_of_a_dim_whose_size_the_program_says() -> None:
    with tp.Program() as made:
        i = tp.dim("i", SIZE)
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        w[i + 1] = w + tp.random.uniform((), dims=(i,))
        tp.output("w", w)
    run = tp.compile(made)
    whole = run()["w"]
    np.testing.assert_array_equal(run(state={"w": whole[POINT]}, from_point={"i": POINT})["w"], whole[POINT:])


def test_a_stream_gives_the_point_first() -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        x, w = tp.stream_input("x", (), (i,)), tp.parameter("w", (), init=0.0, dims=(i,))
        w[i + 1] = w + x
        tp.output("w", w)
    run, data = tp.compile(made), np.arange(SIZE, dtype=np.float32)
    whole = run(x=iter(data), sizes={"i": SIZE})["w"]
    later = run(x=iter(data[POINT:]), sizes={"i": SIZE}, state={"w": whole[POINT]}, from_point={"i": POINT})
    np.testing.assert_array_equal(later["w"], whole[POINT:])


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a number": ({"from_point": 4}, tp.InputError, "from_point=4 is no point of one dim"),
    "two dims": ({"from_point": {"i": 1, "e": 1}}, tp.InputError, "is no point of one dim"),
    "no dim": ({"from_point": {"j": 1}}, tp.InputError, "names 'j', which is no dim"),
    "no integer": ({"from_point": {"i": 1.5}}, tp.InputError, "1.5 is no integer"),
    "past the end": ({"from_point": {"i": SIZE}}, tp.SizeError, "has the points 0 to 9"),
    "before the beginning": ({"from_point": {"i": -1}}, tp.SizeError, "has the points 0 to 9"),
    "no state": ({"from_point": {"i": 1}, "state": None}, tp.InputError, "state= does not hold 'w'"),
    "part of a state": (
        {"from_point": {"i": 1}, "state": {"w": X[0]}}, tp.InputError, "state= does not hold 'adam.count'",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> tuple[Any, Any]:
    """An executable, and the state at the end of a run."""
    run = tp.compile(program())
    return run, run(x=X, sizes={"e": 2}).state


@pytest.mark.parametrize("case", WRONG)
def test_wrong_points(case: str, whole: tuple[Any, Any]) -> None:
    given, kind, message = WRONG[case]
    run, state = whole
    with pytest.raises(kind, match=re.escape(message)) as raised:
        run(x=X, sizes={"e": 2}, **{"state": state, **given})
    assert raised.value.location is not None
    assert raised.value.location.path == __file__


def test_what_parameters_do_not_hold_is_named() -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        w, h = tp.parameter("w", (), init=1.0, dims=(i,)), tp.recurrent("h", (), (i,))
        h[0] = 1.0
        h[i + 1] = 0.5 * h + w
        w[i + 1] = w + h
        tp.output("w", w)
    run = tp.compile(made)
    with pytest.raises(tp.InputError, match=r"(?s)needs more than parameters.*h\[i = -1\]|result of add") as raised:
        run(sizes={"i": 5}, state={"w": 1.0}, from_point={"i": 2})
    assert "a run with checkpoint= keeps all that later points read" in str(raised.value)


def test_early_ends() -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        w[i + 1] = w + 1
        tp.stop_when(i, w > 5.0)
        tp.output("w", w)
    run = tp.compile(made)
    with pytest.raises(tp.UnsupportedError, match="along which the run may end early"):
        run(sizes={"i": 9}, state={"w": 1.0}, from_point={"i": 2})


def test_inside_of_a_dim_that_hands_on_as_well() -> None:
    with tp.Program() as made:
        i, k = tp.dims("i k")
        w = tp.parameter("w", (), init=1.0, dims=(i, k))
        w[i, k + 1] = w + 1
        w[i + 1, 0] = w[i, k.size - 1] * 10
        tp.output("w", w)
    run, sizes = tp.compile(made), {"i": 4, "k": 3}
    with pytest.raises(tp.InputError, match="is inside of every point of i, which hands on 'w', too"):
        run(sizes=sizes, state={"w": 2.0}, from_point={"k": 1})
    whole = run(sizes=sizes)["w"]
    later = run(sizes=sizes, state={"w": whole[2, 0]}, from_point={"i": 2})["w"]  # at its first point of k
    np.testing.assert_array_equal(later, whole[2:])


def test_cases_that_leave_nothing_to_a_state() -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        w[0] = 5.0
        w[i + 1] = w + 1
        tp.output("w", w)
    with pytest.raises(tp.InputError, match="its cases leave no point to a value that is given"):
        tp.compile(made)(sizes={"i": 4}, state={"w": 2.0}, from_point={"i": 2})


def test_cases_that_only_points_before_could_take() -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        w, late = tp.parameter("w", (), init=1.0, dims=(i,)), tp.recurrent("late", (), (i,))
        w[i + 1] = 0.9 * w
        late[i >= 2] = w * 2
        late[i] = w
        tp.output("late", late)
    run = tp.compile(made)
    whole = run(sizes={"i": 5})["late"]
    found = run(sizes={"i": 5}, state={"w": whole[2] / 2}, from_point={"i": 2})["late"]
    np.testing.assert_allclose(found, whole[2:], rtol=1e-6)
    np.testing.assert_array_equal(run(sizes={"i": 5}, from_point={"i": 0})["late"], whole)


def test_errors_name_the_points_of_the_program() -> None:
    def failing(x: Any, at: Any) -> Any:
        if at == 6:
            raise ValueError("no")
        return x

    with tp.Program() as made:
        i = tp.dim("i")
        w = tp.parameter("w", (), init=1.0, dims=(i,))
        (y,) = tp.host_call(failing, w, tp.as_tensor(i), out=[((), tp.float32)])
        w[i + 1] = y
        tp.output("w", w)
    with pytest.raises(tp.HostCallError, match="failing at i = 6"):
        tp.compile(made)(sizes={"i": 9}, state={"w": 1.0}, from_point={"i": 4})


def test_checkpoints_of_a_later_beginning(tmp_path: Path) -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        w = tp.parameter("w", (2,), init=1.0, dims=(i,))
        w[i + 1] = 0.5 * w + tp.random.normal((2,), dims=(i,))
        tp.output("w", w)
        tp.output("last", w[i.size - 1])
    run = tp.compile(made)
    whole = run(sizes={"i": SIZE})["w"]
    checkpoints = tp.Checkpoints(tmp_path, along="i", every=2, keep=None)
    given = {"state": {"w": whole[POINT]}, "from_point": {"i": POINT}, "checkpoint": checkpoints}
    run(sizes={"i": SIZE}, **given)
    max(tmp_path.glob("checkpoint-*")).unlink()
    for sizes in ({"i": SIZE}, None):
        np.testing.assert_array_equal(run(sizes=sizes, resume=True, **given)["w"], whole[POINT:])
    with pytest.raises(tp.CheckpointError, match="is of a run with from_point={'i': 4}"):
        run(checkpoint=checkpoints, resume=True, state=given["state"])
