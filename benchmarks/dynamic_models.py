"""The models of `examples/dynamic/` (the Tree-LSTM has a benchmark of its own: `dynamic`), against PyTorch.

Forward, and with the gradients of a loss with respect to all weights where the model has no stop. Tempo's are the
programs of the examples. PyTorch's run one by one (a node, sequence, document, formula, sentence or tree after another:
the peers of the examples) and batched by hand (`benchmarks/dynamic/torch_models.py`): MV-RNN by depth, BiRNN and
NestedRNN packed, StackRNN all rows in step, DRNN by level, BERxiT with sentences taken out behind every layer. Weights
and tokens lie with the library; lengths and children are NumPy arrays, so what orders a batch is timed, too. DRNN's
noise is drawn by Tempo, in its time, and given to the others. `useful` is the share of points that there are, of as
many in each row as the longest has (BERxiT: of layers, as many as there are; DRNN: of nodes that levels have room for).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tempo as tp
from benchmarks.dynamic import torch_models
from benchmarks.harness import Benchmark, Run, Session
from benchmarks.packed import agree
from examples.dynamic import berxit as of_berxit
from examples.dynamic import birnn as of_birnn
from examples.dynamic import drnn as of_drnn
from examples.dynamic import mvrnn as of_mvrnn
from examples.dynamic import nestedrnn as of_nestedrnn
from examples.dynamic import stackrnn as of_stackrnn

ONE_BY_ONE, BATCHED = "PyTorch one by one", "PyTorch batched by hand"
ROWS = (8, 64)
STRUCTURE = {"child", "n", "words", "sentences", "first", "points"}
"""Inputs that say how long rows are and who follows whom."""
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model on a batch."""

    tempo: Run
    one_by_one: Run
    batched: Run
    useful: Callable[[], float] | None = None


def tempo_run(session: Session, program: tp.Program, batch: Arrays, sizes: Mapping[str, int] | None = None,
              state: Arrays | None = None, **more: Any) -> Run:  # fmt: skip
    """A call without arguments that returns outputs that are ready; weights are inputs, or the `state`."""
    run = session.compile(program, sizes)
    given = {name: array if name in STRUCTURE else session.resident(array) for name, array in batch.items()}
    if state is not None:
        more["state"] = {name: session.resident(array) for name, array in state.items()}
    return lambda: session.ready(run(**given, **more))


def torch_run(values: Callable[..., dict[str, Any]], weights: Arrays, gradients: bool, *given: Any) -> Run:
    w = {name: torch.tensor(array, requires_grad=gradients) for name, array in weights.items()}

    def run() -> dict[str, Any]:
        with torch.inference_mode(not gradients):
            found = values(w, *given)
        if gradients:
            found |= zip(w, torch.autograd.grad(found["loss"], list(w.values())))
        return found

    return run


def filled(lengths: np.ndarray) -> Callable[[], float]:
    return lambda: float(lengths.mean() / lengths.max())


# -- models ------------------------------------------------------------------------------------------------------------


def mvrnn(session: Session, width: int, rows: int, gradients: bool) -> Case:
    weights, batch = of_mvrnn.weights(width, 0), of_mvrnn.sentences(rows, np.random.default_rng(1))
    return Case(
        tempo_run(session, of_mvrnn.told(weights, gradients), {**weights, **batch}),
        torch_run(of_mvrnn.torch_values, weights, gradients, batch),
        torch_run(torch_models.mvrnn, weights, gradients, batch),
    )


def birnn(session: Session, width: int, rows: int, gradients: bool) -> Case:
    weights = of_birnn.weights(width, np.random.default_rng(0))
    batch = of_birnn.sequences(rows, 8 if session.quick else 40, np.random.default_rng(1))
    return Case(
        tempo_run(session, of_birnn.asking(weights, gradients), batch, state=weights),
        torch_run(of_birnn.torch_values, weights, gradients, batch),
        torch_run(torch_models.birnn, weights, gradients, batch),
        filled(batch["n"]),
    )


def nestedrnn(session: Session, width: int, rows: int, gradients: bool) -> Case:
    weights, longest = of_nestedrnn.weights(width, np.random.default_rng(0)), (3, 5) if session.quick else (9, 15)
    batch = of_nestedrnn.documents(rows, *longest, np.random.default_rng(1))
    sizes = {"u": int(batch["sentences"].max())}
    return Case(
        tempo_run(session, of_nestedrnn.asking(weights, gradients), batch, sizes, weights),
        torch_run(of_nestedrnn.torch_values, weights, gradients, batch),
        torch_run(torch_models.nestedrnn, weights, gradients, batch),
        filled(batch["words"]),
    )


