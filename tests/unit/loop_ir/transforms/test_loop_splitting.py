"""Loops are split where the conditions in them change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tempo.loop_ir.ir import Assign, Branch, Loop, Statement, walk
from tempo.loop_ir.transforms.loop_splitting import LoopStretch, split
from tempo.symbolic import Condition, Expr, Symbol, const, parse_condition, parse_expr, size

T = Symbol("t", "dim")
SIZE = Symbol("t", "size")


def loop(*conditions: str, direction: str = "forward") -> Loop:
    body = tuple(
        Branch(parse_condition(text), (Assign("v", f"then{number}"),), (Assign("v", f"else{number}"),))
        for number, text in enumerate(conditions)
    )
    return Loop(T, const(0), size("t"), direction, body)  # type: ignore[arg-type]


def bounds(parts: Sequence[LoopStretch]) -> list[tuple[int | str | None, ...]]:
    """From where to where: numbers, and the text of other expressions."""

    def told(at: Expr | None) -> int | str | None:
        return None if at is None else at.as_int() if at.is_const else str(at)

    return [(told(part.first), told(part.end)) for part in parts]


def run(body: tuple[Statement, ...], t: int, extent: int) -> list[str]:
    found: list[str] = []
    for statement in body:
        if isinstance(statement, Assign):
            found.append(statement.value)
        elif isinstance(statement, Branch):
            condition: Condition = statement.condition
            block = statement.then if condition.evaluate({T: t, SIZE: extent}) else statement.otherwise
            found += run(block, t, extent)
    return found


def test_the_first_and_the_last_point_get_loops_of_their_own() -> None:
    parts = split(loop("t == 0", "t < t.size - 1"), {SIZE: 10})
    assert bounds(parts) == [(None, 1), (1, 9), (9, None)]
    assert [part.loop.body for part in parts] == [
        (Assign("v", "then0"), Assign("v", "then1")),
        (Assign("v", "else0"), Assign("v", "then1")),
        (Assign("v", "else0"), Assign("v", "else1")),
    ]


def test_a_backward_loop_keeps_its_direction() -> None:
    parts = split(loop("t == t.size - 1", direction="backward"), {SIZE: 4})
    assert bounds(parts) == [(3, None), (None, 3)]


def test_a_condition_on_a_size_that_is_not_fixed_stays() -> None:
    whole = loop("t < p.size")
    assert [part.loop.body for part in split(whole, {SIZE: 4})] == [whole.body]


def test_conditions_on_sizes_of_a_run_split_a_loop_where_their_order_is_known() -> None:
    first, last = "t < p.size - 1", "t == p.size + q.size - 1"
    whole = replace(loop(first, last), hi=parse_expr("p.size + q.size"))
    assert bounds(split(whole, {})) == [
        (None, "p.size - 1"),
        ("p.size - 1", "p.size + q.size - 1"),
        ("p.size + q.size - 1", None),
    ]
    apart = replace(loop("t < p.size", "t < q.size"), hi=parse_expr("p.size + q.size"))
    assert bounds(split(apart, {})) == [(None, None)]


def test_too_many_changes_are_left_alone() -> None:
    whole = loop("t == 2", "t == 5", "t == 8")
    assert [part.loop.body for part in split(whole, {SIZE: 20})] == [whole.body]


def test_a_branch_that_stays_makes_no_stretch() -> None:
    whole = loop("t == 0", "t < t.size - 1")
    parts = split(whole, {SIZE: 10}, stays=lambda branch: branch.condition == parse_condition("t == 0"))
    assert bounds(parts) == [(None, 9), (9, None)]
    assert parts[0].loop.body == (whole.body[0], Assign("v", "then1"))


def test_conditions_in_loops_inside_split_the_loop_around_them() -> None:
    """A conditional there costs as much, in every iteration of both."""
    inner = Loop(Symbol("l", "dim"), const(0), size("l"), "forward", loop("t < 3", "l == 0").body)
    parts = split(Loop(T, const(0), size("t"), "forward", (inner,)), {SIZE: 10})
    assert bounds(parts) == [(None, 3), (3, None)]
    bodies = [part.loop.body[0].body for part in parts if isinstance(part.loop.body[0], Loop)]
    assert bodies == [(Assign("v", "then0"), inner.body[1]), (Assign("v", "else0"), inner.body[1])]


CONDITIONS = st.sampled_from(
    ["t == 0", "t >= 2", "t < t.size - 1", "t == t.size - 1", "t % 2 == 0", "t >= 1 and t < 3", "t < 1 or t >= 3"]
)


@given(st.lists(CONDITIONS, max_size=3), st.integers(1, 6), st.sampled_from(["forward", "backward"]))
def test_every_point_runs_what_it_ran(conditions: list[str], extent: int, direction: str) -> None:
    whole = loop(*conditions, direction=direction)
    expected = [run(whole.body, t, extent) for t in range(extent)]
    visited = []
    for part in split(whole, {SIZE: extent}):
        points = range(*part.within(0, extent, {}))
        visited += points if direction == "forward" else reversed(points)
        assert [run(part.loop.body, t, extent) for t in points] == [expected[t] for t in points]
    assert visited == (list(range(extent)) if direction == "forward" else list(reversed(range(extent))))


def choice(least: int) -> Branch:
    """A chain of extents that double, as tiling makes them."""
    chain: tuple[Statement, ...] = (Assign("v", "all"),)
    for extent in (4 * least, 2 * least, least):
        chain = (Branch(parse_condition(f"t + 1 <= {extent}"), (Assign("v", f"of {extent}"),), chain, is_choice=True),)
    (first,) = chain
    assert isinstance(first, Branch)
    return first


def test_choices_stay_unless_they_are_to_be_made_outside() -> None:
    whole = Loop(T, const(0), size("t"), "forward", (choice(2),))
    assert [part.loop.body for part in split(whole, {SIZE: 12})] == [whole.body]
    parts = split(whole, {SIZE: 12}, choices=True)
    assert bounds(parts) == [(None, 2), (2, 4), (4, 8), (8, None)]
    assert [part.loop.body for part in parts] == [(Assign("v", each),) for each in ("of 2", "of 4", "of 8", "all")]


def test_choices_in_loops_inside_are_made_outside_of_these() -> None:
    inner = Loop(Symbol("l", "dim"), const(0), const(3), "forward", (choice(2),))
    whole = Loop(T, const(0), size("t"), "forward", (inner,))
    parts = split(whole, {SIZE: 12}, choices=True)
    assert len(parts) == 4 and not any(isinstance(each, Branch) for part in parts for each in walk(part.loop.body))
