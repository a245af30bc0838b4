"""Llamas of random weights from a folder to tokens: the first token, the ones after it, memory, and a cold start.

Per token: what a run of many new tokens takes beyond a run of one, by the tokens between them; both runs are of the
same sizes, which Tempo rounds up to powers of two. First token: the run of one. `floor` is what the products of the
model's matrices with the vectors of a token take alone, by the same library in the same rounds; goals are the
project's. Peers: `transformers` with its dynamic and its static cache, a loop by hand whose step `torch.compile` has
made (as gpt-fast), and llama.cpp where its Python package is installed. In float32 all must make the same tokens, in
other dtypes the likelihoods of a text must be close.

Memory and cold starts are of processes that do nothing else: the process's own memory beyond its imports, at its peak,
and what comes before the first token, the first time and with the executables that the first process has left.
Prompts are of `--prompts`, with all `--rows`, and one row of the first half of each of `--lengths`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.compile_time import JAX_STAGES
from benchmarks.harness import Benchmark, Session, close
from benchmarks.llm.checkpoint import SIZES, VOCABULARY, Size
from benchmarks.llm.continuing import PEERS, Continuing, Ours, ours, peers
from benchmarks.llm.floor import floor
from benchmarks.llm.process import OURS, Seen, Settings, seen
from benchmarks.measure import rounds, timed

DTYPES = ("float32", "bfloat16")
PARTS = ("speed", "process")
ROWS, PROMPTS = (1, 8), (32, 1_024)
LENGTHS = (256, 512, 1_024, 2_048, 4_096, 8_192)
TOKENS = 32
TOLERANCES = {"float32": 1e-3, "bfloat16": 0.2}
"""Of the logarithms of likelihoods, which are about -10 with a spread of 0.6."""
FLOORS = 1.2
"""The goal for one row after a short prompt."""
OF_MEMORY = 1.15
"""The goal for the peak of what is not mapped, relative to weights and cache."""
COLD, WARM = 4.0, 1.0
"""Goals for compiling, in seconds: the first time, and when the executables are on disk."""


class Case(NamedTuple):
    """`count` new tokens after the prompt of each row."""

    rows: int
    prompt: int
    count: int

    def __str__(self) -> str:
        return f"{self.rows} row{'s' * (self.rows > 1)}, a prompt of {self.prompt}"

    def tokens(self) -> list[list[int]]:
        found: list[list[int]] = np.random.default_rng(1).integers(1, VOCABULARY, (self.rows, self.prompt)).tolist()
        return found


@dataclass(frozen=True)
class Model:
    """A folder's."""

    name: str
    dtype: str
    folder: Path

    @property
    def size(self) -> Size:
        return SIZES[self.name]

    def __str__(self) -> str:
        return f"{self.name} parameters, {self.dtype}"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", choices=SIZES, help="parameters; default 50M 276M, quick 50M")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, help="default all, quick float32")
    parser.add_argument("--rows", type=int, nargs="+", help=f"default {ROWS}, quick 1")
    parser.add_argument("--prompts", type=int, nargs="+", help=f"default {PROMPTS}, quick {PROMPTS[:1]}")
    parser.add_argument("--lengths", type=int, nargs="*", help=f"default {LENGTHS}, quick none")
    parser.add_argument("--tokens", type=int, help=f"new ones, no more than a prompt has; default {TOKENS}, quick 16")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="default: those installed, quick transformers'")


def measure(session: Session) -> None:
    chosen = session.options
    for size in chosen.sizes or (("50M",) if session.quick else ("50M", "276M")):
        for dtype in chosen.dtypes or (DTYPES[:1] if session.quick else DTYPES):
            with tempfile.TemporaryDirectory() as parent:
                model = Model(size, dtype, Path(parent, "model"))
                model.size.write(model.folder, dtype)
                if "speed" in chosen.parts:
                    _speed(session, model)
                if "process" in chosen.parts:
                    _processes(session, model)


