"""The forms of a program, one after the other."""

import pickle

import numpy as np
import pytest

import tempo as tp
from tempo.runtime import engine
from tempo.sdg.parse import parse
from tempo.sdg.text import placeholders


def recurrence() -> tp.Program:
    with tp.Program("recurrence") as program:
        t, b = tp.dim("t"), tp.dim("b", 4)
        x, w = tp.input("x", (8,), (t, b)), tp.input("w", (8, 8))
        h = tp.recurrent("h", (8,), (t, b))
        h[0, b] = tp.zeros(8)
        h[t + 1, b] = tp.tanh(h @ w + x)
        tp.output("last", h[t.size - 1, b])
    return program


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("sizes", [{"t": 20}, None])
def test_every_stage_prints_with_its_cost_and_memory(backend: str, sizes: dict[str, int] | None) -> None:
    stages = tp.stages(recurrence(), backend=backend, sizes=sizes)
    at = "t=20" if sizes else "t=32, of which some are guessed"
    for stage, holds in (
        (stages.graph, "over (t, b) = dot"),
        (stages.optimized, "over (t) = dot"),
        (stages.schedule, "for t in 0..t.size"),
        (stages.loops, "for t in "),
    ):
        head, cost, memory, text = str(stage).split("\n", 3)
        assert head == f"# {stage.name} at {at}"
        assert f"# cost {stage.cost}" == cost and stage.cost.operations > 0
        assert memory == f"# memory {stage.memory:,} B" and stage.memory > 0
        assert holds in text


def test_an_axis_takes_launches_away_and_an_order_memory() -> None:
    stages = tp.stages(recurrence(), sizes={"t": 20})
    assert stages.graph.cost.launches > 3 * stages.optimized.cost.launches
    assert stages.graph.memory > stages.schedule.memory
    assert stages.optimized.cost.operations == pytest.approx(stages.graph.cost.operations, rel=0.1)


def test_the_executable_is_what_compile_returns() -> None:
    x, w = np.ones((20, 4, 8), "float32"), np.ones((8, 8), "float32") / 9
    stages = tp.stages(recurrence(), sizes={"t": 20})
    run = stages.executable
    assert run is stages.executable
    assert np.array_equal(run(x=x, w=w)["last"], tp.compile(recurrence())(x=x, w=w)["last"])
    assert run.cost.launches == stages.loops.cost.launches
    assert np.array_equal(pickle.loads(pickle.dumps(run))(x=x, w=w)["last"], run(x=x, w=w)["last"])


def test_nothing_is_compiled_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compiled = engine.compile_program
    monkeypatch.setattr(engine, "compile_program", lambda *given: made.append(given) or compiled(*given))
    stages = tp.stages(recurrence(), sizes={"t": 20})
    assert str(stages.loops) and not made
    assert stages.executable.executables == len(made) == 1


def test_stages_hold_the_forms_themselves() -> None:
    stages = tp.stages(recurrence())
    graph = stages.optimized.program
    assert parse(str(graph), placeholders(graph)) == graph
    assert {symbol.name for symbol in (dim.symbol for dim in graph.dims)} == {"t", "b"}


def test_what_is_wrong_is_raised_at_once() -> None:
    with tp.Program("wrong") as program:
        t = tp.dim("t", 3)
        x = tp.recurrent("x", (), (t,))
        x[t] = x[t + 1]
        tp.output("x", x[0])
    with pytest.raises(tp.TempoError, match="x"):
        tp.stages(program)


def test_a_cost_needs_sizes() -> None:
    run = tp.stages(recurrence()).executable
    with pytest.raises(tp.SizeError, match="no sizes are known yet"):
        run.cost  # noqa: B018


def test_the_reference_has_no_stages_between_graph_and_executable() -> None:
    stages = tp.stages(recurrence(), backend="reference", sizes={"t": 3})
    assert stages.graph.cost.launches > 0
    assert stages.executable(x=np.ones((3, 4, 8)), w=np.eye(8))["last"].shape == (4, 8)
    with pytest.raises(tp.UnsupportedError, match="the reference backend plans nothing"):
        stages.optimized  # noqa: B018


def test_what_does_not_fit_is_told_at_the_users_line() -> None:
    stages = tp.stages(recurrence(), sizes={"t": 20}, memory_limit=64)
    with pytest.raises(tp.MemoryLimitError) as error:
        stages.executable  # noqa: B018
    assert error.value.location is not None and error.value.location.path == __file__


def test_sizes_that_are_given_are_those_that_count() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        tp.output("y", tp.input("x", (), (b, t)) + 1)
    named = {each.name: value for each, value in tp.stages(program, sizes={"t": 8}).graph.sizes.items()}
    assert named == {"b": 32, "t": 8}


def test_a_size_that_nobody_gives_is_in_a_bucket() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        tp.output("y", tp.input("x", (), (b,)) + 1)
    stages = tp.stages(program, options=tp.Options(buckets={"b": (4, 8)}))
    assert "at b=8 in a bucket of 8" in str(stages.loops)


def test_what_few_iterations_run_costs_as_often() -> None:
    """The heavy side runs at one of a hundred points."""
    with tp.Program() as program:
        t = tp.dim("t", 100)
        x, w = tp.input("x", (64,), (t,)), tp.input("w", (64, 64))
        h = tp.recurrent("h", (64,), (t,))
        h[0] = x
        h[t] = tp.cases((t == 5, x @ w), h[t - 1] + x)
        tp.output("h", h)
    cost = tp.compile(program, "numpy", options=tp.Options(mapping="sequential")).cost
    once, every = 2 * 64 * 64, 98 * 64
    assert once + every <= cost.operations <= once + every + 2 * 64
    assert 99 <= cost.launches <= 101
