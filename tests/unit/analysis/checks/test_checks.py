"""Range, coverage, emptiness, cycles: what compiling raises, and exactness at known sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings

import tempo as tp
from tempo.analysis.checks.checks import Verdict, check_at, check_symbolic
from tempo.analysis.demand.reads import RunSizes
from tempo.analysis.obligations import obligations
from tempo.sdg.graph import Edge, Graph, Node
from tempo.symbolic import Symbol
from tests.unit.analysis.random_graphs import at, chosen_edges, graphs, is_wrong

SIZES = [at(i=i, t=t) for i, t in itertools.product((1, 2, 3, 5), (1, 2, 4, 7))]


def verdict_or_error(graph: Graph) -> Verdict | tp.TempoError:
    try:
        return check_symbolic(graph)
    except tp.TempoError as error:
        return error


@settings(deadline=None)
@given(graphs())
def test_no_false_alarm_and_no_miss_on_random_graphs(graph: Graph) -> None:
    wrong = [is_wrong(graph, sizes) for sizes in SIZES]
    verdict = verdict_or_error(graph)
    if not isinstance(verdict, Verdict):
        assert all(wrong) or ("no point reaches" in str(verdict) and has_unreached_case(graph))
        return
    assert not (verdict.proven and any(wrong))
    for sizes, expected in zip(SIZES, wrong):
        if expected:
            with pytest.raises((tp.DomainError, tp.DefinitionError, tp.CycleError)):
                check_at(graph, sizes, verdict)
        else:
            check_at(graph, sizes, verdict)


def has_unreached_case(graph: Graph) -> bool:
    """Whether a case is chosen at no point, at any of the sizes."""
    return any(
        not any(chosen_at_some_point(graph, node, edge, sizes) for sizes in SIZES)
        for node in graph.nodes.values()
        for edge in (case.edge for case in node.cases)
    )


def chosen_at_some_point(graph: Graph, node: Node, edge: Edge, sizes: Mapping[Symbol, int]) -> bool:
    points = np.ndindex(RunSizes.of(graph, sizes).shape(node.domain))
    chosen = (chosen_edges(node, {**sizes, **dict(zip(node.domain, point))}) for point in points)
    return any(found is not None and found[0] is edge for found in chosen)


Write = Callable[[tp.language.program.Dim, tp.RecurrentTensor], object]


def program_of(write: Write) -> Graph:
    """A program over `t` with an input `x` of domain (t,), shape (4,)."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(4,), dims=(t,))
        y = write(t, x)
        if y is not None:
            tp.output("y", y)
    return program.graph()


# "What fails for every size is raised by `compile`."

ALWAYS_OUTSIDE: list[tuple[Write, str]] = [
    (lambda t, x: x[t + 1] * 2, "x[t = t.size] is read at t = t.size - 1, outside its domain 0 <= t < t.size"),
    (lambda t, x: x[t - 1] * 2, "x[t = -1] is read at t = 0"),
    (lambda t, x: x[t.size], "x[t = t.size] is read by output 'y'"),
    (lambda t, x: x[0 : t + 2].sum(axis=0), "x[t = 0:t.size + 1] is read at t = t.size - 1, outside its"),
    (lambda t, x: x[t - 3 : t + 1].sum(axis=0), "x[t = -3:1] is read at t = 0"),
    (lambda t, x: x[2 : t - 5].sum(axis=0), "x[t = 2:-5] is read at t = 0"),
    (lambda t, x: tp.cases((t >= 1, x[t - 1]), x[t + t.size]), "x[t = t.size] is read by cases at t = 0"),
    (lambda t, x: x[t - 1] + x[t.size - 1 - t], "x[t = -1] is read at t = 0"),
]


@pytest.mark.parametrize(("write", "message"), ALWAYS_OUTSIDE)
def test_a_read_that_leaves_the_domain_at_every_size(write: Write, message: str) -> None:
    graph = program_of(write)
    with pytest.raises(tp.DomainError) as caught:
        check_symbolic(graph)
    assert message in caught.value.message
    assert f"{__file__}:" in str(caught.value)
    for size in (1, 2, 5):
        with pytest.raises(tp.DomainError):
            check_at(graph, at(t=size), Verdict(unproven=tuple(obligations(graph))))


