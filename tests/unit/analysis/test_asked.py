"""At which points of its rows a node is asked for, by its conditions at all points of short rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tempo as tp
from tempo.analysis.asked import Asked
from tempo.analysis.demand.demand import demand
from tempo.analysis.rows import with_losses
from tempo.symbolic import Symbol

SIZE = 5
Make = Callable[[tp.Dim, tp.Dim, tp.RecurrentTensor, tp.RecurrentTensor], tp.RecurrentTensor]


def before_it(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor, y: tp.RecurrentTensor) -> tp.RecurrentTensor:
    h = tp.recurrent("h", (), (b, t))
    h[b, 0] = x
    h[b, t + 1] = h + y
    return h


def in_turn(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor, y: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """`g` is asked for one point before `h`, and `y` one before that."""
    h, g = tp.recurrent("h", (), (b, t)), tp.recurrent("g", (), (b, t))
    h[b, 0] = g[b, 0] = x
    h[b, t + 1] = h + g
    g[b, t + 1] = g + y + h
    return h


def behind_it(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor, y: tp.RecurrentTensor) -> tp.RecurrentTensor:
    h = tp.recurrent("h", (), (b, t))
    h[b, t.last] = x
    h[b, t] = h[b, t + 1] + y
    return h


ASKED: dict[str, tuple[Make, Callable[[int, int], bool]]] = {
    "at its point": (lambda b, t, x, y: x + y, lambda t, last: True),
    "by the next": (before_it, lambda t, last: t < last),
    "by the next but one": (in_turn, lambda t, last: t < last - 1),
    "but at the last": (behind_it, lambda t, last: t < last),
    "in a case": (lambda b, t, x, y: tp.cases((t < t.last, y), x), lambda t, last: t < last),
    "in the other": (lambda b, t, x, y: tp.cases((t < t.last, x), y), lambda t, last: t == last),
    "at the last": (lambda b, t, x, y: x + y[b, t.last], lambda t, last: t == last),
    "two before": (lambda b, t, x, y: tp.cases((t >= 2, y[b, t - 2]), x), lambda t, last: t <= last - 2),
    "by a sum": (lambda b, t, x, y: x + y[b, :].sum(), lambda t, last: True),
    "by sums of those before": (
        lambda b, t, x, y: tp.cases((t >= 1, y[b, 0:t].sum()), x),
        lambda t, last: t < last,
    ),
    "of another row": (lambda b, t, x, y: tp.cases((b >= 1, y[b - 1, t]), x), lambda t, last: True),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("by_loss", [False, True])
def test_points_that_are_asked_for(name: str, by_loss: bool) -> None:
    make, is_asked = ASKED[name]
    with tp.Program() as program:
        b = tp.dim("b", 2)
        t = tp.dim("t", SIZE, lengths=tp.input("n", (), (b,), "int32"))
        x = tp.input("x", (), (b, t))
        y = tp.exp(x)
        made = make(b, t, x, y)
        tp.output("made", tp.grad(made[:, :].sum(), x) if by_loss else made)
    graph = with_losses(program.declared())
    boxes = {id: found.box for id, found in demand(graph).items()}
    asked = Asked(graph, boxes, graph.ragged.values())
    where = asked.where[y.node.id]
    for last in range(SIZE):
        env = {Symbol("b", "dim"): 0, Symbol("t", "last"): last}
        found = [at for at in range(last + 1) if where.evaluate({**env, Symbol("t", "dim"): at})]
        assert found == [at for at in range(last + 1) if is_asked(at, last)]
    assert asked.is_whole(y.node.id) == (name in ("at its point", "by a sum", "of another row"))
