"""Loops carry the slots that an iteration, or something after the loop, may read before they are written."""

from __future__ import annotations

import pytest

from tempo.loop_ir.analysis.liveness import Liveness
from tempo.loop_ir.ir import (
    Axis,
    Branch,
    Buffer,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    Write,
)
from tempo.symbolic import Condition, Symbol, const, parse_condition, size, var

T = Symbol("t", "dim")
S = Symbol("s", "dim")
A, B = 0, 1


def read(buffer: int) -> Read:
    return Read("v", buffer, ())


def write(buffer: int) -> Write:
    return Write(buffer, (), "v")


def loop(*body: Statement, var: Symbol = T) -> Loop:
    return Loop(var, const(0), size("t"), "forward", body)


def liveness(*blocks: tuple[Statement, ...], elsewhere: tuple[int, ...] = (), output: int | None = None) -> Liveness:
    roles = {id: "output" if id == output else "internal" for id in (A, B)}
    buffers = {id: Buffer(id, f"b{id}", "float32", (), (), role) for id, role in roles.items()}  # type: ignore[arg-type]
    segment = Segment(0, tuple(s for block in blocks for s in block), (A, B))
    other = Segment.of(1, tuple(map(read, elsewhere)))
    program = LoopProgram((), (segment, other), buffers, (), {}, {}, {}, {})
    return Liveness(program, segment, blocks)


def test_a_slot_that_is_written_before_it_is_read_is_not_carried() -> None:
    whole = loop(write(A), read(A), read(B), write(B))
    assert liveness((whole,)).carried(whole) == [B]


def array(local: frozenset[Symbol]) -> Buffer:
    return Buffer(A, "b", "float32", (Axis(S, 0, "full", size("s")),), (), local=local)


@pytest.mark.parametrize("local", [True, False])
def test_an_array_that_is_local_to_a_loop_is_not_carried_by_it(local: bool) -> None:
    inner = loop(Write(A, (var(S),), "v"), var=S)
    outer = loop(inner, Read("v", A, (PointIndex(const(3)),)))
    segment = Segment.of(0, (outer,))
    buffers = {A: array(frozenset({T} if local else ()))}
    found = Liveness(LoopProgram((), (segment,), buffers, (), {}, {}, {}, {}), segment, ((outer,),))
    assert (found.carried(inner), found.local(inner)) == ([A], [])
    assert (found.carried(outer), found.local(outer)) == (([], [A]) if local else ([A], []))


def test_nothing_is_live_around_a_loop_in_a_loop() -> None:
    inner = loop(write(A), read(A), var=S)
    outer = loop(inner)
    found = liveness((outer,))
    assert (found.carried(inner), found.carried(outer)) == ([], [])


def test_what_others_read_is_carried() -> None:
    whole = loop(write(A), write(B))
    assert liveness((whole,), elsewhere=(A,)).carried(whole) == [A]


def test_an_output_is_carried() -> None:
    whole = loop(write(A), write(B))
    assert liveness((whole,), output=B).carried(whole) == [B]


def test_a_later_loop_of_the_segment_reads() -> None:
    first, second = loop(write(A), write(B)), loop(read(A), write(B))
    found = liveness((first,), (second,))
    assert (found.carried(first), found.carried(second)) == ([A], [])


def test_an_earlier_loop_reads_when_the_segment_runs_again() -> None:
    first, second = loop(read(A)), loop(write(A))
    assert liveness((first,), (second,)).carried(second) == [A]


def test_a_branch_may_leave_a_slot_as_it_was() -> None:
    condition: Condition = parse_condition("t == 3")
    one_side = loop(Branch(condition, (write(A),)), read(A))
    both_sides = loop(Branch(condition, (write(A),), (write(A),)), read(A))
    assert liveness((one_side,)).carried(one_side) == [A]
    assert liveness((both_sides,)).carried(both_sides) == []


def test_a_loop_inside_hands_on_what_the_loop_around_reads() -> None:
    inner = loop(write(A), write(B), var=S)
    outer = loop(read(A), inner)
    found = liveness((outer,))
    assert (found.carried(inner), found.carried(outer)) == ([A], [A])
