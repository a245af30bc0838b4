"""A step of scalars on NumPy calls no functions, and a scalar is never somebody's array."""

from __future__ import annotations

import numpy as np

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.loop_ir.parse import parse
from tempo.symbolic import Symbol


def _walk() -> tp.Program:
    """Scalars from everywhere: inputs of one point, buffers, a state, a reduction, an element, an index."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, row = tp.input("x", shape=(), dims=(t,)), tp.input("row", shape=(3,), dims=())
        rate, start = tp.input("rate", shape=(), dims=()), tp.input("start", shape=(), dims=())
        s, before = tp.recurrent("s", shape=(), dims=(t,)), tp.recurrent("before", shape=(), dims=(t,))
        s[0], before[0] = start, rate
        nearer = tp.where(x > s, s + rate * t, tp.minimum(s, x[tp.max(t - 1, 0)])) + row.spatial[t % 3]
        s[t + 1] = tp.clip(nearer - before * row.sum(), -2.0, 2.0) / (1.0 + tp.abs(s))
        before[t + 1] = x - s
        tp.output("s", s)
        tp.output("rate", rate)
    return program


def test_a_step_of_scalars_calls_no_function() -> None:
    """It called one for each operator: a product of two scalars took ten times as long."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        s = tp.recurrent("s", shape=(), dims=(t,))
        s[0] = 0.5
        s[t + 1] = tp.where(s < x, s * 0.9 + x, s - x / 2.0)
        tp.output("s", s)
    run = tp.compile(program, "numpy", sizes={"t": 5})
    given = np.linspace(0, 1, 5, dtype=np.float32)
    found = run(x=given)["s"]
    body = run.explain("all").split("for t in range(start, stop)")[1].split("return")[0]
    assert "(" not in body, body
    np.testing.assert_array_equal(found, tp.compile(program, "reference", sizes={"t": 5})(x=given)["s"])


def test_scalars_from_everywhere_have_the_bits_of_the_reference() -> None:
    program, draw = _walk(), np.random.default_rng(1)
    given = {"x": draw.normal(0, 1, 40), "row": draw.normal(0, 1, 3), "rate": 0.3, "start": -0.5}
    given = {name: np.asarray(value, np.float32) for name, value in given.items()}
    found, wanted = (tp.compile(program, backend)(**given) for backend in ("numpy", "reference"))
    np.testing.assert_array_equal(found["s"], wanted["s"])


def test_what_comes_out_is_nobody_elses_array() -> None:
    rate = np.array(0.5, np.float32)
    run = tp.compile(_walk(), "numpy")
    found = run(x=np.ones(3, np.float32), row=np.ones(3, np.float32), rate=rate, start=rate)
    assert isinstance(found["rate"], np.ndarray)
    assert not np.shares_memory(found["rate"], rate)
    assert rate == 0.5


PLACES = """
buffer b0 "x": float32[] input over (t@0: full t.size) as ($t)
buffer b1 "y": float32[] output over (t@0: full t.size) as ($t)
buffer b2 "s": float32[] internal
buffer b3 "s": float32[] internal
input "x" = b0
output "y" = b1
segment segment_0(t.size; b0, b1, b2, b3) -> (b1) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    if t < 2:
      write b2[] = v1
      v2 = read b2
      v4 = read b0[t]
      v3: float32[] = add(v2: float32[], v4: float32[])
    else:
      write b3[] = v1
      v2 = read b3
      v4 = read b0[t]
      v3: float32[] = add(v2: float32[], v4: float32[])
    write b1[t] = v3
driver:
  run segment_0
"""


def test_two_places_read_slots_of_their_own_under_one_name() -> None:
    program = parse(PLACES)
    emitter = NumpyBackend.emitter(program, {Symbol("t", "size"): 4}, NumpyBackend().operator)
    text = emitter.segment(program.segments[0])
    assert "v3 = b2 + b0[t]" in text
    assert "v3 = b3 + b0[t]" in text
