"""The scheduler: a ladder of attempts, from the one that finds the best orders to the one that always ends."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tempo.errors import InputError, ScheduleError, UnsupportedError
from tempo.schedule import Scheduled, ScheduleTree, SchedulingProblem
from tempo_polyhedral.apart import Apart
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
_SECONDS = 20.0

GREEDY = "greedy"


@dataclass(frozen=True)
class _Failure:
    """A rung that gave nothing. `lasting`: it never will."""

    rung: str
    why: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.rung}: {self.why}"


@dataclass(frozen=True)
class _Found:
    """The tree of a group of statements, which rung gave it, and those before that gave nothing."""

    tree: ScheduleTree
    rung: str
    failures: tuple[_Failure, ...]
    is_new: bool = True


class _Budget:
    """Seconds that all attempts have together. Each may take half of what is left: something is for the next."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def share(self) -> float:
        return self._left / 2

    def spend(self, seconds: float) -> None:
        """Of its share: what a process takes to start does not count."""
        self._left -= min(seconds, self.share())


class PolyhedralScheduler:
    """`schedule(problem)` returns the tree and which rung found it, with a warning where the first found none.

    The first two rungs are compared by what their trees keep in memory, the others are asked where both fail. All
    attempts of isl together have `problem.seconds`, else TEMPO_SCHEDULE_SECONDS, else 20 s. Where none of them gives an
    order, the greedy scheduler's answer counts, or its `UnsupportedError`.
    """

    def __init__(self, worker: Worker | None = None, cache: Cache | None = None) -> None:
        self._worker = worker or default_worker()
        self._cache = cache or default_cache()

    def schedule(self, problem: SchedulingProblem) -> Scheduled:
        start, budget, apart = time.perf_counter(), _Budget(_limit(problem)), Apart.of(problem)
        found = [self._scheduled(group, budget) for group in apart.groups]
        return Scheduled(apart.tree([each.tree for each in found]), tuple(_told(found, time.perf_counter() - start)))

    def _scheduled(self, problem: SchedulingProblem, budget: _Budget) -> _Found:
        failures: list[_Failure] = []
        for form in General.forms(problem):
            numbered = Numbered.of(form.problem)
            known = self._cache.find(numbered.digest(), partial(_is_sound, numbered.problem))
            if known is not None and not _is_wrong(numbered.problem, known.tree):
                return _Found(_as_given(problem, form, numbered.named(known.tree)), known.rung, (), is_new=False)
            best = self._climbed(numbered, budget, failures)
            if best is not None:
                return _Found(_as_given(problem, form, numbered.named(best.tree)), best.rung, tuple(failures))
        return _Found(_greedy(problem, failures), GREEDY, tuple(failures))

    def _climbed(self, numbered: Numbered, budget: _Budget, failures: list[_Failure]) -> Entry | None:
        """The best that isl finds, which is kept."""
        problem = numbered.problem
        found = self._attempts(COMPARED, problem, budget, failures)
        found = found or self._attempts((LAST,), problem, budget, failures)
        if not found:
            return None
        best = min(found, key=lambda entry: estimate(problem, entry.tree))
        self._cache.keep(numbered.digest(), best, all(failure.lasting for failure in failures))
        return best

    def _attempts(
        self, rungs: tuple[Rung, ...], problem: SchedulingProblem, budget: _Budget, failures: list[_Failure]
    ) -> list[Entry]:
        """What the rungs find; `failures` grows by those that find nothing."""
        found = []
        for rung in rungs:
            start = time.perf_counter()
            tree = self._attempt(rung, problem, budget.share())
            budget.spend(time.perf_counter() - start)
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


def _told(found: Sequence[_Found], seconds: float) -> Iterator[str]:
    rungs = ", ".join(dict.fromkeys(each.rung for each in found)) or "no loops"
    failures = [failure for each in found for failure in each.failures]
    remark = " (found before)" if found and not any(each.is_new for each in found) else ""
    yield f"polyhedral: {rungs}, {seconds:.3f} s{remark}"
    yield from dict.fromkeys(map(str, failures))
    late = [each for each in found if each.failures and each.failures[0].rung == COMPARED[0].name]
    if late:
        what, rungs = "; ".join(dict.fromkeys(map(str, failures))), ", ".join(dict.fromkeys(each.rung for each in late))
        warnings.warn(f"the scheduler 'polyhedral' took the order of {rungs!r}: {what}", RuntimeWarning, stacklevel=3)
