"""Checkpoints: mapped as they are stored, single and sharded; and every way in which one can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tempo as tp
from tempo import llm
from tests.unit.llm.files import header_of, tensors, write, write_tensors
from tests.unit.llm.models import LLAMA, SMALL, expected, logits, make, texts


def opened(folder: Path) -> llm.Stored:
    checkpoint = llm.Checkpoint.open(folder)
    return llm.stored(llm.read_family(checkpoint.config), checkpoint)


def refused(folder: Path, *words: str) -> None:
    """Opening it is one clear error."""
    with pytest.raises(llm.CheckpointError) as caught:
        opened(folder)
    assert isinstance(caught.value, tp.TempoError | ValueError)
    assert "\n" not in caught.value.message
    for word in (str(folder), *words):
        assert word in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_are_views_of_the_file(tmp_path: Path, dtype: str) -> None:
    held = tensors(dtype=dtype)
    stored = opened(write(tmp_path, held))
    assert stored.checkpoint.dtype == dtype
    for name, array in stored.checkpoint.tensors.items():
        assert array.dtype.name == dtype and not array.flags.owndata and not array.flags.writeable
        np.testing.assert_array_equal(array, held[name])
    arrays = stored.arrays()
    assert "head" not in arrays  # it is the embedding's matrix, which is given once
    assert [np.shares_memory(each, stored.checkpoint.tensors[f"model.layers.{at}.mlp.up_proj.weight"])
            for at, each in enumerate(arrays["up"])] == [True, True]  # fmt: skip
    np.testing.assert_array_equal(arrays["up"], [held[f"model.layers.{at}.mlp.up_proj.weight"] for at in range(2)])


def test_another_dtype_on_request(tmp_path: Path) -> None:
    held = tensors(dtype="bfloat16")
    arrays = opened(write(tmp_path, held)).arrays("float32")
    assert {np.asarray(array).dtype.name for array in arrays.values()} == {"float32"}
    np.testing.assert_array_equal(arrays["norm"], held["model.norm.weight"].astype(np.float32))


def test_a_few_tensors_in_another_dtype_are_cast(tmp_path: Path) -> None:
    held = tensors(dtype="bfloat16")
    held["model.norm.weight"] = held["model.norm.weight"].astype(np.float32)
    arrays = opened(write(tmp_path, held)).arrays()
    assert arrays["norm"].dtype == ml_dtypes.bfloat16


def test_shards(tmp_path: Path) -> None:
    model = make(tmp_path, "Llama", shard="5KB", **LLAMA)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    np.testing.assert_allclose(logits(tmp_path, texts(4)), expected(model, texts(4)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_a_model_saved_without_its_head(kind: str, tmp_path: Path) -> None:
    model = make(tmp_path, kind, tie_word_embeddings=True, **SMALL[kind])
    model.base_model.save_pretrained(tmp_path)
    assert not any(name.startswith(("model.", "transformer.")) for name in llm.Checkpoint.open(tmp_path).tensors)
    assert len(opened(tmp_path).arrays()["out"]) == 3


def test_what_some_checkpoints_have_beside_the_weights(tmp_path: Path) -> None:
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(2, np.float32)}
    write(tmp_path, {**tensors(), **buffer, "lm_head.weight": np.zeros((5, 4), np.float32)})
    assert opened(tmp_path).arrays()["norm"].shape == (4,)


def test_generation_config(tmp_path: Path) -> None:
    assert llm.Checkpoint.open(write(tmp_path)).generation == {}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert llm.Checkpoint.open(tmp_path).generation == {"eos_token_id": [1, 2]}


def test_no_checkpoint(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "is no folder")
    refused(tmp_path, "there is no config.json")
    write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    refused(tmp_path, "there is no model.safetensors", "save_pretrained")


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_a_config_that_is_no_table(text: str, tmp_path: Path) -> None:
    (write(tmp_path) / "config.json").write_text(text)
    refused(tmp_path, "config.json")


def test_a_config_that_is_no_text(tmp_path: Path) -> None:
    (write(tmp_path) / "config.json").write_bytes(b"\xff\xfe{}")
    refused(tmp_path, "config.json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_type": "bert"}, ["model_type is 'bert'", *llm.FAMILIES]),
        ({"model_type": None}, ["does not say model_type"]),
        ({"vocab_size": None}, ["does not say vocab_size"]),
        ({"vocab_size": "five"}, ["vocab_size is 'five'", "whole number"]),
        ({"hidden_size": 0}, ["hidden_size is 0"]),
        ({"hidden_size": True}, ["hidden_size is True"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers"]),
        ({"num_hidden_layers": 9000}, ["81002 tensors"]),
        ({"model_type": "mixtral", "num_hidden_layers": 9999, "num_local_experts": 9999}, ["300009998 tensors"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads is 3", "divide"]),
        ({"head_dim": 3}, ["3 channels", "pairs"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps is nan"]),
        ({"hidden_act": "swoosh"}, ["hidden_act is 'swoosh'", "silu"]),
        ({"hidden_act": ["silu"]}, ["hidden_act is ['silu']"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings is 'yes'"]),
        ({"rope_scaling": "linear"}, ["rope_scaling is 'linear'"]),
        ({"rope_scaling": {"rope_type": "spiral"}}, ["rope_type is 'spiral'", "llama3"]),
        ({"rope_scaling": {"type": "linear"}}, ["does not say factor"]),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, ["factor is 0"]),
        ({"rope_theta": 0}, ["rope_theta is 0"]),
        ({"rope_theta": 1.0}, ["rope_theta is", "base of 1.0"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor is 0.5", "not implemented"]),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, ["layer_types"]),
        ({"model_type": "qwen2", "layer_types": ["full_attention", "linear_attention"]}, ["linear_attention"]),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": -1}, ["max_window_layers"]),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}, ["attn_logit_softcapping is 50.0"]),
        ({"model_type": "gpt2", "n_embd": 5, "n_head": 2, "n_layer": 1}, ["n_head is 2"]),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, ["num_experts_per_tok is 9"]),
    ],
)
def test_a_config_that_cannot_be_run(options: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    refused(write(tmp_path, **options), *words)


def test_missing_extra_and_misshapen_tensors(tmp_path: Path) -> None:
    held = tensors()
    name = "model.layers.1.mlp.up_proj.weight"
    refused(write(tmp_path, {key: value for key, value in held.items() if key != name}), name, "missing")
    refused(write(tmp_path, {**held, "model.layers.2.mlp.up_proj.weight": held[name]}), "layers.2.mlp.up_proj")
    refused(write(tmp_path, {**held, name: held[name].T}), name, "(4, 6)", "(6, 4)")
    refused(write(tmp_path, {**held, name: held[name].astype(np.int32)}), name, "int32")
    refused(write(tmp_path, {key: value for key, value in held.items() if "layers" not in key}), "layers.0", "more")
    refused(write(tmp_path, held, tie_word_embeddings=False), "lm_head.weight", "missing")


def changed(**entry: Any) -> dict[str, Any]:
    header = header_of(tensors())
    header["model.norm.weight"] |= entry
    return header


TEXT = json.dumps(header_of(tensors()))
AT = header_of(tensors())["model.norm.weight"]["data_offsets"]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"a": \x00}',
        '{"a": 1}',
        '{"a": {}}',
        TEXT[:-1] + ", " + TEXT[1:],  # each name twice
        changed(dtype="F12"),
        changed(dtype=["F32"]),
        changed(shape=[5]),
        changed(shape=[-4]),
        changed(shape=[4.0]),
        changed(shape=[True, 4]),
        changed(shape=[2**40, 2**40]),
        changed(shape=[1] * 40 + [4]),
        changed(shape="4"),
        changed(data_offsets=AT[::-1]),
        changed(data_offsets=[0, 16]),  # lies in another
        changed(data_offsets=[10**9, 10**9 + 16]),
        changed(data_offsets=[*AT, AT[1]]),
        changed(data_offsets=None),
        {key: value for key, value in header_of(tensors()).items() if key != "model.norm.weight"},  # a hole
    ],
)
def test_a_header_that_lies(header: Any, tmp_path: Path) -> None:
    write_tensors(write(tmp_path) / "model.safetensors", tensors(), header)
    refused(tmp_path, "model.safetensors")


@pytest.mark.parametrize("size", [0, 7, 8, 20, 500, -1])
def test_a_file_that_was_cut_short(size: int, tmp_path: Path) -> None:
    path = write(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    refused(tmp_path, "model.safetensors")


def test_a_header_longer_than_any(tmp_path: Path) -> None:
    (write(tmp_path) / "model.safetensors").write_bytes(b"\xff" * 64)
    refused(tmp_path, "no whole safetensors file")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({}, ["weight_map"]),
        ({"weight_map": {"a": "../config.json"}}, ["outside"]),
        ({"weight_map": {"a": "/etc/passwd"}}, ["outside"]),
        ({"weight_map": {"a": ".."}}, ["outside"]),
        ({"weight_map": {"a": "b\x00"}}, ["not there"]),
        ({"weight_map": {"a": 3}}, ["not there"]),
        ({"weight_map": {"a": "part.safetensors"}}, ["'a'", "does not"]),
        ({"weight_map": {"a": "config.json"}}, ["config.json"]),
    ],
)
def test_an_index_that_lies(index: Any, words: list[str], tmp_path: Path) -> None:
    (write(tmp_path) / "model.safetensors").rename(tmp_path / "part.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(tmp_path, *words)
