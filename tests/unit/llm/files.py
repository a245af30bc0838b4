"""Checkpoints written by hand, so that they can be wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tempo import llm

NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32"}
CONFIG = {
    "model_type": "llama",
    "vocab_size": 5,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def tensors(options: Mapping[str, Any] = CONFIG, dtype: str = "float32") -> dict[str, np.ndarray]:
    """What a checkpoint with this configuration holds, by name."""
    family = llm.read_family(llm.Config(options))
    points = [{"l": at} for at in range(family.layers)]
    return {
        name: np.random.default_rng(len(name)).standard_normal(weight.shape).astype(dtype)
        for weight in family.weights().values()
        for name in (weight.at(**point) for point in (points if weight.dims else [{}]))
    }


def header_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    entries, at = {}, 0
    for name, array in arrays.items():
        entries[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    return entries


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray], header: Any = None) -> None:
    """A safetensors file; `header` in the place of what is true of the arrays, as text or as what JSON holds."""
    given = header_of(arrays) if header is None else header
    text = (given if isinstance(given, str) else json.dumps(given)).encode()
    path.write_bytes(
        len(text).to_bytes(8, "little")
        + text
        + b"".join(np.ascontiguousarray(each).tobytes() for each in arrays.values())
    )


def write(folder: Path, arrays: Mapping[str, np.ndarray] | None = None, **options: Any) -> Path:
    """A checkpoint in `folder`."""
    config = {**CONFIG, **options}
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder / "model.safetensors", tensors() if arrays is None else arrays)
    return folder
