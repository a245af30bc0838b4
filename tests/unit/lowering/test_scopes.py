"""Every name in LoopIR is assigned in the block that uses it or in one around it."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.compiler.driver import pass_manager
from tempo.compiler.options import Options
from tempo.compiler.plan import PlanOptions, plan
from tempo.loop_ir.ir import Assign, Branch, Compute, Read, Statement, Write, nested
from tempo.passes.pipeline import default_passes
from tempo.plugins.manager import get_scheduler


def under_tables() -> tp.Program:
    """Only every second point is demanded and covered, so all statements over `t` are guarded."""
    with tp.Program("under_tables") as program:
        t, s = tp.dims("t s")
        given = tp.input("given", shape=(3,), dims=(t,))
        x = tp.recurrent("x", shape=(3,), dims=(t,))
        x[t % 2 == 0] = given * 2
        grown = tp.exp(x)
        total = tp.recurrent("total", shape=(3,), dims=(t,))
        total[t < 2] = x + grown
        total[t >= 2] = total[t - 2] + x
        tp.output("total", total[2 * s])
        tp.output("grown", grown[2 * s])
    return program


def under_cases() -> tp.Program:
    """A value read in one case, and after the cases."""
    with tp.Program("under_cases") as program:
        t = tp.dim("t")
        x = tp.exp(tp.input("x", shape=(3,), dims=(t,)))
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = x
        h[t + 1] = tp.cases((t % 3 == 0, h + x), h * x)
        tp.output("h", h + x)
    return program


@pytest.mark.parametrize("make", [under_tables, under_cases])
def test_names_are_scoped(make) -> None:  # type: ignore[no-untyped-def]
    passes = default_passes()
    made = plan(make().graph(), pass_manager(passes, (), Options()), passes, get_scheduler("greedy"), PlanOptions())
    for segment in made.loops.segments:
        names_left_by(segment.body, set())


def names_left_by(block: tuple[Statement, ...], around: set[str]) -> set[str]:
    """The names that a block assigns, with those `around` it. Each of its statements reads none but these."""
    known = set(around)
    for statement in block:
        assert read_by(statement) <= known
        inner = [names_left_by(each, known) for each in nested(statement)]
        if isinstance(statement, Branch):
            known |= inner[0] & inner[1]
        if isinstance(statement, Read | Compute | Assign):
            known.add(statement.result)
    return known


def read_by(statement: Statement) -> set[str]:
    match statement:
        case Compute(operands=operands):
            return set(operands)
        case Assign(value=value) | Write(value=value):
            return {value}
    return set()
