"""From Python to an executable for the decoding example, Llama 3.2's architecture: what of it grows with the layers.

Tracing and all of `tp.compile`; layers are a dim, so it should be the same for any number of them. What the backend's
own compiler takes comes with the first run: `backend` is that run's time beyond what a later one takes.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import in_turn, ratios
from examples.decode import Config, decoder, input_name, weight_shapes

SMALL = Config(
    vocabulary=512,
    hidden=64,
    intermediate=128,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=16,
    epsilon=1e-6,
    tied=True,
    rope={
        "rope_theta": 500000.0,
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
)
LAYERS = (4, 16, 64)
PROMPT = 8
GOAL = 1.0
"""Seconds to an executable."""


def sizes(config: Config, positions: int) -> dict[str, int]:
    return {"l": config.layers, "p": PROMPT, "t": positions}


def example_inputs(config: Config) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {input_name(name): (config.layers, *shape) for name, shape in weight_shapes(config).items()}
    whole = (config.vocabulary, config.hidden)
    shapes |= {"embedding": whole, "norm": (config.hidden,), "head": whole}
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {"prompt": np.arange(PROMPT), **weights}


def seconds(run: tp.Executable, inputs: dict[str, np.ndarray]) -> float:
    start = time.perf_counter()
    np.asarray(run(**inputs)["token"])
    return time.perf_counter() - start


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, nargs="+", default=LAYERS)
    parser.add_argument("--positions", type=int, default=64)


def measure(session: Session) -> None:
    layers, positions = session.options.layers, session.options.positions

    def compiled(count: int) -> tp.Executable:
        config = replace(SMALL, layers=count)
        return session.compile(decoder(config), sizes(config, positions))

    seconds(compiled(1), example_inputs(replace(SMALL, layers=1)))  # loads the backend
    session.time("tracing", {"decoder": lambda: decoder(SMALL)})
    case = "tracing and compiling (goal: equal, under 1 s)"
    timings = in_turn({f"{count} layers": partial(compiled, count) for count in layers}, session.repeats)
    for name, timing in timings.items():
        session.add(case, name, "s", *timing.seconds, goal=GOAL)
    least, most = (f"{count} layers" for count in (min(layers), max(layers)))
    session.add(case, f"{most} / {least}", "x", *ratios(timings, most, least))
    for count in layers:
        samples = [backend_seconds(compiled(count), count) for _ in range(1 if session.quick else 3)]
        session.add("the backend's own, with the first run", f"backend, {count} layers", "s, first run", *samples)


def backend_seconds(run: tp.Executable, layers: int) -> float:
    inputs = example_inputs(replace(SMALL, layers=layers))
    return seconds(run, inputs) - min(seconds(run, inputs) for _ in range(3))


BENCHMARK = Benchmark(
    measure,
    "From Python to an executable",
    repeats=7,
    quick_repeats=3,
    backends=("numpy", "jax", "torch"),
    add_options=options,
    docs=lambda row: row.unit == "s",
)
