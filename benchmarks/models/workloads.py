"""The programs, and the arrays that programs and peers are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

import tempo as tp
from benchmarks.models import translator
from examples import edit_distance, kalman, linear_recurrence, value_iteration, wave
from examples.lstm import lstm
from examples.rnn import rnn


@dataclass(frozen=True)
class Workload:
    """`peer` names the function of the peers' modules; the names of what it returns are those of the outputs.

    `weights` are the parameters that a run starts from, which the peer takes beside the inputs.
    """

    peer: str
    program: tp.Program
    inputs: Mapping[str, np.ndarray]
    sizes: Mapping[str, int] = field(default_factory=dict)
    tolerance: float = 1e-4
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)


def cell(kind: Callable[..., tp.RecurrentTensor], inputs: int, hidden: int, gates: int) -> tp.Program:
    with tp.Program(kind.__name__) as program:
        dims = tp.dims("b t")
        x = tp.input("x", shape=(inputs,), dims=dims)
        wx = tp.input("wx", shape=(inputs, gates * hidden), dims=())
        wh = tp.input("wh", shape=(hidden, gates * hidden), dims=())
        bias = tp.input("bias", shape=(gates * hidden,), dims=())
        tp.output("h", kind(x, wx, wh, bias, dims))
    return program


def cell_inputs(batch: int, steps: int, inputs: int, hidden: int, gates: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {
        "x": (batch, steps, inputs),
        "wx": (inputs, gates * hidden),
        "wh": (hidden, gates * hidden),
        "bias": (gates * hidden,),
    }
    scale = {"x": 1.0}
    return {
        name: draw.normal(0, scale.get(name, hidden**-0.5), shape).astype(np.float32) for name, shape in shapes.items()
    }


def of_cell(kind: Callable[..., tp.RecurrentTensor], gates: int, batch: int, steps: int, width: int) -> Workload:
    given = cell_inputs(batch, steps, width, width, gates)
    return Workload(kind.__name__, cell(kind, width, width, gates), given, tolerance=1e-3)


def bptt(inputs: int, hidden: int) -> tp.Program:
    """The gradients of an LSTM's squared error, averaged over its outputs and summed over sequences and steps."""
    with tp.Program("lstm_bptt") as program:
        dims = tp.dims("b t")
        x = tp.input("x", shape=(inputs,), dims=dims)
        target = tp.input("target", shape=(hidden,), dims=dims)
        shapes = {"wx": (inputs, 4 * hidden), "wh": (hidden, 4 * hidden), "bias": (4 * hidden,)}
        w = {name: tp.input(name, shape=shape, dims=()) for name, shape in shapes.items()}
        error = ((lstm(x, **w, dims=dims) - target) ** 2).mean()
        tp.output("loss", error[:, :].sum())
        for name, gradient in tp.grad(error, w).items():
            tp.output(name, gradient)
    return program


def of_bptt(batch: int, steps: int, width: int) -> Workload:
    target = np.random.default_rng(1).normal(0, 0.5, (batch, steps, width)).astype(np.float32)
    given = {**cell_inputs(batch, steps, width, width, 4), "target": target}
    return Workload("lstm_bptt", bptt(width, width), given, tolerance=1e-3)


def workloads(quick: bool) -> Mapping[str, Callable[[], Workload]]:
    """By what they are called in the table; made when asked for."""
    steps = 128 if quick else 512
    return {
        "rnn, batch 1, width 32": lambda: of_cell(rnn, 1, 1, steps, 32),
        "rnn, batch 32, width 128": lambda: of_cell(rnn, 1, 32, steps, 128),
        "lstm, batch 1, width 32": lambda: of_cell(lstm, 4, 1, steps, 32),
        "lstm, batch 32, width 128": lambda: of_cell(lstm, 4, 32, steps, 128),
        "lstm_bptt, batch 4, width 32": lambda: of_bptt(4, steps, 32),
        "lstm_bptt, batch 32, width 128": lambda: of_bptt(32, steps, 128),
        "linear recurrence": lambda: of_linear_recurrence(8, 2 * steps),
        "wave": lambda: of_wave(96, steps),
        "value iteration": lambda: of_value_iteration(12, steps),
        "edit distance": lambda: of_edit_distance(64, steps // 2),
        "kalman": lambda: of_kalman(128, steps),
        "gru translator, a batch": lambda: of_translator("translator", 1),
        "gru translator, 20 steps of training": lambda: of_translator("translator_training", 20),
    }


def of_linear_recurrence(batch: int, steps: int) -> Workload:
    channels, states = 32, 8
    given = linear_recurrence.inputs(batch, steps, channels, states, seed=0)
    return Workload("state_space", linear_recurrence.state_space(channels, states), given, tolerance=1e-3)


def of_wave(size: int, steps: int) -> Workload:
    return Workload("wave", wave.wave(), {"start": wave.bump(size)}, {"t": steps}, 1e-3)


def of_value_iteration(size: int, sweeps: int) -> Workload:
    _, given = value_iteration.maze(size, seed=0)
    program = value_iteration.value_iteration(len(value_iteration.MOVES))
    return Workload("value_iteration", program, given, {"k": sweeps}, 1e-3)


def of_edit_distance(batch: int, length: int) -> Workload:
    return Workload("edit_distance", edit_distance.edit_distance(), edit_distance.pairs(batch, length, seed=0)[1])


def of_kalman(objects: int, steps: int) -> Workload:
    _, z = kalman.sightings(objects, steps, seed=0)
    return Workload("kalman", kalman.kalman_filter(), {"z": z}, tolerance=1e-3)


def of_translator(peer: str, iterations: int) -> Workload:
    program = translator.translator(iterations, learns=peer == "translator_training")
    given = translator.sentences(iterations)
    return Workload(peer, program, given, tolerance=2e-3, weights=translator.weights())
