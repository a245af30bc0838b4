"""What goes in and out of a step of a host loop: nothing that nobody reads."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import tempo as tp
from tempo.loop_ir.ir import CallSegment, LoopProgram, Segment, walk
from tempo.sdg.graph import Port

STEPS = 6


def acting(width: int) -> tp.Program:
    """A weight under momentum, trained on what a call of the host answers; what it answers is an output."""
    with tp.Program("acting") as program:
        i = tp.dim("i")
        w = tp.parameter("w", (width,), np.ones(width, np.float32), dims=(i,))
        action = tp.tanh(w.sum())
        wish, reward = tp.host_call(answer, action, out=[((), "float32"), ((), "float32")], ordered_by=(i,))
        tp.optim.SGD(0.5 / width, momentum=0.5).minimize((w.sum() - wish) ** 2, [w])
        tp.output("reward", reward)
        tp.output("wish", wish)
        tp.output("norm", (w * w).sum())
    return program


def answer(action: np.ndarray) -> tuple[Any, Any]:
    return np.float32(0.5 - action), np.float32(-abs(action))


def compiled(run: Any) -> LoopProgram:
    engine = run._engine
    return engine.at(engine.plan_for(run._sizes), run._sizes).compiled.program  # type: ignore[no-any-return]


def steps(program: LoopProgram) -> list[Segment]:
    """The segments of host loops."""
    inside = (each for item in program.items for each in walk((item,)) if not isinstance(item, CallSegment))
    return [program.segments[each.segment] for each in inside if isinstance(each, CallSegment)]


@pytest.mark.parametrize("width", [8, 1 << 16])
def test_a_step_is_given_what_it_reads_and_returns_what_is_read(width: int):
    """Of a large slot that is not remembered the old value goes in as well, since the new one takes its place."""
    run = tp.compile(acting(width), backend="jax", sizes={"i": STEPS})
    program = compiled(run)
    slots = {each.id for each in program.buffers.values() if each.is_slot and each.role == "internal"}
    for segment in steps(program):
        read = {id for other in program.segments if other is not segment for id in other.buffers}
        assert segment.unread <= slots
        assert not [id for id in segment.unread if id not in segment.results and id in read]
    assert any(segment.unread for segment in steps(program))
    expected = tp.compile(acting(width), backend="reference", sizes={"i": STEPS})()
    out = run()
    for name, value in {**expected, **expected.state}.items():
        np.testing.assert_allclose(np.asarray({**out, **out.state}[name]), value, rtol=1e-4, err_msg=name)


def test_what_a_call_answers_is_an_output_without_a_segment():
    """It is written to an array of NumPy's, in place; who runs the program gets JAX's."""
    run = tp.compile(acting(8), backend="jax", sizes={"i": STEPS})
    program = compiled(run)
    reward = program.outputs[Port("output", "reward")]
    assert not [segment.name for segment in program.segments if reward in segment.buffers]
    out = run()
    assert all(isinstance(array, jax.Array) for array in out.values())
    parts = [step["reward"] for step in run.stream("i", chunk=2)]
    assert all(isinstance(array, jax.Array) for array in parts)
    np.testing.assert_array_equal(np.concatenate(parts), out["reward"])
