"""A conversation with a model, of which nothing is computed again that was said before.

At every turn the chat template renders all messages, so a turn's prompt is what a fresh run would be given. What it
begins with and the last turn has keys and values of, up to the first token that differs, is kept; the rest is read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import tempo as tp
from tempo.llm.chat import Message
from tempo.llm.generation import LEAST_NEW, Request, answerer, bucket, left_padded, widener
from tempo.llm.text import Detokenizer

if TYPE_CHECKING:
    from tempo.llm.model import Generation, Model


@dataclass(frozen=True)
class Memory:
    """What a run has made of the `tokens` of a text: `arrays`, keys and values, (layers, points, kv_heads, head_dim).

    The text starts at the point `first`; what stands before that is finite.
    """

    tokens: Sequence[int] = ()
    first: int = 0
    arrays: Sequence[Any] = ()

    def agrees(self, tokens: Sequence[int]) -> int:
        """How many tokens another text begins with that this one begins with, too."""
        differs = (at for at, (mine, other) in enumerate(zip(self.tokens, tokens)) if mine != other)
        return next(differs, min(len(self.tokens), len(tokens)))


@dataclass(frozen=True)
class _Turn:
    """A run: what it continues, the `start` of what is new, and its stream."""

    prompt: list[int]
    start: int
    stream: Any

    def steps(self) -> Iterator[list[int]]:
        for step in self.stream:
            yield [int(step["token"])]

    def memory(self, made: Sequence[int]) -> Memory:
        """Of the prompt and what follows it, as far as the stream has gone."""
        found, first = self.stream.so_far(), self.start - len(self.prompt)
        return Memory([*self.prompt, *made][: found.stop - first], first, (found["key"], found["value"]))


@dataclass(eq=False)
class Conversation:
    """Made by `Model.chat`.

    `messages`, `[{"role": "user", "content": "..."}, ...]`, may be changed between turns: what still agrees is kept.
    After a turn `kept` and `read` say how many tokens of its prompt were known and how many were computed, `made` how
    many it has answered.
    """

    model: Model
    request: Request
    seed: int = 0
    messages: list[Message] = field(default_factory=list)
    kept: int = 0
    read: int = 0
    made: int = 0
    _memory: Memory = field(default_factory=Memory, repr=False)
    _turns: int = field(default=0, repr=False)

    def say(self, text: str) -> Generation:
        """The answer to what the user says.

        Raises `tp.InputError` where the template refuses the messages, or they are longer than the model's positions:
        then nothing was said.
        """
        made: list[int] = []
        for _ in self._answer(text, made):
            pass
        return self.model._generation(self.request, made)

    def stream(self, text: str) -> Generator[str, None, None]:
        """The answer, piece by piece. One that is not listened to up to its end has the tokens that were heard."""
        return self._answer(text, [])

    def _answer(self, text: str, made: list[int]) -> Generator[str, None, None]:
        """The pieces; their tokens go to `made`."""
        messages = [*self.messages, {"role": "user", "content": text}]
        prompt = self.model._tokens(self.model.apply_chat_template(messages), "the conversation")
        turn = self._turn(prompt)
        try:
            yield from self.model._pieces(self.request, turn.steps(), Detokenizer(self.model.tokenizer, made))
        except KeyboardInterrupt:  # in the midst of a step: what that was given may be gone
            self._said(messages, made, self._memory)
            raise
        except GeneratorExit:
            self._said(messages, made, turn.memory(made))
            raise
        self._said(messages, made, turn.memory(made))

    def _said(self, messages: Sequence[Message], made: Sequence[int], memory: Memory) -> None:
        answer = self.model.tokenizer.decode(made)
        self.messages = [*messages, {"role": "assistant", "content": answer}]
        self._memory, self._turns, self.made = memory, self._turns + 1, len(made)

    def _turn(self, prompt: list[int]) -> _Turn:
        new = self.request.new(len(prompt), self.model.family.positions)
        known = min(self._memory.agrees(prompt), len(prompt) - 1)  # the last gives the logits of the next
        read = bucket(len(prompt) - known)
        self.kept = max(len(prompt) - read, 0)  # what fills up the prompt is read again, so that there is no gap
        self.read = len(prompt) - self.kept
        count, ends = bucket(max(self.kept, 1)), len(self.request.ends)
        start = count + read
        run = self.model._compiled(
            ("answer", self.request.sampling.steps, ends),
            lambda: answerer(self.model.family, self.model.dtype, self.request.sampling, ends, self.model.quantize),
            {"n": count, "p": read, "new": bucket(new, LEAST_NEW)},
            caches=("kept_key", "kept_value"),
        )
        key, value = self._remembered(count)
        arguments = {
            "kept_token": np.array(left_padded([prompt[: self.kept]], count)[0], np.int32),
            "kept_key": key,
            "kept_value": value,
            "prompt": np.array(left_padded([prompt[self.kept :]], read)[0], np.int32),
            "first": start - len(prompt),
            "limit": start + new,
            "seed": self.seed + self._turns,
            **({"end": np.array(self.request.ends, np.int32)} if ends else {}),
            **self.request.sampling.inputs,
            **self.model.weights_for(run),
        }
        return _Turn(prompt, start, run.stream("t", from_point=start, **arguments))

    def _remembered(self, count: int) -> list[Any]:
        """Keys and values of the tokens that are kept, at the end of `count` points."""
        if not self.kept:
            family = self.model.family
            shape = (family.layers, count, family.kv_heads, family.head_dim)
            return [np.zeros(shape, np.dtype(self.model.dtype))] * 2
        stop = self._memory.first + self.kept
        found = [array[:, max(stop - count, 0) : stop] for array in self._memory.arrays]
        return found if stop >= count else [self._widen(x=each, sizes={"n": count})["y"] for each in found]

    @cached_property
    def _widen(self) -> Any:
        family = self.model.family
        ways = self.model.compiled_with(weights=False, caches=("x",))
        return tp.compile(widener((family.kv_heads, family.head_dim), self.model.dtype), **ways)
