"""Tree-LSTM in Tempo: one recurrence over the nodes of all trees of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.dynamic.forest import Forest, forest, inputs, weights
from benchmarks.dynamic.process import Prepared
from tempo.runtime.engine import CompiledEngine


def tree_lstm(width: int, gradients: bool) -> tp.Program:
    """h and c of a node lie one behind the other in `hc`. The loss is the sum of squares of h of all nodes."""
    with tp.Program("tree_lstm") as program:
        leaf, inner = tp.dims("leaf inner")
        n = tp.dim("n", leaf.size + inner.size)
        x = tp.input("x", (width,), (leaf,))
        child = tp.input("child", (2,), (inner,), "int32")
        w, u = tp.input("w", (width, 3 * width)), tp.input("u", (2 * width, 5 * width))
        b = tp.input("b", (5 * width,))
        hc = tp.recurrent("hc", (2 * width,), (n,))
        below = hc.gather(n, child[n - leaf.size], within=slice(0, n))
        h, c = below.spatial[:, :width], below.spatial[:, width:]
        at_leaf = cell(x[n] @ w + b.spatial[: 3 * width], width)
        above = cell(h.reshape((2 * width,)) @ u + b, width, c)
        hc[n] = tp.cases((n < leaf.size, at_leaf), above)
        h = hc.spatial[:width]
        loss = (h * h).sum()[0 : n.size].sum()
        tp.output("h", h)
        tp.output("loss", loss)
        if gradients:
            for name, gradient in zip("xwub", tp.grad(loss, [x, w, u, b])):
                tp.output(f"d{name}", gradient)
    return program


def cell(gates: tp.RecurrentTensor, width: int, below: tp.RecurrentTensor | None = None) -> tp.RecurrentTensor:
    """h and c, given c of both children."""
    u, i, o = (gates.spatial[at * width : (at + 1) * width] for at in range(3))
    c = tp.sigmoid(i) * tp.tanh(u)
    if below is not None:
        forget = tp.sigmoid(gates.spatial[3 * width :]).reshape((2, width))
        c = c + (forget * below).sum(axis=0)
    return tp.concatenate([tp.sigmoid(o) * tp.tanh(c), c])


def compiled(width: int, gradients: bool, backend: str, **options: Any) -> tp.Executable:
    return tp.compile(tree_lstm(width, gradients), backend=backend, options=tp.Options(**options))


def given(run: tp.Executable, width: int, batches: Iterable[Forest]) -> list[dict[str, Any]]:
    """By batch what it is run on: the backend's arrays, but for the structure."""
    placed = run.device_put(**weights(width))
    return [{**placed, **run.device_put(x=inputs(each.leaves, width)), "child": each.child} for each in batches]


def outputs(run: tp.Executable, arrays: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """Outputs that are computed."""
    found = dict(run(**arrays))
    return import_module("jax").block_until_ready(found) if backend == "jax" else found


def prepare(
    width: int, trees: int, gradients: bool, backend: str, mapping: Mapping[str, str] | None = None
) -> Prepared:
    run = compiled(width, gradients, backend, mapping=mapping)
    (arrays,) = given(run, width, [forest(trees)])
    return Prepared(partial(outputs, run, arrays, backend), as_numpy, _inspector(run, arrays))


def as_numpy(found: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(each) for name, each in found.items()}


def _inspector(run: tp.Executable, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What finds the order of a run in tiles, of a run that is one."""
    engine = run._engine
    assert isinstance(engine, CompiledEngine)
    arguments, tiles = run._arguments(arrays, None, None, 0, None), engine.tiles
    if tiles is None or tiles.of(arguments, engine.points_read(arguments)) is None:
        return {}
    return {"inspector": lambda: tiles.of(arguments, engine.points_read(arguments))}
