"""Conversations: every turn is what a fresh run over the whole text gives, and reads what is new alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import tempo as tp
from tempo import llm
from tempo.analysis.demand.demand import demand
from tempo.cli import main
from tempo.conformance.target import typical
from tempo.llm.generation import answerer
from tempo.llm.sampling import Sampling
from tempo.symbolic import Symbol
from tests.unit.llm.models import SMALL, VOCABULARY, make

NEW = 5
TEMPLATE = """{% for message in messages %}
{% if message['role'] == 'judge' %}{{ raise_exception('no judge') }}{% endif %}
 w2 {{ message['content'] }} w3{% endfor %}{% if add_generation_prompt %} w4{% endif %}"""
SAID = ["w10 w11 w12", "w13", "w20 w21 w22 w23 w24 w25 w26 w27 w28", "w30 w31", "w32"]


def speaking(folder: Path, kind: str = "Llama", **options: Any) -> Path:
    """A model that ends its answers with token 3, as the template does, with a tokenizer of a word for each token."""
    make(folder, kind, **(options or SMALL[kind]))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 3}))
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(VOCABULARY)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking(tmp_path_factory.mktemp("model"))


def fresh(model: llm.Model, messages: Any, **settings: Any) -> llm.Generation:
    """What follows the messages up to the last one of the user's."""
    return model.generate([model.apply_chat_template(messages)], **settings)[0]


def agrees(conversation: llm.Conversation, texts: list[str], **settings: Any) -> list[tuple[int, int]]:
    """Asserts that each turn is what a fresh run gives; how many tokens each kept and read."""
    found = []
    for text in texts:
        before = list(conversation.messages)
        made = conversation.say(text)
        expected = fresh(conversation.model, [*before, {"role": "user", "content": text}], **settings)
        assert made == expected
        assert conversation.messages[-1] == {"role": "assistant", "content": expected.text}
        found.append((conversation.kept, conversation.read))
    return found


BACKENDS = ["numpy", "torch", "jax"]


