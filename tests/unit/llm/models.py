"""Small models with random weights, made with `transformers`, and programs for their logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import llm

VOCABULARY = 50


def make(folder: Path, kind: str, *, dtype: str = "float32", seed: int = 0, **options: Any) -> Any:
    """A causal model of `kind` (the start of its classes' names), also written into `folder`."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(vocab_size=VOCABULARY, **options)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():  # as they start, norms do nothing, biases are zero, and all tokens are nearly alike
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return model


def expected(model: Any, tokens: np.ndarray) -> np.ndarray:
    """Logits by `transformers`, float32, over rows of tokens without padding."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return np.asarray(model(torch.tensor(tokens, dtype=torch.long)).logits.float())


def program(family: llm.Family, dtype: str, *, batched: bool = False, padded: bool = False) -> tp.Program:
    """Logits of all positions of a text, or of a batch of them, `padded` on the left."""
    with tp.Program("logits") as program:
        b = tp.dim("b") if batched else None
        l, t = tp.dims("l t")
        rows = () if b is None else (b,)
        token = tp.input("token", (), (*rows, t), tp.int32)
        first = tp.input("first", (), rows, tp.int32) if padded else None
        w = llm.declare(family.weights(), family.sizes, dtype, l)
        tp.output("logits", family.logits(token, llm.Dims(l, t, b), w, first))
    return program


def logits(folder: Path, tokens: np.ndarray, first: np.ndarray | None = None, backend: str = "numpy") -> np.ndarray:
    """Ours, float32, over one row of tokens or several."""
    checkpoint = llm.Checkpoint.open(folder)
    family = llm.read_family(checkpoint.config)
    stored = llm.stored(family, checkpoint)
    run = tp.compile(
        program(family, checkpoint.dtype, batched=tokens.ndim > 1, padded=first is not None), backend=backend
    )
    given = {} if first is None else {"first": first}
    found = run(token=tokens, **given, **llm.stacked(stored.arrays()))["logits"]
    return np.asarray(found.float() if backend == "torch" else found).astype(np.float32)
