"""Small models with random weights, made with `transformers`, and programs for their logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import llm

VOCABULARY = 50

LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
GEMMA = {"head_dim": 8, "sliding_window": 3, "query_pre_attn_scalar": 8, "sliding_window_pattern": 2}
LAST_WINDOWED = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}

SMALL: dict[str, dict[str, Any]] = {
    "Llama": LLAMA,
    "Mistral": {**LLAMA, "sliding_window": 3},
    "Qwen2": {**LLAMA, **LAST_WINDOWED},
    "Qwen3": {**LLAMA, **LAST_WINDOWED, "head_dim": 8},
    "Gemma3Text": {**LLAMA, **GEMMA},
    "GPT2": {"n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32},
    "Mixtral": {**LLAMA, "num_local_experts": 4},
}
"""A model of each family, by the start of its classes' names; windows are shorter than the texts of the tests."""


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


def make(folder: Path, kind: str, *, dtype: str = "float32", seed: int = 0, shard: str = "1GB", **options: Any) -> Any:
    """A causal model of `kind` (the start of its classes' names), also written into `folder`."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    none = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}  # theirs lie beyond the vocabulary
    config = getattr(transformers, f"{kind}Config")(vocab_size=VOCABULARY, **none, **options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():  # as they start, norms do nothing, biases are zero, and all tokens are nearly alike
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    return model


def expected(model: Any, tokens: np.ndarray) -> np.ndarray:
    """Logits by `transformers`, float32, over one text."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return np.asarray(model(torch.tensor(tokens[None], dtype=torch.long)).logits[0].float())


def texts(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCABULARY, shape).astype(np.int32)


def program(
    family: llm.Family,
    dtype: str,
    *,
    batched: bool = False,
    padded: bool = False,
    given: bool = False,
    quantize: str | None = None,
) -> tp.Program:
    """Logits of all positions of a text, or of a batch of them, `padded` on the left."""
    with tp.Program("logits") as program:
        b = tp.dim("b") if batched else None
        l, t = tp.dims("l t")
        rows = () if b is None else (b,)
        token = tp.input("token", (), (*rows, t), tp.int32)
        first = tp.input("first", (), rows, tp.int32) if padded else None
        w = llm.declare(family.weights(), family.sizes, dtype, l, quantize=quantize)
        tp.output("logits", family.logits(token, llm.Dims(l, t, b, given), w, first))
    return program


def logits(
    folder: Path, tokens: np.ndarray, first: np.ndarray | None = None, backend: str = "numpy", given: bool = False
) -> np.ndarray:
    """Ours, float32, over one text or rows of them."""
    checkpoint = llm.Checkpoint.open(folder)
    family = llm.read_family(checkpoint.config)
    stored = llm.stored(family, checkpoint)
    declared = program(family, checkpoint.dtype, batched=tokens.ndim > 1, padded=first is not None, given=given)
    starts = {} if first is None else {"first": first}
    found = tp.compile(declared, backend=backend)(token=tokens, **starts, **stored.arrays())["logits"]
    return np.asarray(found.float() if backend == "torch" else found).astype(np.float32)
