"""Every way in which an attempt can fail, and what is done then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from tempo_polyhedral.cache import Cache
from tempo_polyhedral.client import Worker, WorkerError
from tempo_polyhedral.messages import Answer, Request
from tempo_polyhedral.scheduler import PolyhedralScheduler
from tempo_polyhedral.settings import COMPARED, FUSING, LAST

import tempo as tp
from tempo.errors import InputError, UnsupportedError
from tempo.schedule import For, Run, Scheduled, SchedulingProblem, Sequence, verify
from tempo.symbolic import Dim, Symbol, const, size, var
from tests.unit.schedule.problems import make

RUNGS = (*COMPARED, LAST)
T = Symbol("t", "dim")
PREAMBLE = """
import os, sys, time
from tempo import schedule
from tempo_polyhedral.messages import *
out, into = sys.stdout.buffer, sys.stdin.buffer
"""
SLEEPS = "send(out, READY); receive(into); time.sleep(600)"
CRASHES = "send(out, READY); receive(into); os._exit(7)"
CRASHES_AT_ONCE = "os._exit(7)"
BABBLES = "send(out, READY); receive(into); out.write(b'nonsense' * 9); out.flush(); receive(into)"
SAYS_ANYTHING = "send(out, READY); receive(into); send(out, 'a tree'); receive(into)"
FAILS = "send(out, READY)\nwhile True: receive(into); send(out, Answer(None, 'isl says no'))"
RUNS_NOTHING = (
    "from tempo.schedule import Sequence; send(out, READY)\nwhile True: receive(into); send(out, Answer(Sequence()))"
)


@contextmanager
def worker(script: str) -> Iterator[Worker]:
    made = Worker((sys.executable, "-c", f"{PREAMBLE}{script}"))
    try:
        yield made
    finally:
        made.close()


def chain(seconds: float | None = None) -> SchedulingProblem:
    problem = make("t", {"a": "t", "b": "t"}, ["a < a(t - 1)", "b < a(t)"])
    return SchedulingProblem(problem.dims, problem.statements, problem.dependences, seconds=seconds)


def skewed(seconds: float | None = None) -> SchedulingProblem:
    problem = make("i t", {"a": "i t"}, ["a < a(i - 1, t + 1), a(i + 1, t - 2)"])
    return SchedulingProblem(problem.dims, problem.statements, problem.dependences, seconds=seconds)


def is_right(problem: SchedulingProblem, found: Scheduled) -> bool:
    for extent in (1, 2, 6):
        verify(problem, found.tree, dict.fromkeys(problem.sizes, extent))
    return True


def test_the_first_rung_is_told_without_a_warning() -> None:
    found = PolyhedralScheduler(cache=Cache(None)).schedule(chain())
    assert is_right(chain(), found)
    assert found.notes[0].startswith("polyhedral: fusing, ")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (SLEEPS, "no answer within 0.1 s"),
        (CRASHES, "its process ended"),
        (CRASHES_AT_ONCE, "its process ended"),
        (BABBLES, "its process ended"),
        (SAYS_ANYTHING, "its process does not say what it should"),
        (FAILS, "isl says no"),
    ],
)
def test_a_worker_that_fails_leaves_the_greedy_order(script: str, why: str) -> None:
    with worker(script) as broken:
        scheduler = PolyhedralScheduler(broken, Cache(None))
        with pytest.warns(RuntimeWarning, match=f"took the order of 'greedy': fusing: {why}"):
            found = scheduler.schedule(chain(seconds=0.2))
        assert is_right(chain(), found)
        assert found.notes[0].startswith("polyhedral: greedy, ")
        assert [note.partition(":")[0] for note in found.notes[1:]] == [rung.name for rung in RUNGS]
        with pytest.raises(UnsupportedError, match=f"the scheduler 'greedy' finds no dim.*(?s:.)*{why}"):
            scheduler.schedule(skewed(seconds=0.2))


def test_a_command_that_does_not_exist_is_a_worker_that_fails() -> None:
    missing = Worker(("/nowhere/python",))
    with pytest.raises(WorkerError, match="cannot be started"):
        missing.ask(Request(chain(), FUSING), 1.0)


def test_wrong_orders_are_found_where_verification_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_VERIFY", "1")
    with worker(RUNS_NOTHING) as wrong, pytest.warns(RuntimeWarning, match="a wrong order: s0.* never runs"):
        found = PolyhedralScheduler(wrong, Cache(None)).schedule(chain())
    assert is_right(chain(), found)


def test_a_wrong_order_in_the_cache_is_found_where_verification_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(None)
    with worker(RUNS_NOTHING) as wrong:
        assert PolyhedralScheduler(wrong, cache).schedule(chain()).tree == Sequence()
    monkeypatch.setenv("TEMPO_VERIFY", "1")
    assert is_right(chain(), PolyhedralScheduler(cache=cache).schedule(chain()))


class Picky(Worker):
    """Answers only some settings, with one tree."""

    def __init__(self, accepted: set[int]) -> None:
        super().__init__()
        self.accepted, self.asked = accepted, 0

    def ask(self, request: Request, seconds: float) -> Answer:
        self.asked += 1
        if request.settings not in [RUNGS[place].settings for place in self.accepted]:
            return Answer(None, "no")
        return Answer(over_t("s0"))


def over_t(name: str) -> For:
    return For(T, const(0), size("t"), "forward", Run(name, (var(T),)))


@pytest.mark.parametrize(
    ("accepted", "used", "attempts"), [({0}, 0, 2), ({1}, 1, 2), ({2}, 2, 3), ({0, 1}, 0, 2), ({1, 2}, 1, 2)]
)
def test_the_rung_that_was_used_is_told(
    accepted: set[int], used: int, attempts: int, recwarn: pytest.WarningsRecorder
) -> None:
    asked, cache = Picky(accepted), Cache(None)
    problem = make("t", {"a": "t"}, [])
    found = PolyhedralScheduler(asked, cache).schedule(problem)
    assert found.tree == over_t("a")
    assert found.notes[0].startswith(f"polyhedral: {RUNGS[used].name}, ")
    assert len(recwarn) == (used > 0)
    again = PolyhedralScheduler(asked, cache).schedule(problem)
    assert again.tree == found.tree
    assert "found before" in again.notes[0]
    assert asked.asked == attempts


class Timed(Worker):
    """Says how long it is given."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.given = worker, list[float]()

    def ask(self, request: Request, seconds: float) -> Answer:
        self.given.append(seconds)
        return self.worker.ask(request, seconds)


