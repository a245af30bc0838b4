"""The program of one device: what runs on parts, and what the devices exchange."""

from __future__ import annotations

from collections import Counter

import pytest

import tempo as tp
from tempo.loop_ir.ir import Compute, Loop, LoopProgram, Statement, walk
from tempo.loop_ir.parse import parse
from tempo.loop_ir.text import placeholders
from tempo.loop_ir.verify import verify
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
