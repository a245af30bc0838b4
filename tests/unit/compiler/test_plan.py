"""Where the pipeline refuses a program."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.compiler.driver import pass_manager
from tempo.compiler.options import Options
from tempo.compiler.plan import PlanOptions, plan
from tempo.passes.pipeline import default_passes
from tempo.schedule import ScheduleTree, SchedulingProblem


class Refusing:
    """Finds no order of one statement; its message names another."""

    def __init__(self, blamed: str, mentioned: str) -> None:
        self.blamed, self.mentioned = blamed, mentioned

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        names = [statement.name for statement in problem.statements]
        blamed, mentioned = (next(name for name in names if wanted in name) for wanted in (self.blamed, self.mentioned))
        raise tp.UnsupportedError(f"no order, though {mentioned} was easy", statements=(blamed,))


@pytest.mark.parametrize(("blamed", "mentioned"), [("first", "second"), ("second", "first")])
def test_the_statements_that_have_no_order_say_the_line(blamed: str, mentioned: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        first = tp.recurrent("first", (), (t,))
        second = tp.recurrent("second", (), (t,))
        first[0], second[0] = 1.0, 2.0
        first[t + 1] = tp.sin(first)
        second[t + 1] = tp.cos(second)
        tp.output("y", first[t.size - 1] + second[t.size - 1])
    passes = default_passes()
    with pytest.raises(tp.UnsupportedError) as caught:
        plan(program.graph(), pass_manager(passes, (), Options()), passes, Refusing(blamed, mentioned), PlanOptions())
    assert caught.value.location is not None
    assert caught.value.location.text.startswith(f"{blamed} = tp.recurrent")
