"""What passes do to the examples' graphs, operator by operator and second by second; and how compiling grows.

The first table has the nodes before and after each pass; the second the seconds of the passes and of all of `compile`
for programs of 250 to 2,000 operators (the goal for 2,000 is 10 s).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import tempo as tp
from benchmarks.front_end import SMALL
from benchmarks.harness import Benchmark, Session
from examples import edit_distance, kalman, linear_recurrence, lstm, rnn, value_iteration, wave
from examples.decode import decoder
from tempo.passes.manager import PassContext, PassManager, PassRecord
from tempo.passes.pipeline import default_passes


def chain(operators: int) -> tp.Program:
    """A recurrence whose step has so many operators, some of which look back over a window."""
    with tp.Program("chain") as program:
        b, t = tp.dims("b t")
        x, h = tp.input("x", (8,), (b, t)), tp.recurrent("h", (8,), (b, t))
        value, made = x, 0
        while made < operators:
            value, made = tp.tanh(value * 1.5 + x) - h, made + 4
            if made % 16 == 0:
                value, made = value[b, tp.max(t - 2, 0) : t + 1].sum(axis=0), made + 1
        h[b, 0] = tp.zeros((8,))
        h[b, t + 1] = value
        tp.output("h", h)
    return program


EXAMPLES: dict[str, Callable[[], tp.Program]] = {
    "decode": lambda: decoder(SMALL),
    "rnn, trained": lambda: rnn.training(rnn.weights(16, seed=0)),
    "lstm, trained": lambda: lstm.training(lstm.weights(16, seed=0)),
    "kalman": kalman.kalman_filter,
    "linear_recurrence": lambda: linear_recurrence.state_space(4, 8),
    "value_iteration": lambda: value_iteration.value_iteration(4),
    "wave": wave.wave,
    "edit_distance": edit_distance.edit_distance,
}


def passes(program: tp.Program) -> tuple[PassRecord, ...]:
    """What each pass of the default pipeline did."""
    _, records = PassManager.configured(default_passes()).run(program.graph(), PassContext())
    return records


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="*", default=[250, 500, 1000, 2000])


def measure(session: Session) -> None:
    for name, make in EXAMPLES.items():
        records = passes(make())
        session.add(name, "operators as written", "operators", records[0].nodes_before)
        for record in records:
            session.add(name, f"after {record.name}", "operators", record.nodes_after)
            session.add(name, record.name, "ms", 1e3 * record.seconds)
    sizes = session.options.sizes
    for operators in sizes[:2] if session.quick else sizes:
        program = chain(operators)
        start = time.perf_counter()
        session.compile(program, {"b": 4, "t": 16})
        whole = time.perf_counter() - start
        seconds = sum(record.seconds for record in passes(program))
        case = f"compiling {operators} operators"
        session.add(case, "whole", "s", whole, goal=operators / 200)
        session.add(case, "passes", "s", seconds)


BENCHMARK = Benchmark(measure, repeats=1, quick_repeats=1, backends=("numpy",), add_options=options)
