"""Llama 2 and 3: norms before each half of a layer, grouped queries turned by their position, SwiGLU.

Source: Touvron et al. 2023, "Llama 2", section 2.2; Grattafiori et al. 2024, section 3.2.
"""

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
class Llama(Family):
    rotary: Rotary
    attention_bias: bool
    mlp_bias: bool

    @classmethod
    def read(cls, config: Config) -> Self:
        common = cls.common(config)
        return cls(
            **common,
            rotary=read_rotary(config, common["head_dim"]),
            attention_bias=config.flag("attention_bias"),
            mlp_bias=config.flag("mlp_bias"),
        )

    def weights(self) -> dict[str, Weight]:
        return {
            **self.outer_weights(),
            **self.norm_weights(attention_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
            **self.attention_weights(*(("query", "key", "value", "out") if self.attention_bias else ())),
            **self.mlp_weights(*(("gate", "up", "down") if self.mlp_bias else ())),
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
        mixed = x + linear(attention(q, k, v, dims, first=first), w, "out")

        y = mixed + gated_mlp(rms_norm(mixed, w["mlp_norm"], self.epsilon), w, self.activation)
        x[dims.layer(l + 1)] = y
        return linear(rms_norm(y[dims.layer(l.size - 1)], w["norm"], self.epsilon), w, self.head)
