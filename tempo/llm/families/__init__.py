"""The families of models, by the `model_type` of `config.json`. A new one is a file here and a line below."""

from __future__ import annotations

from collections.abc import Mapping

from tempo.llm.checkpoint import Checkpoint
from tempo.llm.config import Config
from tempo.llm.families.family import Family
from tempo.llm.families.gemma3 import Gemma3
from tempo.llm.families.gpt2 import GPT2
from tempo.llm.families.llama import Llama
from tempo.llm.families.mistral import Mistral
from tempo.llm.families.mixtral import Mixtral
from tempo.llm.families.qwen2 import Qwen2
from tempo.llm.families.qwen3 import Qwen3
from tempo.llm.weights import Stored

__all__ = ["FAMILIES", "Family", "read_family", "stored"]

FAMILIES: Mapping[str, type[Family]] = {
    "gemma3_text": Gemma3,
    "gpt2": GPT2,
    "llama": Llama,
    "mistral": Mistral,
    "mixtral": Mixtral,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
}


def read_family(config: Config) -> Family:
    """The family that `config.json` names, in the sizes that it says."""
    return FAMILIES[config.one_of("model_type", FAMILIES)].read(config)


def stored(family: Family, checkpoint: Checkpoint) -> Stored:
    """The checkpoint's tensors as the family names them. Raises `CheckpointError` where they are not those it needs."""
    return Stored(checkpoint, family.weights(), family.sizes, family.prefix, family.spare)
