"""Beam search: several beginnings of a text at once, and at each step the likeliest ways on of all of them.

The search is that of `transformers` 5: of each row's `count` beams and all tokens the likeliest candidates go on, those
that end a text are finished, and `count` of these are kept, by their score over their length to the power of a penalty.
Source: Freitag and Al-Onaizan 2017, section 3; Wu et al. 2016, section 7 (the length).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import tempo as tp
from tempo.llm.blocks import Ancestors, Dims
from tempo.llm.families import Family
from tempo.llm.sampling import Sampling, penalised
from tempo.llm.weights import declare

_NEVER = -1e9
"""The score of what must not be chosen; a number, as `transformers` has it, since it is added to others."""


@dataclass(frozen=True)
class Beams:
    """How many beams, how long texts are preferred, and when a row ends.

    `early_stopping`: True as soon as `count` texts have ended; False where the best beam would not be better if it
    ended now; "never" where it could not become better at any length.
    """

    count: int
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Beams | None:
        """What settings ask for; None for one beam. Raises `tp.InputError` for what means nothing."""
        count, penalty = settings.get("num_beams", 1), settings.get("length_penalty", 1.0)
        early = settings.get("early_stopping", False)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise tp.InputError(f"num_beams is {count!r}, and must be a whole number of at least 1")
        if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not np.isfinite(penalty):
            raise tp.InputError(f"length_penalty is {penalty!r}, and must be a number")
        if early is not True and early is not False and early != "never":
            raise tp.InputError(f'early_stopping is {early!r}, and must be True, False or "never"')
        return None if count == 1 else Beams(count, float(penalty), early)

    @property
    def steps(self) -> tuple[int, bool, bool]:
        """What the program depends on."""
        return self.count, self.ends_when_full, self.early_stopping == "never" and self.length_penalty > 0

    @property
    def ends_when_full(self) -> bool:
        return self.early_stopping is True


def searcher(
    family: Family, dtype: str, sampling: Sampling, beams: Beams, ends: int, quantize: str | None = None
) -> tp.Program:
    """`token` and `parent` (b, k, t): what each beam has at a position, and which beam it goes on from there.

    `end`, `beam` and `last` (b, t): of the best text that has ended by then, the position of its last token, that
    token, and the beam that it follows. Inputs are those of `generator`, and `length_penalty`.
    """
    with tp.Program("search") as program:
        b, k = tp.dim("b"), tp.dim("k", beams.count)
        l, p, new = tp.dims("l p new")
        t = tp.dim("t", p.size + new.size)
        prompt = tp.input("prompt", (), (b, p), tp.int32)
        first = tp.input("first", (), (b,), tp.int32)
        limit = tp.input("limit", (), (), tp.int32)
        w = declare(family.weights(), family.sizes, dtype, l, quantize=quantize)
        end = tp.input("end", (ends,), (), tp.int32) if ends else None

        token = tp.recurrent("token", (), (b, k, t), tp.int32)
        parent = tp.recurrent("parent", (), (b, k, t), tp.int32)
        score = tp.recurrent("score", (), (b, k, t))  # the logarithm of a beam's probability
        ancestors = Ancestors(k, _ancestors(parent, b, k, t, t < p.size))
        logits = family.logits(token, Dims(l, t, k, t < p.size, (b,), ancestors=ancestors), w, first)
        logprob = tp.log_softmax(logits.astype(tp.float32), axis=-1)
        if sampling.repetition_penalty is not None:
            had = _seen(token, parent, tp.as_tensor(t) >= first, family.vocabulary, (b, k, t))
            (penalty,) = (tp.input(name, (), ()) for name in sampling.inputs)
            logprob = penalised(logprob, had, penalty)

        found = _WaysOn.of((logprob + score)[b, 0 : k.size, t], beams.count, end, tp.as_tensor(t) + 2 >= limit)
        going = tp.top_k(tp.where(found.ended, found.score + _NEVER, found.score), beams.count)
        token[t < p.size] = prompt[b, t]
        token[b, k, t + 1] = found.token.spatial[going.indices].spatial[k]
        parent[t < p.size] = k
        parent[b, k, t + 1] = found.beam.spatial[going.indices].spatial[k]
        score[t < p.size] = tp.cases((k < 1, 0.0), _NEVER)  # else the beams would all be the same
        score[b, k, t + 1] = going.values.spatial[k]

        length = (tp.as_tensor(t) + 2 - p.size).astype(tp.float32)  # of what is made, the next token included
        most = (limit - p.size).astype(tp.float32)
        penalty = tp.input("length_penalty", (), ())
        best = going.values.spatial[0] / (most if beams.steps[2] else length) ** penalty
        finished = _Finished.declare(b, t, beams.count)
        finished.define((b, t), t < p.size, found, found.score / length**penalty, best, beams)
        is_over = ~finished.may_improve | (finished.is_text.all(axis=0) if beams.ends_when_full else False)
        tp.stop_when(t, is_over | (tp.as_tensor(t) + 1 >= limit))
        tp.output("token", token)
        tp.output("parent", parent)
        for name in ("end", "beam", "last"):
            tp.output(name, getattr(finished, name).spatial[0])
    return program


def _ancestors(parent: tp.RecurrentTensor, b: tp.Dim, k: tp.Dim, t: tp.Dim, given: Any) -> tp.RecurrentTensor:
    """int32 over (b, k, t), (t.size,): which beam stood at each position before t where beam k stands at t.

    All have the prompt of the first.
    """
    found = tp.recurrent("ancestor", (t.size,), (b, k, t), tp.int32)
    earlier = found[b, 0 : k.size, t - 1].spatial[parent]
    found[given] = 0
    found[True] = tp.where(tp.arange(t.size) < t, earlier, k)
    return found


def _seen(
    token: tp.RecurrentTensor, parent: tp.RecurrentTensor, counts: Any, vocabulary: int, dims: tuple[tp.Dim, ...]
) -> tp.RecurrentTensor:
    """Which tokens of the vocabulary a beam has had so far, bool, (vocabulary,)."""
    b, k, t = dims
    had = tp.recurrent("seen", (vocabulary,), dims, tp.bool_)
    here = tp.one_hot(token, vocabulary, dtype=tp.bool_) & counts
    had[t == 0] = here
    had[t > 0] = here | had[b, 0 : k.size, t - 1].spatial[parent]
    return had


@dataclass(frozen=True)
class _WaysOn:
    """The likeliest ways on, the likeliest first: enough that as many as there are beams do not end a text."""

    score: tp.RecurrentTensor
    beam: tp.RecurrentTensor
    token: tp.RecurrentTensor
    ended: tp.RecurrentTensor

    @staticmethod
    def of(scores: tp.RecurrentTensor, beams: int, end: tp.RecurrentTensor | None, is_last: Any) -> _WaysOn:
        """Of scores (beams, vocabulary). All end with the last position."""
        vocabulary = int(scores.shape[1])
        ends = 0 if end is None else int(end.shape[0])
        count = min(max(2, 1 + ends) * beams, beams * vocabulary)
        best, place = tp.top_k(scores.reshape(-1), count)
        token = place % vocabulary
        ended = tp.zeros((count,), tp.bool_) if end is None else (token.reshape(-1, 1) == end).any(axis=1)
        return _WaysOn(best, place // vocabulary, token, ended | is_last)


@dataclass(frozen=True)
class _Finished:
    """The best texts of a row that have ended, as many as there are beams, over (b, t).

    `may_improve`: whether one that is still going on could be among them.
    """

    is_text: tp.RecurrentTensor
    score: tp.RecurrentTensor
    end: tp.RecurrentTensor
    beam: tp.RecurrentTensor
    last: tp.RecurrentTensor
    may_improve: tp.RecurrentTensor

    @staticmethod
    def declare(b: tp.Dim, t: tp.Dim, count: int) -> _Finished:
        def of(name: str, dtype: Any, shape: tuple[int, ...] = (count,)) -> tp.RecurrentTensor:
            return tp.recurrent(f"finished_{name}", shape, (b, t), dtype)

        end, beam, last = (of(name, tp.int32) for name in ("end", "beam", "last"))
        may_improve = of("may_improve", tp.bool_, ())
        return _Finished(of("is_text", tp.bool_), of("score", tp.float32), end, beam, last, may_improve)

    def define(
        self,
        at: tuple[tp.Dim, tp.Dim],
        given: Any,
        found: _WaysOn,
        scores: tp.RecurrentTensor,
        best: tp.RecurrentTensor,
        beams: Beams,
    ) -> None:
        """`scores` are those of the candidates, were they to end; `best` is the most that one which goes on can get."""
        b, t = at
        count = beams.count
        is_new = found.ended & (tp.arange(found.ended.shape[0]) < count)
        is_closed = ~self.may_improve | (self.is_text.all(axis=0) if beams.ends_when_full else False)
        now = tp.where(is_new, scores, scores + _NEVER)
        kept = tp.top_k(tp.concatenate([self.score, tp.where(is_closed, now + _NEVER, now)]), count)
        position = tp.zeros(found.token.shape, tp.int32) + t + 1
        new = {"is_text": is_new, "end": position, "beam": found.beam, "last": found.token}
        before = {"is_text": False, "score": _NEVER, "end": 0, "beam": 0, "last": 0, "may_improve": True}
        for name, value in before.items():
            getattr(self, name)[given] = value
        for name, each in new.items():
            mine = getattr(self, name)
            mine[b, t + 1] = tp.concatenate([mine, each]).spatial[kept.indices]
        self.score[b, t + 1] = kept.values
        is_text = tp.concatenate([self.is_text, is_new]).spatial[kept.indices]
        worst = tp.where(is_text, kept.values.min(axis=0), _NEVER)
        self.may_improve[b, t + 1] = self.may_improve & (best > worst).any(axis=0)


def texts(found: Mapping[str, np.ndarray], start: int) -> Iterator[list[int]]:
    """The best of each row, from the position `start` on: back along the parents, from its last token."""
    for row, (token, parent) in enumerate(zip(found["token"], found["parent"])):
        end, beam, last = (int(found[name][row, -1]) for name in ("end", "beam", "last"))
        made = [last]
        for position in range(end - 1, start - 1, -1):
            made.append(int(token[beam, position]))
            beam = parent[beam, position]
        yield made[::-1]
