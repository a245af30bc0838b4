"""What a program that may end early along a dim may read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tempo as tp
from tempo.analysis.checks.stopping import check_stops, first_asked
from tempo.analysis.demand.demand import demand
from tempo.symbolic import Symbol


def program(define: Callable[[tp.Dim, tp.RecurrentTensor], None]) -> tp.Program:
    with tp.Program("early") as made:
        t = tp.dim("t")
        x = tp.recurrent("x", (), (t,))
        x[0] = 1.0
        x[t + 1] = x / 2
        define(t, x)
        tp.stop_when(t, x < 0.1)
    return made


def shifted(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    """What is written for the next point may read it."""
    y = tp.recurrent("y", (), (t,))
    y[0] = 0.0
    y[t + 1] = y + x[t + 1] + x[0 : t + 2].sum(axis=0)
    tp.output("y", y)


def before(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    y = tp.recurrent("y", (), (t,))
    y[t < 2] = 0.0
    y[t + 2] = x * 2
    tp.output("y", y[tp.max(t - 1, 0)])
    tp.output("z", x[0:1].sum(axis=0))


@pytest.mark.parametrize("define", [shifted, before])
def test_the_past_may_be_read(define: Callable[..., None]) -> None:
    check_stops(program(define).graph())


def two_on(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    y = tp.recurrent("y", (), (t,))
    y[0] = 0.0
    y[t + 1] = tp.cases((t + 2 < t.size, x[tp.min(t + 2, t.size - 1)]), 0.0)
    tp.output("y", y)


def second(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[1])


def first_two(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[0:2].sum(axis=0))


@pytest.mark.parametrize(("define", "index"), [(two_on, "min"), (second, "t = 1"), (first_two, "t = 0:2")])
def test_the_future_may_not(define: Callable[..., None], index: str) -> None:
    with pytest.raises(tp.UnsupportedError, match="may end early along t") as caught:
        check_stops(program(define).graph())
    assert index in caught.value.message


def test_many_operators_between_two_points_are_followed() -> None:
    def long(t: tp.Dim, x: tp.RecurrentTensor) -> None:
        for _ in range(3000):
            x = x + 1
        tp.output("y", x)

    check_stops(program(long).graph())


def test_when_a_point_is_asked_for_first() -> None:
    def define(t: tp.Dim, x: tp.RecurrentTensor) -> None:
        v, index = tp.input("v", (4,)), tp.input("index", (), (t,), dtype=tp.int32)
        y = tp.recurrent("y", (), (t,))
        y[t < 3] = 0.0
        y[t + 3] = v.spatial[index]  # three points on
        z = tp.recurrent("z", (), (t,))
        z[0] = 0.0
        z[t + 1] = tp.exp(v.spatial[index + 1])[tp.max(t - 1, 0) : t + 1].sum(axis=0)  # the next
        tp.output("y", y)
        tp.output("z", z)
        tp.output("w", v.spatial[index + 2][t // 2])  # at its own point, at least

    graph = program(define).graph()
    asked = first_asked(graph, demand(graph), Symbol("t", "dim"))
    gathers = [node.id for node in graph.nodes.values() if node.op == "gather"]
    assert [asked[id] for id in gathers] == [3, 1, 0]


def test_what_a_call_is_given_is_asked_for_at_its_point() -> None:
    with tp.Program() as made:
        t = tp.dim("t")
        v, index = tp.input("v", (4,)), tp.input("index", (), (t,), dtype=tp.int32)
        (y,) = tp.host_call(lambda x: x, v.spatial[index], out=[((), "float32")], ordered_by=(t,))
        h = tp.recurrent("h", (), (t,))
        h[0] = 0.0
        h[t + 1] = h + y
        tp.output("h", h)
    graph = made.graph()
    (gather,) = (node.id for node in graph.nodes.values() if node.op == "gather")
    assert first_asked(graph, demand(graph), Symbol("t", "dim"))[gather] == 0
