"""`run.profile`: samples in generated code, the trace, what is left behind, and what is refused."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.backends.tracing import TracedEvent
from tempo.errors import InputError, MissingFileError, ProgramError, UnsupportedError
from tempo.runtime.profile.recorder import own_seconds
from tests.unit.runtime.programs import running_sum
from tests.unit.runtime.traces import checked

X = np.ones((6, 3), np.float32)


def slowed(seconds: float = 0.01, steps: int = 20) -> tp.Program:
    """One call of the host takes all the time."""
    with tp.Program("slowed") as program:
        t = tp.dim("t", steps)
        x = tp.recurrent("x", (), (t,))
        (slow,) = tp.host_call(lambda value: waited(seconds, value), x, out=[((), "float32")])
        x[0] = 0.0
        x[t + 1] = slow * 1.0
        tp.output("x", x[t.size - 1])
    return program


def failing() -> tp.Program:
    """A call of the host fails, not the first one."""

    def fails(value: np.ndarray) -> np.ndarray:
        if value >= 2:
            raise ValueError("no further")
        return value + 1

    with tp.Program("failing") as program:
        t = tp.dim("t", 1000)
        x = tp.recurrent("x", (), (t,))
        x[0] = 0.0
        (after,) = tp.host_call(fails, x, out=[((), "float32")])
        x[t + 1] = after
        tp.output("x", x[t.size - 1])
    return program


def waited(seconds: float, value: np.ndarray) -> np.ndarray:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return value + 1


def profiled(run: tp.Executable, path: Path, call: Callable[[], Any]) -> Any:
    with run.profile(path) as profile:
        call()
    return profile


def test_a_slow_line_comes_first(tmp_path: Path) -> None:
    run = tp.compile(slowed())
    profile = profiled(run, tmp_path / "trace.json", run)
    first = profile.lines[0]
    assert first.origin is not None and first.origin.op == "call"
    assert first.origin.location is not None and "host_call" in first.origin.location.text
    assert first.share > 0.5
    printed = str(profile)
    assert "host_call" in printed and "seconds" in printed and "trace.json" in printed


def test_seconds_of_lines_add_up(tmp_path: Path) -> None:
    run = tp.compile(slowed(0.003))
    found = profiled(run, tmp_path / "trace.json", lambda: [run(), run()]).result
    assert found.calls == 2
    assert sum(each.seconds for each in found.lines) == pytest.approx(found.seconds, rel=0.1)
    assert sum(each.share for each in found.lines) == pytest.approx(1, rel=0.1)
    assert found.samples > 0
    assert found.looked is None and found.cost == 0
    assert run.last_profile is found


def test_the_trace_is_one(tmp_path: Path) -> None:
    run = tp.compile(slowed(0.003))
    profiled(run, tmp_path / "trace.json", run)
    events = checked(tmp_path / "trace.json")
    names = [each["name"] for each in events]
    assert names.count("run slowed") == 1
    (line,) = {each["args"]["line"] for each in events if each["name"].endswith("(call)")}
    assert Path(__file__).name in line


def test_results_are_the_same(tmp_path: Path) -> None:
    run = tp.compile(running_sum())
    plain = run(x=X)["s"]
    with run.profile(tmp_path / "trace.json"):
        np.testing.assert_array_equal(run(x=X)["s"], plain)
        np.testing.assert_array_equal(run(x=X, progress=lambda done, total: None)["s"], plain)


def test_many_short_calls_are_seen_as_often_as_they_take(tmp_path: Path) -> None:
    run = tp.compile(running_sum())
    found = profiled(run, tmp_path / "trace.json", lambda: [run(x=X) for _ in range(300)]).result
    assert found.calls == 300
    assert found.seconds > 0
    checked(tmp_path / "trace.json")


def test_steps_of_streams_are_recorded(tmp_path: Path) -> None:
    run = tp.compile(slowed(0.003))
    with tp.compile(running_sum()).profile(tmp_path / "other.json") as other:
        profile = profiled(run, tmp_path / "trace.json", lambda: run(sizes={}))
    assert other.result is not None and other.result.calls == 0
    sums = tp.compile(running_sum())
    with sums.profile(tmp_path / "stream.json") as streamed:
        steps = sums.stream("t", x=X)
        next(steps)
    for _ in steps:  # behind the block it goes on, and nobody looks
        pass
    assert steps.result is not None
    assert streamed.result is not None and streamed.result.calls == 0 and streamed.result.seconds > 0
    assert profile.result is not None and profile.result.calls == 1
    spans = [each for each in checked(tmp_path / "stream.json") if ", t from " in each["name"]]
    assert len(spans) == 1


def test_runs_with_checkpoints_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    run = tp.compile(running_sum())
    kept = tp.Checkpoints(tmp_path / "kept", along="t", every=2)
    found = profiled(run, tmp_path / "trace.json", lambda: run(x=X, checkpoint=kept)).result
    assert found.calls == 1
    spans = [each for each in checked(tmp_path / "trace.json") if ", t from " in each["name"]]
    assert len(spans) == 3


# -- what is left behind -----------------------------------------------------------------------------------------------


def test_handler_and_timer_are_as_they_were(tmp_path: Path) -> None:
    run = tp.compile(slowed(0.003, 3))
    profiled(run, tmp_path / "trace.json", run)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert not [each for each in threading.enumerate() if each.name == "tempo profile"]


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """The signals that come to a handler of the user's."""
    found: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: found.append(number))
    yield found
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_timer_of_the_users_goes_on(tmp_path: Path, alarms: list[int]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    run = tp.compile(slowed(0.005))
    profile = profiled(run, tmp_path / "trace.json", run)
    assert signal.getsignal(signal.SIGALRM) is handler
    assert alarms
    assert profile.lines[0].origin.op == "call"


def test_a_handler_that_is_set_inside_stays(tmp_path: Path, alarms: list[int]) -> None:
    own = signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    run = tp.compile(running_sum())
    with run.profile(tmp_path / "trace.json"):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, own)
        run(x=X)
    assert signal.getsignal(signal.SIGALRM) is own


