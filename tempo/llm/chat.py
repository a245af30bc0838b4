"""Conversations as a model was trained to read them: its chat template, which jinja2 renders in a sandbox."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tempo as tp
from tempo.llm.checkpoint import read_table
from tempo.llm.errors import CheckpointError

Message = Mapping[str, Any]
"""`role` and `content`."""
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True)
class ChatTemplate:
    """`source` is jinja2's; `special` are the texts of special tokens, which it names."""

    source: str
    special: Mapping[str, str]
    path: Path

    @staticmethod
    def open(folder: Path) -> ChatTemplate:
        """chat_template.jinja, else that of tokenizer_config.json. Raises `CheckpointError` where there is none."""
        path = folder / "tokenizer_config.json"
        options = read_table(path) if path.exists() else {}
        special = {name: _text(options[name]) for name in _SPECIAL if options.get(name) is not None}
        own = folder / "chat_template.jinja"
        if own.exists():
            return ChatTemplate(own.read_text("utf-8"), special, own)
        found = options.get("chat_template")
        if isinstance(found, list):  # several, by name
            named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
            found = named.get("default")
        if not isinstance(found, str):
            raise CheckpointError(f"{folder} has no chat template", hint="it was made to continue texts, not to answer")
        return ChatTemplate(found, special, path)

    def render(self, messages: Sequence[Message]) -> str:
        """The text that the model answers to. Raises `tp.InputError` where the template refuses the messages."""
        try:
            import jinja2
            from jinja2 import ext, sandbox
        except ImportError as error:
            raise ImportError("chat templates need jinja2: python -m pip install tempo-sdg[llm]") from error

        class Marked(ext.Extension):  # type: ignore[misc] # is Any to mypy
            """`{% generation %}` says what a model is trained on; here it is text as any other."""

            tags = {"generation"}  # noqa: RUF012 - as jinja2 has it

            def parse(self, parser: Any) -> Any:
                next(parser.stream)
                return parser.parse_statements(("name:endgeneration",), drop_needle=True)

        ways = {"trim_blocks": True, "lstrip_blocks": True, "extensions": [Marked, ext.loopcontrols]}
        environment = sandbox.ImmutableSandboxedEnvironment(**ways)
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda way: _now().strftime(way)}
        try:
            template = environment.from_string(self.source)
            return str(template.render(messages=list(messages), add_generation_prompt=True, **self.special))
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(f"{self.path} has a broken chat template: {error}") from error
        except jinja2.TemplateError as error:
            raise tp.InputError(f"the chat template refuses the messages: {error}") from error


def _text(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _now() -> datetime.datetime:
    """The user's own time, as templates expect."""
    return datetime.datetime.now()
