"""A scheduler that is wrong: found where schedules are verified, by name, with the dependence and two instances."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


@pytest.fixture
def backwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A wrong scheduler, and schedules are verified."""
    monkeypatch.setenv("TEMPO_VERIFY", "1")
    register_scheduler(SchedulerPlugin("backwards", Backwards))
    yield "backwards"
    default_manager().unregister("scheduler", "backwards")


def running_sum(declare: Callable[..., tp.RecurrentTensor]) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = declare("x", (), (t,))
        s = tp.recurrent("s", (), (t,))
        s[0] = x
        s[t] = s[t - 1] + x
        tp.output("s", s)
    return program


def test_an_illegal_schedule_is_caught(backwards: str) -> None:
    with pytest.raises(InternalError, match="'backwards' made a wrong schedule: .* runs before "):
        tp.compile(running_sum(tp.input), scheduler=backwards)(x=np.ones(3, np.float32))


def test_a_schedule_along_a_dim_without_an_end_is_verified_at_a_few_points(backwards: str) -> None:
    program, x_data = running_sum(tp.stream_input), np.ones(20, np.float32)
    assert len(list(tp.compile(program).stream("t", x=iter(x_data), sizes={"t": None}))) == 20
    with pytest.raises(InternalError, match="'backwards' made a wrong schedule: .* runs before "):
        tp.compile(program, scheduler=backwards).stream("t", x=iter(x_data), sizes={"t": None})