# "Otherwise the check is exact, with no false alarm, as soon as all sizes are known."

SOMETIMES: list[tuple[Write, set[int], str]] = [
    (lambda t, x: x[5], {1, 2, 3, 4, 5}, "[t = 5] is read by output 'y', outside its domain 0 <= t < "),
    (lambda t, x: x[2:4].sum(axis=0), {1, 2, 3}, "[t = 2:4]"),
    (lambda t, x: tp.cases((t < 3, x[t + 2]), x), {1, 2, 3, 4}, "outside its domain"),
    (lambda t, x: tp.cases((t < t.size // 2, x[t * 2 + 1]), x), set(), ""),
    (lambda t, x: tp.cases((t < t.size // 2, x[t * 2 + 2]), x), {2, 4, 6, 8}, "outside its domain"),
    (lambda t, x: x[tp.min(t + 3, t.size - 1)], set(), ""),
    (lambda t, x: x[tp.max(t - 3, 0) : t + 1].mean(axis=0), set(), ""),
    (lambda t, x: x[(t + 2) % 3], {1, 2}, "outside its domain"),
    (lambda t, x: x[(t * 3) // 4], set(), ""),
]


@pytest.mark.parametrize(("write", "wrong", "message"), SOMETIMES)
def test_a_read_that_leaves_the_domain_at_some_sizes(write: Write, wrong: set[int], message: str) -> None:
    graph = program_of(write)
    verdict = check_symbolic(graph)
    for size in range(1, 9):
        if size not in wrong:
            check_at(graph, at(t=size), verdict)
            continue
        with pytest.raises(tp.DomainError) as caught:
            check_at(graph, at(t=size), verdict)
        assert message in caught.value.message


PROVEN: list[Write] = [
    lambda t, x: x[0 : t + 1].max(axis=0),
    lambda t, x: x[t : t.size].mean(axis=0),
    lambda t, x: x[:].max(axis=0),
    lambda t, x: x[-1],
    lambda t, x: x[t.size - 1 - t],
    lambda t, x: x[t : tp.min(t + 8, t.size)].max(axis=0),
    lambda t, x: x[tp.max(t - 3, 0) : t].sum(axis=0),
    lambda t, x: tp.cases((t >= 4, x[t - 4]), 0.0),
    lambda t, x: x[t // 2],
    lambda t, x: x.spatial[0:2],
]


@pytest.mark.parametrize("write", PROVEN)
def test_what_is_right_at_all_sizes_is_proven(write: Write) -> None:
    assert check_symbolic(program_of(write)).proven


def test_a_recurrence_is_proven() -> None:
    def write(t: tp.language.program.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h = tp.recurrent("h", shape=(4,), dims=(t,))
        h[0] = x
        h[t + 1] = tp.tanh(h + x)
        return h

    assert check_symbolic(program_of(write)).proven


def test_only_demanded_points_count() -> None:
    def write(t: tp.language.program.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        y = x[t - 1] * 2
        return tp.cases((t >= 1, y), 0.0)

    assert check_symbolic(program_of(write)).proven


def test_a_proof_knows_the_sizes() -> None:
    """A million points, most of which are proven to be right without looking at them."""
    graph = program_of(lambda t, x: tp.cases((t < 1_000_000 - 7, x[t + 7]), x[t]))
    verdict = check_symbolic(graph)
    assert not verdict.proven
    check_at(graph, at(t=1_000_000), verdict)


# Cases.


def cases_of(define: Callable[[tp.language.program.Dim, tp.RecurrentTensor], None], reads: str = "all") -> Graph:
    def write(t: tp.language.program.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        y = tp.recurrent("y", shape=(), dims=(t,))
        define(t, y)
        return y if reads == "all" else y[0]

    return program_of(write)


def test_a_case_that_earlier_cases_take_all_points_of() -> None:
    def define(t: tp.language.program.Dim, y: tp.RecurrentTensor) -> None:
        y[t >= 2] = 1.0
        y[t < 5] = 2.0
        y[3] = 3.0

    with pytest.raises(tp.DefinitionError, match=r"no point reaches a case of y, at any sizes") as caught:
        check_symbolic(cases_of(define))
    assert "y[3] = 3.0" in str(caught.value)
    assert "earlier cases take these points" in str(caught.value)


def test_a_case_that_holds_nowhere() -> None:
    def define(t: tp.language.program.Dim, y: tp.RecurrentTensor) -> None:
        y[t >= t.size] = 1.0
        y[True] = 2.0

    with pytest.raises(tp.DefinitionError, match="holds nowhere in the domain"):
        check_symbolic(cases_of(define))


def test_a_case_that_is_empty_only_at_the_sizes_given_is_fine() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 1)
        y = tp.recurrent("y", shape=(), dims=(t,))
        y[0] = 1.0
        y[t + 1] = y * 2
        tp.output("y", y)
    check_at(program.graph(), {})


def test_a_demanded_point_that_no_case_covers_at_any_size() -> None:
    def define(t: tp.language.program.Dim, y: tp.RecurrentTensor) -> None:
        y[t + 1] = 1.0

    with pytest.raises(tp.DefinitionError, match="y is needed at t = 0, where no case defines it"):
        check_symbolic(cases_of(define))
    with pytest.raises(tp.DefinitionError, match="y is needed at t = 0"):
        check_symbolic(cases_of(define, reads="first"))


def test_a_point_without_a_case_that_is_not_demanded() -> None:
    def define(t: tp.language.program.Dim, y: tp.RecurrentTensor) -> None:
        y[t < 3] = 1.0

    assert check_symbolic(cases_of(define, reads="first")).proven
    graph = cases_of(define)
    verdict = check_symbolic(graph)
    check_at(graph, at(t=3), verdict)
    with pytest.raises(tp.DefinitionError, match="y is needed at t = 3"):
        check_at(graph, at(t=5), verdict)


# "A max or mean is an error where it can occur."


@pytest.mark.parametrize("reduce", ["max", "min", "mean", "argmax"])
def test_an_extremum_over_an_empty_slice(reduce: str) -> None:
    graph = program_of(lambda t, x: getattr(x[0:t], reduce)(axis=0))
    with pytest.raises(tp.ShapeError, match=f"{reduce} over an empty slice at t = 0"):
        check_symbolic(graph)
    guarded = program_of(lambda t, x: tp.cases((t > 0, getattr(x[0:t], reduce)(axis=0)), 0))
    assert check_symbolic(guarded).proven


def test_a_number_in_a_shape_that_is_negative_where_it_stands_in() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        window = x[0:t][t - 3]  # shape (t - 3,)
        tp.output("y", tp.cases((t >= 3, window), 0.0).sum())
    with pytest.raises(tp.ShapeError, match=r"the shape \(-3,\) .* at t = 0 has a negative size"):
        check_symbolic(program.graph())


def test_a_shape_that_is_negative_at_some_sizes() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", tp.zeros((t.size - 2,)).sum())
    graph = program.graph()
    assert not check_symbolic(graph).proven
    check_at(graph, at(t=2))
    with pytest.raises(tp.ShapeError, match="negative size"):
        check_at(graph, at(t=1))


def test_an_extremum_that_is_empty_at_some_sizes() -> None:
    graph = program_of(lambda t, x: x[3 : t.size].max(axis=0))
    verdict = check_symbolic(graph)
    check_at(graph, at(t=4), verdict)
    with pytest.raises(tp.ShapeError, match="max over an empty slice"):
        check_at(graph, at(t=3), verdict)


# Cycles.

Step = Callable[[tp.language.program.Dim, tp.RecurrentTensor], tp.RecurrentTensor]

CYCLES: list[Step] = [
    lambda t, y: y[t] + 1,
    lambda t, y: y[0 : t + 1].sum(axis=0),
    lambda t, y: y[t : t.size].sum(axis=0),
    lambda t, y: y[t.size - 1],
    lambda t, y: tp.cases((t >= 1, y[t - 1]), y[t]),
    lambda t, y: (y[t] * 2)[t] + 1,
]


@pytest.mark.parametrize("step", CYCLES)
def test_a_cycle_at_every_size(step: Step) -> None:
    def define(t: tp.language.program.Dim, y: tp.RecurrentTensor) -> None:
        y[True] = step(t, y)

    graph = cases_of(define)
    with pytest.raises(tp.CycleError, match="a value is needed to compute itself") as caught:
        check_symbolic(graph)
    assert "needs y[t = " in str(caught.value)


def test_a_cycle_at_some_sizes() -> None:
    def define(t: tp.language.program.Dim, y: tp.RecurrentTensor) -> None:
        y[0] = 0.0
        y[-1] = 1.0
        y[True] = y[t - 1] + y[t + 1]

    graph = cases_of(define)
    verdict = check_symbolic(graph)
    for size in (1, 2, 3):
        check_at(graph, at(t=size), verdict)
    with pytest.raises(tp.CycleError, match=r"y\[t = 2\]"):
        check_at(graph, at(t=4), verdict)


def test_two_directions_at_once_are_no_cycle_where_no_point_is_met_twice() -> None:
    with tp.Program() as program:
        i, t = tp.dims("i t")
        y = tp.recurrent("y", shape=(), dims=(i, t))
        y[0, t] = 1.0
        y[(t == 0) | (t == t.size - 1)] = 0.0
        y[i + 1, t] = y[i, t - 1] + y[i, t + 1]
        tp.output("y", y)
    assert check_symbolic(program.graph()).proven


def test_a_cycle_through_the_order_of_calls() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.recurrent("x", shape=(), dims=(t,))
        (y,) = tp.host_call(lambda x: x, x, out=[((), tp.float32)], ordered_by=(t,))
        x[-1] = 0.0
        x[True] = y[t + 1]
        tp.output("x", x)
    graph = program.graph()
    verdict = check_symbolic(graph)
    check_at(graph, at(t=1), verdict)
    with pytest.raises(tp.CycleError):
        check_at(graph, at(t=2), verdict)


def test_an_environment_with_two_calls_of_one_resource_is_proven() -> None:
    with tp.Program() as program:
        b, i, t = tp.dims("b i t")
        (first,) = tp.host_call(np.zeros, out=[((3,), tp.float32)], ordered_by=(i,), batched=(b,), resource="env")
        state = tp.recurrent("state", shape=(3,), dims=(b, i, t))
        (after,) = tp.host_call(
            np.sin, state, out=[((3,), tp.float32)], ordered_by=(i, t), batched=(b,), resource="env"
        )
        state[b, i, 0] = first
        state[b, i, t + 1] = after
        tp.output("state", state)
    assert check_symbolic(program.graph()).proven


def test_data_that_contradicts_the_order_of_declaration_of_one_resource() -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.recurrent("x", shape=(), dims=(i,))
        tp.sink(print, x, ordered_by=(i,), resource="buffer")
        (batch,) = tp.host_call(np.zeros, out=[((), tp.float32)], ordered_by=(i,), resource="buffer")
        x[True] = batch
        tp.output("x", x)
    graph = program.graph()
    with pytest.raises(tp.CycleError, match="needs print"):
        check_at(graph, at(i=3))


def test_sizes_that_the_program_fixes() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 8)
        x = tp.input("x", shape=(), dims=(t,))
        tp.output("y", x[t + 1] * 2)
    with pytest.raises(tp.DomainError) as caught:
        check_symbolic(program.graph())
    assert "x[t = 8] is read at t = 7, outside its domain 0 <= t < 8" in caught.value.message


def test_a_condition_that_a_fixed_size_makes_a_number_of_is_fine() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 1)
        x = tp.input("x", (), (t,))
        tp.output("after", tp.cases((t < t.size - 1, x[t + 1]), x))
    check_at(program.graph(), {})
