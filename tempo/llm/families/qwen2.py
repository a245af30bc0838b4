"""Qwen 2 and 2.5: Llama's layer with biases on queries, keys and values, and a window in the last layers.

Source: Yang et al. 2024, "Qwen2 technical report", section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import tempo as tp
from tempo.llm.blocks import Dims, Weights, at_layers, attention, gated_mlp, heads, linear, position, rms_norm
from tempo.llm.config import Config
from tempo.llm.families.family import Family, windowed_layers
from tempo.llm.rotary import Rotary, read_rotary, rotate
from tempo.llm.weights import Weight


@dataclass(frozen=True)
class Qwen2(Family):
    rotary: Rotary
    window: int | None
    windowed: tuple[bool, ...]
    """Of each layer, whether it sees the window alone."""

    @classmethod
    def read(cls, config: Config) -> Self:
        common = cls.common(config)
        window, windowed = last_layers_windowed(config, common["layers"])
        return cls(**common, rotary=read_rotary(config, common["head_dim"]), window=window, windowed=windowed)

    def weights(self) -> dict[str, Weight]:
        return {
            **self.outer_weights(),
            **self.norm_weights(attention_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
            **self.attention_weights("query", "key", "value"),
            **self.mlp_weights(),
        }

    def logits(
        self, token: tp.RecurrentTensor, dims: Dims, w: Weights, first: tp.RecurrentTensor | None = None
    ) -> tp.RecurrentTensor:
        l, t = dims.l, dims.t
        x = tp.recurrent("x", (self.hidden,), dims.points, dtype=w["embedding"].dtype)  # what enters layer l
        x[dims.layer(0)] = w["embedding"].spatial[token]

        angle = position(t, first) * tp.constant(self.rotary.frequencies())
        normed = rms_norm(x, w["attention_norm"], self.epsilon)
        q = rotate(heads(linear(normed, w, "query"), self.heads), angle, self.rotary.scale)
        k = rotate(heads(linear(normed, w, "key"), self.kv_heads), angle, self.rotary.scale)
        v = heads(linear(normed, w, "value"), self.kv_heads)
        near, all = (attention(q, k, v, dims, window=window, first=first) for window in (self.window, None))
        mixed = x + linear(at_layers(l, self.windowed, near, all), w, "out")

        y = mixed + gated_mlp(rms_norm(mixed, w["mlp_norm"], self.epsilon), w, self.activation)
        x[dims.layer(l + 1)] = y
        return linear(rms_norm(y[dims.layer(l.size - 1)], w["norm"], self.epsilon), w, self.head)


def last_layers_windowed(config: Config, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """The window, where it is in use, and the layers that see it alone: those from `max_window_layers` on."""
    window = config.window("sliding_window", 4096) if config.flag("use_sliding_window") else None
    full = config.get("max_window_layers", 28)
    if type(full) is not int or full < 0:
        raise config.wrong("max_window_layers", "which is no number of layers")
    return window, windowed_layers(config, layers, [window is not None and at >= full for at in range(layers)])