def test_another_thread_looks_where_there_is_no_timer(tmp_path: Path) -> None:
    run, found = tp.compile(slowed()), []
    thread = threading.Thread(target=lambda: found.append(profiled(run, tmp_path / "trace.json", run)))
    thread.start()
    thread.join()
    assert found[0].lines[0].origin.op == "call"
    checked(tmp_path / "trace.json")
    assert not [each for each in threading.enumerate() if each.name == "tempo profile"]


def test_only_the_thread_that_opens_the_block_is_recorded(tmp_path: Path) -> None:
    run = tp.compile(running_sum())
    with run.profile(tmp_path / "trace.json") as profile:
        thread = threading.Thread(target=lambda: run(x=X))
        thread.start()
        thread.join()
    assert profile.result is not None and profile.result.calls == 0


def test_what_failed_is_written(tmp_path: Path) -> None:
    run = tp.compile(failing())
    with pytest.raises(tp.HostCallError, match="no further"), run.profile(tmp_path / "trace.json") as profile:
        run()
    assert profile.result is not None and profile.result.calls == 1
    checked(tmp_path / "trace.json")
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    with run.profile(tmp_path / "again.json"):
        pass
    assert checked(tmp_path / "again.json") == []


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_paths_are_looked_at_before_anything_runs(tmp_path: Path) -> None:
    run = tp.compile(running_sum())
    with pytest.raises(MissingFileError, match="there is no folder .*nowhere"):
        run.profile(tmp_path / "nowhere" / "trace.json")
    with pytest.raises(InputError, match="is a folder"):
        run.profile(tmp_path)
    with pytest.raises(InputError, match="is no path"):
        run.profile(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is no path"):
        run.profile("")


def test_one_profile_at_a_time(tmp_path: Path) -> None:
    run = tp.compile(running_sum())
    with run.profile(tmp_path / "trace.json") as profile:
        with pytest.raises(ProgramError, match="is profiled already"), run.profile(tmp_path / "other.json"):
            pass
        run(x=X)
        with pytest.raises(ProgramError, match="has not ended"):
            _ = profile.lines
        assert "has not ended" in str(profile)
    assert profile.result is not None and profile.result.calls == 1
    assert not (tmp_path / "other.json").exists()
    with pytest.raises(ProgramError, match="recorded once"), profile:
        pass


def test_the_reference_backend_has_nothing_to_profile(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no generated code"):
        tp.compile(running_sum(), "reference").profile(tmp_path / "trace.json")


# -- with a profiler of the backend's ----------------------------------------------------------------------------------


class Recorded:
    """A tracer that says that one tensor takes all the time."""

    name = "Recorded"

    def __init__(self) -> None:
        self.did = Counter[str]()

    def wait(self, arrays: Sequence[Any]) -> None:
        self.did["wait"] += 1

    def start(self) -> None:
        assert self.did["start"] == self.did["stop"]
        self.did["start"] += 1

    def stop(self, segments: Sequence[Any]) -> Sequence[TracedEvent]:
        self.did["stop"] += 1
        return [TracedEvent("loop.1", "worker", 0.0, 2.0, True), TracedEvent("add.1", "worker", 0.5, 1.0, True)]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    tracer = Recorded()
    monkeypatch.setattr(NumpyBackend, "tracer", lambda self: tracer, raising=False)
    return tracer


def test_looks_are_few_and_all_end(tmp_path: Path, traced: Recorded) -> None:
    run = tp.compile(running_sum())
    found = profiled(run, tmp_path / "trace.json", lambda: [run(x=X) for _ in range(100)]).result
    assert 1 <= traced.did["start"] == traced.did["stop"] < 50
    assert traced.did["wait"] > 100
    assert found.looked is not None and 0 < found.looked <= 1
    assert {each["pid"] for each in checked(tmp_path / "trace.json")} == {1, 2}


def test_a_look_ends_where_a_run_fails(tmp_path: Path, traced: Recorded) -> None:
    run = tp.compile(failing())
    with pytest.raises(tp.HostCallError), run.profile(tmp_path / "trace.json"):
        run()
    assert traced.did["start"] == traced.did["stop"] == 1


def test_results_in_chunks_are_the_same(tmp_path: Path, traced: Recorded) -> None:
    x = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    run = tp.compile(running_sum())
    plain = run(x=x)["s"]
    with run.profile(tmp_path / "trace.json"):
        np.testing.assert_array_equal(run(x=x)["s"], plain)
    spans = [each for each in checked(tmp_path / "trace.json") if ", t from " in each["name"]]
    assert len(spans) > 1


def test_what_is_inside_of_an_event_is_not_its_own() -> None:
    def event(name: str, start: float, seconds: float, thread: str = "a") -> TracedEvent:
        return TracedEvent(name, thread, start, seconds, True)

    events = [event("outer", 0, 10), event("inner", 2, 5), event("innermost", 3, 1), event("after", 12, 1)]
    found = {each.name: seconds for each, seconds in own_seconds([*events, event("elsewhere", 2, 5, "b")])}
    assert found == {"outer": 5, "inner": 4, "innermost": 1, "after": 1, "elsewhere": 5}


def test_a_report_shows_the_last_profile(tmp_path: Path) -> None:
    with tp.Program("halves") as program:
        t = tp.dim("t", 400)
        x = tp.recurrent("x", (64, 64), (t,))
        x[0] = tp.ones((64, 64))
        x[t + 1] = x @ x / 64
        tp.output("x", x[t.size - 1])
    run = tp.compile(program)
    page = run.report(tmp_path / "page.html")
    assert '"profile":null' in page.read_text().replace(" ", "")
    with run.profile(tmp_path / "trace.json"):
        run()
    run.report(page)
    assert '"profile":[{' in page.read_text().replace(" ", "")
