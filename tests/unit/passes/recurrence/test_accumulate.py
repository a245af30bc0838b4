"""Reductions over a whole dim that is run step by step: which way they add up, which stay, and what it saves."""

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.passes.manager import PassContext
from tempo.passes.recurrence.prefix import Accumulate
from tempo.sdg.graph import Graph
from tests.unit.passes.equivalence import check

Tensor = tp.RecurrentTensor
SEQUENTIAL = {"t": "sequential"}


def _steps(x: Tensor, t: tp.Dim, *, backward: bool = False) -> Tensor:
    h = tp.recurrent("h", x.shape, (t,))
    if backward:
        h[t.size - 1] = x
        h[t] = h[t + 1] * 0.5 + x
    else:
        h[0] = x
        h[t + 1] = h * 0.5 + x[t + 1]
    return h


REDUCTIONS: dict[str, Callable[[Tensor, tp.Dim], Tensor]] = {
    "sum": lambda x, t: _steps(x, t)[0 : t.size].sum(axis=0),
    "product over all axes": lambda x, t: _steps(x, t)[0 : t.size].prod(),
    "maximum": lambda x, t: _steps(x, t)[0 : t.size].max(axis=0),
    "any": lambda x, t: (_steps(x, t)[0 : t.size] > 1).any(axis=0),
    "outer products": lambda x, t: tp.einsum("si,sj->ij", _steps(x, t)[0 : t.size], x[0 : t.size]),
    "an expression": lambda x, t: (tp.exp(_steps(x, t)[0 : t.size]) * x[0 : t.size] + 1).sum(axis=0),
}
LEFT: dict[str, Callable[[Tensor, tp.Dim], Tensor]] = {
    "of what is given": lambda x, t: x[0 : t.size].sum(axis=0),
    "what may be empty": lambda x, t: _steps(x, t)[1 : t.size].sum(axis=0),
    "another axis": lambda x, t: _steps(x, t)[0 : t.size].sum(axis=1),
    "a position": lambda x, t: _steps(x, t)[0 : t.size].argmax(axis=0),
    "along the dim itself": lambda x, t: _steps(x, t)[0 : t + 1].sum(axis=0)[t.size - 1],
}


def program(make: Callable[[Tensor, tp.Dim], Tensor], dtype: str = "float32") -> tp.Program:
    with tp.Program("reduced") as made:
        t = tp.dim("t")
        tp.output("y", make(tp.input("x", (2,), (t,), dtype=dtype), t))
    return made


def merges(graph: Graph) -> int:
    return sum(node.op == "merge" for node in graph.nodes.values())


def accumulated(graph: Graph, mapping: object = SEQUENTIAL) -> Graph:
    """The graph after the pass, which means the same."""
    return check(Accumulate(mapping), graph, {"t": 5}, {"t": 2})


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_adds_up_step_by_step(name: str) -> None:
    graph = program(REDUCTIONS[name]).graph()
    assert merges(accumulated(graph)) == merges(graph) + 1


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    graph = program(LEFT[name]).graph()
    assert merges(accumulated(graph)) == merges(graph)


@pytest.mark.parametrize("mapping", [None, "full", {"t": "full"}, {"s": "sequential"}])
def test_nothing_changes_where_the_dim_need_not_be_sequential(mapping: object) -> None:
    graph = program(REDUCTIONS["sum"]).graph()
    assert str(accumulated(graph, mapping)) == str(graph)


@pytest.mark.parametrize("backward", [False, True])
def test_the_sum_goes_the_way_of_the_loop(backward: bool) -> None:
    """So both are one loop, and neither the states nor their squares are kept."""
    made = program(lambda x, t: (_steps(x, t, backward=backward) ** 2)[0 : t.size].sum(axis=0))
    run = tp.compile(made, "numpy", options=tp.Options(mapping=SEQUENTIAL), sizes={"t": 50})
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    wanted = tp.compile(made, "reference", sizes={"t": 50})(x=x)["y"]
    np.testing.assert_allclose(run(x=x)["y"], wanted, rtol=1e-5)
    assert all(buffer.bytes < 50 * 2 * 4 for buffer in run.memory.buffers if buffer.role == "internal")


def test_halves_add_up_in_float32() -> None:
    """4,000 ones: at 2,048 a half stops growing."""
    made = program(lambda x, t: (_steps(x, t) * 0 + 1)[0 : t.size].sum(axis=0), "float16")
    run = tp.compile(made, "numpy", options=tp.Options(mapping=SEQUENTIAL), sizes={"t": 4000})
    assert run(x=np.zeros((4000, 2), np.float16))["y"].tolist() == [4000, 4000]


def test_a_dim_that_may_end_early_stays() -> None:
    """The sum at its last point may never be made."""

    def stopping(x: Tensor, t: tp.Dim) -> Tensor:
        states = _steps(x, t)
        tp.stop_when(t, states.sum() > 9)
        tp.output("states", states)
        return states[0 : t.size].sum(axis=0)

    graph = program(stopping).graph()
    made = Accumulate(SEQUENTIAL).apply(graph, PassContext())
    assert merges(made) == merges(graph)
