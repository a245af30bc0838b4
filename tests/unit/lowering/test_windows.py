"""Windows under nested, backward and shifted loops hold what is read: run with NaN in every buffer at first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp


def both_ways() -> None:
    """Forward along t for each i, then backward, which the next i reads."""
    i, t = tp.dims("i t")
    forward = tp.recurrent("forward", shape=(2,), dims=(i, t))
    backward = tp.recurrent("backward", shape=(2,), dims=(i, t))
    forward[0, t] = tp.arange(2) + t * tp.ones((2,))
    forward[i + 1, 0] = backward[i, 0]
    forward[i + 1, t] = forward[i + 1, t - 1] * 0.5 + backward[i, t]
    backward[i, t.size - 1] = forward[i, t.size - 1]
    backward[i, t] = backward[i, t + 1] * 0.5 + forward[i, t]
    tp.output("sum", backward[i.size - 1, 0 : t.size].sum(axis=0))


def stencil() -> None:
    i, t = tp.dims("i t")
    f = tp.recurrent("f", shape=(), dims=(i, t))
    f[0, t] = tp.as_tensor(t, dtype=tp.float32)
    f[i + 1, 0] = f[i, 0] + 1
    f[i + 1, t.size - 1] = f[i, t.size - 1]
    f[i + 1, t] = f[i, t - 1] * 0.3 + f[i, t + 1] * 0.2 + f[i, t]
    tp.output("f", f[i.size - 1])


def two_dims_back() -> None:
    i, t = tp.dims("i t")
    f = tp.recurrent("f", shape=(2,), dims=(i, t))
    f[i < 2] = tp.ones((2,)) * t
    f[i >= 2] = f[i - 2, tp.max(t - 2, 0) : t + 1].sum(axis=0) * 0.3 + f[i - 1, t]
    tp.output("f", f[i.size - 1])


def window_inside() -> None:
    i, t = tp.dims("i t")
    f = tp.recurrent("f", shape=(2,), dims=(i, t))
    f[i, 0] = tp.ones((2,)) * i
    f[i, t] = f[i, tp.max(t - 3, 0) : t].sum(axis=0) * 0.3 + tp.tanh(f[tp.max(i - 1, 0), tp.max(t - 1, 0)])
    tp.output("f", f[i, t.size - 1])


def window_ahead() -> None:
    i, t = tp.dims("i t")
    f = tp.recurrent("f", shape=(2,), dims=(i, t))
    f[i, t.size - 1] = tp.ones((2,)) * i
    f[i, t] = f[i, t + 1 : tp.min(t + 4, t.size)].sum(axis=0) * 0.4 + t
    tp.output("first", f[i, 0])
    tp.output("start", f[i, 0 : tp.min(3, t.size)].sum())


def read_late() -> None:
    i, t = tp.dims("i t")
    w = tp.recurrent("w", shape=(2,), dims=(i,))
    h = tp.recurrent("h", shape=(2,), dims=(i, t))
    w[0] = tp.ones((2,))
    w[i + 1] = w + h[i, t.size - 1] - h[i, 0] + h[tp.max(i - 2, 0), t.size // 2]
    h[i, 0] = w
    h[i, t + 1] = tp.tanh(h + w)
    tp.output("w", w)


def carried() -> None:
    """What the inner loop ends with is what it begins with in the next round: forward, and backward."""
    i, t = tp.dims("i t")
    w = tp.recurrent("w", shape=(2,), dims=(i, t))
    updated = tp.tanh(w) + i - t
    w[0, 0] = tp.ones((2,))
    w[i, t] = tp.cases((t >= 1, updated[i, t - 1]), (True, updated[i - 1, t.size - 1]))
    v = tp.recurrent("v", shape=(2,), dims=(i, t))
    lowered = tp.tanh(v) + i + t
    v[0, t.size - 1] = tp.ones((2,))
    v[i, t] = tp.cases((t < t.size - 1, lowered[i, t + 1]), (True, lowered[i - 1, 0]))
    tp.output("w", updated[i.size - 1, t.size - 1])
    tp.output("v", lowered[i.size - 1, 0])


def carried_and_read_later() -> None:
    """The same, but a later loop of the round still needs what the round began with."""
    i, t = tp.dims("i t")
    w = tp.recurrent("w", shape=(2,), dims=(i, t))
    updated = tp.tanh(w) + i - t
    w[0, 0] = tp.ones((2,))
    w[i, t] = tp.cases((t >= 1, updated[i, t - 1]), (True, updated[i - 1, t.size - 1]))
    end = tp.recurrent("end", shape=(2,), dims=(i, t))
    end[i, t.size - 1] = w[i, 0] * updated[i, t.size - 1]
    end[i, t] = tp.sin(end[i, t + 1]) + updated[tp.max(i - 1, 0), t.size - 1] + w[i, 0]
    tp.output("end", end[i.size - 1, 0])


@pytest.mark.parametrize("sizes", [{"i": 5, "t": 7}, {"i": 1, "t": 3}, {"i": 4, "t": 1}], ids=str)
@pytest.mark.parametrize(
    "declare",
    [both_ways, stencil, two_dims_back, window_inside, window_ahead, read_late, carried, carried_and_read_later],
)
def test_windows_hold_what_is_read(declare: Callable[[], None], sizes: dict[str, int]) -> None:
    with tp.Program(declare.__name__) as program:
        declare()
    expected = tp.compile(program, backend="reference")(sizes=sizes)
    for lift in (True, False):
        found = tp.compile(program, options=tp.Options(poison=True, lift=lift))(sizes=sizes)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5)


def test_what_nested_loops_hand_on_keeps_one_point() -> None:
    with tp.Program("carried") as program:
        carried()
    kept = tp.compile(program, sizes={"i": 5, "t": 7}).memory.buffers
    assert {each.storage for each in kept if each.shape[-1:] == (2,)} <= {"point", "register"}
