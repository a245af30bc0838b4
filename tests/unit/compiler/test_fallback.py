"""Fewer dims as axes where a plan is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tempo as tp
from tempo.compiler.driver import with_fewer_axes
from tempo.compiler.plan import Plan
from tempo.errors import UnsupportedError
from tempo.passes.manager import Forced


def _plan() -> Plan:
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", tp.input("x", (), (t,)) + 1)
    run = tp.compile(program)
    return replace(run._engine.plan(), decisions=("as it was decided",))


class _Planner:
    """Refuses what is not a loop over each of `needed`."""

    def __init__(self, *needed: str) -> None:
        self.needed, self.asked, self.plan = needed, [], _plan()

    def __call__(self, mapping: Forced) -> Plan:
        self.asked.append(mapping)
        ways = mapping if isinstance(mapping, dict) else dict.fromkeys("bt", mapping)
        if any(ways.get(dim) != "sequential" for dim in self.needed):
            raise UnsupportedError(f"refused: {mapping}")
        return self.plan


def refuses() -> Plan:
    raise UnsupportedError("refused as it is written")


def test_what_is_planned_as_asked_is_planned_once() -> None:
    planner = _Planner()
    assert with_fewer_axes(planner, "full", "bt", refuses) is planner.plan
    assert planner.asked == ["full"]


def test_one_dim_becomes_a_loop_where_that_is_enough() -> None:
    planner = _Planner("b")
    found = with_fewer_axes(planner, {"t": 4}, "bt", refuses)
    assert planner.asked[-1] == {"b": "sequential", "t": 4}
    assert found.decisions == (
        "b: sequential, since with axes the plan is refused: refused: {'t': 4}",
        "as it was decided",
    )


def test_all_dims_do_where_one_is_not_enough() -> None:
    found = with_fewer_axes(_Planner("b", "t"), None, "bt", refuses)
    assert str(found.decisions[0]).startswith("b, t: sequential, since")


def test_what_no_mapping_can_run_is_refused_as_it_was_first() -> None:
    planner = _Planner("another dim")
    with pytest.raises(UnsupportedError, match="refused: full"):
        with_fewer_axes(planner, "full", "bt", refuses)
    assert len(planner.asked) == 2
    with pytest.raises(UnsupportedError, match="refused: sequential"):
        with_fewer_axes(planner, "sequential", "bt", refuses)
    assert len(planner.asked) == 3


def test_what_no_mapping_can_run_is_planned_without_passes() -> None:
    found = with_fewer_axes(_Planner("another dim"), None, "bt", _plan)
    assert found.decisions == (
        "no pass is run that may be left out, since with them the plan is refused: refused: None",
        "as it was decided",
    )
