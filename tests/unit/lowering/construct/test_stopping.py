"""Loops that are left early: what the code looks like."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.loop_ir.ir import Compute, Loop, Stop, stop_in, walk
from tempo.sdg.graph import Port


def test_a_loop_is_left_where_the_stop_is_known() -> None:
    with tp.Program("early") as program:
        t = tp.dim("t", 9)
        x = tp.recurrent("x", (), (t,))
        x[0] = 1.0
        x[t + 1] = x / 2
        w = tp.parameter("w", (3,), 0.0, (t,))
        w[t + 1] = w + x[t + 1]
        tp.output("x", x)
        tp.stop_when(t, x < 0.1)
    run = tp.compile(program)
    loops = run._engine.plan().loops  # type: ignore[attr-defined]
    (segment,) = [each for each in loops.segments if isinstance(each.loop, Loop) and stop_in(each.loop) is not None]
    slot = loops.buffers[loops.outputs[Port("stop", "t")]]
    assert segment.loop is not None
    assert stop_in(segment.loop) == slot.id
    assert slot.is_slot
    assert f"stop if {slot.label} != 0" in str(loops)
    assert loops.buffers[loops.outputs[Port("state", "w")]].is_slot  # of the parameter only the newest value is kept
    assert f"if {slot.label}:\n            break" in run.explain("all")


@pytest.mark.parametrize("scheduler", ["greedy", "polyhedral"])
def test_what_makes_the_next_point_comes_behind_the_stop(scheduler: str) -> None:
    """But not what an output reads, nor what is read of the first point alone."""
    with tp.Program("decoder") as program:
        l, t = tp.dim("l", 4), tp.dim("t", 9)
        x = tp.recurrent("x", (2,), (t,))
        h = tp.recurrent("h", (2,), (l, t))
        h[0, t] = x
        h[l + 1, t] = tp.tanh(h)
        x[0] = 1.0
        x[t + 1] = tp.sin(h[3, t])
        tp.output("y", tp.cos(x))
        tp.output("first", tp.exp(x)[0])
        tp.stop_when(t, x.sum() < tp.input("limit", (), ()))
    loops = tp.compile(program, scheduler=scheduler)._engine.plan().loops  # type: ignore[attr-defined]
    (body,) = [each.body for each in loops.statements() if isinstance(each, Loop) and stop_in(each) is not None]
    at = next(number for number, each in enumerate(body) if isinstance(each, Stop))
    before, behind = (
        {each.op for each in walk(block) if isinstance(each, Compute)} for block in (body[:at], body[at:])
    )
    assert {"cos", "exp"} <= before
    assert {"tanh", "sin"} <= behind
    assert not {"tanh", "sin"} & before


def test_a_stop_among_calls_of_the_host_is_the_last_statement_of_the_driver_s_loop() -> None:
    """A segment ends where its loop is left: one more of them at every point would cost more than the last."""
    with tp.Program() as program:
        t = tp.dim("t", 9)
        (seen,) = tp.host_call(lambda at: at, tp.as_tensor(t), out=[((), "int32")], ordered_by=(t,))
        x = tp.recurrent("x", (), (t,))
        x[0] = 1.0
        x[t + 1] = tp.sin(x)
        tp.output("x", x)
        tp.stop_when(t, seen > 3)
    loops = tp.compile(program)._engine.plan().loops  # type: ignore[attr-defined]
    (loop,) = [each for each in loops.items if isinstance(each, Loop)]
    assert isinstance(loop.body[-1], Stop)
