"""Attention over the points of a dim: causal, windowed or over all of them, one changed argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tempo as tp
from tempo.nn.init import Init
from tempo.nn.layers import Linear, Module

Bias = Callable[[tp.RecurrentTensor], tp.RecurrentTensor]

_HIDDEN = {tp.float16: -6e4}
"""The score of what a mask hides, by dtype. A number, so that where all is hidden the result is one, too."""


def attention(
    query: tp.RecurrentTensor,
    key: tp.RecurrentTensor,
    value: tp.RecurrentTensor,
    dim: tp.Dim,
    *,
    window: int | None = None,
    causal: bool = True,
    scale: float | None = None,
    bias: Bias | None = None,
    mask: tp.RecurrentTensor | None = None,
) -> tp.RecurrentTensor:
    """`softmax(q k^T * scale + bias) v` over the points of `dim` that the query at `dim` may see.

    `query` (heads, width), `key` (kv_heads, width) and `value` (kv_heads, out) with heads a multiple of kv_heads: each
    key serves a group of queries. Result (heads, out). `causal`: the points up to its own, with `window` the last so
    many of them; else all, with `window` those less than so many points away. `scale` is 1 / sqrt(width) unless given.
    `bias` gives, for the points seen, an int32 tensor of shape (points,), what is added to the scores: (points,) or
    (heads, points); `alibi` is one. `mask`: a bool over `dim`; where it is False the key is not seen (padding).
    Backends that have a kernel run it on the points that are seen; the form is the one anybody would write.
    Source: Vaswani et al. 2017, section 3.2.1; grouped queries: Ainslie et al. 2023.
    """
    heads, width = query.shape
    kv_heads = key.shape[0]
    if not all(isinstance(size, int) for size in (heads, width, kv_heads)):
        raise tp.ShapeError(f"attention needs heads and widths that are numbers, not {query.shape} and {key.shape}")
    assert isinstance(heads, int) and isinstance(width, int) and isinstance(kv_heads, int)  # noqa: PT018
    if heads % kv_heads:
        raise tp.ShapeError(f"{heads} heads of queries are no multiple of {kv_heads} heads of keys")
    groups = heads // kv_heads
    seen = _seen(dim, window, causal)
    keys, values = key.at(**{dim.name: seen}), value.at(**{dim.name: seen})  # (points, kv_heads, width)
    grouped = query.reshape(kv_heads, groups, width) * (width**-0.5 if scale is None else scale)
    scores = tp.einsum("hgd,shd->hgs", grouped, keys)
    if bias is not None:
        added = bias(tp.arange(seen.stop - seen.start) + seen.start)
        scores = scores + (added if added.ndim < 2 else added.reshape(kv_heads, groups, seen.stop - seen.start))
    if mask is not None:
        scores = tp.where(mask.at(**{dim.name: seen}), scores, _HIDDEN.get(scores.dtype, -1e30))
    weights = tp.softmax(scores, axis=-1)
    return tp.einsum("hgs,shd->hgd", weights, values).reshape(heads, value.shape[-1])


def alibi(heads: int, dim: tp.Dim) -> Bias:
    """A bias of `-slope * distance`, with slopes 2^(-8 / heads), 2^(-16 / heads), ... down to 2^-8.

    Source: Press et al. 2022, section 3. `heads` is a power of 2 there; any number is taken here.
    """
    slopes = tp.constant(np.exp2(-8.0 * np.arange(1, heads + 1) / heads).astype(np.float32)).reshape(heads, 1)

    def bias(at: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return -slopes * abs(at - dim).astype(tp.float32)

    return bias


def _seen(dim: tp.Dim, window: int | None, causal: bool) -> slice:
    if window is None:
        return slice(0, dim + 1 if causal else dim.size)
    return slice(tp.max(dim + 1 - window, 0), dim + 1 if causal else tp.min(dim + window, dim.size))


class MultiHeadAttention(Module):
    """Queries, keys, values from `x` (width,), attention over `dim`, and a map of all heads back to (width,)."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        name: str,
        kv_heads: int | None = None,
        head_width: int | None = None,
        bias: bool = False,
        dims: Any = (),
        dtype: Any = tp.float32,
        weight_init: Init | None = None,
    ) -> None:
        super().__init__(name, dims, dtype)
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.head_width = head_width or width // heads
        if head_width is None and width % heads:
            raise tp.ShapeError(f"{heads} heads do not divide the width {width}; say head_width=")
        inner = {"query": self.heads, "key": self.kv_heads, "value": self.kv_heads}
        options: dict[str, Any] = {"bias": bias, "dims": dims, "dtype": dtype, "weight_init": weight_init}
        self.maps = {
            part: self.submodule(Linear(width, count * self.head_width, name=f"{name}.{part}", **options))
            for part, count in inner.items()
        }
        self.out = self.submodule(Linear(self.heads * self.head_width, width, name=f"{name}.out", **options))

    def __call__(
        self, x: tp.RecurrentTensor, dim: tp.Dim, *, window: int | None = None, causal: bool = True
    ) -> tp.RecurrentTensor:
        """`x` (width,) at every point of `dim`; result (width,)."""
        query = self.maps["query"](x).reshape(self.heads, self.head_width)
        key = self.maps["key"](x).reshape(self.kv_heads, self.head_width)
        value = self.maps["value"](x).reshape(self.kv_heads, self.head_width)
        seen = attention(query, key, value, dim, window=window, causal=causal)
        return self.out(seen.reshape(self.heads * self.head_width))  # type: ignore[no-any-return]
