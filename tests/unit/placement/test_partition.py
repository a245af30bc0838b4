"""The program of one device: what runs on parts, and what the devices exchange."""

from __future__ import annotations

from collections import Counter

import pytest

import tempo as tp
from tempo.compiler.driver import Specialised
from tempo.language.tensor import apply
from tempo.loop_ir.ir import Compute, Loop, LoopProgram, Statement, walk
from tempo.loop_ir.parse import parse
from tempo.loop_ir.text import placeholders
from tempo.loop_ir.verify import verify
from tempo.placement.collectives import collectives
from tempo.symbolic import const
from tests.unit.placement.meshed import specialised


def part_of(program: tp.Program, at: int, sizes: dict[str, int]) -> LoopProgram:
    """What the device `at` of two along b runs."""
    found = specialised(program, {"data": 2}, sizes, {"data": at}, shard={"b": "data"})
    verify(found.loops, found.sizes)
    assert parse(str(found.loops), placeholders(found.loops)) == found.loops
    return found.loops


def operators(program: LoopProgram) -> Counter[str]:
    return Counter(each.op for each in program.statements() if isinstance(each, Compute))


def training() -> tp.Program:
    with tp.Program() as program:
        b, t = tp.dim("b"), tp.dim("t", 5)
        x = tp.input("x", (3,), (b, t))
        w, u = tp.input("w", (3, 4)), tp.input("u", (4, 4))
        h = tp.recurrent("h", (4,), (b, t))
        h[b, 0] = tp.tanh(x[b, 0] @ w)
        h[b, t + 1] = tp.tanh(x[b, t + 1] @ w + h @ u)
        loss = (h[0 : b.size, -1] ** 2).mean()
        tp.output("loss", loss)
        for name, gradient in tp.grad(loss, {"w": w, "u": u}).items():
            tp.output(name, gradient)
    return program


@pytest.mark.parametrize("at", [0, 1])
def test_sums_that_do_not_wait_are_one(at: int) -> None:
    """The loss behind the way forward, and all gradients behind the way back; none inside t."""
    made = part_of(training(), at, {"b": 8})
    assert operators(made)["all_gather"] == 0
    sums = [[is_sum(each) for each in walk(segment.body)].count(True) for segment in made.segments]
    assert sorted(sums)[-2:] == [1, 1]
    assert sum(sums) == 2
    loops = [each for each in made.statements() if isinstance(each, Loop)]
    assert not any(is_sum(each) for loop in loops for each in walk(loop.body))


def is_sum(statement: Statement) -> bool:
    return isinstance(statement, Compute) and statement.op == "all_reduce"


def test_sums_that_wait_are_not() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (), (b,))
        mean = x[0 : b.size].mean()
        tp.output("deviation", ((x - mean) ** 2)[0 : b.size].mean())
    assert operators(part_of(program, 0, {"b": 8}))["all_reduce"] == 2


def test_draws_are_of_the_device_s_own_points() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        tp.output("y", tp.random.bits((3,), dims=(b,)))
    starts = []
    for at in (0, 1):
        draws = [each for each in part_of(program, at, {"b": 8}).statements() if isinstance(each, Compute)]
        starts += [each.attrs["starts"] for each in draws if each.op == "random_bits"]
    assert starts == [(0, 0), (4, 0)]


def test_a_maximum_is_that_of_what_each_has_found() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (), (b,))
        tp.output("y", x[0 : b.size].max())
    found = operators(part_of(program, 1, {"b": 8}))
    assert (found["all_gather"], found["reduce_max"], found["all_reduce"]) == (1, 2, 0)


def test_what_is_added_to_counts_once() -> None:
    """Of a table and what its readers give back one device has the table."""
    with tp.Program() as program:
        b = tp.dim("b")
        token, w = tp.input("token", (), (b,), tp.int32), tp.input("w", (10, 4))
        tp.output("y", tp.grad((w.spatial[token] ** 2).sum()[0 : b.size].mean(), w))
    for at in (0, 1):
        found = operators(part_of(program, at, {"b": 8}))
        assert (found["scatter_add"], found["all_reduce"]) == (1, 1)


# -- what is handed on -------------------------------------------------------------------------------------------------


