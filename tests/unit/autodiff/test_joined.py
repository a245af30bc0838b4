"""Sums that an operator takes in: rows of a table, parts of a tensor. Values by differences, and what is made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.sdg.graph import Graph, Node
from tests.unit.autodiff.differences import INSTALLED, Declare, check, numbers

SIZES = {"s": 3, "t": 5}


def gradient_graph(declare: Declare) -> Graph:
    with tp.Program() as program:
        loss, wrt = declare()
        for name, gradient in tp.grad(loss, wrt).items():
            tp.output(name, gradient)
    return program.graph()


def made(graph: Graph, op: str) -> list[Node]:
    """The nodes of an operator that the gradient needs."""
    return [graph.nodes[id] for id in sorted(graph.reachable()) if graph.nodes[id].op == op]


# -- rows of a table ---------------------------------------------------------------------------------------------------


def places(shape: tuple[int, ...] = (), dims: tuple[tp.Dim, ...] = ()) -> tp.RecurrentTensor:
    return tp.input("places", shape, dims, dtype=tp.int32)


def table(dims: tuple[tp.Dim, ...] = ()) -> tp.RecurrentTensor:
    return tp.input("table", (4, 3), dims, dtype=tp.float64)


def at_every_point() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    s, t = tp.dims("s t")
    w, k = table(), places((), (s, t))
    return tp.sin(w.spatial[k]).sum(), {"table": w}


def several_at_once() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    s, t = tp.dims("s t")
    w, k = table(), places((2, 2), (t,))
    x = tp.input("x", (3,), (s, t), dtype=tp.float64)
    return (tp.sin(w.spatial[k]) * x).sum(), {"table": w, "x": x}


def along_the_second_axis() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    t = tp.dim("t")
    w, k = table(), places((2,), (t,))
    return tp.exp(w.spatial[:, k] * 0.1).sum(), {"table": w}


def of_tables_along_a_dim() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    s, t = tp.dims("s t")
    w, k = table((s,)), places((), (t,))
    return tp.sin(w.spatial[k]).sum(), {"table": w}


def where_a_condition_holds() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    s, t = tp.dims("s t")
    w, k = table(), places((), (s, t))
    return tp.cases((t >= s + 1, tp.sin(w.spatial[k])), tp.zeros((3,), dtype=tp.float64)).sum(), {"table": w}


def of_prefixes() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    s, t = tp.dims("s t")
    w, k = table(), places((), (s, t))
    return tp.sin(w.spatial[k[s, 0 : t + 1]]).sum(), {"table": w}


def of_a_table_that_grows() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    """At t - 1 it has one row less than at t, where the rows are looked up."""
    s, t = tp.dims("s t")
    w, k = tp.input("table", (3,), (t,), dtype=tp.float64), places((), (s, t))
    grown = tp.tanh(w[0 : t + 1])
    y = tp.recurrent("y", (3,), (s, t), dtype=tp.float64)
    y[t == 0] = tp.zeros((3,), dtype=tp.float64)
    y[True] = tp.sin(grown[t - 1].spatial[k])
    return y.sum(), {"table": w}


def under_a_square() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    """A gradient of a gradient goes through what was joined."""
    s, t = tp.dims("s t")
    w, k = table(), places((), (s, t))
    inner = tp.grad(tp.sin(w.spatial[k]).sum(), {"table": w})["table"]
    return (inner * inner).sum(), {"table": w}


LOOKUPS: dict[str, tuple[Declare, tuple[int, ...], int]] = {
    "at every point": (at_every_point, (3, 5), 0),
    "several at once": (several_at_once, (5, 2, 2), 0),
    "along the second axis": (along_the_second_axis, (5, 2), 0),
    "of tables along a dim": (of_tables_along_a_dim, (5,), 1),
    "where a condition holds": (where_a_condition_holds, (3, 5), 0),
    "of prefixes": (of_prefixes, (3, 5), 0),
    "under a square": (under_a_square, (3, 5), 0),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_the_gradient_of_a_table_is_that_of_differences(name: str):
    declare, shape, dims = LOOKUPS[name]
    draw = np.random.default_rng(0)
    size = 3 if name == "along the second axis" else 4
    arrays = {"places": draw.integers(0, size, shape), "table": numbers(*(3,) * dims, 4, 3)}
    if name == "several at once":
        arrays["x"] = numbers(3, 5, 3, seed=1)
    sizes = {key: value for key, value in SIZES.items() if key == "t" or name != "along the second axis"}
    check(declare, arrays, sizes=sizes, backends=INSTALLED)


def test_rows_of_a_table_that_grows():
    arrays = {"places": np.array([[0, 0, 1, 0, 2], [0, 0, 0, 2, 3]]), "table": numbers(5, 3)}
    check(of_a_table_that_grows, arrays, sizes={"s": 2, "t": 5}, backends=INSTALLED)
    (scattered,) = made(gradient_graph(of_a_table_that_grows), "scatter_add")
    assert len(scattered.domain) == 1


@pytest.mark.parametrize("name", [name for name in LOOKUPS if name != "of prefixes"])
def test_rows_of_all_points_are_added_to_one_table(name: str):
    declare, _, dims = LOOKUPS[name]
    assert max(len(node.domain) for node in made(gradient_graph(declare), "scatter_add")) == dims


# -- parts of a tensor -------------------------------------------------------------------------------------------------


def gates(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    first, second, third = tp.split(x, 3, axis=-1)
    return tp.sin(first) * tp.tanh(second) + third**2


def out_of_order(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return tp.sin(x.spatial[..., 4:6]) * tp.tanh(x.spatial[..., 0:2]) * x.spatial[..., 2:4]


def with_gaps(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return tp.sin(x.spatial[..., 1:2]) * tp.exp(x.spatial[..., 3:5])


def overlapping(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return tp.sin(x.spatial[..., 0:4]) * tp.exp(x.spatial[..., 2:6] * 0.1) + (x.spatial[..., 1:2] * 3)


def along_two_axes(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return (
        tp.sin(x.spatial[0, :]).sum()
        + tp.exp(x.spatial[1, :] * 0.1).sum()
        + (x.spatial[:, 0:1] * x.spatial[:, 5:6]).sum()
    )


def and_all_of_it(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return tp.sin(x.spatial[..., 0:3]) * x.spatial[..., 3:6] + (x * x).sum()


PARTS: dict[str, tuple[Callable[[tp.RecurrentTensor], tp.RecurrentTensor], int]] = {
    "gates": (gates, 0),
    "out of order": (out_of_order, 0),
    "with gaps": (with_gaps, 2),
    "overlapping": (overlapping, 2),
    "along two axes": (along_two_axes, 1),
    "and all of it": (and_all_of_it, 0),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_gradient_of_parts_is_that_of_differences(name: str):
    def declare() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
        t = tp.dim("t")
        x = tp.input("x", (2, 6), (t,), dtype=tp.float64)
        return PARTS[name][0](tp.tanh(x)).sum(), {"x": x}

    check(declare, {"x": numbers(5, 2, 6)}, sizes={"t": 5}, backends=INSTALLED)


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_put_in_a_row(name: str):
    """Zeros are made around rows that do not reach the ends, in gaps of rows, and nowhere else."""

    def declare() -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
        t = tp.dim("t")
        x = tp.input("x", (2, 6), (t,), dtype=tp.float64)
        return PARTS[name][0](tp.tanh(x)).sum(), {"x": x}

    graph = gradient_graph(declare)
    assert len(made(graph, "pad")) == PARTS[name][1]
    assert len(made(graph, "concat")) == (2 if name == "along two axes" else 1)
