"""MV-RNN: a node of a sentence's tree has a vector, what it means, and a matrix, how it changes what stands beside it.

    p = tanh(W [B a; A b])        P = V [A; B]        of a node whose children have vectors a, b and matrices A, B

A word has both from a table, and what kind a node is, is told by `softmax(S p)`. A batch of sentences is one dim of
nodes, words first, whose children are given as indices. Here trees are drawn at random, and nothing is trained: the
losses and gradients of batches are computed. `--check` compares them with PyTorch, node by node.

    python examples/dynamic/mvrnn.py --backend jax --check

Source: Socher, Huval, Manning and Ng 2012, section 2.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parents[1]))
import on_mesh

WORDS, KINDS, LENGTHS = 100, 5, (5, 20)
Sentences = dict[str, np.ndarray]


def mvrnn(
    word: tp.RecurrentTensor,
    child: tp.RecurrentTensor,
    is_word: tp.IndexCondition,
    w: Mapping[str, tp.RecurrentTensor],
    n: tp.Dim,
) -> tp.RecurrentTensor:
    """The vectors of nodes."""
    width = w["W"].shape[0]
    vector = tp.recurrent("vector", (width,), (n,))
    matrix = tp.recurrent("matrix", (width, width), (n,))
    a, b = tp.unstack(vector.gather(n, child, within=slice(0, n)))
    A, B = tp.unstack(matrix.gather(n, child, within=slice(0, n)))
    p = tp.tanh(w["W"] @ tp.concatenate([B @ a, A @ b]))
    P = w["V"] @ tp.concatenate([A, B])
    vector[n] = tp.cases((is_word, w["vectors"].spatial[word]), p)
    matrix[n] = tp.cases((is_word, w["matrices"].spatial[word]), P)
    return vector


def told(initial: Mapping[str, np.ndarray], learning: bool) -> tp.Program:
    """The loss of a batch, a mean over all nodes, and its gradients where it is for learning."""
    with tp.Program("mvrnn") as program:
        leaf, inner = tp.dims("leaf inner")
        n = tp.dim("n", leaf.size + inner.size)
        word, child = tp.input("word", (), (leaf,), tp.int32), tp.input("child", (2,), (inner,), tp.int32)
        kind = tp.input("kind", (), (n,), tp.int32)
        w = {name: tp.input(name, array.shape) for name, array in initial.items()}
        p = mvrnn(word[n], child[n - leaf.size], n < leaf.size, w, n)
        loss = tp.cross_entropy(w["S"] @ p, kind)[0 : n.size].mean()
        tp.output("loss", loss)
        for name, gradient in tp.grad(loss, w).items() if learning else ():
            tp.output(name, gradient)
    return program


def weights(width: int, seed: int) -> dict[str, np.ndarray]:
    """Vectors are averages and matrices leave them as they are, but for what is drawn."""
    draw = np.random.default_rng(seed)
    average = np.tile(np.eye(width) / 2, 2)
    means = {
        "vectors": np.zeros((WORDS, width)),
        "matrices": np.tile(np.eye(width), (WORDS, 1, 1)),
        "W": average,
        "V": average,
        "S": np.zeros((KINDS, width)),
    }
    deviations = {"vectors": 1.0, "matrices": 0.5 * width**-0.5, "W": 0.05, "V": 0.05, "S": width**-0.5}
    return {name: draw.normal(mean, deviations[name]).astype(np.float32) for name, mean in means.items()}


def sentences(count: int, draw: np.random.Generator) -> Sentences:
    """A batch: all words come first, and a node behind its children, which stand beside each other."""
    lengths = draw.integers(*LENGTHS, count, endpoint=True)
    words = int(lengths.sum())
    child: list[list[int]] = []
    for row in np.split(np.arange(words), np.cumsum(lengths)[:-1]):
        parts = row.tolist()
        while len(parts) > 1:
            at = int(draw.integers(len(parts) - 1))
            child.append(parts[at : at + 2])
            parts[at : at + 2] = [words + len(child) - 1]
    return {
        "word": draw.integers(0, WORDS, words).astype(np.int32),
        "child": np.array(child, np.int32),
        "kind": draw.integers(0, KINDS, words + len(child)).astype(np.int32),
    }


def torch_values(w: Mapping[str, Any], batch: Sentences) -> dict[str, Any]:
    """The peer: the loss of a batch in PyTorch, a node after another."""
    import torch

    word, child, kind = (torch.tensor(batch[name]).long() for name in ("word", "child", "kind"))
    vectors, matrices = (list(w[name][word].unbind()) for name in ("vectors", "matrices"))
    for first, second in child.tolist():
        changed = torch.cat([matrices[second] @ vectors[first], matrices[first] @ vectors[second]])
        vectors.append(torch.tanh(w["W"] @ changed))
        matrices.append(w["V"] @ torch.cat([matrices[first], matrices[second]]))
    return {"loss": torch.nn.functional.cross_entropy(torch.stack(vectors) @ w["S"].T, kind)}


def torch_loop(weights: Mapping[str, np.ndarray], batch: Sentences) -> dict[str, np.ndarray]:
    """The loss and its gradients."""
    import torch

    w = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    found = torch_values(w, batch)
    found |= zip(w, torch.autograd.grad(found["loss"], list(w.values())))
    return {name: each.detach().numpy() for name, each in found.items()}


Batch = Callable[[Sentences], dict[str, np.ndarray]]


def compiled(initial: Mapping[str, np.ndarray], backend: str, learning: bool) -> tuple[tp.Executable, Batch]:
    """Batches have other numbers of nodes, and share executables."""
    buckets = {"leaf": "pow2", "inner": "pow2"}
    run = tp.compile(told(initial, learning), backend, options=tp.Options(buckets=buckets))
    held = run.device_put(**initial)
    return run, lambda batch: {name: np.asarray(array) for name, array in run(**held, **batch).items()}


def milliseconds(run: Batch, batches: list[Sentences]) -> float:
    """Of a batch: the median."""
    times = []
    for batch in batches:
        start = time.perf_counter()
        run(batch)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--sentences", type=int, nargs="+", default=[8, 64], metavar="COUNT", help="of a batch")
    parser.add_argument("--batches", type=int, default=5, help="of each count")
    parser.add_argument("--width", type=int, default=64, help="of vectors and matrices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, node by node")
    options = parser.parse_args(arguments)
    on_mesh.refuse(
        options, "the sentences are one dim of nodes, which wait for their children, so no dim can lie along it"
    )

    initial, draw = weights(options.width, options.seed), np.random.default_rng(options.seed)
    (plain, forward), (learning, backward) = (compiled(initial, options.backend, each) for each in (False, True))
    for count in options.sentences:
        batches = [sentences(count, draw) for _ in range(options.batches)]
        nodes = [len(batch["kind"]) for batch in batches]
        losses = [float(forward(batch)["loss"]) for batch in batches]
        found = [backward(batch) for batch in batches]
        norms = [np.sqrt(sum((each[name] ** 2).sum() for name in initial)) for each in found]
        print(
            f"{count} sentences, {min(nodes)} to {max(nodes)} nodes: loss {np.mean(losses):.3f}, "
            f"norm of its gradients {np.mean(norms):.3f}"
        )
        times = {"forward": milliseconds(forward, batches), "with gradients": milliseconds(backward, batches)}
        if options.check:
            for batch, each in zip(batches, found):
                for name, wanted in torch_loop(initial, batch).items():
                    atol = 1e-4 * np.abs(wanted).max()
                    np.testing.assert_allclose(each[name], wanted, atol=atol, rtol=0, err_msg=name)
            times["PyTorch, node by node"] = milliseconds(lambda batch: torch_loop(initial, batch), batches)
        print("  a batch: " + ", ".join(f"{name} {each:.1f} ms" for name, each in times.items()))
    if options.backend != "reference":
        print(f"executables: {plain.executables} forward, {learning.executables} with gradients")
    if options.check:
        print("equal to PyTorch: losses and gradients to 1e-4 of the greatest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
