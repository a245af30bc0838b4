"""GPT-2: learned positions, norms with mean and bias, one map to queries, keys and values, GELU.

Source: Radford et al. 2019, section 2.3. Its matrices are stored input by output, so they are read `x @ w`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import ClassVar, Self

import tempo as tp
from tempo.llm.blocks import (
    ACTIVATIONS,
    Dims,
    Weights,
    attention,
    heads,
    layer_norm,
    linear,
    position,
    product,
    scale_of,
)
from tempo.llm.config import Config
from tempo.llm.families.family import MOST_LAYERS, Family
from tempo.llm.weights import Weight


@dataclass(frozen=True)
class GPT2(Family):
    scaled: bool
    """Whether scores are divided by the root of a head's width."""

    prefix: ClassVar[str] = "transformer."
    columns: ClassVar[tuple[str, ...]] = ("up",)  # that of queries, keys and values is one, and stays whole
    spare: ClassVar[tuple[str, ...]] = (".attn.bias", ".attn.masked_bias", "lm_head.weight")

    @classmethod
    def read(cls, config: Config) -> Self:
        config.without("scale_attn_by_inverse_layer_idx", "add_cross_attention")
        heads, hidden = config.integer("n_head"), config.integer("n_embd")
        if hidden % heads:
            raise config.wrong("n_head", f"which does not divide the width of {hidden}")
        return cls(
            vocabulary=config.integer("vocab_size"),
            positions=config.integer("n_positions", 1024),
            layers=config.integer("n_layer", most=MOST_LAYERS),
            hidden=hidden,
            intermediate=config.integer("n_inner", 4 * hidden),
            heads=heads,
            kv_heads=heads,
            head_dim=hidden // heads,
            epsilon=config.number("layer_norm_epsilon", 1e-5),
            tied=config.flag("tie_word_embeddings", True),
            activation=config.one_of("activation_function", ACTIVATIONS, "gelu_new"),
            scaled=config.flag("scale_attn_weights", True),
        )

    def weights(self) -> dict[str, Weight]:
        width, wide, layer = self.hidden, self.intermediate, "transformer.h.{l}"
        shapes = {
            "query_key_value": (f"{layer}.attn.c_attn", (width, 3 * width)),
            "out": (f"{layer}.attn.c_proj", (width, width)),
            "up": (f"{layer}.mlp.c_fc", (width, wide)),
            "down": (f"{layer}.mlp.c_proj", (wide, width)),
            "attention_norm": (f"{layer}.ln_1", (width,)),
            "mlp_norm": (f"{layer}.ln_2", (width,)),
            "norm": ("transformer.ln_f", (width,)),
        }
        return {
            "embedding": Weight("transformer.wte.weight", (self.vocabulary, width)),
            "positions": Weight("transformer.wpe.weight", (self.positions, width)),
            **({} if self.tied else {"head": Weight("lm_head.weight", (self.vocabulary, width), outputs=0)}),
            **{
                short: Weight(f"{name}.weight", shape, outputs=1 if len(shape) == 2 else None)
                for short, (name, shape) in shapes.items()
            },
            **{f"{short}_bias": Weight(f"{name}.bias", shape[-1:]) for short, (name, shape) in shapes.items()},
        }

    def logits(
        self, token: tp.RecurrentTensor, dims: Dims, w: Weights, first: tp.RecurrentTensor | None = None
    ) -> tp.RecurrentTensor:
        l, t = dims.l, dims.t
        x = tp.recurrent("x", (self.hidden,), dims.points, dtype=w["embedding"].dtype)  # what enters layer l
        at = tp.maximum(position(t, first), 0)  # padding takes the place of the first token
        x[dims.layer(0)] = w["embedding"].spatial[token] + w["positions"].spatial[at]

        normed = layer_norm(x, w, "attention_norm", self.epsilon)
        q, k, v = (heads(each, self.heads) for each in tp.split(conv1d(normed, w, "query_key_value"), 3, axis=-1))
        scale = self.head_dim**-0.5 if self.scaled else 1.0
        mixed = x + conv1d(attention(q, k, v, dims, scale=scale, first=first), w, "out")

        inner = ACTIVATIONS[self.activation](conv1d(layer_norm(mixed, w, "mlp_norm", self.epsilon), w, "up"))
        y = mixed + conv1d(inner, w, "down")
        x[dims.layer(l + 1)] = y
        return linear(layer_norm(y[dims.layer(l.size - 1)], w, "norm", self.epsilon), w, self.head)


def conv1d(x: tp.RecurrentTensor, w: Weights, name: str) -> tp.RecurrentTensor:
    """`x W + b`, by the name that it has in the paper's code."""
    return product(operator.matmul, x, w[name], scale_of(w, name)) + w[f"{name}_bias"]
