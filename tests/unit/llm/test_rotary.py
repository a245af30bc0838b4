"""Frequencies against those of `transformers`, as newer files spell their options and as older ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tempo.llm import Config
from tempo.llm.rotary import read_rotary

KINDS: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 2.5},
    {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
    {"rope_type": "yarn", "factor": 8.0, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.25},
    {"rope_type": "yarn", "factor": 8.0, "truncate": False, "original_max_position_embeddings": 100},
]


@pytest.mark.parametrize("options", KINDS)
def test_frequencies(options: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    peer = transformers.LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=32768,
        rope_parameters={"rope_theta": 500000.0, **options},
    )
    default = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters
    wanted, scale = ROPE_INIT_FUNCTIONS.get(options["rope_type"], default)(peer)

    newer = {"max_position_embeddings": 32768, "rope_parameters": {"rope_theta": 500000.0, **options}}
    kind, *rest = options.items()
    older = {
        "max_position_embeddings": 32768,
        "rope_theta": 500000,
        "rope_scaling": None if options == KINDS[0] else {"type": kind[1], **dict(rest)},
    }
    for spelling in (newer, older):
        rotary = read_rotary(Config(spelling), 64)
        np.testing.assert_allclose(rotary.frequencies(), np.asarray(wanted), rtol=1e-6)
        assert rotary.scale == pytest.approx(scale)
