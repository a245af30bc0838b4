"""Every family's logits against those of `transformers`, for random weights and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.llm.models import LLAMA, SMALL, expected, logits, make, texts

QUICK = [("Llama", "jax"), ("Mixtral", "torch")]
EVERYWHERE = [(kind, "numpy") for kind in SMALL] + [
    pytest.param(kind, backend, marks=() if (kind, backend) in QUICK else pytest.mark.slow)
    for kind in SMALL
    for backend in ("jax", "torch")
]

PLAIN: dict[str, Any] = {"rope_type": "default", "rope_theta": 500.0}
ROTARY: list[dict[str, Any]] = [
    PLAIN,
    {**PLAIN, "rope_type": "linear", "factor": 4.0},
    {
        **PLAIN,
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    {**PLAIN, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
]


def drawn(kind: str, seed: int) -> dict[str, Any]:
    """Options of a model of a family."""
    rng = np.random.default_rng(seed)

    def one_of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    if kind == "GPT2":
        return {
            "n_embd": one_of(8, 16),
            "n_layer": one_of(2, 3),
            "n_head": one_of(1, 2, 4),
            "n_inner": one_of(None, 20),
            "n_positions": 16,
            "activation_function": one_of("gelu_new", "gelu", "relu"),
            "scale_attn_weights": one_of(True, False),
            "tie_word_embeddings": one_of(True, False),
        }
    layers = one_of(2, 3)
    options = {
        **LLAMA,
        "num_hidden_layers": layers,
        "num_key_value_heads": one_of(1, 2, 4),
        "tie_word_embeddings": one_of(True, False),
        "rope_parameters": dict(one_of(*ROTARY)),
        "rms_norm_eps": one_of(1e-6, 1e-3),
    }
    if kind != "Qwen2":
        options["head_dim"] = one_of(4, 6)
    if kind == "Llama":
        options |= {"attention_bias": one_of(True, False), "mlp_bias": one_of(True, False)}
    if kind in ("Mistral", "Mixtral"):
        options["sliding_window"] = one_of(None, 1, 3)
    if kind == "Mixtral":
        options |= {"num_local_experts": one_of(3, 5), "num_experts_per_tok": one_of(1, 2)}
    if kind in ("Qwen2", "Qwen3"):
        options |= {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": one_of(0, 1, 2)}
    if kind in ("Qwen3", "Gemma3Text"):
        options["attention_bias"] = one_of(True, False)
    if kind == "Gemma3Text":
        options |= {
            "rope_parameters": {"full_attention": dict(one_of(*ROTARY)), "sliding_attention": PLAIN},
            "layer_types": [one_of("full_attention", "sliding_attention") for _ in range(layers)],
            "sliding_window": one_of(1, 3),
            "query_pre_attn_scalar": one_of(5, 8),
            "final_logit_softcapping": one_of(None, 2.0),
        }
    return options


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
@pytest.mark.parametrize("kind", SMALL)
def test_logits_are_those_of_transformers(kind: str, seed: int, tmp_path: Path) -> None:
    model, tokens = make(tmp_path, kind, seed=seed, **drawn(kind, seed)), texts(7)
    np.testing.assert_allclose(logits(tmp_path, tokens), expected(model, tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "backend"), EVERYWHERE)
def test_padded_rows_equal_the_same_rows_alone(kind: str, backend: str, tmp_path: Path) -> None:
    pytest.importorskip(backend)
    model, tokens, first = make(tmp_path, kind, **SMALL[kind]), texts(3, 7), np.array([0, 2, 5], np.int32)
    found = logits(tmp_path, tokens, first, backend)
    assert np.isfinite(found).all()  # padding, too: 0 times what is not finite would spoil what reads it
    for row, at in enumerate(first):
        np.testing.assert_allclose(found[row, at:], expected(model, tokens[row, at:]), rtol=1e-4, atol=1e-4)


def test_experts_of_many_tokens_at_once(tmp_path: Path) -> None:
    model, tokens = make(tmp_path, "Mixtral", **SMALL["Mixtral"]), texts(7)
    np.testing.assert_allclose(logits(tmp_path, tokens, given=True), expected(model, tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.1), ("float16", 0.015)])
@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
@pytest.mark.parametrize("kind", SMALL)
def test_half_precision_stays_near(kind: str, backend: str, dtype: str, tolerance: float, tmp_path: Path) -> None:
    pytest.importorskip(backend)
    model, tokens = make(tmp_path, kind, dtype=dtype, **SMALL[kind]), texts(7)
    found = logits(tmp_path, tokens, backend=backend)
    np.testing.assert_allclose(found, expected(model, tokens), rtol=0, atol=tolerance)
