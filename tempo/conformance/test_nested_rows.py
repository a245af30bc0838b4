"""Family 21, ragged dims inside of ragged dims: sentences of a document, and words of each of them.

What such a program means is what it means for each document alone, with as many sentences as that has. Of rows that are
not there lengths are anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers, typical

SENTENCES, WORDS, WIDTH = 3, 4, 2
COUNTS = {"some": [2, 3, 1], "an empty document": [3, 0, 1], "one": [1, 1, 1], "all": [3, 3, 3], "none": [0, 0, 0]}
Tensor = tp.RecurrentTensor


class Documents:
    """Documents, in a program with numbers of sentences or in one of one document's: `words` vary along (b, s, t),
    `sentences` along (b, s)."""

    def __init__(self, nested: bool) -> None:
        self.b, self.nested = tp.dim("b"), nested
        self.s = tp.dim("s", lengths=tp.input("n", (), (self.b,), "int32")) if nested else tp.dim("s")
        self.t = tp.dim("t", lengths=tp.input("m", (), (self.b, self.s), "int32"))
        self.x, self.w = tp.input("x", (WIDTH,), (self.b, self.s, self.t)), tp.input("w", (WIDTH, WIDTH))
        self.words = [self.x]
        self.sentences = [self.x[self.b, self.s, :].sum(axis=0)]
        self.made = 0

    def recurrent(self, *dims: tp.Dim) -> Tensor:
        self.made += 1
        return tp.recurrent(f"h{self.made}", (WIDTH,), dims)


Statement = Callable[[Documents, Tensor, Tensor], tuple[Tensor | None, Tensor | None]]
"""Of words and sentences it makes words, or sentences."""


def forwards(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    h = d.recurrent(d.b, d.s, d.t)
    h[d.b, d.s, 0] = words
    h[d.b, d.s, d.t + 1] = tp.tanh(d.w @ h + words[d.b, d.s, d.t + 1] + sentences)
    return h, h[d.b, d.s, :].sum(axis=0)


def backwards(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    h = d.recurrent(d.b, d.s, d.t)
    h[d.b, d.s, d.t.last] = words
    h[d.b, d.s, d.t] = tp.tanh(d.w @ h[d.b, d.s, d.t + 1] + words)
    return h, tp.cases((d.t.last >= 0, h[d.b, d.s, d.t.last]), sentences)


def from_sentence_to_sentence(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    h = d.recurrent(d.b, d.s)
    h[d.b, 0] = sentences
    h[d.b, d.s + 1] = tp.tanh(d.w @ h + sentences[d.b, d.s + 1])
    return words * h, h


def with_folded_words(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What each step folds is 1 where there is no word."""
    h = d.recurrent(d.b, d.s)
    h[d.b, 0] = sentences
    h[d.b, d.s] = tp.tanh(d.w @ h[d.b, d.s - 1] + tp.exp(words[d.b, d.s, :] * 0.1).sum(axis=0) * 0.25)
    return None, h


