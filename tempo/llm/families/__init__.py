"""The families of models, by the `model_type` of `config.json`. A new one is a file here and a line below."""

from __future__ import annotations

from collections.abc import Mapping

from tempo.llm.checkpoint import Checkpoint
from tempo.llm.config import Config
from tempo.llm.families.family import Family
from tempo.llm.families.llama import Llama
from tempo.llm.weights import Stored

__all__ = ["FAMILIES", "Family", "read_family", "stored"]

FAMILIES: Mapping[str, type[Family]] = {
    "llama": Llama,
}


def read_family(config: Config) -> Family:
    """The family that `config.json` names, in the sizes that it says."""
    return FAMILIES[config.one_of("model_type", FAMILIES)].read(config)


def stored(family: Family, checkpoint: Checkpoint) -> Stored:
    """The checkpoint's tensors as the family names them. Raises `CheckpointError` where they are not those it needs."""
    return Stored(checkpoint, family.weights(), family.sizes, family.prefix, family.spare)
