"""Whole programs on PyTorch against the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tempo_torch.arrays import to_host

import tempo as tp
from tempo.conformance.random_programs import random_program
from tempo.conformance.random_programs.agreement import Mode, Situation, check

DRAW = np.random.default_rng(0)
Inputs = Mapping[str, Any]
Made = tuple[tp.Program, Inputs]


def floats(*shape: int) -> np.ndarray:
    return DRAW.normal(0, 0.5, shape).astype(np.float32)


def recurrence() -> Made:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        w = tp.input("w", shape=(4, 4), dims=())
        x = tp.input("x", shape=(4,), dims=(b, t))
        h = tp.recurrent("h", shape=(4,), dims=(b, t))
        h[b, 0] = tp.zeros((4,))
        h[b, t + 1] = tp.tanh(h @ w + x)
        tp.output("h", h)
        tp.output("last", h[b, t.size - 1])
    return program, {"w": floats(4, 4), "x": floats(2, 6, 4)}


def shared_row() -> Made:
    """A window of one row is read and written at one step."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3, 3), dims=(t,))
        s = tp.recurrent("s", shape=(3, 3), dims=(t,))
        s[0] = x
        s[t + 1] = s.T * 2.0 - x[t + 1]
        tp.output("sums", s.sum(axis=0))
        tp.output("last", s[t.size - 1])
    return program, {"x": floats(5, 3, 3)}


def fibonacci() -> Made:
    with tp.Program() as program:
        t = tp.dim("t", 12)
        f = tp.recurrent("f", shape=(), dims=(t,), dtype=tp.int64)
        f[0] = 1
        f[1] = 1
        f[t + 2] = f[t] + f[t + 1]
        tp.output("f", f)
        tp.output("f_mod", f % 5 - f // 3)
    return program, {}


def windows() -> Made:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,))
        h = tp.recurrent("h", shape=(2,), dims=(t,))
        h[t] = x + 0.1 * h[tp.max(t - 3, 0) : t].sum(axis=0)
        tp.output("h", h)
        tp.output("ahead", x[t : tp.min(t + 2, t.size)].sum(axis=0))
    return program, {"x": floats(9, 2)}


def prefixes() -> Made:
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, shape=(2, 3), dims=(t,)) for name in "qkv")
        scores = (k[0 : t + 1] * q).sum(axis=-1) / 2.0
        tp.output("out", (tp.softmax(scores, axis=0).reshape(t + 1, 2, 1) * v[0 : t + 1]).sum(axis=0))
        tp.output("most", x_max(v[0 : t + 1]))
    return program, {name: floats(7, 2, 3) for name in "qkv"}


def x_max(x: Any) -> Any:
    return x.max(axis=0)


def backward_returns() -> Made:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        reward = tp.input("reward", shape=(), dims=(b, t))
        done = tp.input("done", shape=(), dims=(b, t), dtype=tp.bool)
        returns = tp.recurrent("returns", shape=(), dims=(b, t))
        returns[b, t.size - 1] = reward
        returns[b, t] = reward + 0.9 * returns[b, t + 1] * (1.0 - done.astype(tp.float32))
        tp.output("returns", returns)
    return program, {"reward": floats(3, 8), "done": DRAW.random((3, 8)) < 0.2}


def grid() -> Made:
    with tp.Program() as program:
        i, j = tp.dims("i j")
        cost = tp.input("cost", shape=(), dims=(i, j))
        best = tp.recurrent("best", shape=(), dims=(i, j))
        best[0, 0] = cost
        best[i == 0] = best[i, j - 1] + cost
        best[j == 0] = best[i - 1, j] + cost
        best[i, j] = tp.minimum(best[i - 1, j], best[i, j - 1]) + cost
        tp.output("best", best)
    return program, {"cost": floats(4, 5)}


def layers() -> Made:
    """Layers as a dim, in the inner loop of a recurrence over time."""
    with tp.Program() as program:
        t, layer = tp.dims("t l")
        w = tp.input("w", shape=(3, 3), dims=(layer,))
        x = tp.input("x", shape=(3,), dims=(t,))
        h = tp.recurrent("h", shape=(3,), dims=(t, layer))
        h[t, 0] = x + tp.cases((t > 0, h[t - 1, layer.size - 1]), 0.0)
        h[t, layer + 1] = tp.relu(h @ w) + h
        tp.output("out", h[t, layer.size - 1])
    return program, {"w": floats(3, 3, 3), "x": floats(4, 3)}


