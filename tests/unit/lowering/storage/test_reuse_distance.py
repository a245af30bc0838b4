"""What several places write keeps what one place would: loops cut into many pieces, under a scheduler of the test."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from tempo_greedy.scheduler import GreedyScheduler

import tempo as tp
from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, Sequence

PIECE = 10


@dataclass(frozen=True)
class InPieces:
    """The greedy order with every loop, also those inside, cut into so many pieces, the last without an end."""

    pieces: int

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        return self.cut(GreedyScheduler().schedule(problem))

    def cut(self, tree: ScheduleTree) -> ScheduleTree:
        match tree:
            case Run():
                return tree
            case Sequence(items):
                return Sequence(tuple(map(self.cut, items)))
            case If(condition, body):
                return If(condition, self.cut(body))
            case For(symbol, lo, hi, direction, body):
                inside = self.cut(body)
                bounds = [lo, *(lo + PIECE * piece for piece in range(1, self.pieces)), hi]
                return Sequence(tuple(For(symbol, *each, direction, inside) for each in itertools.pairwise(bounds)))


def chained(length: int = 100) -> tp.Program:
    """Two recurrences of which each reads the other's and its own last few points."""
    with tp.Program() as program:
        t = tp.dim("t", length)
        x = tp.input("x", (2,), (t,))
        h = tp.recurrent("h", (2,), (t,))
        h[0] = x[0]
        h[t + 1] = tp.tanh(h * x[t + 1])
        k = tp.recurrent("k", (2,), (t,))
        k[t < 5] = h
        k[True] = h[t - 2] + h[t - 5] + k[t - 1] + h[t - 1] * k[t - 3]
        m = tp.recurrent("m", (2,), (t,))
        m[t < 5] = k
        m[True] = k[t - 2] + h[t - 5] + m[t - 1]
        tp.output("sum", m.sum())
    return program


def grid(length: int = 100) -> tp.Program:
    """A recurrence along two dims, read two points back along the inner one."""
    with tp.Program() as program:
        t, s = tp.dim("t", length), tp.dim("s", length)
        x = tp.input("x", (2,), (t, s))
        h = tp.recurrent("h", (2,), (t, s))
        h[0, 0] = x[0, 0]
        h[0, s + 1] = tp.tanh(h[0, s] * x[0, s + 1])
        h[t + 1, 0] = tp.tanh(h[t, 0])
        h[t + 1, s + 1] = h[t, s + 1] + h[t + 1, s] * x[t + 1, s + 1]
        k = tp.recurrent("k", (2,), (t, s))
        k[s < 2] = h
        k[True] = h[t, s - 2] + k[t, s - 1] * h[t, s - 1]
        tp.output("sum", k.sum())
    return program


def kept(run: tp.Executable) -> dict[str, set[str]]:
    """How what the loops make is stored, by name: several values may have one name."""
    found: dict[str, set[str]] = {}
    for buffer in run.memory.buffers:
        found.setdefault(buffer.name, set()).add(str(buffer.storage))
    return found


@pytest.mark.parametrize("pieces", [2, 4])
def test_a_loop_in_pieces_keeps_windows(pieces: int) -> None:
    found = kept(tp.compile(chained(), scheduler=InPieces(pieces)))
    assert found["h"] == {"window(6)"} and "window(3)" in found["k"]


@pytest.mark.parametrize("pieces", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_nested_loops_each_in_pieces_keep_a_window_of_the_inner_one(pieces: int) -> None:
    assert "full x window(3)" in kept(tp.compile(grid(), scheduler=InPieces(pieces)))["h"]


@pytest.mark.parametrize("program", [chained, pytest.param(grid, marks=pytest.mark.slow)])
def test_what_loops_in_pieces_overwrite_is_read_no_more(program: Callable[[int], tp.Program]) -> None:
    length = 2 * PIECE + 3
    made = program(length)
    shape = (length,) * len(made.graph().dims) + (2,)
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    wanted = tp.compile(made, "reference")(x=x)["sum"]
    for pieces in (2, 3):
        found = tp.compile(made, scheduler=InPieces(pieces), options=tp.Options(poison=True, debug=True))(x=x)["sum"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
