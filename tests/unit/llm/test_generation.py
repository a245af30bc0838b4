"""Texts that go on: token for token as `transformers` continues them, alone and in batches, drawn and not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import llm
from tempo.backends import ByPoint
from tempo.cli import main
from tempo.conformance.target import typical
from tempo.llm.chat import ChatTemplate
from tempo.llm.text import Detokenizer, Tokenizer
from tempo.runtime.program_run import ProgramRun
from tests.unit.llm.models import SMALL, VOCABULARY, drawn, make

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
PROMPTS = [[3, 1, 4], [1, 5, 9, 2, 6, 5, 3], [5, 8, 9, 7, 9]]
NEW = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose text ends at token 7 or 8, with a tokenizer of a word for each token."""
    path = tmp_path_factory.mktemp("model")
    make(path, "Llama", num_key_value_heads=2, **SIZES)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8], "pad_token_id": 0}))
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(VOCABULARY)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.save(str(path / "tokenizer.json"))
    return path


def by_transformers(folder: Path, prompt: list[int], **settings: Any) -> list[int]:
    """The new tokens. Without its cache, which keeps all that there was where a window is of one token."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    inputs = torch.tensor([prompt])
    found = model.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=NEW, use_cache=False, **settings
    )
    return list(found[0, len(prompt) :].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_a_batch_continues_as_each_prompt_alone(folder: Path, backend: str) -> None:
    model = llm.load(folder, backend=backend)
    found = model.generate(PROMPTS, max_new_tokens=NEW)
    for prompt, made in zip(PROMPTS, found, strict=True):
        assert list(made.tokens) == by_transformers(folder, prompt)
        assert made.finish_reason == ("stop" if made.tokens[-1] in (7, 8) else "length")
        assert made.text == " ".join(f"w{token}" for token in made.tokens)
    assert model.generate(PROMPTS[1], max_new_tokens=NEW) == found[1:2]


def test_the_tokenizer_of_another_model_is_told_before_anything_is_compiled(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    other = shutil.copytree(folder, tmp_path / "other")
    words = {f"w{number}": number for number in range(VOCABULARY + 1)}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0")).save(str(other / "tokenizer.json"))
    monkeypatch.setattr(tp, "compile", lambda *_, **__: pytest.fail("it is compiled"))
    with pytest.raises(llm.CheckpointError, match=f"makes tokens up to {VOCABULARY}"):
        llm.load(other, backend="numpy").generate(PROMPTS, max_new_tokens=NEW)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_kept_of_each_layer_stays_apart(folder: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the pass over the prompt to the loop over new tokens, which has an array of its own for each layer."""
    storage = pytest.importorskip("tempo_jax.storage")
    whole = llm.load(folder, backend="jax", dtype=dtype).generate(PROMPTS, max_new_tokens=NEW)
    monkeypatch.setattr(storage, "_LEAST_ELEMENTS", 0)
    monkeypatch.setattr(storage, "RUNS", 1e9)
    monkeypatch.setattr("tempo.loop_ir.transforms.fuse_segments._LARGE", 0)
    model, given = llm.load(folder, backend="jax", dtype=dtype), list[Any]()
    made = ProgramRun.whole

    def watched(self: ProgramRun, item: Any) -> None:
        made(self, item)
        given.extend(each for each in self.buffers if isinstance(each, ByPoint))

    monkeypatch.setattr(ProgramRun, "whole", watched)
    assert model.generate(PROMPTS, max_new_tokens=NEW) == whole
    assert {each.shape[0] for each in given} == {SIZES["num_hidden_layers"]}
    assert any(each.ndim == 5 for each in given)  # keys, by layer, position, row, head, feature
    streamed = "".join(model.stream(PROMPTS[1], max_new_tokens=NEW))
    assert streamed.split() == (whole[1].text or "").split()


@pytest.mark.slow
@pytest.mark.parametrize("seed", typical(range(6), range(2), pytest.mark.sweep))
@pytest.mark.parametrize("kind", SMALL)
def test_every_family_continues_as_transformers_does(kind: str, seed: int, tmp_path: Path) -> None:
    """A batch of unequal prompts, of models with random options, token for token."""
    backend = ("jax", "torch")[seed % 2]
    make(tmp_path, kind, seed=seed, **drawn(kind, seed))
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, VOCABULARY, length).tolist() for length in rng.permutation([2, 4, 6])]
    found = llm.load(tmp_path, backend=backend).generate(prompts, max_new_tokens=NEW)
    assert [list(made.tokens) for made in found] == [by_transformers(tmp_path, prompt) for prompt in prompts]


