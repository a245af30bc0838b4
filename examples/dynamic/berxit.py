"""BERxiT: an encoder of BERT whose sentences leave early, each after the layer where its classifier is sure enough.

    a = norm(x + softmax(q k / 8) v @ O)        x: embeddings before the first layer, else what the one before made
    h[l] = norm(a + gelu(a @ U) @ V)            of each token; layers share their weights, as in ALBERT
    p[l] = softmax(tanh(h[l] of the first token @ P) @ C[l])        leave where the greatest of it is above a threshold

Layers are a dim which each sentence leaves for itself, and tokens one which is ragged. So no layer of a sentence is
there behind its last, and no token is padding. Weights (no biases) are drawn and nothing is trained: a classifier is
as sure as it happens to be. `--check` compares with PyTorch, sentence by sentence: how many layers each needs,
probabilities and states.

    python examples/dynamic/berxit.py --backend jax --check

Source: Xin, Tang, Yu and Lin 2021, section 3.
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

VOCABULARY, CLASSES, OF_HEAD = 1000, 2, 64
Weights = Mapping[str, tp.RecurrentTensor]
Arrays = dict[str, np.ndarray]


def layer(x: tp.RecurrentTensor, w: Weights, heads: int, s: tp.Dim) -> tp.RecurrentTensor:
    """What a layer makes of each token, all of which it sees."""
    q, k, v = (each.reshape(heads, OF_HEAD) for each in tp.split(x @ w["QKV"], 3))
    seen = tp.nn.attention(q, k, v, s, causal=False)
    a = tp.layer_norm(x + seen.reshape(heads * OF_HEAD) @ w["O"])
    return tp.layer_norm(a + tp.gelu(a @ w["U"]) @ w["V"])


def berxit(weights: Arrays, heads: int, threshold: float) -> tp.Program:
    """The probabilities of classes, and the state of the first token, after each layer that a sentence needs."""
    layers, *of_classifier = weights["C"].shape
    with tp.Program("berxit") as program:
        b, l = tp.dim("b"), tp.dim("l", layers)
        s = tp.dim("s", lengths=tp.input("n", (), (b,), tp.int32))
        w = {name: tp.input(name, array.shape) for name, array in weights.items() if name != "C"}
        classifier, token = tp.input("C", of_classifier, (l,)), tp.input("token", (), (b, s), tp.int32)
        embedded = tp.layer_norm(w["embedding"].spatial[token] + w["position"].spatial[tp.as_tensor(s)])
        h = tp.recurrent("h", embedded.shape, (b, l, s))
        h[b, l, s] = layer(tp.cases((l == 0, embedded), h[b, l - 1, s]), w, heads, s)
        p = tp.softmax(tp.tanh(h[b, l, 0] @ w["P"]) @ classifier)
        tp.stop_when(l, p.max() > threshold, each=b)
        tp.output("h", h[b, l, 0])
        tp.output("p", p)
    return program


def drawn(heads: int, layers: int, sequence: int, draw: np.random.Generator) -> Arrays:
    width = heads * OF_HEAD
    shapes = {
        "embedding": (VOCABULARY, width),
        "position": (sequence, width),
        "QKV": (width, 3 * width),
        "O": (width, width),
        "U": (width, 4 * width),
        "V": (4 * width, width),
        "P": (width, width),
        "C": (layers, width, CLASSES),
    }
    deviations = {name: shape[-2] ** -0.5 for name, shape in shapes.items()}
    deviations |= {"embedding": 1.0, "position": 1.0, "C": 2 * width**-0.5}
    return {name: draw.normal(0, deviations[name], shape).astype(np.float32) for name, shape in shapes.items()}


def sentences(rows: int, sequence: int, draw: np.random.Generator) -> Arrays:
    """Nobody reads what stands behind the end of a sentence: here it is -1."""
    n = draw.integers(1, sequence, rows, endpoint=True).astype(np.int32)
    token = draw.integers(0, VOCABULARY, (rows, n.max()))
    return {"n": n, "token": np.where(np.arange(n.max()) < n[:, None], token, -1).astype(np.int32)}


def torch_loop(weights: Arrays, batch: Arrays, heads: int, threshold: float) -> list[Arrays]:
    """The peer in PyTorch, a sentence after another: for each what it has after its layers, as many as it needs."""
    import torch
    from torch.nn import functional

    w = {name: torch.as_tensor(array) for name, array in weights.items()}
    width = heads * OF_HEAD
    found = []
    for token, n in zip(batch["token"], batch["n"]):
        x = functional.layer_norm(w["embedding"][token[:n]] + w["position"][:n], (width,))
        each: dict[str, list[np.ndarray]] = {"h": [], "p": []}
        for classifier in w["C"]:
            q, k, v = (part.reshape(n, heads, OF_HEAD).transpose(0, 1) for part in (x @ w["QKV"]).chunk(3, 1))
            seen = functional.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(n, width)
            a = functional.layer_norm(x + seen @ w["O"], (width,))
            x = functional.layer_norm(a + functional.gelu(a @ w["U"]) @ w["V"], (width,))
            p = torch.softmax(torch.tanh(x[0] @ w["P"]) @ classifier, 0)
            each["h"].append(x[0].numpy())
            each["p"].append(p.numpy())
            if p.max() > threshold:
                break
        found.append({name: np.array(arrays) for name, arrays in each.items()})
    return found


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the seconds that it takes: the second time, since the first one compiles."""
    run()
    start = time.perf_counter()
    given = run()
    return given, time.perf_counter() - start


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--rows", type=int, default=8, help="sentences of a batch")
    parser.add_argument("--sequence", type=int, default=128, help="the most tokens of a sentence")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12, help=f"of {OF_HEAD} channels")
    parser.add_argument("--threshold", type=float, default=0.9, help="the probability that is sure enough")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, sentence by sentence")
    options = parser.parse_args(arguments)

    draw = np.random.default_rng(options.seed)
    weights = drawn(options.heads, options.layers, options.sequence, draw)
    batch = sentences(options.rows, options.sequence, draw)
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(berxit(weights, options.heads, options.threshold), options.backend, **lies)
    held = run.device_put(**weights)

    def told() -> tuple[np.ndarray, Arrays]:
        outputs = run(**held, **batch)
        return np.asarray(outputs.lengths["l"]), {name: np.asarray(array) for name, array in outputs.items()}

    (layers, found), taken = timed(told)
    print(f"{len(layers)} sentences of {batch['n'].min()} to {batch['n'].max()} tokens, in {1e3 * taken:.1f} ms")
    print(f"layers that each needs, of {options.layers}: " + " ".join(map(str, layers)))
    surest = (found["p"][row, count - 1].max() for row, count in enumerate(layers))
    print("sure of its class after them: " + " ".join(f"{each:.2f}" for each in surest))
    on_mesh.tell(options, run)
    if options.check:
        wanted, taken = timed(lambda: torch_loop(weights, batch, options.heads, options.threshold))
        print(f"PyTorch, sentence by sentence: {1e3 * taken:.1f} ms")
        assert [len(each["p"]) for each in wanted] == layers.tolist()
        rows = list(enumerate(layers))
        greatest = {
            name: max(np.abs(found[name][row, :count] - wanted[row][name]).max() for row, count in rows)
            for name in found
        }
        assert max(greatest["p"], greatest["h"] / 10) < 1e-4, greatest
        print("equal to PyTorch: layers, and the greatest differences of ", end="")
        print(f"probabilities {greatest['p']:.1e}, of states {greatest['h']:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
