"""Greedy decoding by a small decoder of random weights, causal and with a window, at several lengths.

Time per token, mean over a run of each length; what one token takes early and late in a run (`at`), and the bytes that
a run needs; and a run from a prompt, which is one pass, with a few tokens after it. Peers, on their own backend:
PyTorch with a cache allocated once and torch's kernel on the part of it that counts ("by hand"); JAX with one `jit`
over all steps and attention over the whole cache, masked ("padded"), and with one per bucket of steps, its cache twice
as long as the one before ("bucketed"); with a prompt, both with one pass over it ("by hand").

The floor is memory: weights, and the keys and values that a token attends to, at the bandwidth that is measured in the
same run. What is small enough for the processor's caches may be below it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.attention.program import Config, decoder, sizes
from benchmarks.bandwidth import bandwidth
from benchmarks.harness import Benchmark, Session, to_host

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "small": {"layers": 1, "width": 128, "heads": 4, "kv_heads": 2, "batch": 2},
    "medium": {},
    # As many weights as Llama 3.2 of 3B, whose three matrices of 8,192 are two of 12,288 here.
    "3B": {"layers": 28, "width": 3072, "heads": 24, "kv_heads": 8, "batch": 1, "vocabulary": 128_256},
}
LENGTHS = (1024, 2048, 4096)
QUICK_LENGTHS = (256, 512)
PROMPT, QUICK_PROMPT = 512, 64
AFTER = 8  # tokens after a prompt
AGREED = 8  # tokens that are to be equal in less than float32, where later ones may be as likely as another
CHUNK = 64  # tokens that are timed together


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size", choices=sorted(CONFIGURATIONS), help="default: medium (4 layers, 256 wide), quick small"
    )
    parser.add_argument("--lengths", type=int, nargs="+", help=f"default {LENGTHS}, quick {QUICK_LENGTHS}")
    parser.add_argument(
        "--windows", type=int, nargs="+", help="0 is causal; default 0 and a quarter of the least length"
    )
    parser.add_argument("--batches", type=int, nargs="+", help="rows; default: that of the size")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prompts", type=int, nargs="*", help=f"lengths; default {PROMPT}, quick {QUICK_PROMPT}")


def measure(session: Session) -> None:
    chosen = session.options
    size = CONFIGURATIONS[chosen.size or ("small" if session.quick else "medium")]
    lengths = chosen.lengths or (QUICK_LENGTHS if session.quick else LENGTHS)
    rate = bandwidth(session)
    session.add("memory", "bandwidth", "GB/s", rate / 1e9)
    prompts = (QUICK_PROMPT if session.quick else PROMPT,) if chosen.prompts is None else chosen.prompts
    weights = resident_weights(session, Config(**size, dtype=chosen.dtype))
    for batch, window in product(chosen.batches or (None,), chosen.windows or (0, min(lengths) // 4)):
        config = Config(**size, window=window or None, dtype=chosen.dtype)
        config = config if batch is None else replace(config, batch=batch)
        for length in lengths:
            _measure(session, config, weights, length, rate)
        for length in prompts:
            _measure_prompt(session, config, weights, length)


def resident_weights(session: Session, config: Config) -> dict[str, Any]:
    """Where the backend computes; large ones are drawn there, since the host takes a minute for 3B."""
    if session.device == "cpu":
        return {name: session.resident(array) for name, array in config.weights().items()}
    return {name: session.drawn(shape, scale, config.dtype) for name, (shape, scale) in config.scaled().items()}


def agree(config: Config) -> Callable[[Any, Any], None]:
    if config.dtype == "float32":
        return np.testing.assert_array_equal

    def leading(found: np.ndarray, wanted: np.ndarray) -> None:
        equal = np.minimum.accumulate(np.asarray(found) == np.asarray(wanted), axis=1).sum(axis=1)
        assert equal.mean() >= min(AGREED, found.shape[1]), f"so many tokens are the same: {equal}"

    return leading


def kind_of(config: Config) -> str:
    return "causal" if config.window is None else f"window {config.window}"


def peers_of(session: Session, *arguments: Any) -> dict[str, Callable[[], np.ndarray]]:
    if session.backend not in ("jax", "torch") or session.options.no_peers:
        return {}
    found: dict[str, Callable[[], np.ndarray]] = import_module(f"benchmarks.attention.{session.backend}_peer").peers(
        *arguments
    )
    return found


def _measure_prompt(session: Session, config: Config, weights: dict[str, Any], length: int) -> None:
    case = f"{kind_of(config)}, a prompt of {length}"
    prompt = config.prompt(length)
    run = session.compile(decoder(config, prompted=True), {**sizes(config, length + AFTER), "p": length})

    def tempo() -> np.ndarray:
        return to_host(session.ready(run(prompt=prompt, **weights)["token"]))

    peers = peers_of(session, config, weights, length + AFTER, prompt)
    timings = session.compare(case, tempo, peers, agree(config))
    for name, timing in timings.items():
        session.add(case, name, "ms", *(seconds * 1e3 for seconds in timing.seconds))
    session.add(case, "peak", "MB", run.memory.peak_bytes / 1e6)


def _measure(session: Session, config: Config, weights: dict[str, Any], length: int, rate: float) -> None:
    """`rate`: bytes per second of memory."""
    case = f"{kind_of(config)}, {length} tokens" + f", {config.batch} rows" * bool(session.options.batches)
    start = time.perf_counter()
    run = session.compile(decoder(config), sizes(config, length))
    session.add(case, "compile", "s, compile", time.perf_counter() - start)

    def tempo() -> np.ndarray:
        return to_host(session.ready(run(start=config.start(), **weights)["token"]))

    timings = session.compare(case, tempo, peers_of(session, config, weights, length), agree(config))
    for name, timing in timings.items():
        session.add(case, name, "ms/token", *(seconds / length * 1e3 for seconds in timing.seconds))
    floor = config.bytes_read(length) / rate
    session.add(case, "floor: weights and cache, read once", "ms/token", floor / length * 1e3)
    for name, timing in timings.items():
        session.add(case, f"{name} / floor", "floors", *(seconds / floor for seconds in timing.seconds))
    session.add(case, "peak", "MB", run.memory.peak_bytes / 1e6)
    if session.device != "cpu":  # a chunk waits for the device
        return
    early, late = _at_ends(run, config, weights)
    session.add(case, "at the first tokens", "ms/token", *early)
    session.add(case, "at the last tokens", "ms/token", *late)


def _at_ends(run: tp.Executable, config: Config, weights: dict[str, object]) -> tuple[list[float], list[float]]:
    """Milliseconds per token of chunks in the first eighth of a run, but for the first, and in the last eighth."""
    found: list[float] = []
    for _ in range(2):  # code may be made for as much as there is so far: a run before it makes all of it
        found.clear()
        before = time.perf_counter()
        for chunk in run.stream("t", chunk=CHUNK, start=config.start(), **weights):
            to_host(chunk["token"])
            now = time.perf_counter()
            found.append((now - before) / CHUNK * 1e3)
            before = now
    count = max(1, len(found) // 8)
    return found[1 : 1 + count] or found, found[-1 - count : -1] or found


BENCHMARK = Benchmark(
    measure,
    "Decoding over length",
    repeats=3,
    quick_repeats=2,
    backends=("numpy", "jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
    docs=lambda row: row.unit in ("x", "ms/token", "MB"),
)
