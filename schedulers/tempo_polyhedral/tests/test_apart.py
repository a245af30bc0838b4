"""What isl is not asked to order together."""

from __future__ import annotations

from tempo_polyhedral.apart import Apart
from tempo_polyhedral.cache import Cache
from tempo_polyhedral.scheduler import PolyhedralScheduler

from tempo.schedule import Run, Sequence, verify
from tests.unit.schedule.problems import make

PROBLEM = make(
    "t",
    {"end": "", "h": "t", "given": "", "start": "", "g": "t", "between": "", "later": "t"},
    [
        "start < given()",
        "h < start(), h(t - 1)",
        "between < h(t.size - 1)",
        "later < between(), later(t - 1)",
        "g < g(t + 1)",
        "end < later(t.size - 1), g(0)",
    ],
)


def test_what_has_no_dims_is_apart_at_both_ends_but_not_between_loops() -> None:
    apart = Apart.of(PROBLEM)
    assert apart.first == ("given", "start")
    assert apart.last == ("end",)
    assert [{each.name for each in group.statements} for group in apart.groups] == [{"h", "between", "later"}, {"g"}]
    assert [len(group.dependences) for group in apart.groups] == [4, 1]


def test_a_cycle_of_statements_without_dims_is_left_to_the_scheduler() -> None:
    apart = Apart.of(make("", {"a": "", "b": "", "c": ""}, ["a < b()", "b < a()", "c < b()"]))
    assert not apart.first
    assert apart.last == ("c",)
    assert [{each.name for each in group.statements} for group in apart.groups] == [{"a", "b"}]


def test_the_order_of_all_is_right() -> None:
    found = PolyhedralScheduler(cache=Cache(None)).schedule(PROBLEM)
    for extent in (1, 2, 5):
        verify(PROBLEM, found.tree, dict.fromkeys(PROBLEM.sizes, extent))
    assert isinstance(found.tree, Sequence)
    assert found.tree.items[:2] == (Run("given"), Run("start"))
    assert found.tree.items[-1] == Run("end")


def test_nothing_is_asked_where_there_are_no_loops() -> None:
    found = PolyhedralScheduler(cache=Cache(None)).schedule(make("", {"b": "", "a": ""}, ["b < a()"]))
    assert found.tree == Sequence((Run("a"), Run("b")))
    assert found.notes[0].startswith("polyhedral: no loops, ")
