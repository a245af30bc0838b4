"""The scheduler: a ladder of attempts, from the one that finds the best orders to the one that always ends."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tempo.errors import InputError, ScheduleError, UnsupportedError
from tempo.schedule import Scheduled, ScheduleTree, SchedulingProblem
from tempo_polyhedral.cache import Cache, Entry, default_cache
from tempo_polyhedral.client import Worker, WorkerError, default_worker
from tempo_polyhedral.estimate import estimate
from tempo_polyhedral.general import General
from tempo_polyhedral.messages import Request
from tempo_polyhedral.numbered import Numbered
from tempo_polyhedral.settings import COMPARED, LAST, Rung
from tempo_polyhedral.tidy import reached
from tempo_polyhedral.trial import try_out, verifies

SECONDS_VARIABLE = "TEMPO_SCHEDULE_SECONDS"
_SECONDS = 10.0


GREEDY = "greedy"


@dataclass(frozen=True)
class _Failure:
    """A rung that gave nothing. `lasting`: it never will."""

    rung: str
    why: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.rung}: {self.why}"


class PolyhedralScheduler:
    """`schedule(problem)` returns the tree and which rung found it, with a warning where the first found none.

    The first two rungs are compared by what their trees keep in memory, the others are asked where both fail. Each
    attempt of isl has `problem.seconds`, else TEMPO_SCHEDULE_SECONDS, else 10 s. Where none of them gives an order, the
    greedy scheduler's answer counts, or its `UnsupportedError`.
    """

    def __init__(self, worker: Worker | None = None, cache: Cache | None = None) -> None:
        self._worker = worker or default_worker()
        self._cache = cache or default_cache()

    def schedule(self, problem: SchedulingProblem) -> Scheduled:
        start = time.perf_counter()
        failures: list[_Failure] = []
        for form in General.forms(problem):
            numbered = Numbered.of(form.problem)
            known = self._cache.find(numbered.digest(), partial(_is_sound, numbered.problem))
            if known is not None and not _is_wrong(numbered.problem, known.tree):
                tree = _as_given(problem, form, numbered.named(known.tree))
                return Scheduled(tree, (_note(known.rung, start, "found before"),))
            best = self._climbed(numbered, failures)
            if best is not None:
                tree = _as_given(problem, form, numbered.named(best.tree))
                return Scheduled(tree, tuple(_told(best.rung, start, failures)))
        tree = _greedy(problem, failures)
        return Scheduled(tree, tuple(_told(GREEDY, start, failures)))

    def _climbed(self, numbered: Numbered, failures: list[_Failure]) -> Entry | None:
        """The best that isl finds, which is kept."""
        problem = numbered.problem
        found = self._attempts(COMPARED, problem, failures) or self._attempts((LAST,), problem, failures)
        if not found:
            return None
        best = min(found, key=lambda entry: estimate(problem, entry.tree))
        self._cache.keep(numbered.digest(), best, all(failure.lasting for failure in failures))
        return best

    def _attempts(self, rungs: tuple[Rung, ...], problem: SchedulingProblem, failures: list[_Failure]) -> list[Entry]:
        """What the rungs find; `failures` grows by those that find nothing."""
        seconds, found = _limit(problem), []
        for rung in rungs:
            tree = self._attempt(rung, problem, seconds)
            if isinstance(tree, _Failure):
                failures.append(tree)
            else:
                found.append(Entry(tree, rung.name))
        return found

    def _attempt(self, rung: Rung, problem: SchedulingProblem, seconds: float) -> ScheduleTree | _Failure:
        try:
            answer = self._worker.ask(Request(problem, rung.settings), seconds)
        except WorkerError as error:
            return _Failure(rung.name, str(error), lasting=False)
        if answer.tree is None:
            return _Failure(rung.name, answer.failure, lasting=True)
        wrong = _is_wrong(problem, answer.tree)
        return _Failure(rung.name, f"a wrong order: {wrong}", lasting=True) if wrong else answer.tree


def _is_sound(problem: SchedulingProblem, tree: ScheduleTree) -> bool:
    """Whether a tree that another process has left is right at small sizes, of which there are some."""
    return try_out(problem, tree) > 0


def _is_wrong(problem: SchedulingProblem, tree: ScheduleTree) -> str | None:
    """Why the tree is wrong, as far as it is to be tried."""
    if not verifies():
        return None
    try:
        try_out(problem, tree)
    except ScheduleError as error:
        return error.message
    return None


def _limit(problem: SchedulingProblem) -> float:
    if problem.seconds is not None:
        return problem.seconds
    given = os.environ.get(SECONDS_VARIABLE) or str(_SECONDS)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise InputError(f"{SECONDS_VARIABLE}={given} is no positive number of seconds")
    return seconds


def _as_given(problem: SchedulingProblem, form: General, tree: ScheduleTree) -> ScheduleTree:
    """The tree for the problem itself, without what its numbers decide: branches that are never taken."""
    return reached(problem, form.at_numbers(tree)) if form.numbers else tree


def _greedy(problem: SchedulingProblem, failures: list[_Failure]) -> ScheduleTree:
    """What the greedy scheduler finds, or its refusal, which says what isl's was."""
    told = "; ".join(dict.fromkeys(map(str, failures)))
    try:
        from tempo_greedy.scheduler import GreedyScheduler
    except ImportError as error:
        raise UnsupportedError(f"the scheduler 'polyhedral' finds no order: {told}") from error
    try:
        return GreedyScheduler().schedule(problem)
    except UnsupportedError as error:
        error.hint = f"The scheduler 'polyhedral' asked isl before it asked 'greedy': {told}"
        raise


def _note(rung: str, start: float, remark: str = "") -> str:
    return f"polyhedral: {rung}, {time.perf_counter() - start:.3f} s" + (f" ({remark})" if remark else "")


def _told(rung: str, start: float, failures: list[_Failure]) -> Iterator[str]:
    yield _note(rung, start)
    yield from dict.fromkeys(map(str, failures))
    if failures and failures[0].rung == COMPARED[0].name:
        what = "; ".join(dict.fromkeys(map(str, failures)))
        warnings.warn(f"the scheduler 'polyhedral' took the order of {rung!r}: {what}", RuntimeWarning, stacklevel=2)
