"""`python -m tempo chat`: messages in, line by line, answers out."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tempo.cli_generate import add_model_options, in_one_line, say, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tempo.llm.conversation import Conversation


def add_chat(commands: Any) -> None:
    """The command, among those of a parser."""
    parser = commands.add_parser(
        "chat",
        help="talk with a language model",
        description="A message is a line. Ctrl-C ends an answer, Ctrl-D the conversation.",
    )
    parser.add_argument("--model", required=True, metavar="DIR", help="a folder in Hugging Face's format")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told beforehand")
    add_model_options(parser)
    parser.add_argument(
        "--stats", action="store_true", help="print to standard error, for each answer, how long it took"
    )
    parser.set_defaults(run=chat)


def chat(parsed: argparse.Namespace) -> int:
    return in_one_line(_chat, parsed)


def _chat(parsed: argparse.Namespace) -> None:
    from tempo.llm.model import load

    ways = {"backend": parsed.backend, "device": parsed.device, "dtype": parsed.dtype, "quantize": parsed.quantize}
    model = load(parsed.model, **ways)
    conversation = model.chat(parsed.system, **settings(parsed))
    for message in _messages():
        _answer(conversation, message, parsed.stats)


def _messages() -> Iterator[str]:
    """The lines that hold something, until they end. From a terminal they can be edited, where there is readline."""
    if not sys.stdin.isatty():
        yield from filter(None, map(str.strip, sys.stdin))
        return
    if importlib.util.find_spec("readline"):
        importlib.import_module("readline")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            sys.stdout.write("\n")
            return
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            continue
        if line:
            yield line


def _answer(conversation: Conversation, message: str, tells: bool) -> None:
    start = first = time.perf_counter()
    try:
        with closing(conversation.stream(message)) as pieces:
            for number, piece in enumerate(pieces):
                first = first if number else time.perf_counter()
                sys.stdout.write(piece)
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # the answer is what was heard of it
    seconds = time.perf_counter() - first
    sys.stdout.write("\n")
    sys.stdout.flush()
    if tells:
        say(
            "stats",
            f"{conversation.kept} tokens kept, {conversation.read} read; first piece after {first - start:.2f} s; "
            f"{conversation.made} tokens, {max(conversation.made - 1, 0) / seconds:.1f} per second after the first",
        )