def shifted(at: int, distance: int) -> list[Compute]:
    """What moves or gathers positions, where rows are shifted of which each of two devices has four."""
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (3,), (b,))
        tp.output("y", apply("shift", tp.tanh(x[0 : b.size]), attrs={"axis": 0, "distance": distance}))
    found = (each for each in part_of(program, at, {"b": 8}).statements() if isinstance(each, Compute))
    return [each for each in found if each.op in ("shift", "exchange", "all_gather", "all_reduce")]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("distance", [1, -1, 3, 4, -4])
def test_what_is_no_farther_than_a_part_is_handed_on(at: int, distance: int) -> None:
    (handed_on,) = shifted(at, distance)
    assert handed_on.op == "exchange"
    assert handed_on.attrs == {"over": "data", "axis": 0, "distance": distance}
    assert handed_on.type.shape == (const(4), const(3))
    assert handed_on.operand_types == (handed_on.type,)


@pytest.mark.filterwarnings("ignore::tempo.errors.GatherWarning")
@pytest.mark.parametrize("distance", [5, -5, 9])
def test_what_goes_farther_than_a_part_is_gathered(distance: int) -> None:
    """With a warning; each device has all of it then."""
    gathered, moved = shifted(1, distance)
    assert (gathered.op, moved.op) == ("all_gather", "shift")
    assert gathered.type.shape == moved.operand_types[0].shape == (const(8), const(3))


def pipelined(at: int, stages: int = 4) -> tuple[LoopProgram, Specialised]:
    with tp.Program() as program:
        m, l = tp.dims("m l")
        x, w = tp.input("x", (2, 3), (m,)), tp.input("w", (3, 3), (l,))
        h = tp.recurrent("h", (2, 3), (m, l))
        h[m, 0] = x
        h[m, l] = tp.tanh(h[m, l - 1] @ w)
        tp.output("of_w", tp.grad((h[0 : m.size, l.size - 1] ** 2).mean(), w))
    pipeline = tp.Pipeline("l", over="stage", microbatches="m")
    found = specialised(program, {"stage": stages}, {"l": 8, "m": 6}, {"stage": at}, pipeline=pipeline)
    verify(found.loops, found.sizes)
    assert parse(str(found.loops), placeholders(found.loops)) == found.loops
    return found.loops, found


@pytest.mark.parametrize("at", [0, 1, 3])
def test_stages_hand_on_to_the_next_and_back(at: int) -> None:
    made, found = pipelined(at)
    handed_on = [each for each in made.statements() if isinstance(each, Compute) and each.op == "exchange"]
    assert [each.attrs["distance"] for each in handed_on] == [1, -1]
    assert {each.type.shape for each in handed_on} == {(const(1), const(2), const(3))}
    count = operators(made)
    assert (count["shift"], count["all_gather"], count["all_reduce"]) == (0, 0, 1)
    told = [(each.kind, each.bytes, len(each.loops)) for each in collectives(found.passes)]
    boundary = 2 * 3 * 4
    assert told == [("permute", boundary, 1), ("all-reduce", 6 * boundary, 0), ("permute", boundary, 1)]


def test_each_stage_has_its_weights() -> None:
    made, _ = pipelined(2)
    (weights,) = (made.buffers[id] for port, id in made.inputs.items() if port.name == "w")
    assert weights.logical_shape == (const(2), const(3), const(3))


def test_one_stage_exchanges_nothing() -> None:
    _, found = pipelined(0, stages=1)
    assert collectives(found.passes) == ()


def test_rows_and_one_stage() -> None:
    with tp.Program() as program:
        b, m, l = tp.dims("b m l")
        x, w = tp.input("x", (3,), (b, m)), tp.input("w", (3, 3), (l,))
        h = tp.recurrent("h", (3,), (b, m, l))
        h[b, m, 0] = x
        h[b, m, l] = tp.tanh(h[b, m, l - 1] @ w)
        tp.output("y", h[b, m, l.size - 1])
    mesh, sizes, pipeline = {"data": 2, "stage": 1}, {"b": 4, "l": 4, "m": 3}, tp.Pipeline("l", "stage", "m")
    at = {"data": 0, "stage": 0}
    found = specialised(program, mesh, sizes, at, shard={"b": "data"}, pipeline=pipeline)
    assert collectives(found.passes) == ()
