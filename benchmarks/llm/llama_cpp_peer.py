"""llama.cpp by its Python package, over the same weights as a file of its own format."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.llm.continuing import Rows
from tempo.llm import Checkpoint

POSITIONS = 8192
"""How many there is room for; what follows a longer text is not measured."""
FLOAT32 = 0
"""`GGML_TYPE_F32`."""
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}


@dataclass
class LlamaCpp:
    """`path`: the model in llama.cpp's format; `model` is a `llama_cpp.Llama`. One row at a time."""

    path: Path
    model: Any

    @staticmethod
    def read(folder: Path) -> LlamaCpp:
        path = folder / "model.gguf"
        if not path.exists():
            convert(folder, path)
        return LlamaCpp(path, _opened(path, POSITIONS))

    def generate(self, rows: Rows, count: int) -> Rows:
        (row,) = rows
        self.model.reset()  # else it keeps what it has of a prompt that it knows
        return [list(islice(self.model.generate(row, temp=0.0, repeat_penalty=1.0), count))]

    def logprobs(self, row: Sequence[int]) -> np.ndarray:
        model = _opened(self.path, len(row), logits_all=True)
        model.eval(list(row))
        logits = model.scores[: len(row) - 1].astype(np.float64)
        said = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        found: np.ndarray = said[np.arange(len(row) - 1), row[1:]]
        return found


def _opened(path: Path, positions: int, **options: Any) -> Any:
    count = os.cpu_count()
    # keys and values are kept in half precision unless it is told; a model of float32 has them in float32
    is_exact = json.loads((path.parent / "config.json").read_text())["dtype"] == "float32"
    options |= dict.fromkeys(("type_k", "type_v"), FLOAT32) if is_exact else {}
    sizes = {"n_ctx": positions, "n_batch": positions, "n_threads": count, "n_threads_batch": count}
    return import_module("llama_cpp").Llama(str(path), **sizes, **options, verbose=False)


def convert(folder: Path, path: Path) -> None:
    """A Llama's folder as one file. Source: llama.cpp's `convert_hf_to_gguf.py`."""
    gguf = import_module("gguf")
    options = json.loads((folder / "config.json").read_text())
    heads, width = options["num_attention_heads"], options["hidden_size"] // options["num_attention_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(options["max_position_embeddings"])
    writer.add_embedding_length(options["hidden_size"])
    writer.add_block_count(options["num_hidden_layers"])
    writer.add_feed_forward_length(options["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width)
    writer.add_layer_norm_rms_eps(options["rms_norm_eps"])
    writer.add_vocab_size(options["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for name, tensor in Checkpoint.open(folder).tensors.items():
        _add(gguf, writer, name, tensor, heads)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(gguf: Any, writer: Any, name: str, tensor: np.ndarray, heads: int) -> None:
    """Norms are of float32 there, and the pairs that a position turns lie side by side, not half a head apart."""
    named = OUTER.get(name) or _of_layer(name)
    if tensor.ndim == 1:
        writer.add_tensor(named, tensor.astype(np.float32))
        return
    if "attn_q" in named or "attn_k" in named:
        tensor = tensor.reshape(heads, 2, -1, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
    if tensor.dtype.name == "bfloat16":
        bits = np.ascontiguousarray(tensor).view(np.uint8)
        writer.add_tensor(named, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(named, np.ascontiguousarray(tensor))


def _of_layer(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` is `blk.3.ffn_up.weight`."""
    layer, inner = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{NAMES[inner]}.weight"
