"""Family 6, learning from the past at random: windows of what the program made, read at indices that are data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers

ROWS, BATCH, KEPT, EVERY, RATE, GAMMA = 2, 3, 4, 3, 0.1, 0.9


def program_of(last: bool) -> tp.Program:
    """Values linear in the state, which the weights move; `last`: only what the last step gives is an output."""
    with tp.Program() as program:
        t = tp.dim("t")
        row = tp.input("row", (BATCH,), (t,), dtype=tp.int32)
        unit = tp.input("unit", (BATCH,), (t,))
        start = tp.input("start", (ROWS, 2), ())
        w = tp.parameter("w", (2,), init=np.array([0.5, -0.25], np.float32), dims=(t,))
        state = tp.recurrent("state", (ROWS, 2), (t,))
        following = 0.8 * state + 0.3 * tp.tanh(state * w + 1.0)
        state[0] = start
        state[t + 1] = following
        reward = (state * state).sum(axis=-1)

        first = tp.max(t + 1 - KEPT, 0)
        point = (unit * tp.as_tensor(t + 1 - first)).astype(tp.int32)
        drawn = {
            name: tp.stop_gradient(x[first : t + 1].spatial[point, row])
            for name, x in {"state": state, "following": following, "reward": reward}.items()
        }
        frozen = tp.recurrent("frozen", (2,), (t,))
        frozen[t % EVERY == 0] = tp.stop_gradient(w)
        frozen[t + 1] = frozen
        goal = drawn["reward"] + GAMMA * drawn["following"] @ frozen
        error = drawn["state"] @ w - goal
        loss = 0.5 * (error * error).mean()
        w[t + 1] = w - RATE * tp.grad(loss, w)
        tp.output("loss", loss[t.size - 1] if last else loss)
        tp.output("state", state[t.size - 1] if last else state)
    return program


def inputs(steps: int) -> dict[str, Any]:
    random = np.random.default_rng(5)
    return {
        "row": random.integers(0, ROWS, (steps, BATCH)).astype(np.int32),
        "unit": random.uniform(0.01, 0.99, (steps, BATCH)).astype(np.float32),
        "start": numbers((ROWS, 2)),
    }


def by_hand(row: Array, unit: Array, start: Array) -> dict[str, Any]:
    """In float64, with a list for the buffer."""
    w, state = np.array([0.5, -0.25]), start.astype(np.float64)
    seen: list[tuple[Array, Array]] = []
    losses, states = [], []
    for t in range(len(row)):
        if t % EVERY == 0:
            frozen = w
        following = 0.8 * state + 0.3 * np.tanh(state * w + 1.0)
        seen = [*seen, (state, following)][-KEPT:]
        chosen = [seen[int(u * np.float32(len(seen)))] for u in unit[t]]
        now, after = (np.stack([each[at][r] for each, r in zip(chosen, row[t])]) for at in (0, 1))
        error = now @ w - ((now * now).sum(axis=-1) + GAMMA * after @ frozen)
        losses.append(0.5 * (error * error).mean())
        states.append(state)
        w, state = w - RATE * error @ now / BATCH, following
    return {"loss": np.array(losses), "state": np.stack(states), "w": w}


@pytest.mark.parametrize("steps", [1, 3, 14])
def test_learning_from_the_past_at_random_points(target: Target, steps: int) -> None:
    given = inputs(steps)
    expected = by_hand(**given)
    del expected["w"]
    target.agrees(program_of(last=False), expected, tolerance=20, **given)


def test_a_buffer_holds_no_more_than_its_capacity(target: Target) -> None:
    if target.interprets:
        pytest.skip("nothing is stored by a plan")
    given = inputs(40)
    expected = by_hand(**given)
    expected = {name: expected[name][-1] for name in ("loss", "state")}
    target.agrees(program_of(last=True), expected, tolerance=50, **given)
    run = target.compile(program_of(last=True), sizes={"t": 40})
    kept = [each.shape[0] for each in run.memory.buffers if each.role == "internal" and each.shape[1:] == (ROWS, 2)]
    assert kept, run.memory.buffers
    assert max(kept) <= KEPT + 1
