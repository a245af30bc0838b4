"""A model's folder in Hugging Face's format: its configuration, and its tensors, mapped.

config.json  generation_config.json (optional)
model.safetensors, or model.safetensors.index.json and the files that it names
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tempo.llm.config import Config
from tempo.llm.errors import CheckpointError
from tempo.llm.safetensors import map_tensors

FLOATS = ("float32", "bfloat16", "float16")
"""The dtypes that models are computed in."""


@dataclass(frozen=True)
class Checkpoint:
    """What a folder holds. `tensors` are read-only views of its files; `generation` is empty where no file says it."""

    folder: Path
    config: Config
    generation: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Checkpoint:
        """Map the files of `folder`. Raises `CheckpointError`: what is missing or broken, and where."""
        path = Path(folder)
        if not path.is_dir():
            raise CheckpointError(f"{path} is no folder", hint="a model is given as the folder that holds config.json")
        if not (path / "config.json").exists():
            raise CheckpointError(f"{path} holds no model: there is no config.json")
        generation = path / "generation_config.json"
        return Checkpoint(
            folder=path,
            config=Config(read_table(path / "config.json"), str(path / "config.json")),
            generation=read_table(generation) if generation.exists() else {},
            tensors=_tensors(path),
        )

    @property
    def dtype(self) -> str:
        """That of most of the numbers: what the model is computed in unless another is asked for."""
        sizes: Counter[str] = Counter()
        for tensor in self.tensors.values():
            sizes[tensor.dtype.name] += tensor.size
        found = [name for name, _ in sizes.most_common() if name in FLOATS]
        if not found:
            raise CheckpointError(f"{self.folder} holds no numbers of dtype {', '.join(FLOATS)}")
        return found[0]


def read_table(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        table = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no JSON: {error}") from error
    if not isinstance(table, dict):
        raise CheckpointError(f"{path} holds no table of options")
    return table


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    """Those of the one file, or of the index's."""
    if (folder / "model.safetensors").exists():
        return map_tensors(folder / "model.safetensors")
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        raise CheckpointError(
            f"{folder} holds no weights: there is no model.safetensors and no {index.name}",
            hint="weights in another format: model.save_pretrained(folder) of transformers writes this one",
        )
    listed = read_table(index).get("weight_map")
    if not isinstance(listed, dict):
        raise CheckpointError(f"{index} has no weight_map")
    files = {file: map_tensors(_shard(index, file)) for file in dict.fromkeys(map(str, listed.values()))}
    for name, file in listed.items():
        if name not in files[str(file)]:
            raise CheckpointError(f"{index} says that {file} holds the tensor {name!r}, but it does not")
    return {name: files[str(file)][name] for name, file in listed.items()}


def _shard(index: Path, file: str) -> Path:
    """A file beside the index; the index may come from anywhere, so it names none elsewhere."""
    if Path(file).name != file or file in ("", ".", ".."):
        raise CheckpointError(f"{index} names a file outside of its folder: {file!r}")
    if not (index.parent / file).exists():
        raise CheckpointError(f"{index} names a file that is not there: {file}")
    return index.parent / file
