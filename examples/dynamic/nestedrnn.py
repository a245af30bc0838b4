"""A nested RNN reads documents: one over the words of each sentence, in one over the sentences of each document.

    word[t] = tanh(x[t] + word[t - 1] @ U)                        of a sentence, whose last is what it says
    sentence[s] = tanh(word[last] @ W + sentence[s - 1] @ V)      of a document, whose last is what is classified

Two dims are ragged: a document has its number of sentences, each of these its number of words. Lengths along a ragged
dim are refused by the language, so the sentences of all documents are one dim, `s`: a document has those from `first`
on. Here a document is liked where more of its sentences are glad than sad, and a sentence is glad where more of its
words are. `--check` compares values and gradients with PyTorch, document by document.

    python examples/dynamic/nestedrnn.py --backend jax --check

Source: the hierarchy of Yang et al. 2016, section 2, with plain cells and without attention.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parents[1]))
import on_mesh

RATE, VOCABULARY, CLASSES = 0.005, 8, 2  # words from 4 on are glad ones
Weights = Mapping[str, tp.RecurrentTensor]
Arrays = dict[str, np.ndarray]


def rnn(name: str, x: tp.RecurrentTensor, u: tp.RecurrentTensor, dims: tuple[tp.Dim, ...]) -> tp.RecurrentTensor:
    """The states, over `dims`; the last of them is time."""
    *rows, t = dims
    h = tp.recurrent(name, x.shape, dims)
    h[*rows, 0] = tp.tanh(x)
    h[*rows, t] = tp.tanh(x + h[*rows, t - 1] @ u)
    return h


def classifier(w: Weights, dims: tuple[tp.Dim, ...]) -> tuple[tp.RecurrentTensor, tp.RecurrentTensor]:
    """The logits of each document of a batch, which is given, and their mean cross entropy."""
    s, d = tp.dims("s d")
    t = tp.dim("t", lengths=tp.input("words", (), (s,), tp.int32))
    u = tp.dim("u", lengths=tp.input("sentences", (), (d,), tp.int32))
    word, first = tp.input("word", (), (s, t), tp.int32), tp.input("first", (), (d,), tp.int32)
    words = rnn("words", w["embedding"].spatial[word], w["U"], (*dims, s, t))
    said = (words[..., t.last] @ w["W"]).gather(s, first + tp.as_tensor(u))
    logits = rnn("sentences", said, w["V"], (*dims, d, u))[..., u.last] @ w["out"]
    liked = tp.input("liked", (), (d,), tp.int32)
    return logits, tp.cross_entropy(logits, liked)[..., 0 : d.size].mean()


def training(initial: Arrays) -> tp.Program:
    """One step: each batch is a run, which begins with the state of the one before."""
    with tp.Program("nestedrnn") as program:
        i = tp.dim("i", 2)  # before the step, and after it
        w = {name: tp.parameter(name, array.shape, init=array, dims=(i,)) for name, array in initial.items()}
        _, loss = classifier(w, (i,))
        tp.optim.Adam(RATE).minimize(loss, w)
        tp.output("loss", loss[0])
    return program


def asking(initial: Arrays, learning: bool = True) -> tp.Program:
    """The logits, the loss and, where it is for learning, its gradients."""
    with tp.Program("ask") as program:
        w = {name: tp.parameter(name, array.shape, init=array) for name, array in initial.items()}
        logits, loss = classifier(w, ())
        for name, value in {"logits": logits, "loss": loss, **(tp.grad(loss, w) if learning else {})}.items():
            tp.output(name, value)
    return program


def weights(width: int, draw: np.random.Generator) -> Arrays:
    shapes = {
        "embedding": (VOCABULARY, width),
        "U": (width, width),
        "W": (width, width),
        "V": (width, width),
        "out": (width, CLASSES),
    }
    return {name: draw.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def documents(rows: int, most: int, longest: int, draw: np.random.Generator) -> Arrays:
    """A batch: the sentences of all documents. Numbers of sentences and words are odd, so that one side has more."""
    count, size = (
        2 * draw.integers(0, (top + 1) // 2, many) + 1 for top, many in ((most, rows), (longest, rows * most))
    )
    ends = np.cumsum(count)
    first, size = ends - count, size[: ends[-1]]
    there = np.arange(size.max()) < size[:, None]
    word = draw.integers(0, VOCABULARY, there.shape)
    glad = 2 * (there & (word >= VOCABULARY // 2)).sum(1) > size
    liked = 2 * np.add.reduceat(glad.astype(int), first) > count
    arrays = {"sentences": count, "first": first, "words": size, "word": word, "liked": liked}
    return {name: array.astype(np.int32) for name, array in arrays.items()}


def torch_values(w: Mapping[str, Any], batch: Arrays) -> dict[str, Any]:
    """The peer: logits and loss in PyTorch, a document after another."""
    import torch

    def last(inputs: Any, u: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(len(u))
        for x in inputs:
            h = torch.tanh(x + h @ u)
        return h

    logits = []
    words = [torch.tensor(word[:size]).long() for word, size in zip(batch["word"], batch["words"])]
    for first, count in zip(batch["first"], batch["sentences"]):
        said = (last(w["embedding"][sentence], w["U"]) @ w["W"] for sentence in words[first : first + count])
        logits.append(last(said, w["V"]) @ w["out"])
    loss = torch.nn.functional.cross_entropy(torch.stack(logits), torch.tensor(batch["liked"]).long())
    return {"logits": torch.stack(logits), "loss": loss}


def torch_loop(weights: Arrays, batch: Arrays) -> Arrays:
    """Values and gradients."""
    import torch

    w = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    found = torch_values(w, batch)
    found |= zip(w, torch.autograd.grad(found["loss"], list(w.values())))
    return {name: each.detach().numpy() for name, each in found.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=64, help="documents of a batch")
    parser.add_argument("--sentences", type=int, default=5, help="the most of a document")
    parser.add_argument("--words", type=int, default=7, help="the most of a sentence")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, document by document")
    options = parser.parse_args(arguments)

    draw = np.random.default_rng(options.seed)
    initial = weights(options.width, draw)
    sizes = (options.rows, options.sentences, options.words)
    buckets = tp.Options(buckets={"s": "pow2", "t": "pow2"})
    lies = on_mesh.arguments(options, shard={"d": "data"})
    run = tp.compile(training(initial), options.backend, sizes={"u": options.sentences}, options=buckets, **lies)
    state: Any = None
    losses: list[float] = []
    start = time.perf_counter()
    for _ in range(options.steps):
        outputs = run(**documents(*sizes, draw), state=state)
        state = outputs.state
        losses.append(float(outputs["loss"]))
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    on_mesh.tell(options, run)

    test = documents(*sizes, draw)
    ask = tp.compile(asking(initial), options.backend, sizes={"u": options.sentences}, options=buckets, **lies)
    found = {name: np.asarray(array) for name, array in ask(**test, state=state).items()}
    right = found["logits"].argmax(1) == test["liked"]
    lengths = (test[name] for name in ("sentences", "words"))
    of_sentences, of_words = (f"{each.min()} to {each.max()}" for each in lengths)
    print(f"{len(right)} documents of {of_sentences} sentences, which are of {of_words} words:")
    print(f"  {100 * right.mean():.1f} % are classified as they should be")
    if options.check:
        learned = {name: np.asarray(state[name]) for name in initial}
        wanted = torch_loop(learned, test)
        differences = {name: np.abs(found[name] - each).max() / np.abs(each).max() for name, each in wanted.items()}
        name = max(differences, key=lambda name: differences[name])
        assert differences[name] < 1e-4, differences
        print(f"equal to PyTorch: values and gradients; the greatest difference is {differences[name]:.1e}, of {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
