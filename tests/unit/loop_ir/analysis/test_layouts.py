"""The order of axes in memory: what contractions read, batch axes first; the meaning is the same."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.costs import Way
from tempo.loop_ir.analysis.layouts import layouts, layouts_in_segments
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.transforms.dynamic_extent.versions import DynamicExtents
from tempo.symbolic import Symbol

SIZE, HEADS, WIDTH = 9, 2, 3


def kept(host: bool = False, disagree: bool = False) -> tuple[tp.Program, LoopProgram]:
    """Keys by position; a step reads all of them, head by head, and perhaps by position as well."""
    with tp.Program() as program:
        t = tp.dim("t", SIZE)
        x = tp.recurrent("x", (HEADS, WIDTH), (t,))
        key = tp.exp(x * tp.as_tensor(t) * 0.1)
        seen = slice(0, t + 1)
        scores = tp.einsum("hd,shd->hs", x, key[seen])
        x[0] = tp.ones((HEADS, WIDTH)) * 0.1
        following = tp.einsum("hs,shd->hd", tp.tanh(scores), key[seen])
        if disagree:
            following = following + tp.einsum("hd,shd->ds", x, key[seen]).max(axis=1) * 0.01
        x[t + 1] = tp.sin(following)
        tp.output("x", x)
        if host:
            tp.sink(lambda value: None, x, ordered_by=(t,))
    run = tp.compile(program)
    np.testing.assert_allclose(run()["x"], tp.compile(program, backend="reference")()["x"], rtol=1e-5, atol=1e-6)
    return program, run._engine.plan().loops


def test_batch_axes_come_first() -> None:
    _, loops = kept()
    assert set(layouts(loops).values()) == {(1, 0, 2)}
    assert layouts_in_segments(loops) == layouts(loops)


def test_readers_that_want_different_orders_get_the_logical_one() -> None:
    _, loops = kept(disagree=True)
    assert layouts(loops) == {}


def test_where_the_driver_takes_part_only_views_are_reordered() -> None:
    _, loops = kept(host=True)
    assert layouts_in_segments(loops) == {}


@pytest.mark.parametrize("poison", [False, True])
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_backend_means_the_same(backend: str, poison: bool) -> None:
    pytest.importorskip(f"tempo_{backend}")
    program, _ = kept()
    expected = tp.compile(program, backend="reference")()["x"]
    run = tp.compile(program, backend=backend, options=tp.Options(poison=poison))
    np.testing.assert_allclose(np.asarray(run()["x"]), expected, rtol=1e-4, atol=1e-5)
    chunks = [np.asarray(chunk["x"]) for chunk in run.stream("t", chunk=4)]
    np.testing.assert_allclose(np.concatenate(chunks), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extent", ["hull", "blocks", "specialise"])
def test_what_is_read_by_heads_lies_by_heads_masked_or_not(extent: Way) -> None:
    """Keys are read as they are, values with a mask; the numbers of the axes are (point, head, feature)."""
    with tp.Program("attention") as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (2, 3), (t,))
        k, v = tp.tanh(h), tp.exp(h)
        weights = tp.exp(tp.einsum("hd,shd->hs", h, k[0 : t + 1]))
        h[0] = tp.ones((2, 3))
        h[t + 1] = tp.tanh(tp.einsum("hs,shd->hd", weights, v[0 : t + 1]))
        tp.output("h", h)
    loops = tp.compile(program)._engine.plan().loops  # type: ignore[attr-defined]
    made = DynamicExtents(extent, 16).apply(loops, LoopContext({Symbol("t", "size"): 64})).program
    found = layouts(made)
    assert {made.buffers[id].name.split("_")[0]: order for id, order in found.items()} == {
        "tanh": (1, 0, 2),
        "exp": (1, 0, 2),
    }


def rows_first(whole: bool = False, host: bool = False) -> LoopProgram:
    """Rows of steps, of which a loop over steps reads one step of all rows, or every iteration all there is."""
    with tp.Program() as program:
        b, t = tp.dim("b", 4), tp.dim("t", SIZE)
        x, h = tp.input("x", (WIDTH,), (b, t)), tp.recurrent("h", (WIDTH,), (b, t))
        h[b, 0] = x
        h[b, t + 1] = tp.tanh(h + tp.sin(x[b, 0 : t + 1] * h.sum()).sum(axis=0) if whole else h + x)
        tp.output("h", h[b, t.size - 1])
        if host:
            tp.sink(lambda value: None, h[0, t], ordered_by=(t,))
    loops: LoopProgram = tp.compile(program)._engine.plan().loops  # type: ignore[attr-defined]
    return loops


@pytest.mark.parametrize(("whole", "host", "stays"), [(False, False, True), (False, True, True), (True, False, False)])
def test_an_input_that_is_read_step_by_step_lies_as_it_was_given(whole: bool, host: bool, stays: bool) -> None:
    loops = rows_first(whole, host)
    (given,) = (loops.buffers[id] for id in loops.inputs.values())
    assert not given.is_as_given
    assert layouts_in_segments(loops).get(given.id) == (given.to_user if stays else None)


def test_no_copy_of_such_an_input_is_planned() -> None:
    pytest.importorskip("tempo_jax")
    rows, steps = 16, 4096
    with tp.Program() as program:
        b, t = tp.dim("b", rows), tp.dim("t", steps)
        x, h = tp.input("x", (WIDTH,), (b, t)), tp.recurrent("h", (WIDTH,), (b, t))
        h[b, 0] = x
        h[b, t + 1] = tp.tanh(h + x)
        tp.output("h", h[b, t.size - 1])
    run = tp.compile(program, "jax", sizes={})
    given = np.random.default_rng(0).normal(size=(rows, steps, WIDTH)).astype(np.float32)
    assert run.memory.working_bytes < given.nbytes / 10
    wanted = tp.compile(program, "numpy")(x=given)["h"]
    for put in (given, run.device_put(x=given)["x"]):
        np.testing.assert_allclose(np.asarray(run(x=put)["h"]), wanted, rtol=1e-5, atol=1e-6)
