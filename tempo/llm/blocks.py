"""The equations that families share. Each is over one point, a layer and a position; `x` is (width,) there.

Weights lie as checkpoints have them, output by input, and are read as `x @ w.T`. Where they are of fewer bits than
float32, products are of their dtype and norms and the softmax's sums of float32, as those who trained them do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tempo as tp

Weights = Mapping[str, tp.RecurrentTensor]


@dataclass(frozen=True)
class Dims:
    """Layers, positions, and, where several texts are read at once, their rows; declared in the order b, l, t."""

    l: tp.Dim
    t: tp.Dim
    b: tp.Dim | None = None

    @property
    def points(self) -> tuple[tp.Dim, ...]:
        return (self.l, self.t) if self.b is None else (self.b, self.l, self.t)

    def layer(self, l: Any) -> tuple[Any, ...]:
        """The index of a point at the layer `l`, this row and position: `x[dims.layer(l + 1)]`."""
        return (l, self.t) if self.b is None else (self.b, l, self.t)


def position(t: tp.Dim, first: tp.RecurrentTensor | None) -> tp.RecurrentTensor:
    """int32: how many tokens of its text stand before the point t; less than 0 where padding precedes the text."""
    return tp.as_tensor(t) if first is None else tp.as_tensor(t) - first


def linear(x: tp.RecurrentTensor, w: Weights, name: str) -> tp.RecurrentTensor:
    """`W x + b`, with a bias where there is one: (..., inputs) to (..., outputs)."""
    y = x @ w[name].T
    return y + w[f"{name}_bias"] if f"{name}_bias" in w else y


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
    t: tp.Dim,
    *,
    window: int | None = None,
    scale: float | None = None,
    first: tp.RecurrentTensor | None = None,
) -> tp.RecurrentTensor:
    """Of each head of queries over the keys up to its own position, `window` of them at most: (heads * width,).

    What stands before `first` in a row is padding and is not seen, but by padding: it sees itself, and stays finite.
    """
    seen = None if first is None else tp.as_tensor(t) >= first
    attended: tp.RecurrentTensor = tp.nn.attention(query, key, value, t, window=window, scale=scale, mask=seen)
    return attended.reshape(-1)
