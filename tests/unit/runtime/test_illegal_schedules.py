"""A scheduler that is wrong: found where schedules are verified, by name, with the dependence and two instances."""

from __future__ import annotations

import numpy as np
import pytest
from tempo_greedy.scheduler import GreedyScheduler

import tempo as tp
from tempo.errors import InternalError
from tempo.plugins.descriptors import SchedulerPlugin
from tempo.plugins.manager import default_manager, register_scheduler
from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, Sequence


class Backwards:
    """Every loop runs the wrong way round."""

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        return _turned(GreedyScheduler().schedule(problem))


def _turned(tree: ScheduleTree) -> ScheduleTree:
    if isinstance(tree, Run):
        return tree
    if isinstance(tree, Sequence):
        return Sequence(tuple(map(_turned, tree.items)))
    if isinstance(tree, If):
        return If(tree.condition, _turned(tree.body))
    direction = "backward" if tree.direction == "forward" else "forward"
    return For(tree.var, tree.lo, tree.hi, direction, _turned(tree.body))


def test_an_illegal_schedule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_VERIFY", "1")
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        s = tp.recurrent("s", (), (t,))
        s[0] = x
        s[t + 1] = s + x[t + 1]
        tp.output("s", s)
    register_scheduler(SchedulerPlugin("backwards", Backwards))
    try:
        with pytest.raises(InternalError, match="'backwards' made a wrong schedule: .* runs before "):
            tp.compile(program, scheduler="backwards")(x=np.ones(3, np.float32))
    finally:
        default_manager().unregister("scheduler", "backwards")
