"""The program that continues texts, and the one that says how likely they are.

Rows of different lengths stand at the right end of the prompt, with padding before them; all go on from the same point.
Sizes are rounded up, so that other lengths compile nothing: `first` says where each row starts, and `limit` where the
run ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import tempo as tp
from tempo.llm.beams import Beams
from tempo.llm.blocks import Dims, Past
from tempo.llm.errors import CheckpointError
from tempo.llm.families import Family
from tempo.llm.sampling import Sampling
from tempo.llm.training import logprobs
from tempo.llm.weights import declare


class Settings(TypedDict, total=False):
    """How texts go on, with the names and the meaning of `transformers.GenerationConfig`; None follows
    the folder's file.
    """

    max_new_tokens: int | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    stop_strings: str | Sequence[str] | None


_DEFAULTS: Mapping[str, Any] = {"do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0}
"""What `transformers` takes where neither a call nor `generation_config.json` says it."""
_OF_DRAWS = ("temperature", "top_k", "top_p", "min_p")
_OF_BEAMS = ("length_penalty", "early_stopping")
_MOST_NEW = 20


@dataclass(frozen=True)
class Request:
    """How texts go on: by which draws or beams, for how many tokens, up to which token or string.

    `most` counts the prompt, too, where a file says no more than `max_length`.
    """

    sampling: Sampling
    new_tokens: int | None
    most: int | None
    ends: tuple[int, ...]
    stop_strings: tuple[str, ...] = ()
    beams: Beams | None = None

    @staticmethod
    def of(given: Mapping[str, Any], file: Mapping[str, Any], vocabulary: int) -> Request:
        """What a call gives, else what `generation_config.json` says; None is not given.

        Raises `tp.InputError` for what means nothing, and `CheckpointError` where it is the file's.
        """
        unknown = given.keys() - Settings.__annotations__.keys()
        if unknown:
            known = ", ".join(Settings.__annotations__)
            raise tp.InputError(f"there is no setting {min(unknown)!r}", hint=f"there are {known}")
        asked = {name: value for name, value in given.items() if value is not None}
        settings = {**_DEFAULTS, **{name: value for name, value in file.items() if value is not None}, **asked}
        if settings["do_sample"] not in (True, False):
            raise tp.InputError(f"do_sample is {settings['do_sample']!r}, and must be True or False")
        beams = Beams.of(settings)
        with_one = [name for name in ("do_sample", "stop_strings") if settings.get(name)]
        if beams is not None and with_one:
            raise tp.UnsupportedError(f"{with_one[0]} with num_beams={beams.count}", hint="num_beams=1 makes one text")
        vain = [name for name in _OF_DRAWS if name in asked and not settings["do_sample"]]
        if vain:
            warnings.warn(f"{', '.join(vain)}: without do_sample=True nothing is drawn", stacklevel=4)
        vain = [name for name in _OF_BEAMS if name in asked and beams is None]
        if vain:
            warnings.warn(f"{', '.join(vain)}: with num_beams=1 nothing is searched", stacklevel=4)
        return Request(
            Sampling.of(settings),
            _count("max_new_tokens", settings.get("max_new_tokens")),
            None if "max_new_tokens" in settings else _count("max_length", settings.get("max_length")),
            _tokens(settings.get("eos_token_id"), vocabulary),
            _strings(settings.get("stop_strings")),
            beams,
        )

    def without_beams(self, what: str) -> Request:
        """For `what`, which is of one text that grows at its end. Raises `tp.UnsupportedError`."""
        if self.beams is None:
            return self
        raise tp.UnsupportedError(f"{what} with num_beams={self.beams.count}", hint="num_beams=1 makes one text")

    def new(self, prompt: int, positions: int) -> int:
        """How many tokens may follow a prompt; at most as many as the model has positions for."""
        wanted = self.new_tokens or (_MOST_NEW if self.most is None else self.most - prompt)
        if wanted < 1:
            raise tp.InputError(
                f"the prompt has {prompt} tokens, and generation_config.json says max_length is {self.most}",
                hint="say how many may follow: max_new_tokens=...",
            )
        return min(wanted, positions - prompt)


def _count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise tp.InputError(f"{name} is {value!r}, and must be a whole number of at least 1")
    return value


def _tokens(value: Any, vocabulary: int) -> tuple[int, ...]:
    """`eos_token_id` is a token, several or none."""
    listed = [] if value is None else value if isinstance(value, list | tuple) else [value]
    for token in listed:
        if type(token) is not int or not 0 <= token < vocabulary:
            raise CheckpointError(f"eos_token_id has {token!r}, which is none of the {vocabulary} tokens")
    return tuple(listed)


def _strings(value: Any) -> tuple[str, ...]:
    listed = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(each, str) and each for each in listed):
        raise tp.InputError(f"stop_strings is {value!r}, and must be a string or several, none of them empty")
    return listed


LEAST_NEW = 32
"""How many new tokens a program is compiled for at least: one token and a sentence are to run the same executable."""


def bucket(size: int, least: int = 16) -> int:
    """The power of two that a size is rounded up to, and so compiled for."""
    return max(least, 1 << (size - 1).bit_length())


# -- programs ----------------------------------------------------------------------------------------------------------


def generator(family: Family, dtype: str, sampling: Sampling, ends: int, quantize: str | None = None) -> tp.Program:
    """`token` (b, t): the prompt, and what follows it; behind one of the `ends` tokens that end a text comes padding.

    Inputs beside the weights: `prompt` (b, p), `first` (b), `limit`, how many positions there are at most, `end`
    (ends,), and what the sampling needs.
    """
    with tp.Program("generate") as program:
        b, l, p, new = tp.dims("b l p new")
        t = tp.dim("t", p.size + new.size)
        prompt = tp.input("prompt", (), (b, p), tp.int32)
        first = tp.input("first", (), (b,), tp.int32)
        limit = tp.input("limit", (), (), tp.int32)
        w = declare(family.weights(), family.sizes, dtype, l, quantize=quantize)

        token = tp.recurrent("token", (), (b, t), tp.int32)
        logits = family.logits(token, Dims(l, t, b, given=t < p.size), w, first)
        token[t < p.size] = prompt[b, t]
        token[b, t + 1] = sampling.choose(logits, token, tp.as_tensor(t) >= first, t)
        is_over = tp.as_tensor(t) + 1 >= limit
        if ends:
            is_end = (token == tp.input("end", (ends,), (), tp.int32)).any(axis=0)
            is_over = is_over | tp.cases((t >= p.size, is_end), False)
        tp.stop_when(t, is_over, each=b if ends else ())
        tp.output("token", token)
    return program


def answerer(family: Family, dtype: str, sampling: Sampling, ends: int, quantize: str | None = None) -> tp.Program:
    """`token` (t): a text whose beginning an earlier run has read, what comes next (`prompt`), and what follows that.

    Inputs beside those of `generator`: `kept_token` (n), and what the layers have made of them, `kept_key` and
    `kept_value` (l, n). A text starts at `first`, and has no gap: nothing is kept where that lies in the prompt.
    `key` and `value` (l, t) are what this run hands on, of all points.
    """
    with tp.Program("answer") as program:
        l, n, p, new = tp.dims("l n p new")
        start = n.size + p.size
        t = tp.dim("t", start + new.size)
        prompt = tp.input("prompt", (), (p,), tp.int32)
        first = tp.input("first", (), (), tp.int32)
        limit = tp.input("limit", (), (), tp.int32)
        kept_token = tp.input("kept_token", (), (n,), tp.int32)
        shape = (family.kv_heads, family.head_dim)
        key, value = (tp.input(f"kept_{name}", shape, (l, n), dtype) for name in ("key", "value"))
        past = Past(n, key, value)
        w = declare(family.weights(), family.sizes, dtype, l, quantize=quantize)

        token = tp.recurrent("token", (), (t,), tp.int32)
        logits = family.logits(token, Dims(l, t, given=t < start, past=past), w, first)
        token[t < n.size] = kept_token[t]
        token[t < start] = prompt[t - n.size]
        token[t + 1] = sampling.choose(logits, token, tp.as_tensor(t) >= first, t)
        is_over = (token == tp.input("end", (ends,), (), tp.int32)).any(axis=0) if ends else False
        tp.stop_when(t, (tp.as_tensor(t) >= start) & (is_over | (tp.as_tensor(t) + 1 >= limit)))
        tp.output("token", token)
        for name, each in zip(("key", "value"), past.attended):
            tp.output(name, each)
    return program


def widener(shape: tuple[int, ...], dtype: str) -> tp.Program:
    """`y` (l, n): `x` (l, s) behind as many zeros as `n` has points more than `s`."""
    with tp.Program("widen") as program:
        l, s, n = tp.dims("l s n")
        more = n.size - s.size
        x = tp.input("x", shape, (l, s), dtype)
        tp.output("y", tp.cases((n < more, tp.zeros(shape, dtype)), x[l, n - more]))
    return program


def scorer(family: Family, dtype: str, quantize: str | None = None) -> tp.Program:
    """`logprob` (b, t): the natural logarithm of each token's probability, given those before it; 0 of the first.

    Texts stand at the left end of `token` (b, t): nothing of them sees what follows.
    """
    with tp.Program("score") as program:
        b, l, t = tp.dims("b l t")
        token = tp.input("token", (), (b, t), tp.int32)
        w = declare(family.weights(), family.sizes, dtype, l, quantize=quantize)
        tp.output("logprob", logprobs(family, token, Dims(l, t, b, given=True), w))
    return program


def left_padded(rows: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    return [[0] * (length - len(row)) + list(row) for row in rows]


def right_padded(rows: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    return [list(row) + [0] * (length - len(row)) for row in rows]
