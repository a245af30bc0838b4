"""Loops as CUDA graphs, on the device that is not there: what is recorded, how often, and that none of it is stale."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.backend import TorchBackend
from tempo_torch.graphs import KEPT
from tempo_torch.moving import REACH, Place, Position, bucket, number
from tempo_torch.simulated import RefusedError, SimulatedBackend, rerun
from tempo_torch.stretches import LITTLE

import tempo as tp
from tempo.symbolic import dim, maximum, minimum

Launch = Callable[[], None]


class Counting:
    """In the place of a graph the same work once more, counted. `few` and `once` as on the device."""

    def __init__(self, few: int = 0, once: int = 0) -> None:
        self.few, self.once, self.recorded, self.launched = few, once, 0, 0

    @staticmethod
    def address(tensor: Any) -> int:
        return int(getattr(tensor, "held", tensor).data_ptr())

    @staticmethod
    def memory(tensor: Any) -> int:
        return int(getattr(tensor, "held", tensor).untyped_storage().data_ptr())

    @staticmethod
    def is_here() -> bool:
        return True

    def __call__(self, work: Launch) -> Launch:
        self.recorded += 1
        again = rerun(work)

        def launch() -> None:
            self.launched += 1
            again()

        return launch


def simulated(**named: int) -> tuple[SimulatedBackend, Counting]:
    backend = SimulatedBackend()
    backend.recorder = Counting(**named)  # type: ignore[assignment]
    return backend, backend.recorder  # type: ignore[return-value]


def arrays(backend: Any, found: Any) -> dict[str, np.ndarray]:
    return {name: backend.to_host(value).copy() for name, value in found.items()}


def agree(program: tp.Program, backend: SimulatedBackend, runs: int = 3, **given: Any) -> tp.Executable:
    """All runs give what the CPU gives."""
    run, cpu = tp.compile(program, backend), TorchBackend()
    wanted = arrays(cpu, tp.compile(program, cpu)(**given))
    for _ in range(runs):
        for name, value in arrays(backend, run(**given)).items():
            np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)
    return run


def chain(steps: int, made: Callable[[tp.Tensor, tp.Dim], tp.Tensor]) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t", steps)
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = tp.input("start", shape=(3,))
        h[t + 1] = made(h, t)
        tp.output("h", h)
    return program


START = np.arange(3, dtype=np.float32)


def test_one_graph_serves_many_steps() -> None:
    backend, recorder = simulated()
    agree(chain(1000, lambda h, t: tp.tanh(h) + 1), backend, runs=1, start=START)
    assert recorder.recorded <= 3
    assert recorder.launched <= 1000 // 16


def test_positions_are_read_on_the_device() -> None:
    backend, recorder = simulated()
    agree(chain(50, lambda h, t: h * 0.5 + tp.where(t % 3 == 1, 1.0, 0.0) + t), backend, start=START)
    assert recorder.recorded


def test_each_choice_has_a_graph() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 60)
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = tp.input("start", shape=(3,))
        h[t + 1] = tp.cases((t % 2 == 0, tp.sin(h)), h + 1)
        tp.output("h", h)
    backend, recorder = simulated()
    agree(program, backend, start=START)
    assert recorder.recorded > 1


@pytest.mark.parametrize("window", [1, 4])
def test_windows_of_the_past(window: int) -> None:
    with tp.Program() as program:
        t = tp.dim("t", 40)
        x = tp.input("x", shape=(2,), dims=(t,))
        h = tp.recurrent("h", shape=(2,), dims=(t,))
        h[0] = x[0]
        h[t + 1] = tp.tanh(h[tp.max(t - window + 1, 0) : t + 1].sum(axis=0)) + x[t + 1]
        tp.output("h", h)
    backend, recorder = simulated()
    agree(program, backend, x=np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32))
    assert recorder.recorded


def test_a_run_backwards() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 40)
        x = tp.input("x", shape=(2,), dims=(t,))
        g = tp.recurrent("g", shape=(2,), dims=(t,))
        g[t] = tp.cases((t < t.last, x + 0.5 * g[t + 1]), x)
        tp.output("g", g)
    backend, recorder = simulated()
    agree(program, backend, x=np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32))
    assert recorder.recorded


def test_what_is_given_next_is_what_counts() -> None:
    """Small inputs are copied, so one set of graphs serves arrays that lie anywhere."""
    backend, recorder = simulated()
    program = chain(50, lambda h, t: h * 0.5 + 1)
    run = agree(program, backend, start=START)
    before = recorder.recorded
    held = [run(start=START * at) for at in range(4)]  # so that no array lies where one lay before
    for at, each in enumerate(held):
        wanted = START * at
        assert np.allclose(backend.to_host(each["h"])[1], wanted * 0.5 + 1)
    assert recorder.recorded <= before * (1 + 4)


def test_only_so_many_sets_are_kept() -> None:
    backend, recorder = simulated()
    run = tp.compile(chain(50, lambda h, t: h * 0.5 + 1), backend)
    held = [run(start=START) for _ in range(2 * KEPT)]
    assert all(np.array_equal(backend.to_host(each["h"]), backend.to_host(held[0]["h"])) for each in held)
    assert recorder.recorded


def test_slots_that_exchange_parts() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 40)
        a, b = (tp.recurrent(name, shape=(4,), dims=(t,)) for name in "ab")
        start = tp.input("start", shape=(4,))
        a[0], b[0] = start, start * 2
        a[t + 1] = tp.concatenate([b.spatial[1:], b.spatial[:1]], axis=0)
        b[t + 1] = a
        tp.output("a", a[t.size - 1])
        tp.output("b", b[t.size - 1])
    backend, recorder = simulated()
    agree(program, backend, start=np.arange(4, dtype=np.float32))
    assert recorder.recorded


def test_choices_that_differ_from_step_to_step_are_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempo_torch.graphs.MOST", 4)
    with tp.Program() as program:
        t = tp.dim("t", 60)
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = tp.input("start", shape=(3,))
        h[t + 1] = tp.cases(*(((t % 3 == 0) & (t < at), tp.sin(h) * at) for at in range(3, 30, 3)), h + 1)
        tp.output("h", h)
    backend, recorder = simulated()
    agree(program, backend, runs=5, start=START)
    assert recorder.recorded <= 4


def test_nothing_of_a_call_is_kept() -> None:
    backend, _ = simulated()
    run = tp.compile(chain(50, lambda h, t: h * 0.5 + 1), backend)
    found = run(start=START)["h"]
    held = weakref.ref(found)
    del found
    gc.collect()
    assert held() is None


def test_large_inputs_are_read_where_they_lie() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 40)
        w = tp.input("w", shape=(LITTLE, 3))
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = tp.input("start", shape=(3,))
        h[t + 1] = tp.tanh((w * h).mean(axis=0))
        tp.output("h", h)
    backend, _ = simulated()
    draw = np.random.default_rng(0)
    for _ in range(2):
        agree(program, backend, w=draw.normal(size=(LITTLE, 3)).astype(np.float32), start=START)


def test_what_waits_stands_between_graphs() -> None:
    def user(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with tp.Program() as program:
        t = tp.dim("t", 40)
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = tp.input("start", shape=(3,))
        (made,) = tp.backend_call(user, tp.tanh(h), out=[((3,), tp.float32)], backend="torch")
        h[t + 1] = made * 2
        tp.output("h", h)
    backend, recorder = simulated()
    run = agree(program, backend, start=START)
    assert recorder.recorded
    assert "not in a CUDA graph: backend_call (what a function of the user's does is not known)" in run.explain("code")


def test_an_index_out_of_range_says_where() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 40)
        table = tp.input("table", shape=(30, 3))
        index = tp.input("index", shape=(), dims=(t,), dtype=tp.int32)
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = tp.input("start", shape=(3,))
        h[t + 1] = h * 0.5 + table.spatial[index + (h.sum() * 0).astype(tp.int32)]
        tp.output("h", h)
    backend, recorder = simulated()
    given = {"table": np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), "start": START}
    places = np.arange(40, dtype=np.int32) % 30
    run = agree(program, backend, index=places, **given)
    assert recorder.recorded
    places[[25, 33]] = 31, -4
    with pytest.raises(tp.IndexOutOfRangeError, match="index 31 is out of range for an axis of size 30.*t = 25"):
        run(index=places, **given)


def test_calls_of_few_operators_are_run_one_by_one() -> None:
    backend, recorder = simulated(few=1000)
    agree(chain(40, lambda h, t: h * 0.5 + 1), backend, start=START)
    assert not recorder.recorded


def test_a_short_loop_is_recorded_when_its_arrays_come_again() -> None:
    backend, recorder = simulated(once=1000)
    run = tp.compile(chain(40, lambda h, t: h * 0.5 + 1), backend)
    run(start=START)
    assert not recorder.recorded
    for _ in range(8):
        run(start=START)
    assert recorder.recorded


def test_waiting_in_what_is_recorded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo_torch.operators import TABLE, elementwise

    planted = {**TABLE, "tanh": lambda call, device: lambda x: torch.tanh(x) * float(x.sum())}
    monkeypatch.setattr("tempo_torch.backend.TABLE", planted)
    assert elementwise
    backend, _ = simulated()
    with pytest.raises(Exception) as caught:
        tp.compile(chain(40, lambda h, t: tp.tanh(h)), backend)(start=START)
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, RefusedError):
        error = error.__cause__ or error.__context__
    assert "waits for the device in what is recorded" in str(error)


def test_graphs_may_be_left_out() -> None:
    backend = SimulatedBackend()
    backend.recorder = None  # type: ignore[assignment]
    assert "CUDA graph" not in tp.compile(chain(40, lambda h, t: h * 0.5), backend).explain("code")


# -- numbers on the device ---------------------------------------------------------------------------------------------


def test_positions() -> None:
    position = Position(torch.device("cpu"))
    position.set(10)
    assert [int(position.at(distance)) for distance in (-1, 0, 5, REACH + 7)] == [9, 10, 15, REACH + 17]
    position.advance(-3)
    assert int(position.at(1)) == 8


@pytest.mark.parametrize("at", [0, 3, 9])
def test_numbers_of_positions(at: int) -> None:
    t_, k_ = dim("t"), dim("k")
    (t,), (k,) = t_.symbols(), k_.symbols()
    position = Position(torch.device("cpu"))
    position.set(at)
    values = {t: Place(position, 2), k: 5}
    known = {t: at + 2, k: 5}
    for expr in (t_, t_ + 1, k_ - 2, t_ - k_, 3 * t_ + k_, t_ % 4, t_ // 3, minimum(t_, k_), maximum(t_ - 4, k_ - 5)):
        assert int(number(expr, values)) == expr.evaluate(known), str(expr)


def test_buckets_of_lengths() -> None:
    lengths = range(1, 10_000)
    assert all(length <= bucket(length) <= length + max(64, length // 4) for length in lengths)
    assert len({bucket(length) for length in lengths}) < 40


# -- what was found by looking for it ----------------------------------------------------------------------------------


def of_user(x: tp.RecurrentTensor, function: Callable[[torch.Tensor], torch.Tensor]) -> tp.RecurrentTensor:
    (made,) = tp.backend_call(function, x, out=[((3,), tp.float32)], backend="torch")
    return made


def test_a_part_of_a_slot_outlives_what_the_slot_held() -> None:
    """It begins within the slot's cell, which the stretch gives another value."""
    with tp.Program() as program:
        t = tp.dim("t", 30)
        b, c = tp.recurrent("b", shape=(2, 3), dims=(t,)), tp.recurrent("c", shape=(3,), dims=(t,))
        b[0], c[0] = tp.input("b0", shape=(2, 3)), tp.input("c0", shape=(3,))
        c[t + 1] = tp.sin(of_user(b.spatial[1], lambda x: x * 0.5)) + c * 0.1
        b[t + 1] = tp.stack([tp.tanh(b.spatial[1]) + 0.1, b.spatial[0] * 2], axis=0)
        tp.output("b", b[t.last])
        tp.output("c", c[t.last])
    backend, recorder = simulated()
    draw = np.random.default_rng(0)
    agree(program, backend, b0=draw.normal(size=(2, 3)).astype(np.float32), c0=START)
    assert recorder.recorded


