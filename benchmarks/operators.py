"""What passes do to the examples' graphs, operator by operator and second by second; and how compiling grows.

The first table has the nodes before and after each pass; the second those of losses alone and with their gradients; the
third the seconds of the passes and of all of `compile` for programs of 250 to 2,000 operators (the goal for 2,000 is
10 s).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import tempo as tp
from benchmarks.front_end import SMALL
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import rounds
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


Loss = tuple[tp.RecurrentTensor, tp.RecurrentTensor]
"""A loss, and what it is differentiated with respect to."""


def rnn_loss() -> Loss:
    t = tp.dim("t")
    w = {name: tp.input(name, array.shape) for name, array in rnn.weights(16, seed=0).items()}
    h = rnn.rnn(tp.input("x", (1,), (t,)), w["wx"], w["wh"], w["bias"], dims=(t,))
    return ((h @ w["out"]) ** 2)[0 : t.size].sum(), w["wh"]


def lstm_loss() -> Loss:
    t = tp.dim("t")
    w = {name: tp.input(name, array.shape) for name, array in lstm.weights(16, seed=0).items()}
    h = lstm.lstm(tp.input("x", (2,), (t,)), w["wx"], w["wh"], w["bias"], dims=(t,))
    return ((h @ w["out"]) ** 2)[0 : t.size].sum(), w["wh"]


def attention_loss() -> Loss:
    t = tp.dim("t")
    x, w = tp.input("x", (16,), (t,)), tp.input("w", (16, 16))
    keys = tp.tanh(x @ w)
    return ((tp.softmax(keys[0 : t + 1] @ x) @ x[0 : t + 1]) ** 2)[0 : t.size].sum(), w


def plate_loss() -> Loss:
    t, y, x = tp.dims("t y x")
    start, u = tp.input("start", (), (y, x)), tp.recurrent("u", (), (t, y, x))
    u[(y == 0) | (y == y.size - 1) | (x == 0) | (x == x.size - 1)] = 0
    u[t == 0] = start
    around = u[t - 1, y - 1, x] + u[t - 1, y + 1, x] + u[t - 1, y, x - 1] + u[t - 1, y, x + 1]
    u[t, y, x] = tp.tanh(u[t - 1, y, x] + 0.1 * (around - 4 * u[t - 1, y, x]))
    return (u[-1, 0 : y.size, 0 : x.size] ** 2).sum(), start


LOSSES: dict[str, Callable[[], Loss]] = {
    "rnn": rnn_loss,
    "lstm": lstm_loss,
    "attention": attention_loss,
    "plate": plate_loss,
}


def with_loss(declare: Callable[[], Loss], gradient: bool) -> tp.Program:
    with tp.Program("loss") as program:
        loss, wrt = declare()
        tp.output("loss", loss)
        if gradient:
            tp.output("gradient", tp.grad(loss, wrt))
    return program


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
    for name, declare in LOSSES.items():
        for title, gradient in (("alone", False), ("with its gradient", True)):
            records = passes(with_loss(declare, gradient))
            case = f"loss of {name}"
            session.add(case, f"{title}, as written", "operators", records[0].nodes_before)
            session.add(case, f"{title}, compiled", "operators", records[-1].nodes_after)
    sizes = session.options.sizes
    for operators in sizes[:2] if session.quick else sizes:
        found = [compiling(session, operators) for _ in rounds(session.repeats)]
        case = f"compiling {operators} operators"
        session.add(case, "whole", "s", *(whole for whole, _ in found), goal=operators / 200)
        session.add(case, "passes", "s", *(inside for _, inside in found))


def compiling(session: Session, operators: int) -> tuple[float, float]:
    """Seconds to compile a chain of operators, and of all passes alone."""
    program = chain(operators)
    start = time.perf_counter()
    session.compile(program, {"b": 4, "t": 16})
    whole = time.perf_counter() - start
    return whole, sum(record.seconds for record in passes(program))


BENCHMARK = Benchmark(
    measure,
    "What passes take",
    repeats=1,
    quick_repeats=1,
    backends=("numpy",),
    add_options=options,
    docs=lambda row: row.unit == "s",
)
