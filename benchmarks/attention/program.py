"""A small decoder, greedy from its first token or a prompt: attention over all that was said, or the last `window`
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import tempo as tp
from tempo.dtypes import to_numpy

Array = np.ndarray


@dataclass(frozen=True)
class Config:
    layers: int = 4
    width: int = 256
    heads: int = 8
    kv_heads: int = 8
    batch: int = 4
    vocabulary: int = 256
    window: int | None = None
    dtype: str = "float32"

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """A layer's matrices, input to output."""
        return {
            "wq": (self.width, self.width),
            "wk": (self.width, self.kv_width),
            "wv": (self.width, self.kv_width),
            "wo": (self.width, self.width),
            "up": (self.width, 4 * self.width),
            "down": (4 * self.width, self.width),
        }

    def scaled(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """The shapes of all weights, and the spread of their numbers."""
        layers = {name: ((self.layers, *shape), shape[0] ** -0.5) for name, shape in self.shapes().items()}
        return {**layers, "embedding": ((self.vocabulary, self.width), 1.0)}

    def weights(self) -> dict[str, Array]:
        random, dtype = np.random.default_rng(0), to_numpy(self.dtype)
        return {
            name: (random.standard_normal(shape) * scale).astype(np.float32).astype(dtype)
            for name, (shape, scale) in self.scaled().items()
        }

    def bytes_read(self, length: int) -> int:
        """What decoding `length` tokens must read: for each of them weights, and what it attends to."""
        weights = self.layers * sum(map(math.prod, self.shapes().values())) + self.vocabulary * self.width
        seen = np.minimum(np.arange(1, length), self.window or length).sum()
        return to_numpy(self.dtype).itemsize * int(
            weights * (length - 1) + seen * 2 * self.layers * self.batch * self.kv_width
        )

    def start(self) -> Array:
        return np.arange(self.batch, dtype=np.int32)

    def prompt(self, length: int) -> Array:
        return np.random.default_rng(1).integers(0, self.vocabulary, (self.batch, length)).astype(np.int32)


def decoder(config: Config, prompted: bool = False) -> tp.Program:
    """`prompted`: from `prompt`, as many tokens as its dim `p` has, else from one, `start`."""
    with tp.Program("decoder") as program:
        b, l, t = tp.dims("b l t")
        dtype = getattr(tp, config.dtype)
        w = {name: tp.input(name, shape, (l,), dtype=dtype) for name, shape in config.shapes().items()}
        embedding = tp.input("embedding", (config.vocabulary, config.width), dtype=dtype)
        token = tp.recurrent("token", (), (b, t), dtype=tp.int32)
        x = tp.recurrent("x", (config.width,), (b, l, t), dtype=dtype)  # what enters layer l
        x[b, 0, t] = embedding.spatial[token]
        normed = tp.rms_norm(x, axis=-1)
        q = (normed @ w["wq"]).reshape(config.heads, config.head)
        k, v = ((normed @ w[name]).reshape(config.kv_heads, config.head) for name in ("wk", "wv"))
        seen = tp.nn.attention(q, k, v, t, window=config.window)
        mixed = x + seen.reshape(config.width) @ w["wo"]
        y = mixed + tp.silu(tp.rms_norm(mixed, axis=-1) @ w["up"]) @ w["down"]
        x[b, l + 1, t] = y
        logits = embedding @ tp.rms_norm(y[b, l.size - 1, t], axis=-1)
        if prompted:
            p = tp.dim("p")
            token[t < p.size] = tp.input("prompt", (), (b, p), dtype=tp.int32)[b, t]
        else:
            token[b, 0] = tp.input("start", (), (b,), dtype=tp.int32)
        token[b, t + 1] = logits.argmax(axis=-1)
        tp.output("token", token)
    return program


def sizes(config: Config, length: int) -> Mapping[str, int]:
    return {"b": config.batch, "l": config.layers, "t": length}
