"""A pool on the host: what loops keep for later ones goes there and comes back, and nobody sees a difference."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.loop_ir.ir import Axis, Buffer
from tempo.runtime import host_pool
from tempo.runtime.host_pool import HostPool
from tempo.symbolic import Symbol, const
from tests.unit.runtime.test_limit import W, network

STEPS = 96


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[HostPool]:
    """The pools of all runs."""
    made: list[HostPool] = []
    begin = HostPool.__init__

    def begun(self: HostPool, *given: Any) -> None:
        begin(self, *given)
        made.append(self)

    monkeypatch.setattr(HostPool, "__init__", begun)
    return made


def both(program: tp.Program, /, **inputs: Any) -> tuple[Any, Any, Any]:
    """The executable with a pool, its results, and those without one."""
    plain = tp.compile(program, "numpy")(**inputs)
    run = tp.compile(program, "numpy", offload="host", options=tp.Options(debug=True, poison=True))
    return run, run(**inputs), plain


def test_what_is_kept_is_elsewhere(pools: list[HostPool]) -> None:
    run, found, wanted = both(network(STEPS), w=W)
    np.testing.assert_allclose(found["dw"], wanted["dw"], rtol=1e-4, atol=1e-6)
    without = tp.compile(network(STEPS), "numpy").memory
    assert run.memory.working_bytes < without.working_bytes / 4
    assert run.memory.pool_bytes >= STEPS * 32 * 32 * 4
    assert (pools[0].ledger.traffic, len(pools)) == (run.memory.traffic, 1)
    assert run.memory.traffic.evicted >= run.memory.pool_bytes
    assert {each.name for each in run.memory.pool} <= {each.name for each in run.memory.buffers}
    assert "in the host pool" in str(run.memory)
    assert "pool.fetch(" in run.explain("all")


def training(steps: int) -> tp.Program:
    """Gradient descent through a recurrence: the loops that keep stand in another one."""
    with tp.Program("training") as program:
        i, t = tp.dim("i", 4), tp.dim("t", steps)
        w = tp.parameter("w", (16, 16), init=W[:16, :16], dims=(i,))
        h = tp.recurrent("h", (16, 16), (i, t))
        h[i, 0] = tp.ones((16, 16)) * 0.1
        h[i, t + 1] = tp.tanh(h @ w)
        loss = (h[i, t.size - 1] ** 2).sum()
        w[i + 1] = w - 0.01 * tp.grad(loss, {"w": w})["w"]
        tp.output("loss", loss)
    return program


def test_loops_in_a_loop_use_the_pool_each_time(pools: list[HostPool]) -> None:
    run, found, wanted = both(training(STEPS))
    np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-4)
    assert run.memory.working_bytes < tp.compile(training(STEPS), "numpy").memory.working_bytes / 4
    assert pools[0].ledger.traffic == run.memory.traffic
    assert run.memory.traffic.evicted >= 3 * run.memory.pool_bytes


def test_what_a_function_was_given_stays_as_it_was() -> None:
    """It may keep the array, of which the place is soon another point's."""
    seen: list[np.ndarray[Any, Any]] = []
    with tp.Program("seen") as program:
        t = tp.dim("t", STEPS)
        (x,) = tp.host_call(lambda: np.float32([0, 1, 2]), out=[((3,), tp.float32)], ordered_by=(t,))
        y = tp.recurrent("y", (3,), (t,))
        y[t.size - 1] = x
        y[t] = y[t + 1] * 0.5 + x
        tp.sink(seen.append, y, ordered_by=(t,))
        tp.output("y", y[0])
    run = tp.compile(program, "numpy", offload="host")
    assert run.memory.pool
    found = run()["y"]
    np.testing.assert_array_equal(seen[0], found)
    assert len({tuple(each) for each in seen}) > 1
    np.testing.assert_array_equal(found, tp.compile(program, "reference")()["y"])


