"""A limit of memory: plans that keep it, what they cost, and what is said where none does."""

import pickle
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.runtime.limit import limit_in_bytes


def network(steps: int | None) -> tp.Program:
    """A recurrence and its gradient: all states are kept, and all terms of derivatives."""
    with tp.Program("network") as program:
        t = tp.dim("t", steps)
        w = tp.input("w", (32, 32), ())
        h = tp.recurrent("h", (32, 32), (t,))
        h[0] = tp.ones((32, 32)) * 0.1
        h[t + 1] = tp.tanh(h @ w)
        tp.output("dw", tp.grad((h[t.size - 1] ** 2).sum(), {"w": w})["w"])
    return program


W = (np.random.default_rng(0).standard_normal((32, 32)) / 6).astype(np.float32)


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("2GiB", 2 << 30),
        ("1.5 GB", 1_500_000_000),
        ("500mb", 500_000_000),
        ("8 KiB", 8192),
    ],
)
def test_sizes_as_people_write_them(text: int | str, bytes: int) -> None:
    assert limit_in_bytes(text) == bytes


@pytest.mark.parametrize("text", ["", "much", "2 GiX", "-1GB", 0, -5, 1.5, True, "0MB", ["2GiB"], "٣MB"])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(tp.InputError, match="is no size") as caught:
        tp.compile(network(8), "numpy", memory_limit=text)
    assert "test_limit.py" in str(caught.value)


def test_where_the_plan_fits_nothing_changes() -> None:
    plain = tp.compile(network(64), "numpy")
    run = tp.compile(network(64), "numpy", memory_limit="1GB")
    assert run.memory.peak_bytes == plain.memory.peak_bytes
    assert [choice.how for choice in run.memory.choices] == ["as it is"]
    assert plain.memory.choices == ()


@pytest.mark.parametrize("part", [2, 5, 12])
def test_a_part_of_the_peak_is_met(part: int) -> None:
    plain = tp.compile(network(400), "numpy")
    limit = plain.memory.peak_bytes // part
    run = tp.compile(network(400), "numpy", memory_limit=limit)
    assert run.memory.peak_bytes <= limit
    *refused, taken = run.memory.choices
    assert taken.fits and not any(choice.fits for choice in refused)
    assert taken.how.startswith("recompute=") and taken.seconds > refused[0].seconds
    assert taken.how in run.explain("all")
    np.testing.assert_allclose(run(w=W)["dw"], plain(w=W)["dw"], rtol=2e-5, atol=2e-5)


def test_measured_it_is_kept() -> None:
    from tempo.backends.numpy.backend import NumpyBackend

    backend = NumpyBackend()
    limit = 12 << 18
    run = tp.compile(network(2_000), backend, memory_limit=limit)
    run(w=W)
    assert backend.measured_peak(lambda: run(w=W)) <= limit


def test_sizes_that_come_with_a_call_are_planned_then() -> None:
    run = tp.compile(network(None), "numpy", memory_limit="400KB")
    run(w=W, sizes={"t": 8})
    assert [choice.how for choice in run.memory.choices] == ["as it is"]
    run(w=W, sizes={"t": 100})
    assert run.memory.choices[-1].how.startswith("recompute=")
    with pytest.raises(tp.MemoryLimitError, match="no plan was found that holds at most 400000 B: the least holds"):
        run(w=W, sizes={"t": 100_000})


def test_what_is_given_and_returned_cannot_be_less() -> None:
    with pytest.raises(tp.MemoryLimitError, match="is given 4104 B and returns 4096 B, and may hold at most 8000 B"):
        tp.compile(network(8), "numpy", memory_limit=8_000)


def test_nothing_runs_where_nothing_fits() -> None:
    called: list[int] = []

    def noise(x: np.ndarray) -> np.ndarray:
        called.append(1)
        return x

    with tp.Program("calls") as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (64,), (t,))
        h[0] = tp.ones((64,))
        h[t + 1] = tp.host_call(noise, h, out=[((64,), tp.float32)], ordered_by=(t,))[0]
        tp.output("y", (h - h[0 : t.size].sum(axis=0))[0 : t.size].max())
    run = tp.compile(program, "numpy", memory_limit="50KB")
    with pytest.raises(tp.MemoryLimitError, match="the least holds"):
        run(sizes={"t": 2_000})
    assert not called


