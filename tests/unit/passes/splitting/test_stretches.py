"""A definition in stretches: they tile the span at every size, and each point keeps the case that it had."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo.passes.simplify.simplify import possible_cases
from tempo.passes.splitting import stretches
from tempo.passes.splitting.stretches import pieces
from tempo.sdg.graph import Case, Edge, Node
from tempo.symbolic import Condition, Context, Expr, Symbol, const, parse_condition, size

X, Y = Symbol("x", "dim"), Symbol("y", "dim")
EDGES = ["0", "1", "2", "x.size - 1", "x.size - 2", "x.size // 2"]
ATOMS = [f"x {how} {edge}" for edge in EDGES for how in ("==", ">=", "<")] + [
    "y == 0",
    "y >= 2",
    "x == y",
    "x % 2 == 0",
    "2 * x >= x.size",
    "-3 * x + x.size >= 0",
]


def merge(*conditions: str) -> Node:
    cases = tuple(Case(parse_condition(text), Edge(number, ())) for number, text in enumerate([*conditions, "True"]))
    return Node(9, "merge", (X, Y), (), cases=cases)


def split(node: Node) -> list[tuple[Expr, Expr, list[Condition]]]:
    found = pieces(node.cases, X, const(0), size("x"), Context.of(()))
    return [(piece.lo, piece.hi, [case.condition for case in piece.cases]) for piece in found]


def chosen(cases: tuple[Case, ...], point: dict[Symbol, int]) -> int:
    return next(case.edge.node for case in cases if case.condition.evaluate(point))


def test_an_edge_on_both_sides() -> None:
    found = split(merge("x == 0 or y == 0 or x == x.size - 1"))
    assert [(str(lo), str(hi)) for lo, hi, _ in found] == [
        ("0", "1"),
        ("1", "max(x.size - 1, 1)"),
        ("max(x.size - 1, 1)", "x.size"),
    ]
    assert [[str(each) for each in conditions] for _, _, conditions in found] == [
        ["True"],
        ["y == 0", "True"],
        ["True"],
    ]


def test_which_of_two_ends_comes_first_at_size_one() -> None:
    found = split(merge("x == x.size - 1", "x == 0"))
    assert [str(lo) for lo, _, _ in found] == ["0", "min(x.size - 1, 1)", "x.size - 1"]
    assert [[str(each) for each in conditions] for _, _, conditions in found] == [["True"], ["True"], ["True"]]


@pytest.mark.parametrize(
    ("condition", "count"), [("x == y", 1), ("x % 2 == 0", 1), ("x >= 1 and x % 2 == 0", 2), ("2 * x >= x.size", 2)]
)
def test_what_changes_at_no_known_point_stays(condition: str, count: int) -> None:
    assert len(split(merge(condition))) == count


def test_many_pieces_are_none() -> None:
    assert len(split(merge(*(f"x == {3 * k}" for k in range(5))))) == 1


def test_no_more_pieces_are_made_than_tell_that_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Case, ...]] = []

    def counted(cases: tuple[Case, ...], here: Context) -> tuple[Case, ...]:
        asked.append(cases)
        return possible_cases(cases, here)

    monkeypatch.setattr(stretches, "possible_cases", counted)
    assert len(split(merge(*(f"x == {3 * k}" for k in range(20))))) == 1
    assert len(asked) <= 2 * (stretches.MOST_PIECES + 1)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.lists(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=2), min_size=1, max_size=3))
def test_every_point_keeps_its_case(conditions: list[list[str]]) -> None:
    node = merge(*(" or ".join(atoms) for atoms in conditions))
    found = pieces(node.cases, X, const(0), size("x"), Context.of(()))
    for extent in range(1, 7) if found else ():
        sizes = {Symbol("x", "size"): extent}
        bounds = [(piece.lo.evaluate(sizes), piece.hi.evaluate(sizes)) for piece in found]
        assert [lo for lo, _ in bounds] + [extent] == [0] + [hi for _, hi in bounds]
        for piece, (lo, hi) in zip(found, bounds):
            points = [{**sizes, X: x, Y: y} for x in range(lo, hi) for y in range(3)]
            assert all(chosen(piece.cases, point) == chosen(node.cases, point) for point in points)