def test_sizes_that_a_segment_is_not_given() -> None:
    """The loop over batches knows nothing of how many epochs its buffers have."""
    with tp.Program() as program:
        e, m = tp.dims("e m")
        x = tp.input("x", (4, 3), (m,))
        w = tp.parameter("w", (3,), init=START, dims=(e, m))
        tp.optim.Adam(0.03, dim=(e, m)).minimize(((x @ w - 1) ** 2).mean(), {"w": w})
        tp.output("w", w)
    backend, recorder = simulated()
    run, cpu = tp.compile(program, backend), tp.compile(program, TorchBackend())
    x_data = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)
    for epochs in (2, 3):
        found, wanted = (each(sizes={"e": epochs}, x=x_data)["w"] for each in (run, cpu))
        np.testing.assert_allclose(backend.to_host(found), wanted.numpy(), rtol=1e-5, atol=1e-6)
    assert recorder.recorded


def test_nothing_of_a_call_is_held_after_it() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 40)
        w = tp.input("w", shape=(100, 100))
        h = tp.recurrent("h", shape=(100,), dims=(t,))
        h[0] = w.spatial[0]
        h[t + 1] = tp.tanh(w @ h)
        tp.output("h", h)
    backend, recorder = simulated()
    run = tp.compile(program, backend)
    given = backend.from_host(np.eye(100, dtype=np.float32))
    found = run(w=given)["h"]
    held = [weakref.ref(each.held.untyped_storage()) for each in (given, found)]  # type: ignore[attr-defined]
    del given, found
    gc.collect()
    assert [each() for each in held] == [None, None]
    assert recorder.recorded


