"""Programs whose LoopIR has everything in it: loops both ways, windows, blocks, tables, host calls, streams, states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tempo as tp
from tempo.loop_ir.ir import LoopProgram
from tempo.runtime.engine import CompiledEngine
from tempo.symbolic import Symbol

SIZE = 5


def recurrence() -> tp.Program:
    with tp.Program("recurrence") as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        h, g = tp.recurrent("h", (3,), (t,)), tp.recurrent("g", (3,), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(h @ tp.constant(np.eye(3, dtype=np.float32)) + x[t + 1])
        g[t.size - 1] = h
        g[t] = h + g[t + 1] * 0.5
        tp.output("g", g)
        tp.output("short", h[tp.max(t - 1, 0) : t + 1].sum(axis=0))
    return program


def decoding() -> tp.Program:
    """Softmax over all of the past."""
    with tp.Program("decoding") as program:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,))
        h = tp.recurrent("h", (4,), (t,))
        h[0] = x
        past = h[0 : t + 1]
        h[t + 1] = tp.softmax(past @ tp.ones((4,)), axis=0) @ past + x[t + 1]
        tp.output("last", h[t.size - 1])
    return program


def counting() -> tp.Program:
    """Calls of the host, and cases that only some points take."""
    with tp.Program("counting") as program:
        t = tp.dim("t")
        x = tp.recurrent("x", (2,), (t,))
        (y,) = tp.host_call(lambda a: (a * 2,), x, out=[((2,), tp.float32)], ordered_by=(t,))
        x[0] = tp.ones((2,))
        x[t + 1] = tp.cases((t % 2 == 0, y + 1), y - 1)
        tp.output("x", x)
    return program


def learning() -> tp.Program:
    with tp.Program("learning") as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (3,), (i,))
        w = tp.parameter("w", (3,), np.zeros(3, np.float32), dims=(i,))
        w[i + 1] = 0.75 * w + 0.25 * x
        tp.output("w", w)
    return program


def ending() -> tp.Program:
    with tp.Program("ending") as program:
        t = tp.dim("t")
        x = tp.recurrent("x", (), (t,))
        x[0] = 1.0
        x[t + 1] = x * 2.0
        tp.stop_when(t, x > 3.0)
        tp.output("x", x)
    return program


WAYS: dict[str, dict[str, Any]] = {
    "lifted": {},
    "loops": {"mapping": "sequential"},
    "blocks": {"mapping": "sequential", "extent": "blocks", "tile": 2},
    "choices": {"mapping": "sequential", "extent": "specialise", "tile": 2},
}
PROGRAMS: tuple[Callable[[], tp.Program], ...] = (recurrence, decoding, counting, learning, ending)


def engine_of(make: Callable[[], tp.Program], way: str, backend: Any = "numpy") -> CompiledEngine:
    engine = tp.compile(make(), backend=backend, options=tp.Options(**WAYS[way]))._engine
    assert isinstance(engine, CompiledEngine)
    return engine


def sizes_of(engine: CompiledEngine) -> dict[Symbol, int]:
    return {symbol: SIZE for dim in engine.graph.dims for symbol in dim.size.sizes()}


def lowered(make: Callable[[], tp.Program], way: str, backend: Any = "numpy") -> tuple[LoopProgram, LoopProgram]:
    """For all sizes, and at some."""
    engine = engine_of(make, way, backend)
    return engine.plan().loops, engine.at(engine.plan(), sizes_of(engine)).compiled.program
