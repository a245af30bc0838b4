"""The meaning of programs: recurrences, slices, cases, and the errors of single points."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tempo as tp
from tempo.reference.evaluator import Evaluator
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol
from tests.unit.reference.programs import evaluator, run


def running_sum() -> tp.Program:
    with tp.Program("running_sum") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        s = tp.recurrent("s", shape=(3,), dims=(t,))
        s[0] = x
        s[t + 1] = s + x[t + 1]
        tp.output("s", s)
        tp.output("last", s[-1])
    return program


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_recurrence(size: int) -> None:
    x = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
    outputs = run(running_sum(), {"t": size}, x=x).outputs
    np.testing.assert_array_equal(outputs["s"], np.cumsum(x, axis=0))
    np.testing.assert_array_equal(outputs["last"], x.sum(axis=0))


def test_no_recursion_limit() -> None:
    outputs = run(running_sum(), {"t": 5_000}, x=np.ones((5_000, 3))).outputs
    np.testing.assert_array_equal(outputs["last"], [5_000] * 3)


def test_backward_recurrence_over_a_batch() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        r = tp.input("r", shape=(), dims=(b, t))
        g = tp.recurrent("g", shape=(), dims=(b, t))
        g[b, -1] = r
        g[b, t - 1] = r[b, t - 1] + 0.5 * g
        tp.output("g", g)
    r = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    expected = np.copy(r)
    for step in reversed(range(5)):
        expected[:, step] += np.float32(0.5) * expected[:, step + 1]
    np.testing.assert_array_equal(run(program, {"b": 2, "t": 6}, r=r).outputs["g"], expected)


def test_slices_have_the_shape_of_their_point() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,))
        tp.output("prefix", x[0:t].sum(axis=0))
        tp.output("window", x[tp.max(t - 2, 0) : t + 1].mean(axis=0))
        tp.output("all", x[:])
    x = np.random.default_rng(1).normal(size=(5, 2)).astype(np.float32)
    outputs = run(program, {"t": 5}, x=x).outputs
    np.testing.assert_allclose(outputs["prefix"], [x[:t].sum(axis=0) for t in range(5)], rtol=1e-6)
    np.testing.assert_allclose(outputs["window"], [x[max(t - 2, 0) : t + 1].mean(axis=0) for t in range(5)], rtol=1e-6)
    np.testing.assert_array_equal(outputs["all"], x)


def test_only_the_chosen_case_is_demanded() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        tp.output("y", tp.cases((t < t.size - 1, x[t + 1]), -1.0))
    np.testing.assert_array_equal(run(program, {"t": 3}, x=[1, 2, 3]).outputs["y"], [2, 3, -1])


def test_the_first_case_that_holds_wins() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        y = tp.recurrent("y", shape=(), dims=(t,), dtype=tp.int32)
        y[t % 2 == 0] = 1
        y[t < 3] = 2
        y[True] = 3
        tp.output("y", y)
    np.testing.assert_array_equal(run(program, {"t": 6}).outputs["y"], [1, 2, 1, 3, 1, 3])


def test_a_value_that_nothing_needs_is_not_computed() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        y = tp.recurrent("y", shape=(), dims=(t,))
        y[0] = x
        y[True] = x[t + 5]
        tp.output("y", y[0])
    assert run(program, {"t": 2}, x=[7, 8]).outputs["y"] == 7


def test_value_gives_single_points() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(), dims=(b, t))
        y = x[b, t] * 2
        prefix = x[b, 0 : t + 1]
        tp.output("y", y)
    found = evaluator(program, {"b": 2, "t": 3}, x=np.arange(6).reshape(2, 3))
    assert found.value(y.edge.node, (1, 2)) == 10
    assert found.value(y.edge.node, {t.symbol: 0, b.symbol: 1}) == 6
    assert found.value(prefix.edge, {t.symbol: 1, b.symbol: 1}).tolist() == [3, 4]
    with pytest.raises(tp.DomainError, match=re.escape("[t = 3] is read at b = 1, t = 3, outside")):
        found.value(y.edge.node, (1, 3))


def test_inputs_and_outputs_follow_their_layout() -> None:
    graph = parse("""
