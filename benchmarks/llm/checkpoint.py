"""Llamas of random weights as folders in Hugging Face's format: untrained, since random tokens take as long as good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes  # noqa: F401  # its names are NumPy's dtypes
import numpy as np

VOCABULARY = 32_000
POSITIONS = 16_384


@dataclass(frozen=True)
class Size:
    """Of a Llama whose head is tied to its embedding; `hidden` and `inner` are the widths of a layer."""

    layers: int
    hidden: int
    inner: int
    heads: int

    def options(self) -> dict[str, object]:
        """What config.json says. No token ends a text, so that all are as long as was asked for."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "max_position_embeddings": POSITIONS,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10_000.0,
            "tie_word_embeddings": True,
            **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
        }

    def maps(self) -> dict[str, tuple[int, int]]:
        """The matrices of a layer, output by input, in the order in which a token goes through them."""
        square, wide = (self.hidden, self.hidden), (self.inner, self.hidden)
        attention = {f"self_attn.{name}_proj": square for name in "qkvo"}
        return {**attention, "mlp.gate_proj": wide, "mlp.up_proj": wide, "mlp.down_proj": (self.hidden, self.inner)}

    def products(self) -> list[tuple[int, int]]:
        """The matrices that a token is multiplied by, the head at the end."""
        return [*self.layers * list(self.maps().values()), (VOCABULARY, self.hidden)]

    @property
    def parameters(self) -> int:
        return sum(rows * columns for rows, columns in self.products()) + (2 * self.layers + 1) * self.hidden

    def cached(self, rows: int, length: int) -> int:
        """How many numbers the keys and values of so many positions are."""
        return 2 * self.layers * rows * length * self.hidden

    def write(self, folder: Path, dtype: str) -> None:
        """The folder, with a tokenizer whose words are the numbers of the tokens."""
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**self.options(), "dtype": dtype}))
        (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
        chosen = np.dtype(dtype)
        tensors = {name: array.astype(chosen, copy=False) for name, array in self._tensors()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    def _tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """What a layer adds is far more than the embedding, so that a token does not always follow itself."""
        draw = np.random.default_rng(0)
        one = np.ones(self.hidden, np.float32)
        yield "model.embed_tokens.weight", 0.02 * draw.standard_normal((VOCABULARY, self.hidden), np.float32)
        for layer in range(self.layers):
            for name, shape in self.maps().items():
                yield f"model.layers.{layer}.{name}.weight", 0.05 * draw.standard_normal(shape, np.float32)
            for name in ("input", "post_attention"):
                yield f"model.layers.{layer}.{name}_layernorm.weight", one
        yield "model.norm.weight", one


SIZES = {
    "2M": Size(layers=1, hidden=64, inner=128, heads=2),
    "50M": Size(layers=8, hidden=512, inner=1_792, heads=8),
    "276M": Size(layers=16, hidden=1_024, inner=3_584, heads=16),
}


def _tokenizer() -> dict[str, object]:
    """As `tokenizers` writes it: words between spaces."""
    vocabulary = {str(token): token for token in range(VOCABULARY)}
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "0"},
    }
