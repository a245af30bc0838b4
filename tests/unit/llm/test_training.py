"""Models that are learned: their parameters, the likelihood that is maximised, and the folder that keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import llm
from tests.unit.llm.models import LLAMA, SMALL, VOCABULARY, expected, logits, make, texts

CONFIG = {"model_type": "llama", "vocab_size": VOCABULARY, "tie_word_embeddings": True, **LLAMA, "num_hidden_layers": 2}


def trainer(family: llm.Family) -> tp.Program:
    with tp.Program("train") as program:
        i, b, l, t = tp.dims("i b l t")
        token = tp.input("token", (), (b, t), tp.int32)
        w = llm.parameters(family, l, over=(i,))
        logprob = llm.logprobs(family, token, llm.Dims(l, t, b, given=True, over=(i,)), w)
        loss = -logprob[i, 0 : b.size, 1 : t.size].mean()
        gradients = tp.optim.clip_by_global_norm(tp.grad(loss, w), 1.0, dim=i)
        tp.optim.AdamW(0.02, dim=i).apply(w, gradients)
        tp.output("loss", loss)
    return program


@pytest.mark.slow
def test_a_model_learns_and_transformers_loads_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    family = llm.read_family(llm.Config(CONFIG))
    rows = texts(3, 8)
    trained = tp.compile(trainer(family), sizes={"i": 20, **family.sizes})(token=rows)
    assert trained["loss"][0] == pytest.approx(np.log(VOCABULARY), abs=0.1)
    assert trained["loss"][-1] < 0.5 * trained["loss"][0]
    llm.save(tmp_path, CONFIG, trained.state, generation={"eos_token_id": 3, "max_new_tokens": 4})

    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    np.testing.assert_allclose(logits(tmp_path, rows[0]), expected(model, rows[0]), atol=1e-4)
    assert model.generation_config.eos_token_id == 3
    loaded = llm.load(tmp_path)
    loss = -np.mean([score.logprobs for score in loaded.score(rows.tolist())])
    assert loss < trained["loss"][-1] + 0.1  # the last step was made after it was told
    assert 1 <= len(loaded.generate(rows[0].tolist())[0].tokens) <= 4


@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    make(tmp_path, "Llama", **LLAMA)
    stored = opened(tmp_path)
    rows = texts(2, 6)
    family = opened_family(tmp_path)
    run = tp.compile(trainer(family), sizes={"i": 1, **family.sizes})
    made = run(token=rows, state=stored.arrays())
    found = -np.mean([score.logprobs for score in llm.load(tmp_path).score(rows.tolist())])
    assert made["loss"][0] == pytest.approx(found, rel=1e-5)


@pytest.mark.parametrize("kind", SMALL)
def test_what_is_loaded_is_saved_as_it_was(tmp_path: Path, kind: str) -> None:
    make(tmp_path / "theirs", kind, dtype="bfloat16", **SMALL[kind])
    stored = opened(tmp_path / "theirs")
    weights = {"spare": np.zeros(3), **stored.arrays()}
    llm.save(tmp_path / "ours", stored.checkpoint.config.options, weights, generation=stored.checkpoint.generation)
    again = opened(tmp_path / "ours").checkpoint
    assert again.config.options == stored.checkpoint.config.options
    assert again.generation == stored.checkpoint.generation
    assert again.tensors.keys() == stored.checkpoint.tensors.keys()
    for name, tensor in stored.checkpoint.tensors.items():
        assert tensor.dtype == again.tensors[name].dtype
        np.testing.assert_array_equal(tensor, again.tensors[name])


@pytest.mark.parametrize("kind", ["Gemma3Text", "GPT2"])
def test_parameters_begin_where_norms_do_nothing(kind: str, tmp_path: Path) -> None:
    make(tmp_path, kind, **SMALL[kind])
    family = opened_family(tmp_path)
    with tp.Program("start") as program:
        for name, tensor in llm.parameters(family, tp.dim("l"), deviation=0.5).items():
            tp.output(f"start.{name}", tensor)
    start = tp.compile(program, sizes=family.sizes)()
    norms = {"GPT2": 1.0, "Gemma3Text": 0.0}[kind]
    np.testing.assert_array_equal(start["start.mlp_norm"], np.full_like(start["start.mlp_norm"], norms))
    assert np.std(start["start.down"]) == pytest.approx(0.5, rel=0.1)
    assert not np.array_equal(start["start.down"][0], start["start.down"][1])
    if kind == "GPT2":
        assert not np.any(start["start.down_bias"])


def wrong(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    family = llm.read_family(llm.Config(CONFIG))
    sizes = {name: [family.sizes[dim] for dim in weight.dims] for name, weight in family.weights().items()}
    weights = {key: np.zeros((*sizes[key], *weight.shape), np.float32) for key, weight in family.weights().items()}
    if name == "missing":
        del weights["up"]
    if name == "shape":
        weights["up"] = weights["up"][0]
    if name == "dtype":
        weights["up"] = weights["up"].astype(np.int32)
    return {**CONFIG, "hidden_act": "tan"} if name == "config" else CONFIG, weights


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "up are missing"),
        ("shape", r"'up' has shape \(24, 16\).*\(2, 24, 16\)"),
        ("dtype", "'up' is of dtype int32"),
        ("config", "hidden_act is 'tan'"),
    ],
)
def test_nothing_is_written_of_what_is_wrong(tmp_path: Path, name: str, message: str) -> None:
    config, weights = wrong(name)
    with pytest.raises((tp.InputError, llm.CheckpointError), match=message):
        llm.save(tmp_path / "model", config, weights)
    assert not (tmp_path / "model").exists()


def test_a_tokenizer_is_taken_along(tmp_path: Path) -> None:
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    words = {f"w{token}": token for token in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    config, weights = wrong("nothing")
    llm.save(tmp_path / "first", config, weights, tokenizer=tokenizer)
    (tmp_path / "first" / "chat_template.jinja").write_text("{{ messages }}")
    llm.save(tmp_path / "second", config, weights, tokenizer=tmp_path / "first")
    assert json.loads((tmp_path / "second" / "config.json").read_text()) == config
    assert (tmp_path / "second" / "chat_template.jinja").read_text() == "{{ messages }}"
    for folder in (tmp_path / "first", tmp_path / "second"):
        assert llm.load(folder).tokenizer.encode("w4 w2") == [4, 2]
        assert transformers.AutoTokenizer.from_pretrained(folder)("w4 w2")["input_ids"] == [4, 2]


def opened(folder: Path) -> llm.Stored:
    checkpoint = llm.Checkpoint.open(folder)
    return llm.stored(llm.read_family(checkpoint.config), checkpoint)


def opened_family(folder: Path) -> llm.Family:
    return llm.read_family(llm.Checkpoint.open(folder).config)


@pytest.mark.slow
def test_what_gradients_need_of_all_positions_is_computed_at_once() -> None:
    """Weights of attention are kept for the way back however they are made, so a loop over t would hold no less."""
    config = {**CONFIG, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    family = llm.read_family(llm.Config(config))
    run = tp.compile(trainer(family), sizes={**family.sizes, "i": 2, "b": 4, "t": 512})
    decisions = run._engine.plan().decisions  # type: ignore[union-attr]
    assert not [each for each in decisions if each.dim.name in "bt" and each.kind != "full"]
