"""What a family is, the sizes that all have, and the names that most give their weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import tempo as tp
from tempo.llm.blocks import ACTIVATIONS, Dims, Weights
from tempo.llm.config import Config
from tempo.llm.weights import Weight

MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Family(ABC):
    """A model's sizes, by `config.json`, the names of its weights, and its equations.

    It is a stack of layers that each attend to what stands before. `positions` is the longest text that it was made
    for, in tokens; `tied`, whether one matrix embeds tokens and gives their logits.
    """

    vocabulary: int
    positions: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    tied: bool
    activation: str

    prefix: ClassVar[str] = "model."
    """What tensors' names start with, unless the model was saved without its head."""
    spare: ClassVar[tuple[str, ...]] = (".rotary_emb.inv_freq", "lm_head.weight")
    """How the names end of tensors that some checkpoints have and no equation reads."""
    columns: ClassVar[tuple[str, ...]] = ("query", "key", "value", "gate", "up")
    """The matrices that tensor parallelism cuts by their outputs (`tempo.llm.parallel`)."""
    rows: ClassVar[tuple[str, ...]] = ("out", "down")
    """Those that it cuts by their inputs, which are such outputs."""
    neutral: ClassVar[float] = 1.0
    """The scale of a norm that does nothing, with which training begins."""

    @classmethod
    @abstractmethod
    def read(cls, config: Config) -> Self:
        """Raises `CheckpointError` for what is missing, and for options that the equations do not have."""

    @abstractmethod
    def weights(self) -> dict[str, Weight]:
        """The program's inputs, by name."""

    @abstractmethod
    def logits(
        self, token: tp.RecurrentTensor, dims: Dims, w: Weights, first: tp.RecurrentTensor | None = None
    ) -> tp.RecurrentTensor:
        """Of each token of the vocabulary to be the next: shape (vocabulary,), over the domain of `token`.

        `token` is int32 over (t,) or (b, t), and `first`, int32 over (b,), where the text of a row starts: what stands
        before is padding, which no token of the text sees. `w` are the inputs that `tempo.llm.declare` makes; the
        logits are of their dtype.
        """

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many points the dims of the weights have."""
        return {"l": self.layers}

    @staticmethod
    def common(config: Config, *, tied: bool = False, head_dim: int | None = None) -> dict[str, Any]:
        """The fields above, by the names that Llama gave them; `tied` and `head_dim` where the file says nothing."""
        heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
        kv_heads = config.integer("num_key_value_heads", heads)
        if heads % kv_heads:
            raise config.wrong("num_key_value_heads", f"which does not divide the {heads} heads of queries")
        return {
            "vocabulary": config.integer("vocab_size"),
            "positions": config.integer("max_position_embeddings", 2048),
            "layers": config.integer("num_hidden_layers", most=MOST_LAYERS),
            "hidden": hidden,
            "intermediate": config.integer("intermediate_size"),
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": config.integer("head_dim", head_dim or hidden // heads),
            "epsilon": config.number("rms_norm_eps", 1e-6),
            "tied": config.flag("tie_word_embeddings", tied),
            "activation": config.one_of("hidden_act", ACTIVATIONS, "silu"),
        }

    @property
    def head(self) -> str:
        """The input that gives the logits."""
        return "embedding" if self.tied else "head"

    def outer_weights(self) -> dict[str, Weight]:
        """Those before the first layer and after the last."""
        table = (self.vocabulary, self.hidden)
        return {
            "embedding": Weight("model.embed_tokens.weight", table),
            "norm": Weight("model.norm.weight", (self.hidden,)),
            **({} if self.tied else {"head": Weight("lm_head.weight", table, outputs=0)}),
        }

    def attention_weights(self, *biased: str) -> dict[str, Weight]:
        """The maps to queries, keys and values, and back; those of `biased` with a bias."""
        inner, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {
            "query": (inner, self.hidden),
            "key": (keys, self.hidden),
            "value": (keys, self.hidden),
            "out": (self.hidden, inner),
        }
        return {
            name: weight
            for short, shape in shapes.items()
            for name, weight in layer_map(f"self_attn.{short[0]}_proj", short, shape, biased).items()
        }

    def mlp_weights(self, *biased: str) -> dict[str, Weight]:
        """The maps of SwiGLU or GeGLU."""
        wide = (self.intermediate, self.hidden)
        shapes = {"gate": wide, "up": wide, "down": (self.hidden, self.intermediate)}
        return {
            name: weight
            for short, shape in shapes.items()
            for name, weight in layer_map(f"mlp.{short}_proj", short, shape, biased).items()
        }

    def norm_weights(self, width: int | None = None, /, **names: str) -> dict[str, Weight]:
        """Of each layer: what the equations call it, and what the checkpoint does."""
        shape = (width or self.hidden,)
        return {short: Weight(f"model.layers.{{l}}.{name}.weight", shape) for short, name in names.items()}


def windowed_layers(config: Config, layers: int, usual: Sequence[bool]) -> tuple[bool, ...]:
    """Which layers see a window alone, by `layer_types`, or as is `usual` where the file says nothing."""
    kinds = config.get("layer_types", None)
    if kinds is None:
        return tuple(usual)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise config.wrong("layer_types", f"which is no list of one for each of {layers} layers")
    if not {"full_attention", "sliding_attention"}.issuperset(map(str, kinds)):
        raise config.wrong("layer_types", "of which full_attention and sliding_attention are implemented")
    return tuple(kind == "sliding_attention" for kind in kinds)


def layer_map(name: str, short: str, shape: tuple[int, int], biased: tuple[str, ...]) -> dict[str, Weight]:
    """A matrix of each layer, output by input, and its bias where `short` is one of `biased`."""
    found = {short: Weight(f"model.layers.{{l}}.{name}.weight", shape, outputs=0)}
    if short in biased:
        found[f"{short}_bias"] = Weight(f"model.layers.{{l}}.{name}.bias", shape[:1])
    return found
