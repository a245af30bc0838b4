"""Mistral: Llama's layer, where a token sees a window of those before it. Source: Jiang et al. 2023, section 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import tempo as tp
from tempo.llm.blocks import Dims, Weights, attention, gated_mlp, heads, linear, position, rms_norm
from tempo.llm.config import Config
from tempo.llm.families.family import Family
from tempo.llm.rotary import Rotary, read_rotary, rotate
from tempo.llm.weights import Weight


@dataclass(frozen=True)
class Mistral(Family):
    rotary: Rotary
    window: int | None

    @classmethod
    def read(cls, config: Config) -> Self:
        config.without("layer_types")
        common = cls.common(config)
        return cls(
            **common, rotary=read_rotary(config, common["head_dim"]), window=config.window("sliding_window", 4096)
        )

    def weights(self) -> dict[str, Weight]:
        return {
            **self.outer_weights(),
            **self.norm_weights(attention_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
            **self.attention_weights(),
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
        mixed = x + linear(attention(q, k, v, dims, window=self.window, first=first), w, "out")

        y = mixed + gated_mlp(rms_norm(mixed, w["mlp_norm"], self.epsilon), w, self.activation)
        x[dims.layer(l + 1)] = y
        return linear(rms_norm(y[dims.layer(l.size - 1)], w["norm"], self.epsilon), w, self.head)
