"""Language models, written in the language: a checkpoint in Hugging Face's format, read as equations.

A family (`tempo.llm.families`) is its sizes, the names of its weights, and its equations over layers `l` and positions
`t`: no cache, no loop and no prefill is written there. `Checkpoint` is a folder, its tensors mapped as they are stored.
"""

from tempo.llm.blocks import Dims
from tempo.llm.checkpoint import Checkpoint
from tempo.llm.config import Config
from tempo.llm.conversation import Conversation
from tempo.llm.errors import CheckpointError
from tempo.llm.families import FAMILIES, Family, read_family, stored
from tempo.llm.model import Generation, Model, Score, load
from tempo.llm.saving import save
from tempo.llm.training import logprobs, parameters
from tempo.llm.weights import Stored, Weight, declare

__all__ = [
    "FAMILIES",
    "Checkpoint",
    "CheckpointError",
    "Config",
    "Conversation",
    "Dims",
    "Family",
    "Generation",
    "Model",
    "Score",
    "Stored",
    "Weight",
    "declare",
    "load",
    "logprobs",
    "parameters",
    "read_family",
    "save",
    "stored",
]
