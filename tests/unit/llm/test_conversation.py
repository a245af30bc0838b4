"""Conversations: every turn is what a fresh run over the whole text gives, and reads what is new alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import llm
from tempo.cli import main
from tests.unit.llm.models import SMALL, VOCABULARY, drawn, make

NEW = 5
TEMPLATE = """{% for message in messages %}{% if message['role'] == 'judge' %}{{ raise_exception('no judge') }}{% endif %}
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


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        pytest.param(kind, BACKENDS[at % 3], marks=() if kind in ("Llama", "Gemma3Text") else pytest.mark.slow)
        for at, kind in enumerate(SMALL)
    ],
)
def test_each_turn_is_what_a_fresh_run_gives(kind: str, backend: str, tmp_path: Path) -> None:
    options = {**SMALL[kind], "n_positions": 96} if kind == "GPT2" else SMALL[kind]
    model = llm.load(speaking(tmp_path, kind, **options), backend=backend)
    counts = agrees(model.chat(max_new_tokens=NEW), SAID, max_new_tokens=NEW)
    assert counts[0][0] == 0
    assert [read for _, read in counts[-2:]] == [16, 16]
    assert counts[-1][0] > 16
