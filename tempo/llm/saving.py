"""A model's folder in Hugging Face's format, written: what `load`, `transformers` and others read."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp
from tempo.llm.checkpoint import FLOATS
from tempo.llm.config import Config
from tempo.llm.families import Family, read_family

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def save(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    weights: Mapping[str, Any],
    *,
    tokenizer: Any = None,
    generation: Mapping[str, Any] | None = None,
) -> None:
    """Write a model into `folder`, which is made unless it is there.

    `config` and `generation` are what config.json and generation_config.json say. `weights` are arrays by the names of
    the family's equations, those of all layers in one with the layers in front: the `.state` of a training, of which
    what is no weight (an optimizer's moments) is left out. `tokenizer`: a `tokenizers.Tokenizer`, or another model's
    folder, whose tokenizer is taken.

    Raises `CheckpointError` for a config that is not implemented, and `tp.InputError` for weights that are missing or
    of another shape or kind than it says; then nothing is written. Needs safetensors.
    """
    from safetensors.numpy import save_file

    family = read_family(Config(config, "the config"))
    tensors = _tensors(family, weights)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    draft = path / f".model.safetensors.{os.getpid()}"
    try:
        save_file(tensors, draft, {"format": "pt"})
        draft.replace(path / "model.safetensors")
    finally:
        draft.unlink(missing_ok=True)
    _write_table(path / "config.json", config)
    if generation is not None:
        _write_table(path / "generation_config.json", generation)
    if isinstance(tokenizer, str | os.PathLike):
        for name in TOKENIZER_FILES:
            if (Path(tokenizer) / name).exists():
                shutil.copy(Path(tokenizer) / name, path / name)
    elif tokenizer is not None:
        tokenizer.save(str(path / "tokenizer.json"))
        _write_table(path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def _tensors(family: Family, weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """By the checkpoint's names, one for each point."""
    wanted = family.weights()
    missing = [name for name in wanted if name not in weights]
    if missing:
        raise tp.InputError(f"the weights {', '.join(missing)} are missing", hint=f"the model has {', '.join(wanted)}")
    found = {}
    for name, weight in wanted.items():
        array = on_host(weights[name])
        sizes = tuple(family.sizes[dim] for dim in weight.dims)
        if array.shape != (*sizes, *weight.shape):
            raise tp.InputError(f"the weight {name!r} has shape {array.shape}, and must have {(*sizes, *weight.shape)}")
        if array.dtype.name not in FLOATS:
            raise tp.InputError(f"the weight {name!r} is of dtype {array.dtype.name}, not one of {', '.join(FLOATS)}")
        for point in itertools.product(*map(range, sizes)):
            found[weight.at(**dict(zip(weight.dims, point)))] = np.ascontiguousarray(array[point])
    return found


def on_host(array: Any) -> np.ndarray:
    """As NumPy's, wherever it lies: PyTorch does not take it from a device unasked."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def _write_table(path: Path, table: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(dict(table), indent=2) + "\n", "utf-8")
