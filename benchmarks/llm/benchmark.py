"""Llamas of random weights from a folder to tokens: the first token, the ones after it, memory, and a cold start.

Per token: what a run of many new tokens takes beyond a run of one, by the tokens between them; both runs are of the
same sizes, which Tempo rounds up to powers of two. First token: the run of one. `floor` is what the products of the
model's matrices with the vectors of a token take alone, by the same library in the same rounds; goals are the
project's. Peers: `transformers` with its dynamic and its static cache, a loop by hand whose step `torch.compile` has
made (as gpt-fast), and llama.cpp where its Python package is installed. In float32 all must make the same tokens, in
other dtypes the likelihoods of a text must be close.

With `--int8` Tempo also runs with its matrices in 8 bits, whose perplexity on a text of random tokens is told.

Memory and cold starts are of processes that do nothing else: the process's own memory beyond its imports, at its peak,
and what comes before the first token, the first time and with the executables that the first process has left.
Prompts are of `--prompts`, with all `--rows`, and one row of the first half of each of `--lengths`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
INT8 = "tempo, int8"
STREAMED = 1.1
"""The goal for a text piece by piece, relative to the text at once."""
OF_MEMORY = 1.15
"""The goal for the peak of what is not mapped, relative to weights and cache."""
COLD, WARM = 4.0, 1.0
"""Goals for compiling, in seconds: the first time, and when the executables are on disk."""


@dataclass(frozen=True)
class Case:
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
    parser.add_argument("--int8", action="store_true", help="also with matrices in 8 bits")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the models there for other runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="default: those installed, quick transformers'")


def measure(session: Session) -> None:
    chosen = session.options
    for size in chosen.sizes or (("50M",) if session.quick else ("50M", "276M")):
        for dtype in chosen.dtypes or (DTYPES[:1] if session.quick else DTYPES):
            with _model(size, dtype, chosen.keep) as model:
                if "speed" in chosen.parts:
                    _speed(session, model)
                if "process" in chosen.parts:
                    _processes(session, model)


@contextmanager
def _model(size: str, dtype: str, keep: Path | None) -> Iterator[Model]:
    """Its folder is there within the block, or for good in the folder `keep`."""
    with tempfile.TemporaryDirectory() as parent:
        model = Model(size, dtype, (keep or Path(parent)) / f"{size}-{dtype}")
        if not (model.folder / "model.safetensors").exists():  # what is written last
            model.size.write(model.folder, dtype)
        yield model


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
    if session.options.int8:
        others[INT8] = ours(model.folder, session.backend, session.device, quantize="int8")
        lost = float(np.mean(mine.logprobs(text) - others[INT8].logprobs(text)))
        session.add(f"{model}", "perplexity in int8 / as stored", "x", np.exp(lost))
    for case in _cases(session):
        taking = {name: other for name, other in others.items() if name == INT8 or _takes(name, case)}
        _compare(session, model, case, mine, taking)


def _takes(name: str, case: Case) -> bool:
    return (PEERS[name].rows or case.rows) >= case.rows


@dataclass(frozen=True)
class Times:
    """Of a round, in seconds: the first token, and each after it."""

    first: float
    each: float


def _compare(session: Session, model: Model, case: Case, mine: Ours, others: Mapping[str, Continuing]) -> None:
    rows, title = case.tokens(), f"{model}, {case}"
    runs: dict[str, Continuing] = {OURS: mine, **others}
    _warmed(model, case, runs)
    lower = floor(session, model.size.products(), model.dtype, case.rows)
    lower()
    streams = (mine.stream, mine.text) if case.rows == 1 else ()
    texts = [stream(rows[0], case.count) for stream in streams]
    assert model.dtype != "float32" or len(set(texts)) <= 1, texts
    times: dict[str, list[Times]] = {name: [] for name in runs}
    products: list[float] = []
    streamed: list[float] = []
    for _ in rounds(session.repeats):
        for name, run in runs.items():
            times[name].append(_timed(run, rows, case.count))
        products.append(timed(lower, calls=4))
        if streams:
            one, all_at_once = (timed(partial(stream, rows[0], case.count)) for stream in streams)
            streamed.append(one / all_at_once)
    _tell(session, title, times, products, FLOORS if case.rows == 1 and case.prompt <= case.count else None)
    if streams:
        session.add(title, "streamed / at once", "x", *streamed, goal=STREAMED)


def _warmed(model: Model, case: Case, runs: Mapping[str, Continuing]) -> None:
    """All that is compiled is made, and in float32 the tokens are the same."""
    made = {name: run.generate(case.tokens(), case.count) for name, run in runs.items()}
    if model.dtype == "float32":
        for name, tokens in ((name, tokens) for name, tokens in made.items() if name != INT8):
            np.testing.assert_array_equal(tokens, made[OURS], name)
    for run in runs.values():
        run.generate(case.tokens(), 1)


def _timed(run: Continuing, rows: list[list[int]], count: int) -> Times:
    first = timed(lambda: run.generate(rows, 1))
    return Times(first, (timed(lambda: run.generate(rows, count)) - first) / (count - 1))


def _tell(session: Session, title: str, times: Mapping[str, Sequence[Times]], products: Sequence[float],
          goal: float | None) -> None:  # fmt: skip
    add = partial(session.add, title)
    for name, found in times.items():
        add(name, "ms/token", *(1e3 * each.each for each in found))
        add(f"{name}, first token", "ms", *(1e3 * each.first for each in found))
    add("floor: the products alone", "ms/token", *(1e3 * seconds for seconds in products))
    for name, found in times.items():
        over = (each.each / least for each, least in zip(found, products, strict=True))
        add(f"{name} / floor", "floors", *over, goal=goal if name == OURS else None)
    for name in list(times)[1:]:
        pairs = list(zip(times[OURS], times[name], strict=True))
        add(f"tempo / {name}", "x", *(ours.each / theirs.each for ours, theirs in pairs))
        add(f"tempo / {name}, first token", "x", *(ours.first / theirs.first for ours, theirs in pairs))


# -- processes ---------------------------------------------------------------------------------------------------------


def _processes(session: Session, model: Model) -> None:
    """Tempo's twice in each round, the second time with what the first has kept; a peer's once. One of each before
    them leaves bytecode, as an installation does."""
    found = _cases(session)
    for case in dict.fromkeys((found[0], max(found, key=lambda each: each.rows * each.prompt))):
        title = f"{model}, {case}, a process of its own"
        settings = partial(
            Settings, backend=session.backend, device=session.device, folder=str(model.folder), rows=case.tokens(),
            count=case.count,
        )  # fmt: skip
        names = [name for name in _peers(session) if _takes(name, case)]
        first: list[Seen] = []
        again: list[Seen] = []
        others: dict[str, list[Seen]] = {name: [] for name in names}
        with tempfile.TemporaryDirectory() as bytecode:
            for name in (OURS, *names):
                seen(settings(name), bytecode)
            for _ in rounds(1 if session.quick else session.repeats):
                with tempfile.TemporaryDirectory() as cache:
                    first.append(seen(settings(OURS), bytecode, cache))
                    again.append(seen(settings(OURS), bytecode, cache))
                for name, each in others.items():
                    each.append(seen(settings(name), bytecode))
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