def test_a_penalty_for_repetition_looks_at_the_row_alone(folder: Path) -> None:
    found = llm.load(folder).generate(PROMPTS, max_new_tokens=NEW, repetition_penalty=1.8)
    assert [list(made.tokens) for made in found] == [
        by_transformers(folder, prompt, repetition_penalty=1.8) for prompt in PROMPTS
    ]


def test_a_stream_gives_the_text_in_pieces(folder: Path) -> None:
    model = llm.load(folder)
    (whole,) = model.generate("w3 w1 w4", max_new_tokens=NEW)
    pieces = list(model.stream("w3 w1 w4", max_new_tokens=NEW))
    assert len(pieces) == len(whole.tokens)
    assert "".join(pieces) == whole.text


def test_a_character_of_several_tokens_comes_whole() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    library = tokenizers.Tokenizer(tokenizers.models.BPE({each: at for at, each in enumerate(alphabet)}, []))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    text = "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve \N{SMILING FACE WITH SUNGLASSES}!"
    made = Detokenizer(Tokenizer(library))
    found = [made.add(token) for token in library.encode(text).ids]
    assert [piece for piece in found if piece] == list(text)
    assert len(found) == len(text.encode())
    assert made.text == text
    assert made.add(library.encode("\N{SMILING FACE WITH SUNGLASSES}").ids[0]) == ""
    assert made.end() == "\N{REPLACEMENT CHARACTER}"


def test_a_string_ends_a_row(folder: Path) -> None:
    model = llm.load(folder)
    (whole,) = model.generate("w3 w1 w4", max_new_tokens=NEW)
    stop = f"w{whole.tokens[2]}"
    made, other = model.generate(["w3 w1 w4", "w9"], max_new_tokens=NEW, stop_strings=[stop])
    assert made.finish_reason == "stop"
    assert made.tokens == whole.tokens[: whole.tokens.index(whole.tokens[2]) + 1]
    assert other == model.generate("w9", max_new_tokens=NEW, stop_strings=[stop])[0]


