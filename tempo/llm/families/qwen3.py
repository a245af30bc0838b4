"""Qwen 3: Llama's layer with norms of each head's queries and keys. Source: Yang et al. 2025, section 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import tempo as tp
from tempo.llm.blocks import Dims, Weights, at_layers, attention, gated_mlp, heads, linear, position, rms_norm
from tempo.llm.config import Config
from tempo.llm.families.family import Family
from tempo.llm.families.qwen2 import last_layers_windowed
from tempo.llm.rotary import Rotary, read_rotary, rotate
from tempo.llm.weights import Weight


@dataclass(frozen=True)
class Qwen3(Family):
    rotary: Rotary
    window: int | None
    windowed: tuple[bool, ...]
    """Of each layer, whether it sees the window alone."""
    attention_bias: bool

    @classmethod
    def read(cls, config: Config) -> Self:
        common = cls.common(config, head_dim=128)
        window, windowed = last_layers_windowed(config, common["layers"])
        return cls(
            **common,
            rotary=read_rotary(config, common["head_dim"]),
            window=window,
            windowed=windowed,
            attention_bias=config.flag("attention_bias"),
        )

    def weights(self) -> dict[str, Weight]:
        return {
            **self.outer_weights(),
            **self.norm_weights(attention_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
            **self.norm_weights(self.head_dim, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
            **self.attention_weights(*(("query", "key", "value", "out") if self.attention_bias else ())),
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
        q = rms_norm(heads(linear(normed, w, "query"), self.heads), w["query_norm"], self.epsilon)
        k = rms_norm(heads(linear(normed, w, "key"), self.kv_heads), w["key_norm"], self.epsilon)
        q, k = (rotate(each, angle, self.rotary.scale) for each in (q, k))
        v = heads(linear(normed, w, "value"), self.kv_heads)
        near, all = (attention(q, k, v, dims, window=window, first=first) for window in (self.window, None))
        mixed = x + linear(at_layers(l, self.windowed, near, all), w, "out")

        y = mixed + gated_mlp(rms_norm(mixed, w["mlp_norm"], self.epsilon), w, self.activation)
        x[dims.layer(l + 1)] = y
        return linear(rms_norm(y[dims.layer(l.size - 1)], w["norm"], self.epsilon), w, self.head)
