"""Losses that gradients are proven on: every way of reading a tensor, and finite differences to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tempo as tp
from tempo.conformance.target import Array

STEP = 1e-6  # half the distance of two losses whose difference is a derivative, in float64


def differences(loss: Callable[..., float], arrays: Mapping[str, Any], name: str) -> Array:
    """Of every element of one array: how much the loss changes with it, by central differences."""
    array = np.asarray(arrays[name])
    found = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        ends = []
        for sign in (1, -1):
            moved = array.copy()
            moved[place] += sign * STEP
            ends.append(loss(**{**arrays, name: moved}))
        found[place] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def reads(s: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> dict[str, tp.RecurrentTensor]:
    """Losses of shape () that read `x`, of domain (s, t) and shape (3,), in every way; s has 5 points and t has 6."""

    def sum_of(value: tp.RecurrentTensor) -> tp.RecurrentTensor:
        scale = tp.sin(tp.as_tensor(t, dtype=x.dtype) * 2 + tp.as_tensor(s, dtype=x.dtype))
        total: tp.RecurrentTensor = (value**2 * scale).sum() + value.sum()
        return total

    inner = (t >= 1) & (t < t.size - 1)
    weights = tp.constant([0.5, -1.0, 2.0], dtype=x.dtype)
    past = x[s, 0 : t + 1].T.reshape(1, 3, t + 1)
    taps = tp.constant(np.linspace(-1, 1, 24).reshape(1, 3, 8), dtype=x.dtype)
    return {
        "itself": sum_of(x),
        "constant": sum_of(x[0, 2]),
        "last": sum_of(x[s.size - 1, -1]),
        "earlier": tp.cases((t >= 1, sum_of(x[s, t - 1])), 0.0),
        "later": tp.cases((t < t.size - 2, sum_of(x[s, t + 2])), 0.0),
        "earlier and later": tp.cases((inner, sum_of(x[s, t - 1] * x[s, t + 1])), 0.0),
        "reversed": sum_of(x[s, t.size - 1 - t]),
        "whole": sum_of(x[s, 0 : t.size]),
        "both whole": sum_of(x[:, :]),
        "constant range": sum_of(x[s, 1:4]),
        "constant ranges": sum_of(x[2:4, 1:5]),
        "prefix": sum_of(x[s, 0 : t + 1]),
        "shorter prefix": sum_of(x[s, 0:t]),
        "suffix": sum_of(x[s, t : t.size]),
        "window": sum_of(x[s, tp.max(t - 2, 0) : t + 1]),
        "forward window": sum_of(x[s, t : tp.min(t + 3, t.size)]),
        "fixed window": tp.cases((t < t.size - 2, sum_of(x[s, t : t + 3])), 0.0),
        "blocks": sum_of(x[s, t // 2 * 2 : tp.min(t // 2 * 2 + 2, t.size)]),
        "stride": tp.cases((t < 3, sum_of(x[s, 2 * t])), 0.0),
        "stride from behind": tp.cases((t < 3, sum_of(x[s, 5 - 2 * t])), 0.0),
        "quotient": sum_of(x[s, t // 2]),
        "remainder": sum_of(x[s, t % 3]),
        "remainder of both": sum_of(x[s, (t + s) % 4]),
        "clamped": sum_of(x[s, tp.min(t + 2, t.size - 1)]),
        "clamped twice": sum_of(x[s, tp.max(tp.min(t + 2, t.size - 1) - 3, 0)]),
        "diagonal": tp.cases((t < s.size, sum_of(x[t, t])), 0.0),
        "two prefixes": tp.cases((t <= s, sum_of(x[0 : t + 1, 0 : t + 1])), 0.0),
        "triangle": tp.cases((t + s < t.size, sum_of(x[s, t + s])), 0.0),
        "convolved": sum_of(tp.conv(past, taps.spatial[:, :, 2:4], strides=2, padding=((1, 2),))),
        "kernel": sum_of(tp.conv(taps, past, dilation=2, padding=3)),
        "axis": sum_of(x.spatial[1]),
        "axis at a dim": tp.cases((t < 3, x.spatial[t] * x.spatial[2 - t]), 0.0),
        "axis up to a dim": tp.cases((t < 3, sum_of(x.spatial[0 : t + 1])), 0.0),
        "axis from a dim": tp.cases((t < 2, sum_of(x.spatial[t : t + 2])), 0.0),
        "axis backwards": sum_of(x.spatial[::-1] * weights),
        "axis by twos": sum_of(x.spatial[::2]),
    }


def _names() -> tuple[str, ...]:
    with tp.Program("names"):
        s, t = tp.dims("s t")
        return tuple(reads(s, t, tp.input("x", (3,), (s, t))))


SIZES = {"s": 5, "t": 6}
READS = _names()
