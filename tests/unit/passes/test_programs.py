"""Lifting and static extents together, on programs in the language, against the reference evaluator."""

import numpy as np
import pytest

import tempo as tp
from tempo.passes.composites import Decompose
from tempo.passes.ragged.static_extents import StaticExtents
from tempo.passes.vectorize.search import Lift
from tests.unit.passes.equivalence import check

SIZES = tuple(
    {"b": b, "l": l, "t": t, "p": p} for b, l, t, p in ((1, 1, 1, 1), (2, 3, 5, 2), (3, 1, 2, 4), (2, 2, 4, 4))
)


class Both:
    """The two passes one after the other, as the pipeline runs them."""

    def apply(self, graph, context):
        return StaticExtents().apply(Lift().apply(Decompose().apply(graph, context), context).program, context)


def running_statistics(b, l, t, p):
    x = tp.input("x", (3, 2), (b, t))
    prefix = x[b, 0 : t + 1]
    tp.output("mean", prefix.mean(axis=0))
    tp.output("std", prefix.std(axis=(0, 2)))
    tp.output("max", x[b, tp.max(t - 3, 0) : t + 1].max(axis=0))
    tp.output("rest", x[b, t : t.size].sum(axis=0))
    tp.output("best", prefix.argmax(axis=0))


def softmax_over_a_prefix(b, l, t, p):
    x = tp.input("x", (4,), (b, t))
    weights = tp.softmax(x[b, 0 : t + 1], axis=0)
    tp.output("y", (weights * x[b, 0 : t + 1]).sum(axis=0))
    tp.output("logsumexp", tp.logsumexp(x[b, 0 : t + 1], axis=0))


def attention_over_layers(b, l, t, p):
    x = tp.input("x", (4,), (b, t))
    wq = tp.input("wq", (4, 2, 3), (l,))
    wk = tp.input("wk", (4, 2, 3), (l,))
    wv = tp.input("wv", (4, 2, 2), (l,))
    h = tp.recurrent("h", (4,), (b, l, t))
    h[b, 0, t] = x
    q = tp.einsum("d,dhk->hk", h, wq)
    k = tp.einsum("d,dhk->hk", h, wk)
    v = tp.einsum("d,dhk->hk", h, wv)
    scores = tp.einsum("hk,shk->hs", q, k[b, l, 0 : t + 1])
    mixed = tp.einsum("hs,shk->hk", tp.softmax(scores, axis=-1), v[b, l, 0 : t + 1])
    h[b, l + 1, t] = h + mixed.reshape((4,))
    tp.output("y", h[b, l.size - 1, t])


def prompt_and_generation(b, l, t, p):
    prompt = tp.input("prompt", (), (b, p), dtype=tp.int32)
    table = tp.input("table", (6, 3), ())
    tok = tp.recurrent("tok", (), (b, t), dtype=tp.int32)
    embedded = table.spatial[tok]
    context = embedded[b, 0 : t + 1].mean(axis=0)
    logits = tp.einsum("d,vd->v", context, table)
    tok[t < p.size] = prompt[b, tp.min(t, p.size - 1)]
    tok[True] = logits[b, tp.max(t - 1, 0)].argmax(axis=0)
    tp.output("tok", tok)


def discounted_returns_backwards(b, l, t, p):
    r = tp.input("r", (), (b, t))
    g = tp.recurrent("g", (), (b, t))
    g[b, t.size - 1] = r
    g[True] = r + 0.9 * g[b, tp.min(t + 1, t.size - 1)]
    tp.output("g", g)
    tp.output("advantage", g - g[:, t].mean(axis=0))


def positions_and_reshapes(b, l, t, p):
    x = tp.input("x", (2,), (b, t))
    prefix = x[b, 0 : t + 1]
    ages = tp.arange(t + 1) * 2 - t
    tp.output("aged", tp.einsum("sd,s->d", prefix, ages.astype(tp.float32)))
    tp.output("flat", tp.cumsum(prefix.reshape((2 * (t + 1),)), axis=0).max(axis=0))
    tp.output("sorted", (tp.sort(prefix, axis=0) * tp.flip(prefix, axis=0)).sum(axis=0))
    tp.output("both", tp.concatenate([prefix, x[b, t : t.size]], axis=0).sum(axis=0))
    tp.output("outer", tp.einsum("sd,ud->d", prefix, prefix))


def random_draws(b, l, t, p):
    noise = tp.random.uniform((3,), dims=(b, t))
    tp.output("y", noise[b, 0 : t + 1].max(axis=0) + b + 2 * t)


def parameters(b, l, t, p):
    x = tp.input("x", (3,), (b, t))
    w = tp.parameter("w", (3,), np.ones(3, np.float32), dims=(t,))
    error = (w * x).sum(axis=0)
    w[t + 1] = w - 0.1 * (error * x)[:, t].mean(axis=0)
    tp.output("w", w)


PROGRAMS = [
    running_statistics,
    softmax_over_a_prefix,
    attention_over_layers,
    prompt_and_generation,
    discounted_returns_backwards,
    positions_and_reshapes,
    random_draws,
    parameters,
]


@pytest.mark.parametrize("declare", PROGRAMS, ids=lambda declare: declare.__name__)
def test_both_passes_keep_the_meaning(declare):
    with tp.Program(declare.__name__) as program:
        declare(*tp.dims("b l t p"))
    after = check(Both(), program.graph(), *SIZES)
    assert not any(symbol.name == "b" for node in after.nodes.values() for symbol in node.domain)
