"""Every family's logits against those of `transformers`, for random weights and options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.llm.models import SMALL, drawn, expected, logits, make, texts

QUICK = [("Llama", "jax"), ("Mixtral", "torch")]
EVERYWHERE = [(kind, "numpy") for kind in SMALL] + [
    pytest.param(kind, backend, marks=() if (kind, backend) in QUICK else pytest.mark.slow)
    for kind in SMALL
    for backend in ("jax", "torch")
]


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
@pytest.mark.parametrize(
    ("backend", "dtype", "tolerance"),
    [("jax", "bfloat16", 0.1), ("torch", "bfloat16", 0.1), ("torch", "float16", 0.015)],
)
@pytest.mark.parametrize("kind", SMALL)
def test_half_precision_stays_near(kind: str, backend: str, dtype: str, tolerance: float, tmp_path: Path) -> None:
    pytest.importorskip(backend)
    model, tokens = make(tmp_path, kind, dtype=dtype, **SMALL[kind]), texts(7)
    found = logits(tmp_path, tokens, backend=backend)
    np.testing.assert_allclose(found, expected(model, tokens), rtol=0, atol=tolerance)
