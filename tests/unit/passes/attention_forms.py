"""Attention spelled out, for passes that find it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tempo as tp
from tempo.passes.composites import Decompose
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.passes.simplify.simplify import Canonicalize, Simplify
from tempo.sdg.graph import Graph

T = tp.RecurrentTensor
Form = Callable[[T, T, T, tp.Dim], T]
SLOPES = np.array([[1.0, 0.5], [0.25, 0.125]], np.float32)


def graph_of(form: Form, shapes: tuple[tuple[int, ...], ...]) -> Graph:
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, shape, (t,)) for name, shape in zip("qkv", shapes))
        tp.output("out", form(q, k, v, t))
    graph = without_dead_nodes(program.graph())
    for each in (Decompose(), Canonicalize(), Simplify()):
        graph = each.apply(graph, PassContext())
    return graph


def grouped(q: T, k: T, v: T, t: tp.Dim) -> T:
    scores = tp.einsum("hgd,shd->hgs", q, k[0 : t + 1]) / 2.0
    return tp.einsum("hgs,shd->hgd", tp.softmax(scores, axis=-1), v[0 : t + 1])


def grouped_keys_first(q: T, k: T, v: T, t: tp.Dim) -> T:
    scores = tp.einsum("shd,hgd->shg", k[0 : t + 1], q)
    return tp.einsum("shd,shg->hdg", v[0 : t + 1], tp.softmax(scores, axis=0))


def grouped_with_slopes(q: T, k: T, v: T, t: tp.Dim) -> T:
    far = (tp.arange(t + 1) - t).astype(tp.float32)
    scores = tp.einsum("hgd,shd->hgs", q, k[0 : t + 1]) + tp.constant(SLOPES).reshape(2, 2, 1) * far
    return tp.einsum("hgs,shd->hgd", tp.softmax(scores, axis=-1), v[0 : t + 1])


def of_stored(q: T, k: T, v: T, t: tp.Dim) -> T:
    """Keys and values are stored in 8 bits, as which a contraction reads them; the same for all queries."""
    keys, values = ((10 * each[0]).astype(tp.int8).astype(tp.float32) for each in (k, v))
    return tp.softmax((q @ keys.T) * 0.1, axis=-1) @ values
