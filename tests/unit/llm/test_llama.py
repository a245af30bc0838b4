"""Llama's logits against those of `transformers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.llm.models import VOCABULARY, expected, logits, make


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_padded_rows_equal_the_same_rows_alone(tmp_path: Path, backend: str) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3}
    model = make(tmp_path, "Llama", num_attention_heads=4, num_key_value_heads=2, **sizes)
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (3, 7))
    first = np.array([0, 2, 5], np.int32)
    found = logits(tmp_path, tokens, first, backend)
    assert np.isfinite(found).all()
    for row, at in enumerate(first):
        wanted = expected(model, tokens[row : row + 1, at:])[0]
        np.testing.assert_allclose(found[row, at:], wanted, rtol=1e-4, atol=1e-4)