def test_what_the_user_has_chosen_stays() -> None:
    options = tp.Options(recompute={"t": 8}, mapping="full")
    with pytest.raises(tp.MemoryLimitError, match=r"the least holds \d+ B \(as it is\)"):
        tp.compile(network(400), "numpy", options=options, memory_limit="100KB")


def test_the_examples_of_a_batch_are_cut_where_they_are_what_is_held() -> None:
    with tp.Program("batch") as program:
        x, w = tp.input("x", (4096, 8), ()), tp.input("w", (8, 64), ())
        tp.output("dw", tp.grad((tp.tanh(x @ w) ** 2).sum(), {"w": w})["w"])
    plain = tp.compile(program, "numpy")
    run = tp.compile(program, "numpy", memory_limit=plain.memory.peak_bytes // 5)
    assert run.memory.choices[-1].how == "fold_blocks=64"
    random = np.random.default_rng(0)
    given = {"x": random.normal(size=(4096, 8)).astype("f"), "w": random.normal(size=(8, 64)).astype("f")}
    np.testing.assert_allclose(run(**given)["dw"], plain(**given)["dw"], rtol=1e-3, atol=1e-3)


def test_the_reference_plans_nothing() -> None:
    with pytest.raises(tp.UnsupportedError, match="keeps no memory_limit"):
        tp.compile(network(8), "reference", memory_limit="1GB")


# -- several schedulers -----------------------------------------------------------------------------------------------


def test_of_all_schedulers_the_plan_that_holds_least_is_run() -> None:
    """Whatever each of them holds."""
    with tp.Program("two orders") as program:
        i, j = tp.dim("i", 60), tp.dim("j", 50)
        h = tp.recurrent("h", (64,), (i, j))
        h[0, j] = tp.ones((64,)) * tp.as_tensor(j)
        h[i + 1, j] = tp.tanh(h)
        tp.output("y", h[i.size - 1, 0 : j.size].sum(axis=0))
    peaks = {each: tp.compile(program, "numpy", each).memory.peak_bytes for each in ("greedy", "polyhedral", "auto")}
    assert peaks["auto"] == min(peaks.values())
    run = tp.compile(program, "numpy", "auto")
    assert {choice.how for choice in run.memory.choices} >= {"scheduler='greedy'", "scheduler='polyhedral'"}
    np.testing.assert_allclose(run()["y"], tp.compile(program, "reference")()["y"], rtol=1e-5)


def test_what_one_scheduler_alone_can_order_is_run_by_it() -> None:
    """A wavefront needs skewed loops, which greedy has not."""
    with tp.Program("wave") as program:
        i, j = tp.dim("i", 6), tp.dim("j", 6)
        a = tp.recurrent("a", (), (i, j))
        a[0, j] = 1.0
        a[i, 0] = 1.0
        a[i, j] = tp.tanh(a[i - 1, tp.min(j + 1, j.size - 1)] + a[i, j - 1])
        tp.output("y", a)
    wanted = tp.compile(program, "reference")()["y"]
    np.testing.assert_allclose(tp.compile(program, "numpy", "auto")()["y"], wanted, rtol=1e-6)


def test_a_limit_is_looked_for_with_the_scheduler_that_holds_least() -> None:
    limit = tp.compile(network(400), "numpy").memory.peak_bytes // 4
    run = tp.compile(network(400), "numpy", "auto", memory_limit=limit)
    assert run.memory.peak_bytes <= limit and run.memory.choices[-1].fits
    assert run.memory.choices[0].how.startswith("scheduler=")


def test_a_copy_asks_all_schedulers_too() -> None:
    run = pickle.loads(pickle.dumps(tp.compile(network(60), "numpy", "auto", memory_limit="1GB")))
    assert [choice.how for choice in run.memory.choices] == ["scheduler='polyhedral'", "scheduler='greedy'"]