def test_calls_of_several_threads() -> None:
    backend, recorder = simulated()
    run = tp.compile(chain(100, lambda h, t: tp.tanh(h) + 0.1), backend)
    given = [START + at for at in range(4)]
    wanted = [backend.to_host(run(start=each)["h"]).copy() for each in given]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda each: backend.to_host(run(start=each)["h"]).copy(), given * 4))
    assert all(np.allclose(each, wanted[at % 4]) for at, each in enumerate(found))
    assert recorder.recorded


def test_a_call_within_a_call() -> None:
    backend, _ = simulated()
    runs: list[tp.Executable] = []
    inner: list[Any] = []

    def again(x: torch.Tensor) -> torch.Tensor:
        if not inner:
            inner.append(None)
            inner[0] = runs[0](start=START + 1)["h"]
        return x + 0.5

    runs.append(tp.compile(chain(40, lambda h, t: of_user(h * 0.5, again)), backend))
    found = arrays(backend, runs[0](start=START))["h"]
    np.testing.assert_allclose(found, arrays(backend, runs[0](start=START))["h"])
    np.testing.assert_allclose(backend.to_host(inner[0]), arrays(backend, runs[0](start=START + 1))["h"])


def test_the_simulation_sees_what_a_graph_would_not() -> None:
    backend = SimulatedBackend()
    one, other = (backend.from_host(np.full(3, value, np.float32)) for value in (1, 2))
    kept: list[Any] = [one]

    def elsewhere() -> None:
        kept[0] + 1

    launch = rerun(elsewhere)
    launch()
    launch()
    kept[0] = other
    with pytest.raises(RefusedError, match="a graph would look at another address: add"):
        launch()
    with pytest.raises(RefusedError, match="what a graph makes is held after it: mul"):
        rerun(lambda: kept.append(one * 2))()
