"""What earlier iterations wrote is handed on where the loop reads it soon after."""

from __future__ import annotations

import pytest

from tempo.loop_ir.analysis.carried_values import FURTHEST, Recent, circles, earlier, overwrites, recent
from tempo.loop_ir.ir import Branch, Loop, PointIndex, Read, Statement, WindowIndex, Write
from tempo.symbolic import Expr, Symbol, const, dim, size

T = dim("t")
(SYMBOL,) = T.symbols()


def read(*at: Expr, buffer: int = 1, fresh: bool = False) -> Read:
    return Read("r", buffer, tuple(PointIndex(each) for each in at), fresh)


def write(*at: Expr, buffer: int = 1) -> Write:
    return Write(buffer, at, "w")


def loop(*body: Statement, direction: str = "forward", variable: Symbol = SYMBOL) -> Loop:
    return Loop(variable, const(0), size("t"), direction, body)  # type: ignore[arg-type]


def test_the_point_before_is_handed_on() -> None:
    found = recent(loop(read(T - 1), write(T)))
    assert found == (Recent(1, (T,), 1),)
    assert earlier(found[0], loop(), 1) == (1, (T - 1,))


def test_what_is_handed_on_may_stand_for_a_copy() -> None:
    assert recent(loop(read(T - 1, fresh=True), write(T))) == (Recent(1, (T,), 1),)


def test_a_place_of_a_circle_is_overwritten_by_the_write_that_comes_round_to_it() -> None:
    going_round = write(T % 2)
    (each,) = recent(loop(read((T - 2) % 2), going_round, read(T % 2)))
    assert not each.replaces  # what is read after the write is of the buffer
    assert overwrites(going_round, earlier(each, loop(), 2))
    assert not overwrites(going_round, earlier(each, loop(), 1))
    assert not overwrites(write(T % 2, buffer=2), earlier(each, loop(), 2))


def test_before_is_after_where_the_loop_goes_backwards() -> None:
    assert recent(loop(read(T + 1), write(T), direction="backward")) == (Recent(1, (T,), 1),)
    assert recent(loop(read(T - 1), write(T), direction="backward")) == ()
    assert earlier(Recent(1, (T,), 2), loop(direction="backward"), 2) == (1, (T + 2,))


def test_the_furthest_read_decides_how_many_are_handed_on() -> None:
    assert recent(loop(read(T), read(T - 2), write(T + 1))) == (Recent(1, (T + 1,), 3),)
    assert recent(loop(read(T - FURTHEST), write(T))) == (Recent(1, (T,), FURTHEST),)
    assert recent(loop(read(T - FURTHEST - 1), write(T))) == ()


def test_a_read_in_a_branch_or_in_a_loop_inside_counts() -> None:
    inner = loop(read(T - 1, buffer=2), read(T - 1), variable=Symbol("s", "dim"))
    body = (Branch(T.ge(1), (read(T - 1),)), inner, write(T))
    assert recent(loop(*body)) == (Recent(1, (T,), 1),)


def test_only_what_every_iteration_writes_once_is_handed_on() -> None:
    assert recent(loop(read(T - 1), Branch(T.ge(1), (write(T),)))) == ()
    assert recent(loop(read(T - 1), write(T), write(T + 1))) == ()
    assert recent(loop(read(T - 1), write(T), loop(write(T), variable=Symbol("s", "dim")))) == ()


@pytest.mark.parametrize(
    "other",
    [Read("r", 1, (WindowIndex(T - 1, const(2), exact=True),)), Read("r", 1, ())],
    ids=["a window", "a slot"],
)
def test_other_reads_stay(other: Read) -> None:
    assert recent(loop(other, write(T))) == ()


def test_a_read_after_the_write_must_be_of_another_place() -> None:
    assert recent(loop(write(T), read(T - 1))) == (Recent(1, (T,), 1),)
    circular = loop(write(T % 3), read((T - 1) % 3))
    assert recent(circular) == (Recent(1, (T % 3,), 1, replaces=False),)  # of three points, one is handed on
    fixed = const(0)
    assert recent(loop(read(fixed), write(fixed))) == (Recent(1, (fixed,), 1),)
    assert recent(loop(write(fixed), read(fixed))) == ()  # that is of this iteration


def test_all_axes_must_be_those_of_the_write() -> None:
    other = dim("i")
    assert recent(loop(read(other, T - 1), write(other, T))) == (Recent(1, (other, T), 1),)
    assert recent(loop(read(other - 1, T - 1), write(other, T))) == ()


def test_a_circle_that_is_handed_on_whole_need_not_be_written_before_the_end() -> None:
    place = T % 2
    body = (read((T - 1) % 2), read((T - 2) % 2), write(place))
    assert recent(loop(*body)) == (Recent(1, (place,), 2, replaces=True),)
    assert recent(loop(read((T - 1) % 2), write(place))) == (Recent(1, (place,), 1, replaces=False),)
    window = Read("r", 1, (WindowIndex(T - 1, const(2), exact=True),))
    assert recent(loop(*body, window)) == (Recent(1, (place,), 2, replaces=False),)
    row = dim("i")
    moved = (read(row, (T - 1) % 2), read(row, (T - 2) % 2), write(row, place))
    assert recent(loop(*moved)) == (Recent(1, (row, place), 2, replaces=True),)


def test_a_circular_buffer_is_handed_on_whole() -> None:
    assert circles(loop(write(T % 3), read((T - 1) % 3))) == (Recent(1, (T % 3,), 3, True),)
    assert circles(loop(read(T % 2), write((T + 1) % 2))) == (Recent(1, ((T + 1) % 2,), 2, True),)
    assert circles(loop(write(T % (FURTHEST + 1)), read((T - 1) % (FURTHEST + 1)))) == ()
    assert circles(loop(write(T), read(T - 1))) == ()  # no circle
    assert circles(loop(write(T % 2), read((T - 1) % 2), Read("r", 1, (WindowIndex(T, const(2), exact=True),)))) == ()
    assert circles(loop(write(T % 2))) == ()  # nobody asks
