"""The equations that families share. Each is over one point, a layer and a position; `x` is (width,) there.

Weights lie as checkpoints have them, output by input, and are read as `x @ w.T`. Where they are of fewer bits than
float32, products are of their dtype and norms and the softmax's sums of float32, as those who trained them do.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tempo as tp
from tempo.llm.weights import SCALE

Weights = Mapping[str, tp.RecurrentTensor]

ACTIVATIONS: Mapping[str, Callable[[tp.RecurrentTensor], tp.RecurrentTensor]] = {
    "silu": tp.silu,
    "gelu": tp.gelu,
    "gelu_new": lambda x: tp.gelu(x, "tanh"),
    "gelu_pytorch_tanh": lambda x: tp.gelu(x, "tanh"),
    "relu": tp.relu,
}
"""By the names that checkpoints give them."""


@dataclass(eq=False)
class Past:
    """What an earlier run has made of the first points of t, as many as `n` has: nothing is computed there again.

    `key` and `value`, (kv_heads, head_dim), are its inputs over (l, n), or (b, l, n). `attended` are the keys and the
    values of all points, the earlier run's and this one's, once the equations of a family are written.
    """

    n: tp.Dim
    key: tp.RecurrentTensor
    value: tp.RecurrentTensor
    attended: tuple[tp.RecurrentTensor, ...] = ()

    def with_new(self, t: tp.Dim, *made: tp.RecurrentTensor) -> tuple[tp.RecurrentTensor, ...]:
        """Keys and values of all points, of which these are the new ones."""
        earlier = (each.at(**{self.n.name: t}) for each in (self.key, self.value))
        self.attended = tuple(tp.cases((t < self.n.size, old), new) for old, new in zip(earlier, made))
        return self.attended


@dataclass(frozen=True)
class Ancestors:
    """Where texts share their beginnings, as the beams of a search do: which of those along `k` stood at each position
    where this one stands now, `beam`, int32 over (..., k, t), (t.size,)."""

    k: tp.Dim
    beam: tp.RecurrentTensor


@dataclass(frozen=True)
class Dims:
    """Layers, positions, and, where several texts are read at once, their rows; declared in the order b, l, t,
    behind `over`: dims that the weights vary along beside `l`, such as the iterations of a training.

    `given` is the condition over t under which tokens are known beforehand (a prompt's), or True where all are: there
    a layer is computed for many at once, and what serves many may have another form than what serves one. `past` is
    what an earlier run has made of the first points. `ancestors`: whose keys and values a text sees that goes on from
    another's; up to the end of what is given each has its own.
    """

    l: tp.Dim
    t: tp.Dim
    b: tp.Dim | None = None
    given: Any = False
    over: tuple[tp.Dim, ...] = ()
    past: Past | None = None
    ancestors: Ancestors | None = None

    @property
    def outer(self) -> tuple[tp.Dim, ...]:
        """What texts are read over: iterations, and rows."""
        return self.over if self.b is None else (*self.over, self.b)

    @property
    def points(self) -> tuple[tp.Dim, ...]:
        return (*self.outer, self.l, self.t)

    def layer(self, l: Any) -> tuple[Any, ...]:
        """The index of a point at the layer `l`, this row and position: `x[dims.layer(l + 1)]`."""
        return (*self.outer, l, self.t)


def position(t: tp.Dim, first: tp.RecurrentTensor | None) -> tp.RecurrentTensor:
    """int32: how many tokens of its text stand before the point t; less than 0 where padding precedes the text."""
    return tp.as_tensor(t) if first is None else tp.as_tensor(t) - first


def linear(x: tp.RecurrentTensor, w: Weights, name: str) -> tp.RecurrentTensor:
    """`W x + b`, with a bias where there is one: (..., inputs) to (..., outputs)."""
    y = product(lambda x, matrix: x @ matrix.T, x, w[name], scale_of(w, name))
    return y + w[f"{name}_bias"] if f"{name}_bias" in w else y


def scale_of(w: Weights, name: str) -> tp.RecurrentTensor | None:
    """That of each output of a matrix that is quantized."""
    return w.get(name + SCALE)


def product(
    multiply: Callable[[tp.RecurrentTensor, tp.RecurrentTensor], tp.RecurrentTensor],
    x: tp.RecurrentTensor,
    matrix: tp.RecurrentTensor,
    scale: tp.RecurrentTensor | None,
) -> tp.RecurrentTensor:
    """`multiply(x, matrix)`, of the dtype of `x`. A matrix with a `scale` is multiplied as it is, and what comes out by
    that: float16 would not hold it before."""
    if scale is None:
        return multiply(x, matrix)
    wide = tp.float32 if x.dtype == tp.float16 else x.dtype
    return (multiply(x.astype(wide), matrix.astype(wide)).astype(tp.float32) * scale).astype(x.dtype)


def rms_norm(x: tp.RecurrentTensor, scale: tp.RecurrentTensor, epsilon: float) -> tp.RecurrentTensor:
    """Source: Zhang and Sennrich 2019, equation 4."""
    return tp.rms_norm(x.astype(tp.float32), axis=-1, epsilon=epsilon).astype(x.dtype) * scale


def layer_norm(x: tp.RecurrentTensor, w: Weights, name: str, epsilon: float) -> tp.RecurrentTensor:
    """Source: Ba, Kiros and Hinton 2016, section 3."""
    normed = tp.layer_norm(x.astype(tp.float32), axis=-1, epsilon=epsilon)
    return (normed * w[name] + w[f"{name}_bias"]).astype(x.dtype)


def heads(x: tp.RecurrentTensor, count: int) -> tp.RecurrentTensor:
    """(count * width,) to (count, width)."""
    return x.reshape(count, -1)


def attention(
    query: tp.RecurrentTensor,
    key: tp.RecurrentTensor,
    value: tp.RecurrentTensor,
    dims: Dims,
    *,
    window: int | None = None,
    scale: float | None = None,
    first: tp.RecurrentTensor | None = None,
) -> tp.RecurrentTensor:
    """Of each head of queries over the keys up to its own position, `window` of them at most: (heads * width,).

    What stands before `first` in a row is padding and is not seen. What is made there is of no use, but it is finite:
    the scores of what is hidden are a number, so that 0 times what stands there is 0.
    """
    t = dims.t
    if dims.past is not None:
        key, value = dims.past.with_new(t, key, value)
    seen = None if first is None else tp.as_tensor(t) >= first
    attended: tp.RecurrentTensor = tp.nn.attention(query, key, value, t, window=window, scale=scale, mask=seen)
    if dims.ancestors is not None:
        shared = _attention_to_ancestors(query, key, value, t, dims.ancestors, window, scale, seen)
        attended = tp.cases((dims.given, attended), shared)
    return attended.reshape(-1)


def _attention_to_ancestors(
    query: tp.RecurrentTensor,
    key: tp.RecurrentTensor,
    value: tp.RecurrentTensor,
    t: tp.Dim,
    ancestors: Ancestors,
    window: int | None,
    scale: float | None,
    mask: tp.RecurrentTensor | None,
) -> tp.RecurrentTensor:
    """The same over the keys of all texts along `k`, of which at each position one counts: (heads, width).

    So the keys of all are read once for all queries, as they lie, and none is moved when a text goes on from another.
    """
    k, (heads, width), kv_heads = ancestors.k, query.shape, key.shape[0]
    seen = slice(0 if window is None else tp.max(t + 1 - window, 0), t + 1)
    at = {k.name: slice(0, k.size), t.name: seen}
    keys, values = key.at(**at), value.at(**at)  # (k, points, kv_heads, width)
    grouped = query.reshape(kv_heads, -1, width) * (width**-0.5 if scale is None else scale)
    scores = tp.einsum("hgd,kshd->hgks", grouped, keys)
    counts = ancestors.beam.spatial[seen] == tp.arange(k.size).reshape(-1, 1)
    if mask is not None:
        counts = counts & mask.at(**{t.name: seen})
    weights = tp.softmax(tp.where(counts, scores, -6e4 if scores.dtype == tp.float16 else -1e30), axis=(-2, -1))
    return tp.einsum("hgks,kshd->hgd", weights, values).reshape(heads, -1)


def at_layers(
    l: tp.Dim, chosen: Sequence[bool], there: tp.RecurrentTensor, elsewhere: tp.RecurrentTensor
) -> tp.RecurrentTensor:
    """One value at the chosen layers, the other at the rest; each layer demands its own alone."""
    if not any(chosen):
        return elsewhere
    return there if all(chosen) else tp.cases((_layers(l, chosen), there), elsewhere)


def _layers(l: tp.Dim, chosen: Sequence[bool]) -> Any:
    """The condition that holds where `chosen` says so: a first or last stretch, every so many, or one by one."""
    places, after = [at for at, each in enumerate(chosen) if each], len(chosen)
    if places[-1] == len(places) - 1:
        return l < len(places)
    if places == list(range(places[0], after)):
        return l >= places[0]
    for period in range(places[0] + 1, after):
        if places == list(range(places[0], after, period)):
            return l % period == places[0]
    return functools.reduce(operator.or_, (l == at for at in places))


def gated_mlp(x: tp.RecurrentTensor, w: Weights, activation: str = "silu") -> tp.RecurrentTensor:
    """SwiGLU or GeGLU, by the activation. Source: Shazeer 2020, equation 6."""
    return linear(ACTIVATIONS[activation](linear(x, w, "gate")) * linear(x, w, "up"), w, "down")


def experts(x: tp.RecurrentTensor, w: Weights, count: int, activation: str, given: Any) -> tp.RecurrentTensor:
    """The `count` gated maps along the dim `e` that a router finds best for `x`, by their shares: (width,).

    Only they are read and computed for a token that is made; tokens that are given (`Dims.given`) need most experts
    between them, and all go through all, so that each is read once, not once for every token.
    Source: Jiang et al. 2024, "Mixtral of Experts", section 2.1.
    """
    best = tp.top_k(tp.softmax(linear(x, w, "router").astype(tp.float32)), count)
    share = best.values / best.values.sum(keepdims=True)
    names = ("gate", "up", "down")
    scales = [scale_of(w, name) for name in names]
    chosen = [scale if scale is None else scale.gather("e", best.indices) for scale in scales]
    one = _mixture(x, [w[name].gather("e", best.indices) for name in names], chosen, share, activation)
    if given is False:
        return one
    every = [w[name].at(e=slice(0, None)) for name in names]
    all_scales = [scale if scale is None else scale.at(e=slice(0, None)) for scale in scales]
    spread = (tp.one_hot(best.indices, w["router"].shape[0]) * share.reshape(count, 1)).sum(axis=0)
    many = _mixture(x, every, all_scales, spread, activation)
    return many if given is True else tp.cases((given, many), one)


def _mixture(
    x: tp.RecurrentTensor,
    maps: Sequence[tp.RecurrentTensor],
    scales: Sequence[tp.RecurrentTensor | None],
    share: tp.RecurrentTensor,
    activation: str,
) -> tp.RecurrentTensor:
    """The gated maps along the first axis of each of `maps` (gate, up, down), by their shares."""

    def of_one(x: tp.RecurrentTensor, matrices: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.einsum("eih,h->ei", matrices, x)

    def of_each(x: tp.RecurrentTensor, matrices: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.einsum("ehi,ei->eh", matrices, x)

    gate, up = (product(of_one, x, each, scale) for each, scale in zip(maps[:2], scales))
    each = product(of_each, ACTIVATIONS[activation](gate) * up, maps[2], scales[2]) * share.reshape(-1, 1)
    return each.astype(x.dtype).sum(axis=0)
