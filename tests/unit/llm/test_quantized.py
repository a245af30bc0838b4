"""Matrices in 8 bits: the logits are those of the same matrices, multiplied out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import llm
from tempo.cli import main
from tempo.llm.weights import quantized
from tests.unit.llm.models import SMALL, make, program, texts

WAYS = [(kind, "numpy", "float32") for kind in SMALL] + [
    pytest.param(kind, backend, dtype, marks=pytest.mark.slow)
    for kind in SMALL
    for backend, dtype in (("jax", "float32"), ("torch", "float32"), ("torch", "bfloat16"), ("torch", "float16"))
]
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.16, "float16": 0.02}
"""NumPy's own rounding in bfloat16 is up to 0.1513 away from float32 (Mistral); PyTorch's is the same to the bit."""


@pytest.mark.parametrize("outputs", [0, 1])
def test_each_output_has_a_scale_by_its_largest_number(outputs: int) -> None:
    matrix = np.random.default_rng(0).standard_normal((6, 9)).astype(np.float32)
    matrix[outputs and slice(None), 0 if outputs else slice(None)] = 0  # nothing to scale by
    made, scale = quantized(matrix, outputs)
    by_output, rows = (made, matrix) if outputs == 0 else (made.T, matrix.T)
    assert made.dtype == np.int8
    assert scale.dtype == np.float32
    assert np.abs(by_output[1:]).max(axis=1).tolist() == [127] * (len(by_output) - 1)
    assert not by_output[0].any()
    assert (np.abs(by_output * scale[:, None] - rows) <= scale[:, None] / 2 * (1 + 1e-5)).all()


@pytest.mark.parametrize(("kind", "backend", "dtype"), WAYS)
def test_logits_are_those_of_the_matrices_multiplied_out(kind: str, backend: str, dtype: str, tmp_path: Path) -> None:
    pytest.importorskip(backend)
    make(tmp_path, kind, dtype=dtype, **{**SMALL[kind], "tie_word_embeddings": False})
    tokens, checkpoint = texts(7), llm.Checkpoint.open(tmp_path)
    family = llm.read_family(checkpoint.config)
    stored = llm.stored(family, checkpoint)
    whole = tp.compile(program(family, "float32"))(token=tokens, **multiplied_out(stored))["logits"]
    given = stored.arrays(quantize="int8")
    found = tp.compile(program(family, dtype, quantize="int8"), backend=backend)(token=tokens, **given)["logits"]
    numbers = np.asarray(found.float() if backend == "torch" else found).astype(np.float32)
    np.testing.assert_allclose(numbers, whole, rtol=1e-4, atol=TOLERANCE[dtype])


def multiplied_out(stored: llm.Stored) -> dict[str, Any]:
    """Each number of a matrix times the scale of its output, float32."""
    numbers = stored.arrays("float32", quantize="int8")

    def each(name: str, matrices: Any, scales: Any) -> Any:
        if isinstance(matrices, list):
            return [each(name, *pair) for pair in zip(matrices, scales, strict=True)]
        return matrices * (scales if stored.weights[name].outputs else scales[:, None])

    return {
        name: each(name, array, numbers[f"{name}_scale"]) if f"{name}_scale" in numbers else array
        for name, array in numbers.items()
        if not name.endswith("_scale")
    }


def test_a_quantized_model_continues_answers_and_scores(tmp_path: Path) -> None:
    make(tmp_path, "Llama", **SMALL["Llama"])
    model, whole = llm.load(tmp_path, quantize="int8"), llm.load(tmp_path)
    assert {array.dtype.name for array in model.stored.arrays(quantize="int8")["gate"]} == {"int8"}
    (made,) = model.generate([[1, 2, 3]], max_new_tokens=4)
    assert len(made.tokens) == 4
    (score,), (exact,) = model.score([[1, 2, 3, 4]]), whole.score([[1, 2, 3, 4]])
    assert score != exact
    np.testing.assert_allclose(score.logprobs, exact.logprobs, atol=0.1)


def test_what_is_not_implemented_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, "Llama", **SMALL["Llama"])
    with pytest.raises(tp.InputError, match="quantize is 'int4'"):
        llm.load(tmp_path, quantize="int4")
    assert main(["generate", "--model", str(tmp_path), "--prompt", "w1", "--quantize", "int4"]) == 2
    assert capsys.readouterr().err == "error: quantize is 'int4'; there is int8\n"
    stored = llm.load(tmp_path).stored
    arrays = {name: np.stack(x) if isinstance(x, list) else x for name, x in stored.arrays(quantize="int8").items()}
    with pytest.raises(tp.InputError, match="is of dtype int8, not one of float32"):
        llm.save(tmp_path / "saved", stored.checkpoint.config.options, arrays)
