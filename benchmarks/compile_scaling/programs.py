"""The programs that are compiled: many recurrences, many layers, many dims, and models."""

from __future__ import annotations

import math

import numpy as np

import tempo as tp

WIDTH = 8


def recurrences(count: int, chained: bool) -> tp.Program:
    """`h[t + 1] = tanh(h[t] w + x[t])`, `count` of them, each on one input or on the one before."""
    with tp.Program("recurrences") as made:
        t = tp.dim("t")
        x = tp.input("x", (WIDTH,), (t,))
        below = x
        for number in range(count):
            w = tp.input(f"w{number}", (WIDTH, WIDTH), ())
            h = tp.recurrent(f"h{number}", (WIDTH,), (t,))
            h[0] = tp.zeros((WIDTH,))
            h[t + 1] = tp.tanh(h @ w + below)
            if chained:
                below = h
            else:
                tp.output(f"h{number}", h[t.size - 1])
        if chained:
            tp.output("h", h[t.size - 1])
    return made


def deep(layers: int) -> tp.Program:
    """A chain of layers, written out, and the gradients of its weights."""
    with tp.Program("deep") as made:
        b = tp.dim("b")
        x = tp.input("x", (WIDTH,), (b,))
        weights = {f"w{number}": tp.input(f"w{number}", (WIDTH, WIDTH), ()) for number in range(layers)}
        for weight in weights.values():
            x = tp.tanh(x @ weight)
        for name, gradient in tp.grad((x * x).sum(), weights).items():
            tp.output(name, gradient)
    return made


def lattice(count: int) -> tp.Program:
    """The number of ways to a point of a grid of so many dims: each point is the sum of those before it."""
    with tp.Program("lattice") as made:
        dims = tp.dims(" ".join(f"d{number}" for number in range(count)))
        ways = tp.recurrent("ways", (), dims)
        ways[tuple(0 for _ in dims)] = 1.0
        before = [tp.cases((dim > 0, ways.at(**{dim.name: dim - 1})), 0.0) for dim in dims]
        ways[dims] = sum(before[1:], before[0])
        tp.output("ways", ways[tuple(dim.size - 1 for dim in dims)])
    return made


def carried(count: int) -> tp.Program:
    """A recurrence along the first of so many dims."""
    with tp.Program("carried") as made:
        dims = tp.dims(" ".join(f"d{number}" for number in range(count)))
        x = tp.input("x", (), dims)
        h = tp.recurrent("h", (), dims)
        h[(0, *dims[1:])] = x
        h[(dims[0] + 1, *dims[1:])] = tp.tanh(h) + x
        tp.output("h", h)
    return made


# -- speculative decoding ----------------------------------------------------------------------------------------------

VOCABULARY, HIDDEN, HEADS = 32, 16, 2
DRAFTED = 4
SIZE = HIDDEN // HEADS


def speculative(layers: int = 2, drafting: int = 1) -> tp.Program:
    """Each round a small transformer drafts tokens one by one, and a larger one looks at all of them at once.

    What that would have said itself is kept, up to the first difference, where its own token counts. Keys and values
    of drafts that were rejected stay where they are, and a mask hides them from later rounds.
    """
    with tp.Program("speculative") as made:
        r = tp.dim("r")
        j = tp.dim("j", DRAFTED)
        embedding = tp.input("embedding", (VOCABULARY, HIDDEN), ())
        first = tp.input("first", (), (), dtype=tp.int32)
        token = tp.recurrent("token", (), (r, j), dtype=tp.int32)
        accepted = tp.recurrent("accepted", (), (r, j), dtype=tp.bool_)
        start = tp.recurrent("start", (), (r,), dtype=tp.int32)  # the position of a round's first token
        following = tp.recurrent("following", (), (r,), dtype=tp.int32)

        def said(name: str, layers: int) -> tp.RecurrentTensor:
            """What a model of some layers says after every token of a round."""
            x = embedding.spatial[token]
            for layer in range(layers):
                x = block(f"{name}{layer}", x, start + j, accepted, (r, j))
            return (x @ tp.input(f"{name}.head", (HIDDEN, VOCABULARY), ())).argmax(axis=-1)

        drafted, best = said("draft", drafting), said("layer", layers)
        token[0, 0] = first
        token[r, 0] = following[r - 1]
        token[r, j] = drafted[r, j - 1]
        accepted[r, 0] = True
        accepted[r, j] = accepted[r, j - 1] & (best[r, j - 1] == token)
        count = accepted[r, 0 : j.size].sum(axis=0).astype(tp.int32)
        following[r] = best[r, 0 : j.size].spatial[count - 1]
        start[0] = 0
        start[r + 1] = start + count
        tp.output("token", token)
        tp.output("count", count)
    return made


