"""Family 8, functions of the backend: pure operators inside the loop, of whatever arrays the backend has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers


@pytest.fixture
def own(target: Target) -> str:
    """The backend whose functions the target calls; the evaluator has none of its own, and takes NumPy's."""
    if not target.supports("backend_call", "float32"):
        pytest.skip("the backend declares that it calls no functions of its own")
    return "numpy" if target.interprets else target.info.name


def step(state: Any, x: Any) -> tuple[Any, Any, Any]:
    """Operators that arrays of every library have."""
    moved = state * x + 1
    return moved, moved > x, (moved * moved).sum(-1)


RESULTS = [((3,), "float32"), ((3,), "bool"), ((), "float32")]


def rolled(x: Array) -> tuple[list[Array], list[tuple[Any, ...]]]:
    states, results = [x[0]], []
    for row in x:
        results.append(step(states[-1], row))
        states.append(results[-1][0])
    return states[:-1], results


@pytest.mark.parametrize("steps", [1, 7])
def test_several_results_carry_a_recurrence(target: Target, own: str, steps: int) -> None:
    x_data = numbers((steps, 3)) / 4
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        state = tp.recurrent("state", (3,), (t,))
        moved, above, norm = tp.backend_call(step, state, x, out=RESULTS, backend=own)
        state[0] = x
        state[t + 1] = moved
        for name, tensor in {"state": state, "above": above, "norm": norm}.items():
            tp.output(name, tensor)
        tp.output("last", norm[-1])
    states, results = rolled(x_data)
    norms = [each[2] for each in results]
    expected = {"state": states, "above": [each[1] for each in results], "norm": norms, "last": norms[-1]}
    target.agrees(program, {name: np.array(value) for name, value in expected.items()}, x=x_data, tolerance=4)


def test_batched_dims_come_in_front_of_what_has_them(target: Target, own: str) -> None:
    def weighted(x: Any, scale: Any) -> Any:
        assert tuple(x.shape) == (4, 2)
        assert tuple(scale.shape) == (2,)
        return x * scale

    x_data, scales = numbers((4, 5, 2)), numbers((5, 2), seed=1)
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x, scale = tp.input("x", (2,), (b, t)), tp.input("scale", (2,), (t,))
        (y,) = tp.backend_call(weighted, x, scale, out=[((2,), "float32")], backend=own, batched=(b,))
        tp.output("y", y)
        tp.output("total", y[0 : b.size].sum(axis=0))
    y_ = x_data * scales
    target.agrees(program, {"y": y_, "total": y_.sum(0)}, x=x_data, scale=scales)


def test_a_window_is_read_and_what_is_read_later_is_kept(target: Target, own: str) -> None:
    """The function hands on its argument: what follows must not see that memory change."""
    x_data = numbers((6, 2))
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        h = tp.recurrent("h", (2,), (t,))
        (same,) = tp.backend_call(lambda a: a, h, out=[((2,), "float32")], backend=own)
        h[0] = x
        h[t + 1] = x[t + 1] - same
        tp.output("pairs", same[tp.max(t - 1, 0) : t + 1].sum(axis=0))
        tp.output("same", same + 0)
    h_ = [x_data[0]]
    for row in x_data[1:]:
        h_.append(row - h_[-1])
    pairs = [h_[at] + (h_[at - 1] if at else 0) for at in range(6)]
    target.agrees(program, {"pairs": np.array(pairs), "same": np.array(h_)}, x=x_data)


def test_it_may_be_needed_at_some_points_only(target: Target, own: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t", 6)
        (doubled,) = tp.backend_call(
            lambda a: a * 2, tp.as_tensor(t, dtype=tp.float32), out=[((), "float32")], backend=own
        )
        tp.output("even", tp.cases((t % 2 == 0, doubled), -1.0))
        tp.output("third", doubled[3])
    target.agrees(program, {"even": np.array([0, -1, 4, -1, 8, -1]), "third": np.array(6)})


@pytest.mark.one_configuration
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda a: None, "returned None, declared: 1"),
        (lambda a: (a, a), "returned 2 results, declared: 1"),
        (lambda a: a[:1], r"float32\[1\], declared is float32\[2\]"),
        (lambda a: a > 0, r"bool\[2\], declared is float32\[2\]"),
        (lambda a: a.no_such_method(), "failed: AttributeError"),
    ],
    ids=["nothing", "too-many", "shape", "dtype", "raises"],
)
@pytest.mark.one_process
def test_what_is_not_as_declared_is_refused_at_the_users_line(
    target: Target, own: str, function: Any, said: str
) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        (y,) = tp.backend_call(function, x, out=[((2,), "float32")], backend=own)  # the user's line
        tp.output("y", y)
    with pytest.raises(tp.BackendCallError, match=said) as caught:
        target.compile(program)(x=numbers((3, 2)))
    assert "the user's line" in str(caught.value)
