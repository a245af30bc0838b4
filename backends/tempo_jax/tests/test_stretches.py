"""Loops at the top of a segment are split where their conditions change, by a pass of the backend's own."""

from __future__ import annotations

import numpy as np
from tempo_jax.stretches import SplitLoops

import tempo as tp
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.parse import parse
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.verify import verify
from tempo.symbolic import Symbol

HEAD = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
input "x" = b0
output "h" = b1
"""
LOOP = """
segment segment_0(t.size; b0, b1) -> (b1)KIND:
  for t in 0..t.size:
    v1 = read b0[t]
    if t == 0:
      v2 = v1
    else:
      v2: float32[3] = neg(v1: float32[3])
    write b1[t] = v2
driver:
  run segment_0
"""
STRETCHES = """
segment segment_0(t.size; b0, b1) -> (b1):
  for t in 0..min(1, t.size):
    v1 = read b0[t]
    v2 = v1
    write b1[t] = v2
  for t in 1..t.size:
    v1 = read b0[t]
    v2: float32[3] = neg(v1: float32[3])
    write b1[t] = v2
driver:
  run segment_0
"""


def after(text: str) -> LoopProgram:
    program, sizes = parse(text), {Symbol("t", "size"): 8}
    verify(program, sizes)
    result = SplitLoops().apply(program, LoopContext(sizes))
    verify(result, sizes)
    return result


def test_a_loop_has_a_stretch_for_its_first_point() -> None:
    assert str(after(HEAD + LOOP.replace("KIND", ""))) == str(parse(HEAD + STRETCHES))


def test_a_segment_of_one_loop_is_left_to_whoever_runs_it() -> None:
    text = HEAD + LOOP.replace("KIND", " loop")
    assert after(text) == parse(text)


def test_it_is_a_pass_like_those_of_the_core() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 6)
        h = tp.recurrent("h", (2,), (t,))
        h[0] = tp.ones((2,))
        h[t + 1] = tp.sin(h)
        tp.output("h", h)
    expected = tp.compile(program, "reference")()["h"]
    for disable in ((), ("split_loops",)):
        run = tp.compile(program, "jax", options=tp.Options(disable=disable, debug=True))
        np.testing.assert_allclose(run()["h"], expected, rtol=1e-6)
        assert ("split_loops" in str(run.explain("all"))) == (not disable)