def back_from_the_last(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    h = d.recurrent(d.b, d.s)
    h[d.b, d.s.last] = sentences
    h[d.b, d.s] = tp.sin(h[d.b, d.s + 1]) + sentences
    return None, h


def attention(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    keys = words[d.b, d.s, :]
    return tp.softmax(keys @ (d.w @ words)) @ keys, None


def of_sentences(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    keys = sentences[d.b, :]
    return None, tp.softmax(keys @ sentences) @ keys + keys.mean(axis=0)


def of_all_words(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    every = words[d.b, :, :]
    return words - every.sum(axis=(0, 1)) * 0.1, tp.sin(every).sum(axis=(0, 1)) + sentences


def squares(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    every = words[d.b, :, :] @ d.w + d.w.sum(axis=0)
    return None, (every * every).sum(axis=(0, 1)) * 0.1 + sentences


def by_sentence(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Sums of sentences, one behind the other, and of words at one place in all of them."""
    sums = words[d.b, :, :].sum(axis=1)
    return None, (sums * sums).sum(axis=0) * 0.1 + sentences


def picked(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    count = tp.maximum(tp.as_tensor(d.t.last) + 1, 1)
    others = tp.as_tensor(d.s.last - d.s)
    return words.gather(d.t, (tp.as_tensor(d.t) * 2 + 1) % count) + sentences, sentences.gather(d.s, others)


def counted(d: Documents, words: Tensor, sentences: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return words * tp.as_tensor(d.t.last - d.t), sentences * tp.as_tensor(d.t.last + d.s)


STATEMENTS: Sequence[Statement] = (
    forwards, backwards, from_sentence_to_sentence, back_from_the_last, attention, of_sentences, of_all_words, squares,
    by_sentence, picked, counted, with_folded_words,
)  # fmt: skip


def program_of(statements: Sequence[tuple[Statement, int]], nested: bool) -> tp.Program:
    with tp.Program("nested" if nested else "alone") as program:
        d = Documents(nested)
        for number, (statement, before) in enumerate(statements):
            words, sentences = (found[-1 - before % len(found)] for found in (d.words, d.sentences))
            made = statement(d, words, sentences)
            for name, found, value in zip(("words", "sentences"), (d.words, d.sentences), made):
                if value is not None:
                    found.append(value)
                    tp.output(f"{name}{number}", value)
        words, sentences = d.words[-1], d.sentences[-1]
        losses = (words * words * 0.1)[d.b, :, :].sum() + (sentences * sentences * 0.1)[d.b, :].sum()
        dx, dw = tp.grad(losses[0 : d.b.size].sum(), [d.x, d.w])
        for name, value in {"losses": losses, "dx": dx, "dw": dw}.items():
            tp.output(name, value)
    return program


def by_document(alone: tp.Program, n: Array, m: Array, x: Array, w: Array) -> dict[str, Array]:
    """The program of one document for each, put together."""
    run = tp.compile(alone, backend="reference")
    outputs = {
        row: run(m=m[row : row + 1, :count], x=x[row : row + 1, :count], w=w) for row, count in enumerate(n) if count
    }
    found: dict[str, Array] = {}
    for name in (port.name for port in alone.builder.outputs if port.role == "output"):
        if name == "dw":
            found[name] = sum((np.asarray(each[name]) for each in outputs.values()), np.zeros_like(w))
            continue
        whole = x.shape[:1] if name == "losses" else x.shape if name.startswith(("words", "dx")) else (*m.shape, WIDTH)
        found[name] = np.zeros(whole, np.float32)
        for row, each in outputs.items():
            part = np.asarray(each[name])
            found[name][row : row + 1][tuple(map(slice, part.shape))] = part
    return found


def check(
    target: Target,
    statements: Sequence[tuple[Statement, int]],
    counts: Sequence[int],
    options: Mapping[str, Any] | None = None,
    least: int = 0,
) -> None:
    draw, n = np.random.default_rng(sum(counts)), np.array(counts, np.int32)
    there = np.arange(SENTENCES) < n[:, None]
    lengths = draw.integers(least, WORDS + 1, there.shape)
    m = np.where(there, lengths, draw.choice([-3, 0, 2, 99], there.shape)).astype(np.int32)
    inside = np.arange(WORDS) < np.where(there, m, 0)[..., None]
    x = np.where(inside[..., None], numbers((*inside.shape, WIDTH)), np.nan).astype(np.float32)
    w = numbers((WIDTH, WIDTH)) * 0.25
    expected = by_document(program_of(statements, nested=False), n, m, x, w)
    program = program_of(statements, nested=True)
    outputs = target.compile(program, **(options or {}))(n=n, m=m, x=x, w=w)
    np.testing.assert_array_equal(outputs.lengths["s"], n)
    np.testing.assert_array_equal(outputs.lengths["t"], np.where(there, m, 0))
    meant = tp.compile(program, backend="reference")(n=n, m=m, x=x, w=w)
    for name, array in target.arrays(outputs).items():
        for wanted in (expected[name], meant[name]):
            close = max(1e-4 * np.abs(wanted).max(initial=0), 1e-6)
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=close, err_msg=name)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.__name__)
def test_each_document_is_as_alone(target: Target, statement: Statement) -> None:
    check(target, [(statement, 0)], COUNTS["an empty document"])


@pytest.mark.parametrize("name", COUNTS)
def test_numbers_of_sentences(target: Target, name: str) -> None:
    check(target, [(forwards, 0), (from_sentence_to_sentence, 0)], COUNTS[name], least=1)


@pytest.mark.planned
@pytest.mark.parametrize("tiles", typical([{"t": 2}, {"s": 2}, {"s": 2, "t": 3}], [{"s": 2, "t": 3}]), ids=str)
@pytest.mark.parametrize("name", ["some", "an empty document"])
def test_packed(target: Target, tiles: Mapping[str, int], name: str) -> None:
    check(target, [(forwards, 0), (from_sentence_to_sentence, 0), (backwards, 0)], COUNTS[name], {"mapping": tiles})
    check(target, [(with_folded_words, 0)], COUNTS[name], {"mapping": tiles})


@pytest.mark.parametrize("seed", typical(range(40), range(2)))
def test_random_programs(target: Target, seed: int) -> None:
    random = Random(seed)
    statements = [(random.choice(STATEMENTS), random.randint(0, 2)) for _ in range(random.randint(2, 4))]
    ways = random.choice([{}, {}, {"t": 2}, {"s": 2, "t": 2}, {"b": "sequential"}])
    options = {"mapping": ways} if ways and not target.interprets else {}
    check(target, statements, [random.randint(0, SENTENCES) for _ in range(random.randint(1, 3))], options)


def read_at(read: Callable[[tp.Dim, tp.Dim, tp.Dim, Tensor], Any]) -> tp.Program:
    with tp.Program() as program:
        b = tp.dim("b")
        s = tp.dim("s", lengths=tp.input("n", (), (b,), "int32"))
        t = tp.dim("t", lengths=tp.input("m", (), (b, s), "int32"))
        tp.output("y", read(b, s, t, tp.input("x", (), (b, s, t))))
    return program


def test_packed_outputs_are_of_the_rows_that_there_are(target: Target) -> None:
    with read_at(lambda b, s, t, x: x) as program:
        (x,) = (tp.RecurrentTensor(program, program.builder.identity(program.builder.inputs["x"])),)
        tp.output("packed", x * 2, packed=True)
    n, m = np.array([1, 2], np.int32), np.array([[2, 77], [1, 3]], np.int32)
    x_ = numbers((2, 2, 3))
    values, offsets = target.compile(program)(n=n, m=m, x=x_)["packed"]
    wanted = np.concatenate([x_[0, 0, :2], x_[1, 0, :1], x_[1, 1]]) * 2
    np.testing.assert_array_equal(target.to_numpy(values), wanted)
    assert offsets.tolist() == [0, 2, 2, 3, 6]


WRONG: dict[str, tuple[Callable[[tp.Dim, tp.Dim, tp.Dim, Tensor], Any], type[tp.TempoError], str]] = {
    "the first of none": (lambda b, s, t, x: x[b, s, 0], tp.DomainError, r"x\[b = 1, s = 0, t = 0\].* has 0 points"),
    "the last of none": (lambda b, s, t, x: x[b, s, t.last], tp.DomainError, r"x\[b = 1, s = 0, t = -1\].* has 0"),
    "the next sentence": (
        lambda b, s, t, x: tp.cases((s < s.last, x[b, s + 1, t]), 0),
        tp.DomainError,
        r"x\[b = 0, s = 1, t = 1\].*and the row b = 0, s = 1 has 1 points along t",
    ),
    "another document": (
        lambda b, s, t, x: x[0, s, :].sum(axis=0),
        tp.DomainError,
        r"x\[b = 0, s = 2.* and the row b = 0 has 2 points along s|the row",
    ),
    "a maximum of none": (
        lambda b, s, t, x: x[b, s, :].max(),
        tp.ShapeError,
        "max over an empty slice at b = 1, s = 0",
    ),
    "unfolded": (lambda b, s, t, x: x[b, :, :].sum(axis=1), tp.UnsupportedError, "depends on where a row ends"),
}


@pytest.mark.one_configuration
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(target: Target, name: str) -> None:
    read, error, message = WRONG[name]
    n, m = np.array([2, 3], np.int32), np.array([[3, 1, 88], [0, 2, 2]], np.int32)
    with pytest.raises(error, match=message):
        target.compile(read_at(read))(n=n, m=m, x=numbers((2, 3, 3)))


@pytest.mark.one_configuration
def test_lengths_of_rows_that_there_are_lie_in_the_arrays(target: Target) -> None:
    run = target.compile(read_at(lambda b, s, t, x: x))
    n, m = np.array([1, 2], np.int32), np.array([[3, 88], [0, 4]], np.int32)
    with pytest.raises(tp.SizeError, match=r"m\[b = 1, s = 1\] is 4, and a row has 0 to 3 points along t"):
        run(n=n, m=m, x=numbers((2, 2, 3)))
