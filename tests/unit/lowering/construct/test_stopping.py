"""Loops that are left early: what the code looks like."""

from __future__ import annotations

import tempo as tp
from tempo.loop_ir.ir import Loop, stop_in
from tempo.sdg.graph import Port


def test_the_loop_is_left_by_its_last_statement() -> None:
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
    assert f"if {slot.label}:\n            break" in run.explain()