def _cases(session: Session) -> list[Case]:
    chosen = session.options
    count = chosen.tokens or (16 if session.quick else TOKENS)
    prompts = chosen.prompts or (PROMPTS[:1] if session.quick else PROMPTS)
    lengths = chosen.lengths if chosen.lengths is not None else () if session.quick else LENGTHS
    all_rows = chosen.rows or ((1,) if session.quick else ROWS)
    found = [(rows, prompt) for rows in all_rows for prompt in prompts] + [(1, length // 2) for length in lengths]
    return [Case(*each, count) for each in dict.fromkeys(found)]


def _peers(session: Session) -> list[str]:
    if session.options.no_peers:
        return []
    names = [name for name in PEERS if name.startswith("transformers")] if session.quick else list(PEERS)
    return [name for name, _ in peers(names if session.options.peers is None else session.options.peers)]


# -- speed -------------------------------------------------------------------------------------------------------------


def _speed(session: Session, model: Model) -> None:
    mine = ours(model.folder, session.backend, session.device)
    others = {name: PEERS[name].make(model.folder, session.device) for name in _peers(session)}
    text = Case(1, 32, 1).tokens()[0]
    for name, other in others.items():
        close(0, TOLERANCES[model.dtype])({name: mine.logprobs(text)}, {name: other.logprobs(text)})
    for case in _cases(session):
        taking = {name: other for name, other in others.items() if (PEERS[name].rows or case.rows) >= case.rows}
        _compare(session, model, case, mine, taking)


@dataclass(frozen=True)
class Times:
    """Of a round, in seconds: the first token, and each after it."""

    first: float
    each: float


def _compare(session: Session, model: Model, case: Case, mine: Ours, others: Mapping[str, Continuing]) -> None:
    rows, all_of_us = case.tokens(), {OURS: mine, **others}
    made = {name: one.generate(rows, case.count) for name, one in all_of_us.items()}
    if model.dtype == "float32":
        for name in others:
            np.testing.assert_array_equal(made[OURS], made[name], name)
    found: dict[str, list[Times]] = {name: [] for name in all_of_us}
    products: list[float] = []
    streams: list[tuple[float, float]] = []
    lower = floor(session, model.size.products(), model.dtype, case.rows)
    is_streamed = case.rows == 1
    if is_streamed:
        assert mine.stream(rows[0], case.count) == mine.text(rows[0], case.count)
    for run in (lower, *(partial(one.generate, rows, 1) for one in all_of_us.values())):
        run()
    for _ in rounds(session.repeats):
        for name, one in all_of_us.items():
            found[name].append(_times(one, rows, case.count))
        products.append(timed(lower, calls=4))
        if is_streamed:
            streams.append(tuple(timed(partial(run, rows[0], case.count)) for run in (mine.stream, mine.text)))
    title = f"{model}, {case}"
    for name, times in found.items():
        session.add(title, name, "ms/token", *(1e3 * each.each for each in times))
        session.add(title, f"{name}, first token", "ms", *(1e3 * each.first for each in times))
    session.add(title, "floor: the products alone", "ms/token", *(1e3 * seconds for seconds in products))
    is_short = case.rows == 1 and case.prompt <= case.count
    for name, times in found.items():
        goal = FLOORS if name == OURS and is_short else None
        session.add(title, f"{name} / floor", "floors", *_over(times, products), goal=goal)
    for name in others:
        for what, part in (("", _each), (", first token", _first)):
            ratios = (part(a) / part(b) for a, b in zip(found[OURS], found[name], strict=True))
            session.add(title, f"tempo / {name}{what}", "x", *ratios)
    if is_streamed:
        session.add(title, "streamed / at once", "x", *(a / b for a, b in streams), goal=1.1)


def _each(times: Times) -> float:
    return times.each


def _first(times: Times) -> float:
    return times.first


def _over(times: Sequence[Times], products: Sequence[float]) -> Iterator[float]:
    return (each.each / least for each, least in zip(times, products, strict=True))


def _times(one: Continuing, rows: list[list[int]], count: int) -> Times:
    first = timed(lambda: one.generate(rows, 1))
    return Times(first, (timed(lambda: one.generate(rows, count)) - first) / (count - 1))


# -- processes ---------------------------------------------------------------------------------------------------------


def _processes(session: Session, model: Model) -> None:
    """Tempo's twice in each round, the second time with what the first has kept; a peer's once."""
    found = _cases(session)
    for case in dict.fromkeys((found[0], max(found, key=lambda each: each.rows * each.prompt))):
        title = f"{model}, {case}, a process of its own"
        settings = partial(
            Settings, backend=session.backend, device=session.device, folder=str(model.folder), rows=case.tokens(),
            count=case.count,
        )  # fmt: skip
        names = [name for name in _peers(session) if (PEERS[name].rows or case.rows) >= case.rows]
        first, again, others = [], [], {name: [] for name in names}
        for _ in rounds(session.repeats):
            with tempfile.TemporaryDirectory() as cache:
                first.append(seen(settings(OURS), Path(cache)))
                again.append(seen(settings(OURS), Path(cache)))
            for name, each in others.items():
                each.append(seen(settings(name), None))
        cache_and_weights = model.size.parameters + model.size.cached(case.rows, case.prompt + case.count)
        least = np.dtype(model.dtype).itemsize * cache_and_weights
        for name, processes in {OURS: first, **others}.items():
            _memory(session, title, name, processes, least)
        _cold(session, f"{title}, the first time", first, COLD)
        _cold(session, f"{title}, the second time", again, WARM)
        for name, processes in others.items():
            _add(session, title, f"{name}, load and first token", processes, _whole)


def _memory(session: Session, title: str, name: str, processes: Sequence[Seen], least: int) -> None:
    peaks = [each.peak for each in processes if each.peak is not None]
    if not peaks:
        return
    session.add(title, f"{name}, peak of its own memory", "MB", *(peak / 1e6 for peak in peaks))
    goal = OF_MEMORY if name == OURS else None
    session.add(title, f"{name}, peak / weights and cache", "times", *(peak / least for peak in peaks), goal=goal)


def _cold(session: Session, title: str, processes: Sequence[Seen], goal: float) -> None:
    """`compiling`: what the first token takes beyond the same token again; beside what JAX reports it is ours."""
    add = partial(_add, session, title)
    for name in ("imports", "load", "first token", "first token again"):
        add(name, processes, lambda seconds, name=name: seconds[name])  # type: ignore[misc]
    add("compiling", processes, _compiling, goal=goal)
    stages = [name for name in JAX_STAGES.values() if name in processes[0].seconds]
    for name in stages:
        add(f"compiling, {name}", processes, lambda seconds, name=name: seconds.get(name, 0.0))  # type: ignore[misc]
    add("compiling, Tempo", processes, lambda seconds: _compiling(seconds) - sum(seconds.get(n, 0.0) for n in stages))
    add("load and first token", processes, _whole)


def _add(session: Session, title: str, what: str, processes: Sequence[Seen],
         part: Callable[[Mapping[str, float]], float], goal: float | None = None) -> None:  # fmt: skip
    session.add(title, what, "s", *(part(each.seconds) for each in processes), goal=goal)


def _compiling(seconds: Mapping[str, float]) -> float:
    return seconds["first token"] - seconds["first token again"]


def _whole(seconds: Mapping[str, float]) -> float:
    return seconds["load"] + seconds["first token"]


BENCHMARK = Benchmark(
    measure,
    "Language models",
    repeats=5,
    quick_repeats=2,
    backends=("jax", "torch"),
    add_options=options,
    docs=lambda row: row.unit in ("x", "floors", "times") or row.what in ("tempo", "tempo, first token", "compiling"),
)
