"""Slots that are let go of, and written where they are read: programs aimed at where that ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.loop_ir.analysis import names, needed_slots

SHAPE = 2, 3


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slot is large."""
    monkeypatch.setenv("TEMPO_CACHE", "0")
    monkeypatch.setattr(names, "LEAST", 1)
    monkeypatch.setattr(needed_slots, "LEAST", 1)


def parities() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", SHAPE, (t,))
        a, b = (tp.recurrent(name, SHAPE, (t,)) for name in "ab")
        a[t % 2 == 0] = tp.tanh(x)
        a[t] = a[t - 1] * 2 + x
        b[t >= 3] = b[t - 1] + a[t - 2]
        b[t] = a * 0.5
        tp.output("a", a[0])
        tp.output("b", b[t.size - 1])
    return program


def layers() -> tp.Program:
    """A state of every layer goes to the next step, and the last layer's to the first."""
    with tp.Program() as program:
        t, n = tp.dim("t"), tp.dim("n", 3)
        x = tp.input("x", SHAPE, (t,))
        h, kept = tp.recurrent("h", SHAPE, (t, n)), tp.recurrent("kept", SHAPE, (t, n))
        o = tp.recurrent("o", SHAPE, (t,))
        h[t, 0] = x + o
        h[t, n + 1] = tp.tanh(h + kept)
        kept[0, n] = tp.zeros(SHAPE)
        kept[t + 1, n] = kept * 0.5 + h
        o[0] = tp.zeros(SHAPE)
        o[t + 1] = h[t, n.size - 1]
        tp.output("o", o[t.size - 1])
        tp.output("kept", kept[t.size - 1, n.size - 1])
    return program


def backward() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", SHAPE, (t,))
        g = tp.recurrent("g", SHAPE, (t,))
        g[t.size - 1] = x
        g[t] = tp.tanh(g[t + 1] * x)
        tp.output("g", g[0])
    return program


def halves() -> tp.Program:
    """One is read in the second half alone."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", SHAPE, (t,))
        a, d = tp.recurrent("a", SHAPE, (t,)), tp.recurrent("d", SHAPE, (t,))
        a[0] = x
        a[t + 1] = tp.sin(a) + x
        d[t >= t.size // 2] = a * 2
        d[t] = tp.zeros(SHAPE)
        tp.output("d", d[t.size - 1])
        tp.output("middle", d[t.size // 2])
    return program


def twice() -> tp.Program:
    """At one or two steps nothing reads what an iteration hands on."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", SHAPE, (t,))
        h, g = tp.recurrent("h", SHAPE, (t,)), tp.recurrent("g", SHAPE, (t,))
        v = tp.tanh(h)
        h[0], h[t + 1] = x, v
        g[0], g[t] = v * 2.0, g[t - 1] * 0.5
        tp.output("g", g)
    return program


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("mapping", [None, "sequential"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("make", [parities, layers, backward, halves, twice])
def test_programs_mean_the_same(make: Callable[[], tp.Program], backend: str, mapping: str | None, debug: bool) -> None:
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    program = make()
    meaning = tp.compile(program, "reference")
    run = tp.compile(program, backend, options=tp.Options(mapping=mapping, debug=debug))
    for steps in (1, 2, 3, 4, 6):
        x = np.random.default_rng(steps).normal(size=(steps, *SHAPE)).astype(np.float32)
        wanted = meaning(x=x)
        for given in (x, run.device_put(x=x)["x"]):
            found = run(x=given, donate=given is not x)
            for name, value in wanted.items():
                np.testing.assert_allclose(np.asarray(found[name]), value, rtol=1e-4, atol=1e-5)
