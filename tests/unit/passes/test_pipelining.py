"""Pipelines as a schedule: what the program of stages means, in how many waves, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tempo as tp
from tempo.passes.manager import PassContext
from tempo.passes.pipelining.pipelining import Pipelining
from tempo.passes.pipelining.stages import PipelineStages
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol, conjunction, const, var
from tests.unit.passes.equivalence import check

SIZES = ((1, 1, 1), (1, 4, 3), (2, 2, 1), (2, 4, 3), (2, 6, 5), (3, 3, 4), (4, 8, 3))
"""PipelineStages, layers, microbatches."""
Body = Callable[[tp.Dim, tp.Dim], None]


def in_stages(graph: Graph, stages: int, layers: int, microbatches: int, **sizes: int) -> Graph:
    """The program of stages, held to the meaning of what was written."""
    dims = {dim.symbol.name: dim.symbol for dim in graph.dims}
    given = {"l": layers, "m": microbatches, **sizes}
    facts = conjunction(var(Symbol(name, "size")).eq(const(given[name])) for name in "lm")
    chosen = Pipelining(PipelineStages.of(graph, dims["l"], dims["m"], stages))
    return check(chosen, graph, given, context=PassContext(facts=facts))


def written(body: Body, order: str = "m l") -> tp.Program:
    with tp.Program() as program:
        body(*tp.dims(order))
    return program


def layers_of(m: tp.Dim, l: tp.Dim, shape: tuple[int, ...] = (2, 3)) -> dict[str, tp.RecurrentTensor]:
    w, x = tp.input("w", (3, 3), (l,)), tp.input("x", shape, (m,))
    into = tp.recurrent("into", shape, (m, l))
    h = tp.tanh(into @ w)
    into[m, 0] = x
    into[m, l] = h[m, l - 1]
    return {"w": w, "x": x, "h": h, "into": into}


def a_network(m: tp.Dim, l: tp.Dim) -> None:
    h = layers_of(m, l)["h"]
    tp.output("y", h[m, -1])


def a_network_and_its_gradients(m: tp.Dim, l: tp.Dim) -> None:
    of = layers_of(m, l)
    loss = (of["h"][0 : m.size, l.size - 1] ** 2).mean()
    tp.output("loss", loss)
    for name, gradient in tp.grad(loss, {"w": of["w"], "x": of["x"]}).items():
        tp.output(f"of_{name}", gradient)


def all_that_layers_make(m: tp.Dim, l: tp.Dim) -> None:
    of = layers_of(m, l)
    tp.output("h", of["h"])
    tp.output("into", of["into"])
    tp.output("of_each", of["h"][0 : m.size].sum(axis=0))
    tp.output("first", of["h"][m, 0])


def downwards(m: tp.Dim, l: tp.Dim) -> None:
    w, x = tp.input("w", (3,), (l,)), tp.input("x", (3,), (m,))
    g = tp.recurrent("g", (3,), (m, l))
    g[m, l.size - 1] = x * w
    g[m, l] = tp.sin(g[m, l + 1] + w)
    tp.output("g", g)
    tp.output("of_w", tp.grad((g[0 : m.size, 0] ** 2).sum(), w))


def two_layers_back(m: tp.Dim, l: tp.Dim) -> None:
    w, x = tp.input("w", (3,), (l,)), tp.input("x", (3,), (m,))
    h = tp.recurrent("h", (3,), (m, l))
    h[m, l] = tp.cases((l == 0, x), (l == 1, tp.sin(h[m, l - 1])), tp.tanh(h[m, l - 1] * w + h[m, l - 2]))
    tp.output("h", h)


def carried_along_microbatches(m: tp.Dim, l: tp.Dim) -> None:
    w, x = tp.input("w", (3,), (l,)), tp.input("x", (3,), (m,))
    h = tp.recurrent("h", (3,), (m, l))
    before = tp.cases((m == 0, tp.zeros((3,))), h[m - 1, l])
    h[m, 0] = x + before
    h[m, l] = tp.tanh(h[m, l - 1] * w + before)
    loss = (h[0 : m.size, l.size - 1] ** 2).sum()
    tp.output("h", h)
    tp.output("of_w", tp.grad(loss, w))


def over_time(m: tp.Dim, l: tp.Dim) -> None:
    """Layers of recurrent networks."""
    t = tp.dim("t", size=4)
    w, u, x = tp.input("w", (3, 3), (l,)), tp.input("u", (3, 3), (l,)), tp.input("x", (3,), (m, t))
    h = tp.recurrent("h", (3,), (m, l, t))
    below, before = tp.recurrent("below", (3,), (m, l, t)), tp.recurrent("before", (3,), (m, l, t))
    below[m, 0, t] = x
    below[m, l, t] = h[m, l - 1, t]
    before[m, l, 0] = 0.0
    before[m, l, t] = h[m, l, t - 1]
    h[m, l, t] = tp.tanh(below @ w + before @ u)
    loss = (h[0 : m.size, l.size - 1, 0 : t.size] ** 2).sum()
    tp.output("last", h[m, l.size - 1, t.size - 1])
    for name, gradient in tp.grad(loss, {"w": w, "u": u, "x": x}).items():
        tp.output(f"of_{name}", gradient)


def with_noise(m: tp.Dim, l: tp.Dim) -> None:
    """What is drawn at a layer and microbatch is drawn there."""
    of = layers_of(m, l)
    noise = tp.random.normal((2, 3), dims=(m, l))
    h = tp.recurrent("noisy", (2, 3), (m, l))
    h[m, 0] = of["x"]
    h[m, l] = h[m, l - 1] * noise + l + m
    tp.output("h", h)


def a_shared_weight(m: tp.Dim, l: tp.Dim) -> None:
    w, x = tp.input("w", (3, 3), ()), tp.input("x", (2, 3), (m,))
    h = tp.recurrent("h", (2, 3), (m, l))
    h[m, 0] = x @ w
    h[m, l] = tp.tanh(h[m, l - 1] @ w)
    tp.output("of_w", tp.grad((h[0 : m.size, -1] ** 2).mean(), w))


def one_behind_the_other(m: tp.Dim, l: tp.Dim) -> None:
    """What the first has made in the end is given to all layers of the second, and what it made at each to each."""
    of = layers_of(m, l)
    c = tp.recurrent("c", (2, 3), (m, l))
    c[m, 0] = of["h"][m, l.size - 1]
    c[m, l] = tp.sin(c[m, l - 1] + of["h"][m, l.size - 1] * of["h"][m, l])
    loss = (c[0 : m.size, l.size - 1] ** 2).sum()
    tp.output("loss", loss)
    tp.output("of_w", tp.grad(loss, of["w"]))


def flags(m: tp.Dim, l: tp.Dim) -> None:
    x = tp.input("x", (3,), (m,), "bool")
    h = tp.recurrent("h", (3,), (m, l), "bool")
    n = tp.recurrent("n", (3,), (m, l), "int8")
    h[m, 0] = x
    h[m, l] = ~h[m, l - 1]
    n[m, 0] = x.astype("int8")
    n[m, l] = n[m, l - 1] + 1
    tp.output("last", h[m, l.size - 1])
    tp.output("all", h)
    tp.output("n", n[m, l.size - 1])


def layers_first(l: tp.Dim, m: tp.Dim) -> None:
    w, x = tp.input("w", (3, 3), (l,)), tp.input("x", (2, 3), (m,))
    h = tp.recurrent("h", (2, 3), (l, m))
    h[0, m] = x
    h[l, m] = tp.tanh(h[l - 1, m] @ w)
    tp.output("h", h)
    tp.output("of_w", tp.grad((h[l.size - 1, 0 : m.size] ** 2).mean(), w))


def training(i: tp.Dim, m: tp.Dim, l: tp.Dim) -> None:
    w = tp.parameter("w", (3, 3), init=tp.input("start", (3, 3), (l,)), dims=(i, l))
    x, h = tp.input("x", (2, 3), (m,)), tp.recurrent("h", (2, 3), (i, m, l))
    h[i, m, 0] = x[m]
    h[i, m, l] = tp.tanh(h[i, m, l - 1] @ w[i, l])
    loss = (h[i, 0 : m.size, l.size - 1] ** 2).mean()
    w[i + 1, l] = w - 0.1 * tp.grad(loss, w)
    tp.output("loss", loss)


PROGRAMS: dict[str, Body] = {
    each.__name__: each
    for each in (
        a_network,
        a_network_and_its_gradients,
        all_that_layers_make,
        downwards,
        two_layers_back,
        carried_along_microbatches,
        over_time,
        with_noise,
        a_shared_weight,
        one_behind_the_other,
        flags,
    )
}


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_of_stages_means_the_same(body: Body) -> None:
    graph = written(body).graph()
    for stages, layers, microbatches in SIZES:
        if body is not two_layers_back or layers // stages > 1:
            in_stages(graph, stages, layers, microbatches)


def test_layers_may_come_before_microbatches() -> None:
    graph = written(layers_first, "l m").graph()
    for sizes in SIZES:
        in_stages(graph, *sizes)


def test_a_training_loop_around_it() -> None:
    graph = written(training, "i m l").graph()
    for sizes in SIZES:
        in_stages(graph, *sizes, i=3)


# -- exchanges, and how long it takes ----------------------------------------------------------------------------------


def residual(depth: int) -> tp.Program:
    """Values that are read twice each, whose gradients come in two parts."""
    with tp.Program() as program:
        m, l = tp.dims("m l")
        w, x = tp.input("w", (3,), (l,)), tp.input("x", (3,), (m,))
        h = tp.recurrent("h", (3,), (m, l))
        value = h[m, l - 1]
        for _ in range(depth):
            value = value + tp.tanh(value * w)
        h[m, 0] = x
        h[m, l] = value
        tp.output("of_w", tp.grad((h[0 : m.size, l.size - 1] ** 2).sum(), w))
    return program


def test_what_comes_from_one_layer_is_handed_on_as_one() -> None:
    made = in_stages(residual(2).graph(), 2, 6, 3)
    shifts = [node.attr("distance") for node in made.nodes.values() if node.op == "shift"]
    assert sorted(shifts) == [-1, 1], "a layer's input, and its gradient"


def test_a_deep_body_takes_no_longer_than_its_operators() -> None:
    made = in_stages(residual(40).graph(), 2, 4, 2)
    assert len(made.nodes) < 2000


def test_layers_and_microbatches_by_their_numbers() -> None:
    """A neighbour that a case names."""

    def body(m: tp.Dim, l: tp.Dim) -> None:
        w, x = tp.input("w", (3,), (l,)), tp.input("x", (3,), (m,))
        h = tp.recurrent("h", (3,), (m, l))
        h[m, l] = tp.cases((l == 0, x), (l == 1, h[m, 0]), ((m == 1) & (l == 2), h[0, 1]), h[m, l - 1] * w)
        tp.output("h", h)

    for sizes in ((1, 4, 3), (2, 4, 3), (2, 6, 2)):
        in_stages(written(body).graph(), *sizes)


def test_what_is_folded_of_some_layers_reads_nothing_that_is_not_there() -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        t = tp.dim("t", size=3)
        of, z = layers_of(m, l), tp.input("z", (3,), (l, t))
        tp.output("y", of["h"][m, -1] + (z[l, l] * of["w"].spatial[0])[0 : l.size - 1].sum(axis=0))

    in_stages(written(body).graph(), 2, 4, 3)


# -- what does not go through stages -----------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Body, str]] = {}


def refused(message: str) -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        REFUSED[body.__name__] = body, message
        return body

    return add


@refused("p is carried along l and does not vary along m: stages would wait")
def no_microbatches(m: tp.Dim, l: tp.Dim) -> None:
    p = tp.recurrent("p", (), (l,))
    p[0] = 1.0
    p[l] = p[l - 1] * 0.9
    tp.output("y", p)


@refused("h waits at one point of m for what all of l made of another: stages would wait")
def from_the_last_to_the_first(m: tp.Dim, l: tp.Dim) -> None:
    h, x = tp.recurrent("h", (), (m, l)), tp.input("x", (), (m,))
    h[m, 0] = x + tp.cases((m > 0, h[m - 1, l.size - 1]), 0.0)
    h[m, l] = h[m, l - 1] * 0.5
    tp.output("y", h)


@refused("h goes one way along l and the other along m: no wave has what the next one needs")
def both_ways(m: tp.Dim, l: tp.Dim) -> None:
    h, x = tp.recurrent("h", (), (m, l)), tp.input("x", (), (m,))
    h[m, 0] = x
    h[m, l] = h[m, l - 1] + tp.cases((m < m.size - 1, h[m + 1, l - 1]), 0.0)
    tp.output("y", h)


@refused(
    "h reads other points of itself than some before it along l, or some behind it: what a stage has made goes to the "
    "next alone"
)
def from_the_first_to_all(m: tp.Dim, l: tp.Dim) -> None:
    h, x = tp.recurrent("h", (), (m, l)), tp.input("x", (), (m,))
    h[m, 0] = x
    h[m, l] = h[m, l - 1] + h[m, 0]
    tp.output("y", h)


@refused("h has, or reads, a shape that varies along l or m")
def all_layers_before(m: tp.Dim, l: tp.Dim) -> None:
    h, x = tp.recurrent("h", (), (m, l)), tp.input("x", (), (m,))
    h[m, 0] = x
    h[m, l] = h[m, 0:l].sum(axis=0)
    tp.output("y", h)


@refused("h reads 3 layers away, and a stage has 2")
def farther_than_a_stage(m: tp.Dim, l: tp.Dim) -> None:
    h, x = tp.recurrent("h", (), (m, l)), tp.input("x", (), (m,))
    h[m, l] = tp.cases((l < 3, x), h[m, l - 3])
    tp.output("y", h)


@refused("h calls <lambda> between stages")
def a_call(m: tp.Dim, l: tp.Dim) -> None:
    h, x = tp.recurrent("h", (), (m, l)), tp.input("x", (), (m,))
    (made,) = tp.backend_call(lambda a: a, h[m, l], out=[((), tp.float32)], backend="numpy")
    h[m, 0] = x
    h[m, l + 1] = made
    tp.output("y", h)


@refused("pipeline= is along l, along which nothing is carried")
def nothing_is_carried(m: tp.Dim, l: tp.Dim) -> None:
    tp.output("y", tp.input("x", (), (m, l)) + 1)


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_through_stages(name: str) -> None:
    body, message = REFUSED[name]
    with pytest.raises(tp.TempoError) as caught:
        in_stages(written(body).graph(), 2, 4, 3)
    assert caught.value.message == message


def test_sizes_that_are_not_known() -> None:
    graph = written(a_network).graph()
    m, l = (dim.symbol for dim in graph.dims)
    with pytest.raises(tp.SizeError, match=r"a pipeline is planned for each l\.size, and it is not known yet"):
        Pipelining(PipelineStages.of(graph, l, m, 2)).apply(graph, PassContext())