@pytest.mark.slow
def test_draws_are_of_what_transformers_leaves_to_draw_from(folder: Path) -> None:
    """Of many draws of one token, those that occur are the candidates, about as often as they are likely."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    settings: dict[str, Any] = {"temperature": 1.7, "top_k": 6, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.2}
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    inputs = torch.tensor([PROMPTS[1]])
    ways = {"return_dict_in_generate": True, "output_scores": True, "do_sample": True, "max_new_tokens": 1}
    scores = peer.generate(inputs, attention_mask=torch.ones_like(inputs), **ways, **settings).scores[0][0]
    expected = torch.softmax(scores, -1).numpy()
    drawn = llm.load(folder).generate([PROMPTS[1]] * 600, max_new_tokens=1, do_sample=True, **settings)
    found = np.bincount([made.tokens[0] for made in drawn], minlength=VOCABULARY) / len(drawn)
    assert set(np.flatnonzero(found)) <= set(np.flatnonzero(expected))
    np.testing.assert_allclose(found, expected, atol=0.08)


@pytest.mark.slow
def test_draws_are_equal_on_all_backends_and_follow_the_seed(folder: Path) -> None:
    settings = {"max_new_tokens": NEW, "do_sample": True, "top_p": 0.9}
    found = [llm.load(folder, backend=backend).generate(PROMPTS, seed=3, **settings) for backend in ("numpy", "torch")]
    assert found[0] == found[1]
    assert found[0] != llm.load(folder).generate(PROMPTS, seed=4, **settings)


def test_the_file_says_what_the_call_does_not(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    table = json.loads((tmp_path / "generation_config.json").read_text())
    table |= {"do_sample": True, "temperature": 0.001, "eos_token_id": None, "max_new_tokens": 4}
    (tmp_path / "generation_config.json").write_text(json.dumps(table))
    (made,) = llm.load(tmp_path).generate([PROMPTS[0]], seed=1)
    assert len(made.tokens) == 4
    assert made.finish_reason == "length"
    (other,) = llm.load(tmp_path).generate([PROMPTS[0]], seed=2)
    assert other == made  # so cold a draw is the likeliest


def test_other_lengths_compile_nothing(folder: Path) -> None:
    model = llm.load(folder)
    model.generate([[1, 2, 3]], max_new_tokens=3)
    made = dict(model._made)
    model.generate([[1, 2, 3, 4, 5, 6]], max_new_tokens=7)
    assert model._made == made
    assert {run.executables for run in made.values()} == {1}


def test_likelihoods_are_those_of_transformers(folder: Path) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for prompt, score in zip(PROMPTS, llm.load(folder).score(PROMPTS), strict=True):
        with torch.no_grad():
            logits = torch.log_softmax(peer(torch.tensor([prompt])).logits[0], -1)
        expected = [float(logits[at, token]) for at, token in enumerate(prompt[1:])]
        np.testing.assert_allclose(score.logprobs, expected, rtol=1e-4, atol=1e-4)
        assert score.perplexity == pytest.approx(np.exp(-np.mean(expected)), rel=1e-4)


@pytest.mark.parametrize(
    ("prompt", "settings", "told"),
    [
        ([], {}, "the prompt is empty"),
        ([1, VOCABULARY], {}, "token 50; the model knows 0 to 49"),
        ([1, -1], {}, "token -1"),
        ([1] * 3000, {}, "3000 tokens"),
        ([1], {"max_new_tokens": 0}, "max_new_tokens is 0"),
        ([1], {"do_sample": True, "temperature": -1.0}, "temperature is -1.0, and must be greater than 0"),
        ([1], {"do_sample": True, "top_p": 0.0}, "top_p is 0.0"),
        ([1], {"do_sample": True, "top_p": 1.5}, "top_p is 1.5"),
        ([1], {"do_sample": True, "top_k": -1}, "top_k is -1"),
        ([1], {"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ([1], {"stop_strings": [""]}, "stop_strings"),
        ([1], {"max_tokens": 3}, "there is no setting 'max_tokens'"),
    ],
)
def test_what_means_nothing_is_refused(folder: Path, prompt: list[int], settings: dict[str, Any], told: str) -> None:
    with pytest.raises(tp.InputError, match=told):
        llm.load(folder).generate([prompt], **settings)


TEMPLATE = """{{ bos_token }}{% for message in messages %}
{% if message['role'] not in ('user', 'assistant') %}{{ raise_exception('no ' + message['role']) }}{% endif %}
 w2 {% generation %}{{ message['content'] }}{% endgeneration %} w3
{% endfor %}{% if add_generation_prompt %} w4{% endif %}"""


def test_a_conversation_is_rendered_as_transformers_does(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": {"content": "w1"}, "chat_template": TEMPLATE}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    messages = [{"role": "user", "content": "w10 w11"}, {"role": "assistant", "content": "w12"}]
    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), bos_token="w1")
    expected = peer.apply_chat_template(messages, chat_template=TEMPLATE, add_generation_prompt=True, tokenize=False)
    model = llm.load(tmp_path)
    assert ChatTemplate.open(tmp_path).render(messages) == expected
    assert model.apply_chat_template(messages) == [1, 2, 10, 11, 3, 2, 12, 3, 4]
    (tmp_path / "chat_template.jinja").write_text("w5 {{ messages[0]['content'] }}")
    assert model.apply_chat_template(messages) == [5, 10, 11]
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    with pytest.raises(tp.InputError, match="refuses the messages: no judge"):
        model.apply_chat_template([{"role": "judge", "content": "w1"}])
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(llm.CheckpointError, match="broken chat template"):
        model.apply_chat_template(messages)
    with pytest.raises(llm.CheckpointError, match="has no chat template"):
        llm.load(folder).apply_chat_template(messages)


def test_what_is_not_implemented_is_refused(folder: Path) -> None:
    with pytest.raises(tp.InputError, match="a stream is of one prompt, not of 2"):
        llm.load(folder).stream([[1, 2], [3]])


def test_settings_of_draws_without_draws_are_told(folder: Path) -> None:
    with pytest.warns(UserWarning, match="temperature: without do_sample=True nothing is drawn"):
        llm.load(folder).generate([[1, 2]], max_new_tokens=1, temperature=0.5)


def test_the_command_prints_one_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model", str(folder), "--prompt", "w3 w1 w4", "--max-tokens", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt_tokens"] == [3, 1, 4]
    assert found["tokens"] == by_transformers(folder, [3, 1, 4])[:3]
    assert found["text"] == " ".join(f"w{token}" for token in found["tokens"])
    assert found["seconds"] > 0
    assert found["tokens_per_second"] > 0


@pytest.mark.parametrize(
    "arguments", [["--prompt", ""], ["--prompt", "w1", "--do-sample", "--top-p", "2"], ["--prompt-file", "nowhere"]]
)
def test_the_command_tells_what_is_wrong_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["generate", "--model", str(folder), *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
