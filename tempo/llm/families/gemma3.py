"""Gemma 3's text model: layers that see a window, and every so many one that sees all, each kind turning queries and
keys at its own pace; norms before and after each half of a layer, and of each head's queries and keys.

Source: Gemma Team 2025, "Gemma 3 technical report", section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import tempo as tp
from tempo.llm.blocks import ACTIVATIONS, Dims, Weights, at_layers, attention, gated_mlp, heads, linear, position
from tempo.llm.config import Config
from tempo.llm.families.family import Family, windowed_layers
from tempo.llm.rotary import Rotary, rotary_of, rotate
from tempo.llm.weights import Weight

LOCAL = 10_000.0
"""The base of the frequencies in layers that see a window."""


@dataclass(frozen=True)
class Gemma3(Family):
    near: Rotary
    far: Rotary
    window: int
    full: tuple[bool, ...]
    """Of each layer, whether it sees all."""
    scale: float
    attention_bias: bool
    cap: float
    """The logits' bound; 0 where they have none."""

    neutral: ClassVar[float] = 0.0

    @classmethod
    def read(cls, config: Config) -> Self:
        config.without("attn_logit_softcapping", "use_bidirectional_attention")
        common = cls.common(config, tied=True, head_dim=256)
        common["activation"] = config.one_of("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh")
        period = config.integer("sliding_window_pattern", 6)
        windowed = windowed_layers(
            config, common["layers"], [bool((at + 1) % period) for at in range(common["layers"])]
        )
        near, far = frequencies(config, common["head_dim"], common["positions"])
        return cls(
            **common,
            near=near,
            far=far,
            window=config.integer("sliding_window", 4096),
            full=tuple(not each for each in windowed),
            scale=config.integer("query_pre_attn_scalar", 256) ** -0.5,
            attention_bias=config.flag("attention_bias"),
            cap=config.number("final_logit_softcapping", 0.0),
        )

    def weights(self) -> dict[str, Weight]:
        return {
            **self.outer_weights(),
            **self.norm_weights(attention_norm="input_layernorm", attended_norm="post_attention_layernorm"),
            **self.norm_weights(mlp_norm="pre_feedforward_layernorm", mapped_norm="post_feedforward_layernorm"),
            **self.norm_weights(self.head_dim, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
            **self.attention_weights(*(("query", "key", "value", "out") if self.attention_bias else ())),
            **self.mlp_weights(),
        }

    def logits(
        self, token: tp.RecurrentTensor, dims: Dims, w: Weights, first: tp.RecurrentTensor | None = None
    ) -> tp.RecurrentTensor:
        l, t = dims.l, dims.t
        x = tp.recurrent("x", (self.hidden,), dims.points, dtype=w["embedding"].dtype)  # what enters layer l
        x[dims.layer(0)] = w["embedding"].spatial[token] * self.hidden**0.5

        far, near = (position(t, first) * tp.constant(each.frequencies()) for each in (self.far, self.near))
        normed = self.norm(x, w["attention_norm"])
        q = self.norm(heads(linear(normed, w, "query"), self.heads), w["query_norm"])
        k = self.norm(heads(linear(normed, w, "key"), self.kv_heads), w["key_norm"])
        q, k = (
            at_layers(l, self.full, rotate(each, far, self.far.scale), rotate(each, near, self.near.scale))
            for each in (q, k)
        )
        v = heads(linear(normed, w, "value"), self.kv_heads)
        all, some = (attention(q, k, v, dims, window=n, scale=self.scale, first=first) for n in (None, self.window))
        attended = linear(at_layers(l, self.full, all, some), w, "out")
        mixed = x + self.norm(attended, w["attended_norm"])

        mapped = gated_mlp(self.norm(mixed, w["mlp_norm"]), w, self.activation)
        y = mixed + self.norm(mapped, w["mapped_norm"])
        x[dims.layer(l + 1)] = y
        logits = linear(self.norm(y[dims.layer(l.size - 1)], w["norm"]), w, self.head)
        return self.cap * tp.tanh(logits / self.cap) if self.cap else logits

    def norm(self, x: tp.RecurrentTensor, scale: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """Of mean square 1, times `1 + scale`, all of it in float32."""
        normed = tp.rms_norm(x.astype(tp.float32), axis=-1, epsilon=self.epsilon)
        return (normed * (1 + scale.astype(tp.float32))).astype(x.dtype)


def frequencies(config: Config, width: int, positions: int) -> tuple[Rotary, Rotary]:
    """Those of layers that see a window, and of those that see all; newer files have a table for each."""
    both = config.part("rope_parameters") or Config({}, config.source)
    near = both.part("sliding_attention") or Config({}, config.source)
    far = both.part("full_attention") or config.part("rope_scaling") or Config({}, config.source)
    return (
        rotary_of(near, width, config.positive("rope_local_base_freq", LOCAL), positions),
        rotary_of(far, width, config.positive("rope_theta", 1_000_000.0), positions),
    )
