"""Masks go where they put zeros in place of what nothing has written, and stay everywhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.compiler.driver import Compiler
from tempo.loop_ir.ir import Buffer
from tempo.plugins.manager import get_backend, get_scheduler
from tempo.runtime.engine import CompiledEngine
from tempo.symbolic import Symbol

T = tp.RecurrentTensor
Past = Callable[[tp.Dim], slice]
SIZE, PASSES = 9, 3
FIRST = np.linspace(-1, 1, 4, dtype=np.float32)
WAYS = (
    {"extent": "hull"},
    {"extent": "blocks", "tile": 2},
    {"extent": "blocks", "tile": 4},
    {"extent": "specialise", "tile": 2},
)


def weighted(seen: T, x: T) -> T:
    """A contraction along the axis, whose operands are masked."""
    return tp.einsum("sd,s->d", seen, tp.softmax((seen * x).sum(axis=1), axis=0))


def so_far(t: tp.Dim) -> slice:
    return slice(0, t + 1)


def latest(t: tp.Dim) -> slice:
    return slice(tp.max(t - 2, 0), t + 1)


def shorter(t: tp.Dim) -> slice:
    """Point t has been written, and is not seen."""
    return slice(0, tp.max(t, 1))


def one_pass(past: Past) -> tp.Program:
    with tp.Program() as made:
        t = tp.dim("t")
        x = tp.recurrent("x", FIRST.shape, (t,))
        x[0] = tp.constant(FIRST)
        x[t + 1] = tp.sin(weighted(x[past(t)], x) + x)
        tp.output("last", x[t.size - 1])
    return made


def passes(past: Past) -> tp.Program:
    """Every pass but the first finds in the buffer what the one before it has left there."""
    with tp.Program() as made:
        i, t = tp.dims("i t")
        x = tp.recurrent("x", FIRST.shape, (i, t))
        x[(i == 0) & (t == 0)] = tp.constant(FIRST)
        x[t == 0] = x[i - 1, t.size - 1]
        x[i, t + 1] = tp.sin(weighted(x[i, past(t)], x) + x)
        tp.output("last", x[i.size - 1, t.size - 1])
    return made


def zeroed(program: tp.Program, options: tp.Options, **sizes: int) -> list[Buffer]:
    compiler = Compiler(program.graph(), get_backend("numpy"), get_scheduler("greedy"), options)
    engine = CompiledEngine(compiler, "greedy")
    known = {Symbol(name, "size"): size for name, size in sizes.items()}
    return [each for each in engine.at(engine.plan(), known).compiled.program.buffers.values() if each.zeroed]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("past", [so_far, latest, shorter])
@pytest.mark.parametrize("make", [one_pass, passes])
def test_every_program_gives_what_the_reference_gives(
    make: Callable[[Past], tp.Program], past: Past, way: dict[str, object]
) -> None:
    sizes = {"t": SIZE} if make is one_pass else {"t": SIZE, "i": PASSES}
    expected = tp.compile(make(past), backend="reference", sizes=sizes)()["last"]
    for poison in (True, False):
        run = tp.compile(make(past), backend="numpy", sizes=sizes, options=tp.Options(poison=poison, **way))
        np.testing.assert_allclose(run()["last"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("past", "idle"), [(so_far, True), (shorter, False)])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_mask_goes_only_where_nothing_was_written(past: Past, idle: bool, way: dict[str, object]) -> None:
    assert bool(zeroed(one_pass(past), tp.Options(**way), t=SIZE)) == idle


def test_what_an_earlier_pass_has_left_stays_masked() -> None:
    assert not zeroed(passes(so_far), tp.Options(extent="hull"), t=SIZE, i=PASSES)


def test_a_circular_buffer_holds_zeros_until_it_is_full() -> None:
    assert zeroed(one_pass(latest), tp.Options(extent="hull"), t=SIZE)