dims b: b.size, t: t.size
%0: float32[b.size] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
%1: float32[b.size] over (t) = neg(%0[t])
output "y": float32[b.size] over (t) = %1[t] as (0, $t)
""")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    outputs = Evaluator(graph, {0: x}, {Symbol("b", "size"): 2, Symbol("t", "size"): 3}).run().outputs
    np.testing.assert_array_equal(outputs["y"], -x.T)


def test_what_lies_beyond_the_logical_length_is_poison() -> None:
    graph = parse("""
dims t: t.size
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
output "y": float32[t.size] over (t) = %0[0 +: t + 1 of t.size] as ($t, 0)
""")
    outputs = Evaluator(graph, {0: np.ones(3, np.float32)}, {Symbol("t", "size"): 3}).run().outputs
    np.testing.assert_array_equal(outputs["y"], [[1, np.nan, np.nan], [1, 1, np.nan], [1, 1, 1]])


def test_state_is_kept_apart() -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        w = tp.parameter("w", shape=(), init=np.float32(3), dims=(i,))
        w[i + 1] = w * 2
        tp.output("w", w)
    graph = program.graph()
    initial = [node.attr("name") for node in graph.nodes.values() if node.attr("role") == "state"]
    found = run(program, {"i": 4}, **dict.fromkeys(initial, 3))
    np.testing.assert_array_equal(found.outputs["w"], [3, 6, 12, 24])
    assert list(found.state) == ["w"]
    assert found.state["w"] == 24


# Errors name the tensor, the line and the point.


def test_a_read_outside_the_domain() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        tp.output("y", x[t + 1] * 2)
    with pytest.raises(tp.DomainError) as caught:
        run(program, {"t": 3}, x=[1, 2, 3])
    assert "x[t = 3] is read at t = 2, outside its domain 0 <= t < 3" in str(caught.value)
    assert 'tp.output("y", x[t + 1] * 2)' in str(caught.value)


@pytest.mark.parametrize(("index", "text"), [("0:t + 2", "t = 0:4"), ("t - 2:0", "t = -2:0"), ("3:t - 2", "t = 3:-2")])
def test_a_slice_is_not_clipped(index: str, text: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        start, stop = (eval(bound, {"t": t}) for bound in index.split(":"))
        tp.output("y", x[start:stop].sum(axis=0))
    with pytest.raises(tp.DomainError) as caught:
        run(program, {"t": 3}, x=[1, 2, 3])
    assert f"x[{text}] is read" in caught.value.message


def test_a_point_that_no_case_covers() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        y = tp.recurrent("y", shape=(), dims=(t,))
        y[t < 2] = 1.0
        tp.output("y", y)
    with pytest.raises(tp.DefinitionError, match=r"y is needed at t = 2, where no case defines it") as caught:
        run(program, {"t": 3})
    assert 'tp.recurrent("y"' in str(caught.value)


def test_a_cycle_is_told_with_its_points() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        a = tp.recurrent("a", shape=(), dims=(t,))
        c = tp.recurrent("c", shape=(), dims=(t,))
        a[0] = 0.0
        a[True] = c[t - 1] + 1
        c[True] = a[t + 1] + 1
        tp.output("a", a)
    with pytest.raises(tp.CycleError) as caught:
        run(program, {"t": 3})
    assert re.search(r"a\[t = 1\].*\n  needs c\[t = 0\].*\n  needs a\[t = 1\]", str(caught.value))


@pytest.mark.parametrize("reduce", ["max", "min", "mean", "argmax"])
def test_an_extremum_over_nothing(reduce: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        tp.output("y", getattr(x[0:t], reduce)(axis=0))
    with pytest.raises(tp.ShapeError, match=rf"{reduce} over an empty slice at t = 0"):
        run(program, {"t": 3}, x=[1, 2, 3])


def test_an_index_out_of_range_is_an_error_only_when_checked() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=())
        i = tp.input("i", shape=(), dims=(t,), dtype=tp.int32)
        tp.output("y", x.spatial[i])
    graph = program.graph()
    ids = {node.attr("name"): node.id for node in graph.nodes.values() if node.op == "input"}
    given = {ids["x"]: np.float32([5, 6, 7]), ids["i"]: np.int32([0, 9])}
    sizes = {Symbol("t", "size"): 2}
    assert Evaluator(graph, given, sizes, checks=False).run().outputs["y"].tolist() == [5, 7]
    with pytest.raises(tp.IndexOutOfRangeError, match=r"index 9 .*at t = 1") as caught:
        Evaluator(graph, given, sizes).run()
    assert "x.spatial[i]" in str(caught.value)
