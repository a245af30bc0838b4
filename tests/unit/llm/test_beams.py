"""Beams: the texts that `transformers` finds, for each prompt of a batch, token for token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tempo as tp
from tempo import llm
from tempo.cli import main
from tempo.conformance.target import typical
from tests.unit.llm.models import SMALL, drawn, make

PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6, 5], [5, 8]]
ENDS = [7, 8, 20, 30, 40]
NEW, BEAMS = 8, 3
SETTINGS: list[dict[str, Any]] = [
    {},
    {"early_stopping": True},
    {"early_stopping": "never", "length_penalty": 2.0},
    {"length_penalty": -1.0, "repetition_penalty": 1.3},
]


def model_in(folder: Path, kind: str, seed: int, ends: list[int] | None = ENDS) -> Path:
    make(folder, kind, seed=seed, **drawn(kind, seed))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends, "pad_token_id": 0}))
    return folder


def by_transformers(folder: Path, prompt: list[int], **settings: Any) -> list[int]:
    """The new tokens of the best text."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    inputs = torch.tensor([prompt])
    ways = {"num_beams": BEAMS, "max_new_tokens": NEW, "use_cache": False}
    found = model.generate(inputs, attention_mask=torch.ones_like(inputs), **ways, **settings)
    return list(found[0, len(prompt) :].tolist())


def check(folder: Path, backend: str, **settings: Any) -> None:
    pytest.importorskip(backend)
    model = llm.load(folder, backend=backend)
    found = model.generate(PROMPTS, num_beams=BEAMS, max_new_tokens=NEW, **settings)
    assert [list(made.tokens) for made in found] == [by_transformers(folder, prompt, **settings) for prompt in PROMPTS]
    assert all(made.finish_reason == ("stop" if made.tokens[-1] in ENDS else "length") for made in found)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_a_batch_is_searched_as_each_prompt_alone(backend: str, tmp_path: Path) -> None:
    check(model_in(tmp_path, "Llama", 0), backend)


FAMILIES = [(kind, ("jax", "torch")[at % 2]) for at, kind in enumerate(SMALL)]
SEARCHED = [(*family, SETTINGS[at % len(SETTINGS)]) for at, family in enumerate(FAMILIES)]
SEARCHED += [(*FAMILIES[0], settings) for settings in SETTINGS[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("searched", typical(SEARCHED, SEARCHED[:4], pytest.mark.sweep), ids=str)
def test_every_family_is_searched_as_transformers_does(
    searched: tuple[str, str, dict[str, Any]], tmp_path: Path
) -> None:
    kind, backend, settings = searched
    check(model_in(tmp_path, kind, 1 + list(SMALL).index(kind)), backend, **settings)


@pytest.mark.slow
def test_texts_without_an_end_have_the_length_asked_for(tmp_path: Path) -> None:
    found = llm.load(model_in(tmp_path, "Llama", 0, None)).generate(PROMPTS, num_beams=BEAMS, max_new_tokens=NEW)
    assert [list(made.tokens) for made in found] == [by_transformers(tmp_path, prompt) for prompt in PROMPTS]
    assert {made.finish_reason for made in found} == {"length"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"num_beams": 0}, "num_beams is 0, and must be a whole number of at least 1"),
        ({"num_beams": 2, "length_penalty": "long"}, "length_penalty is 'long', and must be a number"),
        ({"num_beams": 2, "early_stopping": "always"}, "early_stopping is 'always'"),
        ({"num_beams": 2, "do_sample": True}, "do_sample with num_beams=2"),
        ({"num_beams": 2, "stop_strings": ["."]}, "stop_strings with num_beams=2"),
    ],
)
def test_what_means_nothing_is_refused(settings: dict[str, Any], told: str, tmp_path: Path) -> None:
    model = llm.load(model_in(tmp_path, "Llama", 0))
    with pytest.raises(tp.TempoError, match=told):
        model.generate([[1, 2]], **settings)


def test_nothing_that_grows_at_its_end_has_beams(tmp_path: Path) -> None:
    model = llm.load(model_in(tmp_path, "Llama", 0))
    with pytest.raises(tp.UnsupportedError, match="a stream with num_beams=2"):
        model.stream([1, 2], num_beams=2)
    with pytest.warns(UserWarning, match="length_penalty: with num_beams=1 nothing is searched"):
        model.generate([[1, 2]], max_new_tokens=1, length_penalty=2.0)


def test_the_command_says_in_one_line_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_in(tmp_path, "Llama", 0)
    tokenizers = pytest.importorskip("tokenizers")
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"w1": 1}, unk_token="w1")).save(str(tmp_path / "tokenizer.json"))
    arguments = ["generate", "--model", str(tmp_path), "--prompt", "w1", "--num-beams", "2"]
    assert main([*arguments, "--do-sample"]) == 2
    assert capsys.readouterr().err == "error: do_sample with num_beams=2; num_beams=1 makes one text\n"