TALKED_TO = {"Llama", "Gemma3Text"}
"""In `make test-all`: with windows and without."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", typical(SMALL, TALKED_TO, pytest.mark.sweep))
def test_each_turn_is_what_a_fresh_run_gives_for_every_family(kind: str, tmp_path: Path) -> None:
    backend = BACKENDS[list(SMALL).index(kind) % 3]
    options = {**SMALL[kind], "n_positions": 96} if kind == "GPT2" else SMALL[kind]
    model = llm.load(speaking(tmp_path, kind, **options), backend=backend)
    counts = agrees(model.chat(max_new_tokens=NEW), SAID, max_new_tokens=NEW)
    assert counts[0][0] == 0
    assert [read for _, read in counts[-2:]] == [16, 16]
    assert counts[-1][0] > 16


@pytest.mark.slow
def test_a_turn_reads_what_is_new_and_compiles_nothing_new(folder: Path) -> None:
    model = llm.load(folder)
    counts = agrees(model.chat("w9", max_new_tokens=NEW), ["w10 w11 w12 w13 w14", "w15", "w16"], max_new_tokens=NEW)
    assert [read for _, read in counts] == [counts[0][1], 16, 16]
    assert [kept for kept, _ in counts] == sorted({kept for kept, _ in counts})
    made = {key: run.executables for key, run in model._made.items()}
    assert len([key for key in made if key[0][0] == "answer"]) == 1
    other = model.chat(max_new_tokens=NEW - 1)
    for text in ("w30 w31 w32", "w33 w34", "w35"):
        other.say(text)
    assert {key: run.executables for key, run in model._made.items()} == made


def test_no_layer_is_computed_for_what_is_kept(folder: Path) -> None:
    """Its products and norms are demanded from the prompt on."""
    graph = answerer(llm.load(folder).family, "float32", Sampling(), 1).graph()
    starts = {
        str(found.box.lo(Symbol("t", "dim")))
        for id, found in demand(graph).items()
        if graph.nodes[id].op in ("dot", "rms_norm") and Symbol("t", "dim") in graph.nodes[id].domain
    }
    assert starts == {"n.size", "n.size + p.size - 1"}


@pytest.mark.slow
def test_messages_that_were_changed_are_read_again(folder: Path) -> None:
    conversation = llm.load(folder).chat(max_new_tokens=NEW)
    ((_, first), (kept, _)) = agrees(
        conversation, [" ".join(f"w{at}" for at in range(10, 40)), "w13"], max_new_tokens=NEW
    )
    assert kept > first - 16
    words = conversation.messages[0]["content"].split()
    conversation.messages[0] = {"role": "user", "content": " ".join([*words[:24], "w49"])}
    ((kept, _),) = agrees(conversation, ["w20"], max_new_tokens=NEW)
    assert 0 < kept <= 25


@pytest.mark.slow
@pytest.mark.parametrize("end", [GeneratorExit, KeyboardInterrupt])
def test_an_answer_that_is_left_is_as_long_as_it_was(folder: Path, end: type[BaseException]) -> None:
    """Whether its listener goes away between two steps, or is interrupted in one."""
    conversation = llm.load(folder).chat(max_new_tokens=NEW)
    conversation.say("w10 w11 w12 w13 w14 w15")
    stream = conversation.stream("w16")
    heard = next(stream) + next(stream)
    with pytest.raises(end):
        stream.throw(end())
    assert conversation.messages[-2:] == [{"role": "user", "content": "w16"}, {"role": "assistant", "content": heard}]
    assert conversation.made == 2
    agrees(conversation, ["w17"], max_new_tokens=NEW)


@pytest.mark.slow
def test_penalties_and_stops_see_what_is_kept(folder: Path) -> None:
    model = llm.load(folder)
    settings: dict[str, Any] = {"max_new_tokens": NEW, "repetition_penalty": 1.8}
    conversation = model.chat(**settings)
    agrees(conversation, ["w10 w11 w12 w13 w14 w15", "w16"], **settings)
    stop = f"w{conversation._memory.tokens[-3]}"
    agrees(
        model.chat(stop_strings=stop, **settings),
        ["w10 w11 w12 w13 w14 w15", "w16", "w17"],
        stop_strings=stop,
        **settings,
    )


def test_halves_are_kept_as_they_are(folder: Path) -> None:
    conversation = llm.load(folder, backend="torch", dtype="bfloat16").chat(max_new_tokens=NEW)
    for text in (" ".join(f"w{at}" for at in range(10, 30)), "w13", "w14"):
        made = conversation.say(text)
        assert len(made.tokens) == NEW or made.finish_reason == "stop"
    assert conversation.read == 16
    assert conversation.kept > 16


def test_draws_follow_the_seed(folder: Path) -> None:
    model = llm.load(folder)
    settings: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": True, "temperature": 3.0}
    one, same, other = (model.chat(seed=seed, **settings) for seed in (1, 1, 2))
    said = [[conversation.say(text).text for text in ("w10", "w11")] for conversation in (one, same, other)]
    assert said[0] == said[1] != said[2]


def test_what_cannot_be_said_was_not_said(folder: Path) -> None:
    conversation = llm.load(folder).chat("w9", max_new_tokens=NEW)
    conversation.say("w10")
    before = list(conversation.messages)
    with pytest.raises(tp.InputError, match="the conversation has .* tokens, and the model 2048 positions"):
        conversation.say("w1 " * 3000)
    assert conversation.messages == before
    conversation.messages.append({"role": "judge", "content": "w1"})
    with pytest.raises(tp.InputError, match="no judge"):
        conversation.say("w1")
    conversation.messages.pop()
    agrees(conversation, ["w11"], max_new_tokens=NEW)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_answers_line_by_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("w10 w11\n\nw12\n"))
    assert main(["chat", "--model", str(folder), "--system", "w9", "--max-new-tokens", str(NEW), "--stats"]) == 0
    told = capsys.readouterr()
    conversation = llm.load(folder).chat("w9", max_new_tokens=NEW)
    assert told.out.splitlines() == [conversation.say(text).text for text in ("w10 w11", "w12")]
    lines = told.err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(f"stats: {conversation.kept} tokens kept, {conversation.read} read; first piece after ")


def test_the_command_tells_what_is_wrong_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer_config.json").unlink()
    monkeypatch.setattr("sys.stdin", io.StringIO("w10\n"))
    for arguments in (["--model", str(tmp_path)], ["--model", str(folder), "--do-sample", "--top-p", "2"]):
        assert main(["chat", *arguments]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("error: ")
        assert told.err.count("\n") == 1
    with pytest.raises(llm.CheckpointError, match="has no chat template"):
        llm.load(tmp_path).chat()
