"""`python -m tempo generate`: a folder and a prompt in, text out."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import tempo as tp


def add_generate(commands: Any) -> None:
    """The command, among those of a parser."""
    parser = commands.add_parser("generate", help="continue a text with a language model")
    parser.add_argument("--model", required=True, metavar="DIR", help="a folder in Hugging Face's format")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT")
    prompt.add_argument("--prompt-file", metavar="FILE", help="a file that holds the prompt; - is standard input")
    parser.add_argument("--chat", action="store_true", help="the prompt is a message, and the text its answer")
    add_model_options(parser)
    parser.add_argument("--num-beams", type=int, metavar="N", help="search so many texts at once for the likeliest")
    parser.add_argument("--length-penalty", type=float, help="of a search: above 0 favours long texts, default 1")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--stream", action="store_true", help="print every piece of the text as it is made")
    shown.add_argument(
        "--json", action="store_true", help="print one object: prompt_tokens, tokens, text, seconds, ..."
    )
    parser.add_argument("--stats", action="store_true", help="print to standard error how long it took")
    parser.set_defaults(run=generate)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """How texts go on, and where the model runs."""
    parser.add_argument("--max-new-tokens", "--max-tokens", type=int, metavar="N")
    parser.add_argument("--do-sample", action="store_true", default=None, help="draw, else the likeliest token")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--min-p", type=float)
    parser.add_argument("--repetition-penalty", type=float)
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end behind this; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", help="default: TEMPO_BACKEND, else numpy")
    parser.add_argument("--device")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16; that of the file unless given")
    parser.add_argument("--quantize", metavar="INT8", help="int8: matrices in 8 bits, with a scale for each output")


def settings(parsed: argparse.Namespace) -> dict[str, Any]:
    """Of these options, those that say how texts go on."""
    names = ("max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    of_a_search = (name for name in ("num_beams", "length_penalty") if hasattr(parsed, name))
    return {**{name: getattr(parsed, name) for name in (*names, *of_a_search)}, "stop_strings": parsed.stop}


def generate(parsed: argparse.Namespace) -> int:
    return in_one_line(_generate, parsed)


def in_one_line(run: Callable[[argparse.Namespace], None], parsed: argparse.Namespace) -> int:
    """The status of the command: 2 for what the user can mend, told in one line."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _told
            run(parsed)
    except (tp.TempoError, ImportError, OSError) as error:
        hint = getattr(error, "hint", None)
        say("error", " ".join(f"{getattr(error, 'message', error)}{f'; {hint}' if hint else ''}".split()))
        return 2
    return 0


def _generate(parsed: argparse.Namespace) -> None:
    from tempo.llm.model import load

    prompt = parsed.prompt if parsed.prompt_file is None else _read(parsed.prompt_file)
    ways = {"backend": parsed.backend, "device": parsed.device, "dtype": parsed.dtype, "quantize": parsed.quantize}
    model = load(parsed.model, **ways)
    message = {"role": "user", "content": prompt}
    prompt_tokens = model.apply_chat_template([message]) if parsed.chat else model.tokenizer.encode(prompt)
    start = time.perf_counter()
    if parsed.stream:
        for piece in model.stream(prompt_tokens, **settings(parsed)):
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
        count = None
    else:
        (made,) = model.generate([prompt_tokens], **settings(parsed))
        count = len(made.tokens)
    seconds = time.perf_counter() - start
    if parsed.json:
        found = {"prompt_tokens": prompt_tokens, "tokens": list(made.tokens), "text": made.text, "seconds": seconds}
        sys.stdout.write(json.dumps({**found, "tokens_per_second": len(made.tokens) / seconds}) + "\n")
    elif not parsed.stream:
        sys.stdout.write(f"{made.text}\n")
    if parsed.stats:
        told = "" if count is None else f"{count} tokens after {len(prompt_tokens)}, {count / seconds:.1f} per second; "
        say("stats", f"{told}{seconds:.2f} s, compiling included")


def _read(path: str) -> str:
    return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")


def _told(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say("warning", str(message))


def say(what: str, text: str) -> None:
    sys.stderr.write(f"{what}: {text}\n")
