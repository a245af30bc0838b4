"""From Python to an executable for the decoding example at 4 and 32 layers: tracing, and everything after it."""

from __future__ import annotations

import argparse
from dataclasses import replace

import tempo as tp
from benchmarks.measure import in_turn, show
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


def compiled(layers: int, backend: str) -> object:
    program = decoder(replace(SMALL, layers=layers))
    return tp.compile(program, backend=backend, sizes={"l": layers, "p": 8, "t": 64})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--backend", default="numpy")
    options = parser.parse_args()
    show("tracing", in_turn({"decoder": lambda: decoder(SMALL)}, options.repeats))
    runs = {f"{layers} layers": lambda layers=layers: compiled(layers, options.backend) for layers in (4, 32)}
    show("tracing and compiling (goal: equal, under 2 s)", in_turn(runs, options.repeats))


if __name__ == "__main__":
    main()
