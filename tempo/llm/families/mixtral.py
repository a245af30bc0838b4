"""Mixtral: Mistral's layer with several maps in the place of one, of which a router picks a few for each token.

Source: Jiang et al. 2024, "Mixtral of Experts", section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import tempo as tp
from tempo.llm.blocks import Dims, Weights, attention, experts, heads, linear, position, rms_norm
from tempo.llm.config import Config
from tempo.llm.families.family import Family
from tempo.llm.rotary import Rotary, read_rotary, rotate
from tempo.llm.weights import Weight


@dataclass(frozen=True)
class Mixtral(Family):
    rotary: Rotary
    window: int | None
    experts: int
    chosen: int
    """How many of the experts a token is given to."""

    @classmethod
    def read(cls, config: Config) -> Self:
        common, count = cls.common(config), config.integer("num_local_experts", 8, most=10_000)
        return cls(
            **common,
            rotary=read_rotary(config, common["head_dim"], theta=1_000_000.0),
            window=config.window("sliding_window", None),
            experts=count,
            chosen=config.integer("num_experts_per_tok", 2, most=count),
        )

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"l": self.layers, "e": self.experts}

    def weights(self) -> dict[str, Weight]:
        block, wide = "model.layers.{l}.block_sparse_moe", (self.intermediate, self.hidden)
        return {
            **self.outer_weights(),
            **self.norm_weights(attention_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
            **self.attention_weights(),
            "router": Weight(f"{block}.gate.weight", (self.experts, self.hidden)),
            "gate": Weight(f"{block}.experts.{{e}}.w1.weight", wide, outputs=0),
            "up": Weight(f"{block}.experts.{{e}}.w3.weight", wide, outputs=0),
            "down": Weight(f"{block}.experts.{{e}}.w2.weight", (self.hidden, self.intermediate), outputs=0),
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

        normed = rms_norm(mixed, w["mlp_norm"], self.epsilon)
        y = mixed + experts(normed, w, self.chosen, self.activation, dims.given)
        x[dims.layer(l + 1)] = y
        return linear(rms_norm(y[dims.layer(l.size - 1)], w["norm"], self.epsilon), w, self.head)
