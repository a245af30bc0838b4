"""From Python to an executable for the decoding example at 4 and 32 layers: tracing, and everything after it."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Benchmark, Session
from examples.decode import Config, decoder

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
    rope={"rope_theta": 10000.0, "rope_type": "default"},
)


def measure(session: Session) -> None:
    def compiled(layers: int) -> object:
        program = decoder(replace(SMALL, layers=layers))
        return session.compile(program, {"l": layers, "p": 8, "t": 64})

    session.time("tracing", {"decoder": lambda: decoder(SMALL)})
    runs = {f"{layers} layers": lambda layers=layers: compiled(layers) for layers in (4, 32)}
    session.time("tracing and compiling (goal: equal, under 2 s)", runs)


BENCHMARK = Benchmark(measure, repeats=7, quick_repeats=3, backends=("numpy", "jax", "torch"))