def block(
    name: str,
    x: tp.RecurrentTensor,
    position: tp.RecurrentTensor,
    accepted: tp.RecurrentTensor,
    dims: tuple[tp.Dim, tp.Dim],
) -> tp.RecurrentTensor:
    """One layer: attention to what earlier rounds kept and to this round so far, then an MLP."""
    r, j = dims

    def weight(part: str, *shape: int) -> tp.RecurrentTensor:
        return tp.input(f"{name}.{part}", shape, ())

    frequencies = tp.constant(np.float32(100.0) ** -(np.arange(0, SIZE, 2, dtype=np.float32) / SIZE))
    angle = frequencies * position.astype(tp.float32)
    normed = rms_norm(x, weight("norm", HIDDEN))
    q = rotated((normed @ weight("q", HIDDEN, HIDDEN)).reshape(HEADS, SIZE), angle)
    k = rotated((normed @ weight("k", HIDDEN, HIDDEN)).reshape(HEADS, SIZE), angle)
    v = (normed @ weight("v", HIDDEN, HIDDEN)).reshape(HEADS, SIZE)
    earlier = tp.where(accepted[0:r, 0 : j.size], tp.einsum("hd,rjhd->hrj", q, k[0:r, 0 : j.size]), -1e9)
    here = tp.einsum("hd,jhd->hj", q, k[r, 0 : j + 1])
    scores = tp.concatenate([earlier.reshape(HEADS, r * DRAFTED), here], axis=-1) / math.sqrt(SIZE)
    seen = tp.concatenate([v[0:r, 0 : j.size].reshape(r * DRAFTED, HEADS, SIZE), v[r, 0 : j + 1]], axis=0)
    attended = tp.einsum("hs,shd->hd", tp.softmax(scores, axis=-1), seen).reshape(HIDDEN)
    mixed = x + attended @ weight("o", HIDDEN, HIDDEN)
    normed = rms_norm(mixed, weight("norm2", HIDDEN))
    return mixed + tp.silu(normed @ weight("up", HIDDEN, 2 * HIDDEN)) @ weight("down", 2 * HIDDEN, HIDDEN)


def rms_norm(x: tp.RecurrentTensor, scale: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return x * tp.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * scale


def rotated(x: tp.RecurrentTensor, angle: tp.RecurrentTensor) -> tp.RecurrentTensor:
    half = x.shape[-1] // 2
    a, b = x.spatial[..., :half], x.spatial[..., half:]
    return tp.concatenate([a * tp.cos(angle) - b * tp.sin(angle), b * tp.cos(angle) + a * tp.sin(angle)], axis=-1)


# -- training a transformer --------------------------------------------------------------------------------------------


def trained(layers: int = 2) -> tp.Program:
    """A transformer of a few layers that learns to tell the next token."""
    with tp.Program("trained") as made:
        i, t = tp.dims("i t")
        token = tp.input("token", (), (i, t), dtype=tp.int32)
        learned = {}

        def weight(name: str, *shape: int) -> tp.RecurrentTensor:
            learned[name] = tp.parameter(name, shape, init=np.full(shape, 0.01, np.float32), dims=(i,))
            return learned[name]

        embedding = weight("embedding", VOCABULARY, HIDDEN)
        x = embedding.spatial[token]
        for layer in range(layers):
            normed = rms_norm(x, weight(f"norm{layer}", HIDDEN))
            q, k, v = ((normed @ weight(f"{name}{layer}", HIDDEN, HIDDEN)).reshape(HEADS, SIZE) for name in "qkv")
            scores = tp.einsum("hd,shd->hs", q, k[i, 0 : t + 1]) / math.sqrt(SIZE)
            seen = tp.einsum("hs,shd->hd", tp.softmax(scores, axis=-1), v[i, 0 : t + 1]).reshape(HIDDEN)
            x = x + seen @ weight(f"o{layer}", HIDDEN, HIDDEN)
            normed = rms_norm(x, weight(f"norm_{layer}", HIDDEN))
            x = x + tp.silu(normed @ weight(f"up{layer}", HIDDEN, 32)) @ weight(f"down{layer}", 32, HIDDEN)
        logits = tp.log_softmax(x @ weight("head", HIDDEN, VOCABULARY), axis=-1)
        said = tp.cases((t < t.size - 1, logits.spatial[token[i, t + 1]]), 0.0)
        tp.optim.Adam(1e-3).minimize(-said[i, :].sum(), learned)
        tp.output("loss", -said[i, :].mean())
    return made