def stackrnn(session: Session, width: int, rows: int, gradients: bool) -> Case:
    weights = of_stackrnn.weights(width, np.random.default_rng(0))
    formulas = of_stackrnn.formulas(rows, 3 if session.quick else 12, np.random.default_rng(1))
    batch = of_stackrnn.batch(formulas)
    return Case(
        tempo_run(session, of_stackrnn.asking(weights, gradients), batch, state=weights),
        torch_run(of_stackrnn.torch_values, weights, gradients, formulas, True),
        torch_run(torch_models.stackrnn, weights, gradients, batch),
        filled(batch["points"]),
    )


def berxit(session: Session, width: int, rows: int, gradients: bool) -> Case:
    sequence, layers = (9, 4) if session.quick else (128, 12)
    heads, threshold = width // of_berxit.OF_HEAD, 0.9
    weights = of_berxit.drawn(heads, layers, sequence, np.random.default_rng(0))
    batch = of_berxit.sentences(rows, sequence, np.random.default_rng(1))
    run = tempo_run(session, of_berxit.berxit(weights, heads, threshold), {**weights, **batch})
    return Case(
        run,
        torch_run(torch_models.berxit_one_by_one, weights, gradients, batch, heads, threshold),
        torch_run(torch_models.berxit, weights, gradients, batch, heads, threshold),
        lambda: float(np.asarray(run()["p"]).any(2).sum() / (rows * layers)),
    )


def drnn(session: Session, width: int, rows: int, gradients: bool) -> Case:
    weights, levels = of_drnn.drawn(width, np.random.default_rng(1)), 9 if session.quick else 50
    program = of_drnn.drnn({name: array.shape for name, array in weights.items()}, rows)

    def run() -> Run:
        return tempo_run(session, program, weights, {"b": 1, "l": levels}, seed=1)

    (uniform,) = np.asarray(run()()["uniform"])
    counts = uniform.any(2).sum(1)
    return Case(
        run(),
        torch_run(torch_models.drnn_one_by_one, weights, gradients, uniform, counts),
        torch_run(torch_models.drnn, weights, gradients, uniform),
        lambda: float(counts.mean() / rows),
    )


@dataclass(frozen=True)
class Model:
    case: Callable[[Session, int, int, bool], Case]
    widths: tuple[int, ...] = (256, 512)
    least: int = 16
    """The width that is quick."""
    learns: bool = True


MODELS = {
    "mvrnn": Model(mvrnn, (64, 128), 8),
    "birnn": Model(birnn),
    "nestedrnn": Model(nestedrnn),
    "stackrnn": Model(stackrnn),
    "berxit": Model(berxit, (12 * of_berxit.OF_HEAD, 16 * of_berxit.OF_HEAD), 2 * of_berxit.OF_HEAD, learns=False),
    "drnn": Model(drnn, learns=False),
}


def measure(session: Session) -> None:
    asked, quick = session.options, session.quick
    for name in asked.models:
        model = MODELS[name]
        for width in asked.widths or ((model.least,) if quick else model.widths):
            for rows in asked.rows or (ROWS[:1] if quick else ROWS):
                for gradients in (False, True) if model.learns else (False,):
                    title = f"{name} of {width}, {rows} rows, {'with gradients' if gradients else 'forward'}"
                    measure_case(session, title, model.case(session, width, rows, gradients))


def measure_case(session: Session, title: str, case: Case) -> None:
    session.compare(title, case.tempo, {ONE_BY_ONE: case.one_by_one, BATCHED: case.batched}, agree)
    if case.useful is not None:
        session.add(title, "useful", "of the padded points", case.useful())


def options(parser: argparse.ArgumentParser) -> None:
    names = tuple(MODELS)
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument(
        "--widths", type=int, nargs="+", help="default: 256 512; mvrnn 64 128; berxit 768 1024, in heads of 64"
    )
    parser.add_argument("--rows", type=int, nargs="+", help="of a batch; default: 8 64; quick: 8")


BENCHMARK = Benchmark(
    measure,
    title="Dynamic structure",
    repeats=5,
    quick_repeats=1,
    backends=("numpy", "jax", "torch"),
    add_options=options,
)