@pytest.mark.slow
def test_all_attempts_together_have_one_limit() -> None:
    """Also where the problem at its numbers is asked for after the general one, and of every group."""
    problem = make("t", {"a": "t", "b": "t"}, ["a < a(t - 1)", "b < b(t - 1)"])
    numbered = replace(problem, dims=(Dim(T, const(9)),), seconds=0.3)
    with worker(SLEEPS) as late:
        timed = Timed(late)
        with pytest.warns(RuntimeWarning, match="took the order of 'greedy'"):
            PolyhedralScheduler(timed, Cache(None)).schedule(numbered)
    assert len(timed.given) > 2 * len(RUNGS)
    assert sum(timed.given) <= 0.3


def test_the_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_SCHEDULE_SECONDS", "0.25")
    with worker(SLEEPS) as late, pytest.warns(RuntimeWarning, match="fusing: no answer within 0.125 s"):
        PolyhedralScheduler(late, Cache(None)).schedule(chain())
    monkeypatch.setenv("TEMPO_SCHEDULE_SECONDS", "soon")
    with pytest.raises(InputError, match="TEMPO_SCHEDULE_SECONDS=soon"):
        PolyhedralScheduler(cache=Cache(None)).schedule(chain())


def test_a_worker_that_was_ended_starts_again() -> None:
    made = Worker()
    first = made.ask(Request(chain(), FUSING), 60.0)
    made.close()
    assert made.ask(Request(chain(), FUSING), 60.0) == first
    made.close()


# -- from a program to its results -------------------------------------------------------------------------------------


def running_sum() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        total = tp.recurrent("total", (), (t,))
        total[0] = x
        total[t + 1] = total + x[t + 1]
        tp.output("total", total)
    return program


@pytest.mark.parametrize("script", [SLEEPS, CRASHES, FAILS])
def test_compiling_succeeds_and_says_how(script: str) -> None:
    x = np.arange(5, dtype=np.float32)
    with worker(script) as broken:
        scheduler = PolyhedralScheduler(broken, Cache(None))
        run = tp.compile(running_sum(), scheduler=scheduler, options=tp.Options(schedule_seconds=0.2))
        with pytest.warns(RuntimeWarning, match="'greedy'"):
            found = run(x=x)
        np.testing.assert_array_equal(found["total"], np.cumsum(x))
        assert "# polyhedral: greedy, " in run.explain("all")


def test_the_time_of_the_options_is_a_positive_number() -> None:
    with pytest.raises(InputError, match="schedule_seconds=0"):
        tp.Options(schedule_seconds=0)