def draws() -> Made:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        tp.output("bits", tp.random.bits((2,), dims=(b, t)))
        tp.output("wide", tp.random.bits((), dims=(t,), dtype="uint64"))
        tp.output("narrow", tp.random.bits((3,), dims=(), dtype="uint16"))
        tp.output("uniform", tp.random.uniform((5,), dims=(t,), dtype=tp.float64))
        tp.output("order", tp.random.permutation(7, dims=(b,)))
        walk = tp.recurrent("walk", shape=(), dims=(b, t))
        walk[b, 0] = 0.0
        walk[b, t + 1] = walk + tp.random.uniform((), -1.0, 1.0, dims=(b, t))
        tp.output("walk", walk)
        tp.output("normal", tp.random.normal((4,), dims=(b,)))
    return program, {"sizes": {"b": 3, "t": 4}}


def dtypes() -> Made:
    """Accumulations of halves, small integers that wrap, unsigned integers, comparisons."""
    with tp.Program() as program:
        t = tp.dim("t")
        half = tp.input("half", shape=(5,), dims=(t,), dtype=tp.float16)
        byte = tp.input("byte", shape=(5,), dims=(t,), dtype=tp.uint8)
        word = tp.input("word", shape=(5,), dims=(t,), dtype=tp.uint32)
        run = tp.recurrent("run", shape=(5,), dims=(t,), dtype=tp.uint32)
        run[0] = word
        run[t + 1] = run * 3 + word[t + 1] - (run >> 2)
        tp.output("half", half[0 : t + 1].sum(axis=0))
        tp.output("byte", byte * 7 + 250)
        tp.output("word", run)
        tp.output("order", tp.maximum(word, run) > 2**31)
        tp.output("divided", byte // (byte - byte[0]))
    return program, {
        "half": DRAW.normal(0, 100, (6, 5)).astype(np.float16),
        "byte": DRAW.integers(0, 256, (6, 5)).astype(np.uint8),
        "word": DRAW.integers(0, 2**32, (6, 5)).astype(np.uint32),
    }


def gathered() -> Made:
    with tp.Program() as program:
        t = tp.dim("t")
        table = tp.input("table", shape=(7, 2), dims=())
        token = tp.recurrent("token", shape=(), dims=(t,), dtype=tp.int32)
        row = table.spatial[token]
        token[0] = 3
        token[t + 1] = (token * 5 + row.argmax(axis=-1)) % 7
        tp.output("row", row)
        tp.output("token", token)
    return program, {"table": floats(7, 2), "sizes": {"t": 9}}


PROGRAMS: tuple[Callable[[], Made], ...] = (
    recurrence,
    shared_row,
    fibonacci,
    windows,
    prefixes,
    backward_returns,
    grid,
    layers,
    draws,
    dtypes,
    gathered,
)


@pytest.mark.parametrize("lift", [True, False], ids=["lifted", "looped"])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_a_program_means_what_the_reference_says(make: Callable[[], Made], lift: bool):
    program, inputs = make()
    expected = tp.compile(program, backend="reference")(seed=5, **inputs)
    run = tp.compile(program, backend="torch", options=tp.Options(lift=lift, poison=True))
    for _ in range(2):  # the second run finds what the first left
        outputs = run(seed=5, **inputs)
        for name, wanted in expected.items():
            found = to_host(outputs[name])
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            if np.issubdtype(wanted.dtype, np.integer) or wanted.dtype == bool:
                np.testing.assert_array_equal(found, wanted)
            else:
                tolerance = 1e-3 if wanted.dtype == np.float16 else 1e-5
                np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_draws_are_the_same_bits_as_numpys():
    program, inputs = draws()
    ours, numpys = (tp.compile(program, backend=backend)(seed=11, **inputs) for backend in ("torch", "numpy"))
    for name in ("bits", "wide", "narrow", "uniform", "order"):
        np.testing.assert_array_equal(to_host(ours[name]), numpys[name])


def test_a_parameter_goes_on_from_the_state_of_another_run():
    with tp.Program() as program:
        i = tp.dim("i", 4)
        w = tp.parameter("w", (2,), init=[1.0, 2.0], dims=(i,))
        count = tp.parameter("count", (), init=0, dims=(i,), dtype=tp.int32)
        w[i + 1] = w * 2
        count[i + 1] = count + 1
        tp.output("w", w)
    run = tp.compile(program, backend="torch")
    first = run()
    np.testing.assert_array_equal(first.state["w"], [8, 16])
    again = run(state=first.state)
    np.testing.assert_array_equal(again["w"][0], [8, 16])
    assert int(again.state["count"]) == 6
    np.testing.assert_array_equal(first.state["w"], [8, 16])  # a run changes nothing that it was given


class Environment:
    """Records what it is told, and keeps the arrays that it is given and gives."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []
        self.total = np.zeros(2, np.float32)

    def reset(self) -> np.ndarray:
        self.total = np.zeros(2, np.float32)
        return self.total

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.seen.append(action)
        self.total += action  # in place: what was returned before must have been copied
        return self.total, self.total.sum() > 3


def environment() -> tuple[tp.Program, Environment]:
    world = Environment()
    with tp.Program() as program:
        i, t = tp.dims("i t")
        (first,) = tp.host_call(world.reset, out=[((2,), tp.float32)], ordered_by=(i,), resource="world")
        seen = tp.recurrent("seen", shape=(2,), dims=(i, t))
        action = seen * 0.5 + 1.0
        following, done = tp.host_call(
            world.step, action, out=[((2,), tp.float32), ((), tp.bool)], ordered_by=(i, t), resource="world"
        )
        seen[i, 0] = first
        seen[i, t + 1] = following
        tp.output("seen", seen)
        tp.output("done", done)
    return program, world


def test_host_calls_happen_in_order_with_what_the_reference_gives_them():
    runs = []
    for backend in ("torch", "reference"):
        program, world = environment()
        outputs = tp.compile(program, backend=backend, sizes={"i": 2, "t": 4})()
        runs.append((outputs, world.seen))
    (ours, calls), (wanted, wanted_calls) = runs
    np.testing.assert_array_equal(np.stack(calls), np.stack(wanted_calls))
    for name in wanted:
        np.testing.assert_array_equal(ours[name], wanted[name])


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_a_stream_gives_what_a_run_gives_and_steps_stay_as_they_were(chunk: int):
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(4,), dims=(t,))
        s = tp.recurrent("s", shape=(4,), dims=(t,))
        s[0] = x
        s[t + 1] = s * 0.5 + x[t + 1]
        tp.output("s", s)
    values = floats(6, 4)
    stream = tp.compile(program, backend="torch").stream("t", chunk=chunk, x=values)
    steps = [np.asarray(step["s"]).reshape(-1, 4) for step in stream]
    assert stream.result is not None
    np.testing.assert_array_equal(np.concatenate(steps), stream.result["s"])
    expected = tp.compile(program, backend="reference")(x=values)["s"]
    np.testing.assert_allclose(stream.result["s"], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("checks", [True, False])
def test_an_index_out_of_range_raises_where_checked_and_is_clamped_elsewhere(checks: bool):
    with tp.Program() as program:
        t = tp.dim("t")
        index = tp.input("index", shape=(2,), dims=(t,), dtype=tp.int32)
        table = tp.input("table", shape=(3,), dims=())
        tp.output("read", table.spatial[index])
    run = tp.compile(program, backend="torch", options=tp.Options(checks=checks))
    arguments = {"index": np.array([[0, 2], [-1, 7]], np.int32), "table": np.arange(3.0)}
    if not checks:
        np.testing.assert_array_equal(run(**arguments)["read"], [[0, 2], [0, 2]])
        return
    with pytest.raises(tp.IndexOutOfRangeError, match="index -1 is out of range for an axis of size 3"):
        run(**arguments)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_mean_what_the_reference_says(seed: int):
    program = random_program(seed)
    dims = program.build().program.graph().dims
    sizes = {dim.symbol.name: 1 + (seed + at) % 4 for at, dim in enumerate(dims) if not dim.size.is_const}
    modes = [Mode("torch", tp.Options(checks=True, lift=lift, poison=True, debug=True)) for lift in (True, False)]
    check(program, [Situation(sizes, seed), Situation(sizes, seed + 1, special=True)], modes)


def test_what_torch_cannot_allocate_is_told_in_the_words_of_the_plan() -> None:
    with tp.Program() as program:
        x = tp.input("x", (10**6,))
        tp.output("y", tp.exp(x.reshape((10**6, 1)) * x).max())
    run = tp.compile(program, backend="torch")
    with pytest.raises(tp.MemoryLimitError, match=r"float32\[1000000, 1000000\], 4000000000000 B"):
        run(x=np.zeros(10**6, np.float32))