def test_a_folder_is_as_good_and_left_empty(tmp_path: Path) -> None:
    found = tp.compile(network(STEPS), "numpy", offload=tmp_path)(w=W)["dw"]
    np.testing.assert_array_equal(found, tp.compile(network(STEPS), "numpy", offload="host")(w=W)["dw"])
    assert not list(tmp_path.iterdir())


def test_what_was_taken_out_ahead_is_not_what_was_there_before(tmp_path: Path) -> None:
    """A loop may end where another one goes on, which reads what was written in between."""
    symbol = Symbol("t", "dim")
    kept = Buffer(0, "h", "float32", (Axis(symbol, 0, "full", const(2)),), (), pooled=(0, 4))
    pool = HostPool(NumpyBackend(), [kept], {}, tmp_path, {})
    place = np.zeros(2, np.float32)
    pool.evict(0, np.float32([1, 2]), 0, 2, 0)
    pool.evict(0, np.float32([3, 4]), 2, 4, 2)
    np.testing.assert_array_equal(pool.fetch(0, place, 0, 2, 0, 2, 4), [1, 2])
    pool.evict(0, np.float32([5, 6]), 2, 4, 2)
    np.testing.assert_array_equal(pool.fetch(0, place, 2, 4, 2), [5, 6])


def test_with_a_limit_the_pool_is_used_where_it_has_to_be() -> None:
    plain = tp.compile(network(STEPS), "numpy")
    roomy = tp.compile(network(STEPS), "numpy", offload="host", memory_limit=plain.memory.peak_bytes)
    assert (roomy.memory.pool, roomy.memory.choices[-1].how) == ((), "as it is")
    limit = plain.memory.peak_bytes // 4
    tight = tp.compile(network(STEPS), "numpy", offload="host", memory_limit=limit)
    assert tight.memory.choices[-1].how == "offload='kept'"
    assert tight.memory.peak_bytes <= limit
    np.testing.assert_allclose(tight(w=W)["dw"], plain(w=W)["dw"], rtol=1e-4, atol=1e-6)


def test_streams_have_no_pool() -> None:
    with tp.Program("sums") as program:
        t = tp.dim("t", STEPS)
        x, s = tp.input("x", (), (t,)), tp.recurrent("s", (), (t,))
        s[0], s[t + 1] = x, s + x[t + 1]
        tp.output("s", s)
    run = tp.compile(program, "numpy", offload="host")
    given = np.arange(STEPS, dtype=np.float32)
    streamed = [float(step["s"]) for step in run.stream("t", x=given)]
    np.testing.assert_array_equal(streamed, np.cumsum(given))


def test_a_copy_has_a_pool_too(pools: list[HostPool]) -> None:
    run = pickle.loads(pickle.dumps(tp.compile(network(STEPS), "numpy", offload="host")))
    run(w=W)
    assert pools


# -- wrong input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offload", "message"),
    [(3, "neither a text nor a path"), ("nowhere/at/all", "no such folder"), ("/proc", "no file can be made there")],
)
def test_what_is_no_place_for_a_pool(offload: Any, message: str) -> None:
    with pytest.raises(tp.InputError, match=message) as raised:
        tp.compile(network(STEPS), "numpy", offload=offload)
    assert raised.value.location is not None
    assert raised.value.location.path == __file__


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(tp.InputError, match="no such folder"):
        tp.compile(network(STEPS), "numpy", offload=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("where", ["host", "folder"])
def test_where_there_is_no_room_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str) -> None:
    run = tp.compile(network(STEPS), "numpy", offload="host" if where == "host" else tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(host_pool.os, "posix_fallocate", full, raising=False)
    monkeypatch.setattr(host_pool, "host_room", lambda: 1)
    with pytest.raises(tp.MemoryLimitError, match=f"no room for the host pool, {run.memory.pool_bytes} B"):
        run(w=W)
    assert not list(tmp_path.iterdir())


def test_the_reference_has_none() -> None:
    with pytest.raises(tp.UnsupportedError, match="no pool to offload to"):
        tp.compile(network(STEPS), "reference", offload="host")
