"""Strips that are computed again: what they mean at any length, what they keep, and what is refused."""

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.passes.manager import Decided, PassContext
from tempo.passes.recompute.recompute import Recompute
from tempo.passes.rewrite.driver import rewrite_graph
from tempo.sdg.graph import Graph
from tests.unit.passes.equivalence import check

LENGTHS = tuple({"t": length} for length in (1, 2, 3, 4, 5, 6, 7, 9, 12, 13))


def recurrence(t: tp.Dim) -> None:
    """A network and its gradient."""
    x, w = tp.input("x", (2, 3), (t,)), tp.input("w", (3, 3), ())
    h = tp.recurrent("h", (2, 3), (t,))
    h[0] = tp.tanh(x)
    h[t + 1] = tp.tanh(h @ w + x[t + 1])
    loss = (h[t.size - 1] ** 2).sum()
    tp.output("dw", tp.grad(loss, {"w": w})["w"])


def losses_at_every_point(t: tp.Dim) -> None:
    """States that are outputs, too, a loss at each, and the gradient of what is given."""
    x, w = tp.input("x", (3,), (t,)), tp.input("w", (3, 3), ())
    h = tp.recurrent("h", (3,), (t,))
    h[0] = x
    h[t + 1] = tp.sin(h @ w) + x
    losses = abs(h - x).sum()
    tp.output("h", h)
    tp.output("losses", losses)
    found = tp.grad(losses[0 : t.size].sum(), {"w": w, "x": x})
    tp.output("dw", found["w"])
    tp.output("dx", found["x"])


def long_memory(t: tp.Dim) -> None:
    """What lies two points back enters each strip, too."""
    x, w = tp.input("x", (2,), (t,)), tp.input("w", (2,), ())
    h = tp.recurrent("h", (2,), (t,))
    h[t] = tp.cases((t < 2, x), tp.tanh(h[t - 1] * w + h[t - 2] * x))
    tp.output("dw", tp.grad((h[0 : t.size] ** 2).sum(), {"w": w})["w"])


def both_directions(t: tp.Dim) -> None:
    """Four loops: two networks that read each other's states."""
    x, w = tp.input("x", (2,), (t,)), tp.input("w", (2, 2), ())
    h, g = tp.recurrent("h", (2,), (t,)), tp.recurrent("g", (2,), (t,))
    h[0] = x
    h[t + 1] = tp.tanh(h @ w + x)
    g[t.size - 1] = h
    g[t] = tp.tanh(g[t + 1] @ w) * h
    tp.output("y", g[0])
    tp.output("dw", tp.grad((g[0] * g[0]).sum(), {"w": w})["w"])


def a_statistic_first(t: tp.Dim) -> None:
    """The second loop waits for a sum over the first, and the third for the greatest of the second."""
    x = tp.input("x", (2,), (t,))
    h = tp.recurrent("h", (2,), (t,))
    h[0] = x
    h[t + 1] = tp.cos(h) + x
    centred = h - h[0 : t.size].sum(axis=0)
    s = tp.recurrent("s", (2,), (t,))
    s[0] = centred
    s[t + 1] = s * 0.5 + centred[t + 1]
    tp.output("y", abs(s[0 : t.size].max(axis=0) - s)[0 : t.size].sum())


def noisy(t: tp.Dim) -> None:
    """Draws are the same when they are made again."""
    w = tp.input("w", (3,), ())
    h = tp.recurrent("h", (3,), (t,))
    h[0] = w
    h[t + 1] = tp.sin(h * w) * tp.random.uniform((3,), dims=(t,))
    tp.output("dw", tp.grad((h[0 : t.size] ** 2).sum(), {"w": w})["w"])


def the_point_itself(t: tp.Dim) -> None:
    """Values of the dim, and conditions on it that no strip knows."""
    w = tp.input("w", (2,), ())
    h = tp.recurrent("h", (2,), (t,))
    h[0] = w
    h[t + 1] = tp.cases((t % 3 == 1, h + w), tp.tanh(h * w) + t)
    tp.output("dw", tp.grad((h[0 : t.size] * h[0 : t.size]).sum(), {"w": w})["w"])


PROGRAMS: dict[str, Callable[[tp.Dim], None]] = {
    each.__name__: each
    for each in (
        recurrence,
        losses_at_every_point,
        long_memory,
        both_directions,
        a_statistic_first,
        noisy,
        the_point_itself,
    )
}


def graph_of(make: Callable[[tp.Dim], None], size: int | None = None) -> Graph:
    with tp.Program(make.__name__) as program:
        make(tp.dim("t", size))
    return program.graph()


def cut(graph: Graph, *sizes: int) -> Graph:
    made = Recompute({"t": sizes}).apply(graph, PassContext())
    assert isinstance(made, Decided)
    return made.program


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_strips_mean_the_same(name: str, size: int) -> None:
    graph = graph_of(PROGRAMS[name])
    after = check(Recompute({"t": (size,)}), graph, *LENGTHS)
    assert len(after.dims) == len(graph.dims) + 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_strips_of_strips_mean_the_same(name: str) -> None:
    check(Recompute({"t": (6, 2)}), graph_of(PROGRAMS[name]), *LENGTHS)
