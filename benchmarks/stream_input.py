"""What a step of training costs whose batches an iterator gives, against the same step on batches that are all there.

A network of six layers and a scale, 13 weights under Adam. `tp.input` has the whole loop in one function of the
backend; with `tp.stream_input` Python takes each batch, and every few batches calls a function that the weights and
their moments go in and out of. The iterator does next to nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import ratios

GOAL = 60.0  # microseconds
LAYERS = 6


def training(source: Callable[..., Any], width: int, batch: int) -> tp.Program:
    """`source` is `tp.input` or `tp.stream_input`."""
    draw = np.random.default_rng(0)
    with tp.Program("training") as program:
        i = tp.dim("i")
        h = x = source("x", shape=(batch, width), dims=(i,))
        weights = []
        for layer in range(LAYERS):
            begin = draw.normal(0, 1 / np.sqrt(width), (width, width)).astype(np.float32)
            w = tp.parameter(f"w{layer}", shape=(width, width), init=begin, dims=(i,))
            b = tp.parameter(f"b{layer}", shape=(width,), init=np.zeros(width, np.float32), dims=(i,))
            h = tp.tanh(h @ w + b)
            weights += [w, b]
        scale = tp.parameter("scale", shape=(), init=np.float32(1), dims=(i,))
        loss = ((scale * h - x) ** 2).mean()
        tp.optim.Adam(1e-3).minimize(loss, [*weights, scale])
        tp.output("loss", loss)
    return program


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help="default: 2,000; quick 500")
    parser.add_argument("--width", type=int, default=16, help="of a layer, default: 16")
    parser.add_argument("--batch", type=int, default=16, help="default: 16")


def measure(session: Session) -> None:
    chosen = session.options
    steps = chosen.steps or (500 if session.quick else 2_000)
    batches = np.random.default_rng(1).normal(0, 1, (steps, chosen.batch, chosen.width)).astype(np.float32)
    sources = {"tp.stream_input": tp.stream_input, "tp.input": tp.input}
    compiled = {
        name: session.compile(training(source, chosen.width, chosen.batch), {"i": steps})
        for name, source in sources.items()
    }

    def streamed() -> np.ndarray:
        return np.asarray(session.ready(compiled["tp.stream_input"](x=iter(batches)))["loss"])

    def whole() -> np.ndarray:
        return np.asarray(session.ready(compiled["tp.input"](x=batches))["loss"])

    np.testing.assert_allclose(streamed(), whole(), rtol=1e-3, atol=1e-5)
    case = f"{steps} steps of {2 * LAYERS + 1} weights, width {chosen.width}, batch {chosen.batch}"
    timings = session.time(case, {"tp.stream_input": streamed, "tp.input": whole})
    for name, timing in timings.items():
        session.add(case, f"{name}, a step", "us", *(seconds / steps * 1e6 for seconds in timing.seconds))
    pairs = zip(timings["tp.stream_input"].seconds, timings["tp.input"].seconds, strict=True)
    session.add(case, "beyond tp.input, a step", "us", *((a - b) / steps * 1e6 for a, b in pairs), goal=GOAL)
    session.add(case, "tp.stream_input / tp.input", "x", *ratios(timings, "tp.stream_input", "tp.input"))


BENCHMARK = Benchmark(
    measure,
    "Batches from an iterator",
    repeats=7,
    quick_repeats=3,
    backends=("numpy", "jax", "torch"),
    add_options=options,
    docs=lambda row: row.unit in ("us", "x"),
)
