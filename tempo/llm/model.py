"""A model that is ready to run: texts in, texts out.

>>> import tempo as tp
>>> model = tp.llm.load("Llama-3.2-1B", backend="torch")  # doctest: +SKIP
>>> model.generate(["You may reproduce"], max_new_tokens=8)  # doctest: +SKIP
[Generation(text=' and distribute copies of the Work', tokens=(...), finish_reason='length')]
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np

import tempo as tp
from tempo.llm.beams import searcher, texts
from tempo.llm.chat import ChatTemplate, Message
from tempo.llm.checkpoint import FLOATS, Checkpoint
from tempo.llm.conversation import Conversation
from tempo.llm.families import Family, read_family, stored
from tempo.llm.generation import LEAST_NEW, Request, Settings, bucket, generator, left_padded, right_padded, scorer
from tempo.llm.parallel import Parallel
from tempo.llm.saving import on_host
from tempo.llm.text import Detokenizer, Tokenizer
from tempo.llm.weights import QUANTIZED, Stored

Prompt = str | Sequence[int]
Rows = list[list[int]]
LONGEST_ANSWER = 256
_OPTIONS = tp.Options(checks=False)  # tokens are looked at before they are given, so no index is out of range


@dataclass(frozen=True)
class Generation:
    """What follows a prompt. `tokens` are the new ones, the one that ended the text included; `text` is theirs without
    special tokens, None where the folder holds no tokenizer. `finish_reason`: "stop" at an end token or a stop string.
    """

    text: str | None
    tokens: tuple[int, ...]
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True)
class Score:
    """How likely a text is: of each token after the first the natural logarithm of its probability, given those before.

    `perplexity` is e to the minus of their mean.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]

    @property
    def perplexity(self) -> float:
        return math.exp(-sum(self.logprobs) / len(self.logprobs))


def load(
    folder: str | os.PathLike[str],
    *,
    backend: Any = None,
    scheduler: Any = None,
    dtype: Any = None,
    device: str | None = None,
    quantize: str | None = None,
    mesh: tp.Mesh | None = None,
) -> Model:
    """The model in a folder in Hugging Face's format: `config.json`, `*.safetensors`, `tokenizer.json`.

    `dtype`: "float32", "bfloat16" or "float16"; that of the file unless given. `quantize="int8"` holds matrices in 8
    bits, with a float32 scale for each output; all else is of `dtype`, embeddings included and a head that is one of
    them, and so is what is computed and kept. `backend`, `scheduler` and `device` as `tp.compile` has them.
    `mesh`: many devices hold and run the model as one (`tempo.llm.parallel`): along "model" they have parts of its
    matrices and of what is kept of each position, along "data" they have rows of text.
    Raises `CheckpointError` for what is missing, broken or not implemented, `tp.InputError` and `tp.SizeError` for a
    mesh that the model does not lie on.
    """
    checkpoint = Checkpoint.open(folder)
    family = read_family(checkpoint.config)
    chosen = checkpoint.dtype if dtype is None else np.dtype(dtype).name if not isinstance(dtype, str) else dtype
    if chosen not in FLOATS:
        raise tp.DTypeError(f"a model of dtype {chosen}", hint=f"there are {', '.join(FLOATS)}")
    if quantize is not None and quantize not in QUANTIZED:
        raise tp.InputError(f"quantize is {quantize!r}", hint=f"there is {', '.join(QUANTIZED)}")
    ways = {"backend": backend, "scheduler": scheduler, "device": device}
    given = {name: way for name, way in ways.items() if way}
    parallel = None if mesh is None else Parallel(mesh, family, quantize is not None)
    return Model(stored(family, checkpoint), family, chosen, given, quantize, parallel)


