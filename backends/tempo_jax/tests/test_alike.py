"""Iterations that differ in nothing but their pieces are told from those that differ in more."""

from __future__ import annotations

import numpy as np
from tempo_jax.alike import AlikeIterations

import tempo as tp
from tempo.loop_ir.ir import Loop
from tempo.loop_ir.parse import parse
from tempo.symbolic import Symbol

HEAD = """
buffer b0 "w": float32[3] input over (l@0: full l.size) as ($l, 0)
buffer b1 "h": float32[3] internal
buffer b2 "k": float32[3] internal over (l@0: full l.size)
input "w" = b0
segment segment_0(l.size; b0, b1, b2) -> (b1, b2) loop:
  for l in 0..l.size:
"""
SIZES = {Symbol("l", "size"): 4}


def kinds(body: str, pieces: dict[int, int]) -> tuple[dict[int, int], int]:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    (loop,) = parse(f"{HEAD}{lines}driver:\n  run segment_0\n").segments[0].body
    assert isinstance(loop, Loop)
    alike = AlikeIterations(loop, pieces, SIZES)
    return alike.own, len({alike.kind(point) for point in range(4)})


def test_reads_of_their_own_points_are_no_difference():
    assert kinds("v1 = read b0[l]\nwrite b1[] = v1", {}) == ({0: 0}, 1)
    assert kinds("v1 = read b0[l]\nwrite b2[l] = v1", {2: 0}) == ({0: 0, 2: 0}, 1)


def test_writes_into_a_whole_array_and_reads_of_neighbours_are():
    assert kinds("v1 = read b0[l]\nwrite b2[l] = v1", {}) == ({0: 0}, 4)
    assert kinds("v1 = read b0[l]\nv2 = read b0[l - 1]\nwrite b1[] = v2", {}) == ({}, 4)


def test_conditions_tell_iterations_apart_where_they_do():
    body = "if l >= l.size - 1:\n  v1 = read b0[l]\n  write b1[] = v1"
    assert kinds(body, {}) == ({0: 0}, 2)


def test_numbers_of_iterations_that_are_computed_with_are_a_difference():
    assert kinds("v1: int32[] = index_value(`l`) {expr: `l`}\nwrite b1[] = v1", {}) == ({}, 4)


def test_iterations_that_are_alike_may_name_a_point_that_a_guarded_array_has_not():
    size = 400
    with tp.Program() as program:
        t, l, m = tp.dim("t", 20), tp.dim("l", 6), tp.dim("m", 3)
        w, bias = tp.input("w", (size, size), (l,)), tp.input("bias", (size,), (m,))
        x, h = tp.recurrent("x", (size,), (t,)), tp.recurrent("h", (size,), (t, l))
        y = tp.tanh(h @ w)
        y = tp.cases((l < 3, y + bias[l]), y)
        h[t, 0] = x
        h[t, l + 1] = y
        x[0] = tp.ones((size,))
        x[t + 1] = y[t, l.size - 1]
        tp.output("x", x)
    random = np.random.default_rng(0)
    given = {"w": random.normal(size=(6, size, size)) / 25, "bias": random.normal(size=(3, size))}
    given = {name: array.astype(np.float32) for name, array in given.items()}
    found, wanted = (tp.compile(program, backend)(**given)["x"] for backend in ("jax", "numpy"))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
