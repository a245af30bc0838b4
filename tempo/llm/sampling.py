"""Which token comes next: the processors of `transformers`, under its names and in its order, and a draw.

Repetition penalty (Keskar et al. 2019, section 4.1), temperature, top-k (Fan et al. 2018), top-p (Holtzman et al. 2020,
section 3.1), min-p (Nguyen et al. 2024). What is a number is an input of the program, so that another number compiles
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import tempo as tp
from tempo import Dim, RecurrentTensor

PREFIX = "sampling."
"""Of the inputs that hold numbers."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; None leaves a step out.

    Without `do_sample` it is the most likely one, after the repetition penalty.
    """

    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        """Raises `tp.InputError` for what means nothing."""
        self._require("temperature", "greater than 0", lambda x: x > 0)
        self._require("top_k", "a whole number of at least 1", lambda x: x >= 1 and x == int(x))
        self._require("top_p", "in (0, 1]", lambda x: 0 < x <= 1)
        self._require("min_p", "in [0, 1]", lambda x: 0 <= x <= 1)
        self._require("repetition_penalty", "greater than 0", lambda x: x > 0)

    def _require(self, name: str, what: str, is_allowed: Callable[[Any], bool]) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_allowed(value):
            hint = "for the most likely token at each step, leave do_sample out" if name == "temperature" else None
            raise tp.InputError(f"{name} is {value!r}, and must be {what}", hint=hint)

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Sampling:
        """That of `generation_config.json` or of the arguments of a call, without the steps that change nothing."""
        given = {each.name: settings.get(each.name) for each in fields(Sampling)}
        asked = Sampling(**given | {"do_sample": bool(given["do_sample"]), "top_k": given["top_k"] or None})
        penalty = None if asked.repetition_penalty == 1 else asked.repetition_penalty
        if not asked.do_sample:
            return Sampling(repetition_penalty=penalty)
        return Sampling(
            do_sample=True,
            temperature=None if asked.temperature == 1 else asked.temperature,
            top_k=asked.top_k,
            top_p=None if asked.top_p == 1 else asked.top_p,
            min_p=None if asked.min_p == 0 else asked.min_p,
            repetition_penalty=penalty,
        )

    @property
    def steps(self) -> tuple[tuple[str, int | None], ...]:
        """What the program depends on: which steps there are, and how many candidates."""
        return tuple((name, self.top_k if name == "top_k" else None) for name in self._present())

    def _present(self) -> list[str]:
        return [each.name for each in fields(self) if getattr(self, each.name) not in (None, False)]

    @property
    def inputs(self) -> dict[str, float]:
        """The numbers, by the names of the program's inputs."""
        numbers = [name for name in self._present() if name not in ("do_sample", "top_k")]
        return {PREFIX + name: float(getattr(self, name)) for name in numbers}

    def choose(
        self, logits: RecurrentTensor, token: RecurrentTensor, counts: RecurrentTensor | bool, t: Dim
    ) -> RecurrentTensor:
        """The token after the one at `t`, int32, from its `logits` (vocabulary,).

        `counts` says which earlier tokens the repetition penalty looks at: not those that only fill up a row.
        """
        number = {name: tp.input(name, (), ()) for name in self.inputs}
        scores = logits.astype(tp.float32)
        if self.repetition_penalty is not None:
            scores = penalised(scores, seen(token, counts, scores.shape[-1], t), number[f"{PREFIX}repetition_penalty"])
        if not self.do_sample:
            return scores.argmax(axis=-1)
        if self.temperature is not None:
            scores = scores / number[f"{PREFIX}temperature"]
        vocabulary = int(scores.shape[-1])
        count = vocabulary if self.top_k is None else min(self.top_k, vocabulary)
        if count == vocabulary and self.top_p is None:
            return tp.random.categorical(self._likely(scores, number))
        # What is left out has no share in what comes after it, so that candidates are all that counts.
        scores, candidates = tp.top_k(scores, count)
        if self.top_p is not None:
            scores = within_nucleus(scores, number[f"{PREFIX}top_p"])
        drawn = tp.random.categorical(self._likely(scores, number))
        return candidates.spatial[drawn]

    def _likely(self, scores: RecurrentTensor, number: Mapping[str, RecurrentTensor]) -> RecurrentTensor:
        """Without what is less likely than `min_p` times the most likely."""
        if self.min_p is None:
            return scores
        probabilities = tp.softmax(scores, axis=-1)
        least = number[f"{PREFIX}min_p"] * probabilities.max(axis=-1, keepdims=True)
        return tp.where(probabilities < least, -tp.inf, scores)


def seen(token: RecurrentTensor, counts: RecurrentTensor | bool, vocabulary: Any, t: Dim) -> RecurrentTensor:
    """Which tokens of the vocabulary a row has had so far, bool, (vocabulary,)."""
    dims = token.domain
    had = tp.recurrent("seen", shape=(vocabulary,), dims=dims, dtype=tp.bool_)
    here = tp.one_hot(token, vocabulary, dtype=tp.bool_) & counts
    had[t == 0] = here
    had[t > 0] = here | had.at(**{t.name: t - 1})
    return had


def penalised(scores: RecurrentTensor, seen: RecurrentTensor, penalty: RecurrentTensor) -> RecurrentTensor:
    return tp.where(seen, tp.where(scores < 0, scores * penalty, scores / penalty), scores)


def within_nucleus(scores: RecurrentTensor, top_p: RecurrentTensor) -> RecurrentTensor:
    """Of candidates, the most likely first, those in front of which there is less than `top_p`; always the first."""
    probabilities = tp.softmax(scores, axis=-1)
    before = probabilities.cumsum(axis=-1) - probabilities
    return tp.where(before < top_p, scores, -tp.inf)