@dataclass(eq=False)
class Model:
    """Made by `load`. Programs are compiled when they are first needed, for sizes rounded up to powers of two."""

    stored: Stored
    family: Family
    dtype: str
    ways: Mapping[str, Any] = field(default_factory=dict)  # how programs are compiled
    quantize: str | None = None
    parallel: Parallel | None = None
    _made: dict[Any, Any] = field(default_factory=dict, repr=False)
    _held: dict[str, Any] = field(default_factory=dict, repr=False)  # the weights

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.open(self.stored.checkpoint.folder, self.family.vocabulary)

    @property
    def has_tokenizer(self) -> bool:
        return (self.stored.checkpoint.folder / "tokenizer.json").exists()

    def _opened(self) -> Tokenizer | None:
        """The tokenizer, where there is one. What is wrong with it is told before anything is computed."""
        return self.tokenizer if self.has_tokenizer else None

    def weights_for(self, run: Any) -> Mapping[str, Any]:
        """The program's inputs, as the backend keeps them; all programs read them alike."""
        if not self._held:
            stored = self.stored.arrays(self.dtype, self.quantize)
            run.compile_ahead(**stored)
            self._held.update(run.device_put(**stored))
        return self._held

    # -- generating ------------------------------------------------------------------------------------------------

    def generate(
        self, prompts: Prompt | Sequence[Prompt], *, seed: int = 0, **settings: Unpack[Settings]
    ) -> list[Generation]:
        """Continue texts, or lists of tokens, all at once; each ends at its own end token.

        `settings` have the meaning that `transformers` gives these names: `max_new_tokens`, `do_sample`, `temperature`,
        `top_k`, `top_p`, `min_p`, `repetition_penalty`, `num_beams`, `length_penalty`, `early_stopping`,
        `stop_strings`; None follows `generation_config.json`. Beams are searched without draws and stop strings.
        Draws are a function of the seed, the row and the position. Raises `tp.InputError` for an empty prompt, one
        longer than the model's positions, and tokens or settings out of range.
        """
        request = self._request(settings)
        rows = self._rows(prompts)
        if not rows:
            return []
        call = self._call(request, rows, seed)
        if request.stop_strings:
            return self._until_strings(request, rows, call)
        if request.beams is not None:
            found = call.run(**call.arguments)
            best = texts({name: on_host(found[name]) for name in found}, call.start)
            return [self._generation(request, row) for row in best]
        made = on_host(call.run(**call.arguments)["token"])
        return [self._generation(request, row) for row in made[:, call.start :].tolist()]

    def apply_chat_template(self, messages: Sequence[Message]) -> list[int]:
        """A conversation, `[{"role": "user", "content": "..."}, ...]`, as the prompt that the model answers to.

        Raises `CheckpointError` for a model without a chat template, and `tp.InputError` where that refuses a message.
        """
        text = ChatTemplate.open(self.stored.checkpoint.folder).render(messages)
        return self.tokenizer.encode(text, around=False)  # the template has written it

    def stream(self, prompt: Prompt, *, seed: int = 0, **settings: Unpack[Settings]) -> Iterator[str]:
        """The text that follows one prompt, piece by piece; the arguments are those of `generate`."""
        request, rows = self._request(settings).without_beams("a stream"), self._rows(prompt)
        if len(rows) != 1:
            raise tp.InputError(f"a stream is of one prompt, not of {len(rows)}", hint="model.generate takes several")
        return self._pieces(request, self._call(request, rows, seed).steps(), Detokenizer(self.tokenizer))

    def chat(self, system: str | None = None, *, seed: int = 0, **settings: Unpack[Settings]) -> Conversation:
        """A conversation: `say(text)` answers, `stream(text)` answers piece by piece; what was said is not computed
        again.

        `system` is what the model is told beforehand, `settings` are those of `generate`; an answer has at most 256
        tokens where neither they nor the folder say it. Raises `CheckpointError` for a model without a chat template.
        """
        ChatTemplate.open(self.stored.checkpoint.folder)
        told: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        request = self._request(settings).without_beams("a conversation")
        if request.new_tokens is request.most is None:
            request = replace(request, new_tokens=LONGEST_ANSWER)
        return Conversation(self, request, seed, told)

    def _pieces(self, request: Request, steps: Iterator[list[int]], pieces: Detokenizer) -> Iterator[str]:
        for (token,) in steps:
            if piece := pieces.add(token):
                yield piece
            if self._has_ended(request, pieces):
                break
        if piece := pieces.end():
            yield piece

    def _until_strings(self, request: Request, rows: Rows, call: _GeneratorRun) -> list[Generation]:
        """Step by step: whether a string is there, only the tokenizer knows."""
        made = [Detokenizer(self.tokenizer) for _ in rows]
        open_rows = list(made)
        for tokens in call.steps():
            for pieces, token in zip(made, tokens):
                if pieces in open_rows:
                    pieces.add(token)
            open_rows = [pieces for pieces in open_rows if not self._has_ended(request, pieces)]
            if not open_rows:
                break
        return [self._generation(request, pieces.tokens) for pieces in made]

    @staticmethod
    def _has_ended(request: Request, made: Detokenizer) -> bool:
        return made.tokens[-1] in request.ends or any(each in made.text for each in request.stop_strings)

    def _generation(self, request: Request, made: list[int]) -> Generation:
        ended = next((at for at, token in enumerate(made) if token in request.ends), None)
        tokens = made if ended is None else made[: ended + 1]
        tokenizer = self._opened()
        text = None if tokenizer is None else tokenizer.decode(tokens)
        is_stopped = ended is not None or any(each in (text or "") for each in request.stop_strings)
        return Generation(text, tuple(tokens), "stop" if is_stopped else "length")

    def _request(self, settings: Settings) -> Request:
        return Request.of(settings, self.stored.checkpoint.generation, self.family.vocabulary)

    def _call(self, request: Request, rows: Rows, seed: int) -> _GeneratorRun:
        self._opened()
        longest = max(map(len, rows))
        length = bucket(longest)
        new = request.new(longest, self.family.positions)
        ends = len(request.ends)
        sampling, beams = request.sampling, request.beams
        run = self._compiled(
            ("generate", sampling.steps, ends, beams and beams.steps),
            lambda: (
                generator(self.family, self.dtype, sampling, ends, self.quantize)
                if beams is None
                else searcher(self.family, self.dtype, sampling, beams, ends, self.quantize)
            ),
            {"b": len(rows), "p": length, "new": bucket(new, LEAST_NEW)},
        )
        arguments = {
            "prompt": np.array(left_padded(rows, length), np.int32),
            "first": np.array([length - len(row) for row in rows], np.int32),
            "limit": length + new,
            "seed": seed,
            **({"end": np.array(request.ends, np.int32)} if ends else {}),
            **({} if beams is None else {"length_penalty": beams.length_penalty}),
            **sampling.inputs,
            **self.weights_for(run),
        }
        return _GeneratorRun(run, arguments, length)

    # -- scoring ---------------------------------------------------------------------------------------------------

    def score(self, texts: Prompt | Sequence[Prompt]) -> list[Score]:
        """How likely texts are, or lists of tokens. Raises `tp.InputError` for one of fewer than two tokens."""
        rows = self._rows(texts)
        if not rows:
            return []
        for row in rows:
            if len(row) < 2:
                raise tp.InputError(f"a text of {len(row)} token has no likelihood: the first is given")
        length = bucket(max(map(len, rows)))
        run = self._compiled(
            "score", lambda: scorer(self.family, self.dtype, self.quantize), {"b": len(rows), "t": length}
        )
        token = np.array(right_padded(rows, length), np.int32)
        found = on_host(run(token=token, **self.weights_for(run))["logprob"])
        return [Score(tuple(row), tuple(found[at, 1 : len(row)].tolist())) for at, row in enumerate(rows)]

    # -- what both need --------------------------------------------------------------------------------------------

    def _compiled(
        self, key: Any, program: Callable[[], tp.Program], sizes: Mapping[str, int], caches: Sequence[str] = ()
    ) -> Any:
        """The executable for these sizes. `caches`: its inputs that are keys or values."""
        at = key, *sizes.items()
        if at not in self._made:
            ways = self.compiled_with(rows="b" if "b" in sizes else None, caches=caches)
            self._made[at] = tp.compile(program(), sizes={**self.family.sizes, **sizes}, options=_OPTIONS, **ways)
        return self._made[at]

    def compiled_with(self, **lies: Any) -> Mapping[str, Any]:
        """Arguments of `tp.compile`; `lies` as `Parallel.ways` has it."""
        return {**self.ways, **(self.parallel.ways(**lies) if self.parallel else {})}

    def _rows(self, prompts: Any) -> Rows:
        """As tokens. One text, or one list of tokens, is a row."""
        if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int | np.integer)):
            prompts = [prompts]
        return [
            self._tokens(prompt, f"prompt {at}" if len(prompts) > 1 else "the prompt")
            for at, prompt in enumerate(prompts)
        ]

    def _tokens(self, prompt: Any, what: str) -> list[int]:
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
        if not tokens:
            raise tp.InputError(f"{what} is empty", hint="a text goes on from at least one token")
        wrong = [token for token in tokens if not 0 <= token < self.family.vocabulary]
        if wrong:
            raise tp.InputError(f"{what} has the token {wrong[0]}; the model knows 0 to {self.family.vocabulary - 1}")
        if len(tokens) >= self.family.positions:
            raise tp.InputError(f"{what} has {len(tokens)} tokens, and the model {self.family.positions} positions")
        return tokens


@dataclass(frozen=True)
class _GeneratorRun:
    """A run of the generator; `start` is the position of the first new token."""

    run: Any
    arguments: Mapping[str, Any]
    start: int

    def steps(self) -> Iterator[list[int]]:
        """The new tokens of all rows, position by position."""
        for step in self.run.stream("t", from_point=self.start, **self.arguments):
            yield on_host(step["token"]).tolist()
