"""A Tree-LSTM that learns to reckon: arithmetic expressions are trees, and it says what each node of them is worth.

    below = [h of the first child, h of the second]                        (0 of a leaf)
    i, o, u, f = embedding[token] + below @ U                              (f: one for each child)
    c = sigmoid(i) * tanh(u) + sum over children (sigmoid(f) * c of the child)        h = sigmoid(o) * tanh(c)

A forest is one dim of nodes, leaves first, whose children are given as indices. Each step of training has another one,
with as many nodes as it happens to have. `--check` compares values and gradients with PyTorch, node by node.

    python examples/dynamic/treelstm.py --backend jax --check --plot out/treelstm.png

Source: Tai, Socher and Manning 2015, section 3.2.
"""

from __future__ import annotations

import argparse
import operator
import random
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parents[1]))
import on_mesh

RATE = 0.02
MOST = 20  # no part of an expression is worth more, or less than its negative
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
Tree = Any  # a digit, or an operator and two trees
Forest = dict[str, np.ndarray]


def treelstm(
    token: tp.RecurrentTensor,
    child: tp.RecurrentTensor,
    is_leaf: tp.IndexCondition,
    w: Mapping[str, tp.RecurrentTensor],
    dims: tuple[tp.Dim, ...],
) -> tp.RecurrentTensor:
    """The states, over `dims`; the last of them are the nodes."""
    n, width = dims[-1], w["out"].shape[0]
    h = tp.recurrent("h", (width,), dims)
    c = tp.recurrent("c", (width,), dims)

    def below(state: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.cases((is_leaf, tp.zeros((2, width))), state.gather(n, child, within=slice(0, n)))

    gates = w["embedding"].spatial[token] + below(h).reshape(2 * width) @ w["U"]
    i, o, u, *f = tp.split(gates, 5)
    c[..., n] = tp.sigmoid(i) * tp.tanh(u) + (tp.sigmoid(tp.stack(f)) * below(c)).sum(axis=0)
    h[..., n] = tp.sigmoid(o) * tp.tanh(c)
    return h


def reckon(w: Mapping[str, tp.RecurrentTensor], dims: tuple[tp.Dim, ...]) -> tuple[tp.RecurrentTensor, ...]:
    """What each node of a forest, which is given, is said to be worth, and the mean squared error."""
    leaf, inner = tp.dims("leaf inner")
    n = tp.dim("n", leaf.size + inner.size)
    digit, sign = tp.input("digit", (), (leaf,), tp.int32), tp.input("sign", (), (inner,), tp.int32)
    child, value = tp.input("child", (2,), (inner,), tp.int32), tp.input("value", (), (n,))
    is_leaf = n < leaf.size
    token = tp.cases((is_leaf, digit[n]), sign[n - leaf.size] + 10)
    said = MOST * (treelstm(token, child[n - leaf.size], is_leaf, w, (*dims, n)) @ w["out"])
    return said, (((said - value) / MOST) ** 2)[..., 0 : n.size].mean()


def training(initial: Mapping[str, np.ndarray], steps: int) -> tp.Program:
    """One step: other forests have other sizes, so each is a run, which begins with the state of the one before."""
    with tp.Program("treelstm") as program:
        i = tp.dim("i", 2)  # before the step, and after it
        w = {name: tp.parameter(name, array.shape, init=array, dims=(i,)) for name, array in initial.items()}
        _, loss = reckon(w, (i,))
        tp.optim.Adam(tp.optim.cosine_decay(RATE, steps)).minimize(loss, w)
        tp.output("loss", loss[0])
    return program


def asking(initial: Mapping[str, np.ndarray]) -> tp.Program:
    """What it says of a forest, and the gradients that this has."""
    with tp.Program("ask") as program:
        w = {name: tp.parameter(name, array.shape, init=array) for name, array in initial.items()}
        said, loss = reckon(w, ())
        tp.output("said", said)
        for name, gradient in tp.grad(loss, w).items():
            tp.output(name, gradient)
    return program


def weights(width: int, seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {"embedding": (13, 5 * width), "U": (2 * width, 5 * width), "out": (width,)}
    deviations = {"embedding": 0.5, "U": (2 * width) ** -0.5, "out": width**-0.5}
    return {name: draw.normal(0, deviations[name], shape).astype(np.float32) for name, shape in shapes.items()}


# -- expressions -------------------------------------------------------------------------------------------------------


def worth(tree: Tree) -> int:
    return tree if isinstance(tree, int) else OPERATORS[tree[0]](worth(tree[1]), worth(tree[2]))


def expression(depth: int, draw: random.Random, short: float = 0.0) -> Tree:
    """`short`: the probability of a digit alone."""
    if depth == 0 or draw.random() < short:
        return draw.randrange(10)
    while True:
        tree = (draw.choice("+-*"), expression(depth - 1, draw, 0.2), expression(depth - 1, draw, 0.2))
        if abs(worth(tree)) <= MOST:
            return tree


def forest(trees: Iterable[Tree]) -> tuple[Forest, np.ndarray]:
    """The nodes of all trees, leaves first and each behind its children, and where the roots are."""
    digits: list[int] = []
    inner: list[tuple[Tree, int, int]] = []  # until there are all leaves, an inner node is at ~place

    def add(tree: Tree) -> int:
        if isinstance(tree, int):
            digits.append(tree)
            return len(digits) - 1
        inner.append((tree, add(tree[1]), add(tree[2])))
        return ~(len(inner) - 1)

    roots = [add(tree) for tree in trees]
    places = np.array([*(children for _, *children in inner), *zip(roots, roots)], np.int32)
    places = np.where(places < 0, len(digits) + ~places, places)
    given = {
        "digit": np.array(digits, np.int32),
        "sign": np.array([list(OPERATORS).index(tree[0]) for tree, *_ in inner], np.int32),
        "child": places[: len(inner)],
        "value": np.array([*digits, *(worth(tree) for tree, *_ in inner)], np.float32),
    }
    return given, places[len(inner) :, 0]


def torch_loop(weights: Mapping[str, np.ndarray], given: Forest) -> dict[str, np.ndarray]:
    """The peer: what is said of a forest, and the gradients, in PyTorch, a node after another."""
    import torch

    torch.set_num_threads(1)  # products as small as a node's are quickest so
    w = {name: torch.tensor(np.asarray(array), requires_grad=True) for name, array in weights.items()}
    digit, sign, child, value = (torch.tensor(given[name]) for name in ("digit", "sign", "child", "value"))
    x = w["embedding"][torch.cat([digit, sign + 10])].unbind()
    nothing = torch.zeros(2, len(w["out"]))
    h: list[torch.Tensor] = []
    c: list[torch.Tensor] = []
    for n in range(len(value)):
        below = child[n - len(digit)].tolist() if n >= len(digit) else []
        hs, cs = (torch.stack([state[at] for at in below]) if below else nothing for state in (h, c))
        i, o, u, *f = (x[n] + hs.flatten() @ w["U"]).chunk(5)
        c.append(torch.sigmoid(i) * torch.tanh(u) + (torch.sigmoid(torch.stack(f)) * cs).sum(0))
        h.append(torch.sigmoid(o) * torch.tanh(c[-1]))
    said = MOST * (torch.stack(h) @ w["out"])
    loss = (((said - value) / MOST) ** 2).mean()
    gradients = torch.autograd.grad(loss, list(w.values()))
    return {"said": said.detach().numpy(), **{name: each.numpy() for name, each in zip(w, gradients)}}


def plot(path: Path, losses: np.ndarray, value: np.ndarray, said: Mapping[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.semilogy(MOST * np.sqrt(losses), linewidth=0.6)
    left.set(title="Tree-LSTM: error of a node, on expressions of each step", xlabel="step", ylabel="root mean square")
    for (label, each), color in zip(said.items(), ("0.7", "C0")):
        right.plot(value, each, ".", color=color, markersize=4, label=label)
    right.axline((0, 0), slope=1, color="0.4", linewidth=0.8)
    right.set(title="whole expressions that it was not trained on", xlabel="what it is worth", ylabel="what it says")
    right.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--trees", type=int, default=32, help="expressions of a step")
    parser.add_argument("--depth", type=int, default=3, help="the most operators above a digit")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, node by node")
    parser.add_argument("--plot", type=Path, help="write a picture of the error and of what it says")
    options = parser.parse_args(arguments)
    on_mesh.refuse(options, "a forest is one dim of nodes, which wait for their children, so no dim can lie along it")

    initial, draw = weights(options.width, options.seed), random.Random(options.seed)
    buckets = tp.Options(buckets={"leaf": "pow2", "inner": "pow2"})
    held_out = [expression(options.depth, draw) for _ in range(4 * options.trees)]
    test, roots = forest(held_out)
    ask = tp.compile(asking(initial), options.backend, options=buckets)
    said = {"before": np.asarray(ask(**test)["said"])}

    run = tp.compile(training(initial, options.steps), options.backend, options=buckets)
    state: Any = None
    losses: list[float] = []
    nodes: list[int] = []
    start = time.perf_counter()
    for _ in range(options.steps):
        trees = (expression(options.depth, draw) for _ in range(options.trees))
        given, _ = forest(tree for tree in trees if tree not in held_out)
        outputs = run(**given, state=state)
        state = outputs.state
        losses.append(float(outputs["loss"]))
        nodes.append(len(given["value"]))
    seconds = time.perf_counter() - start
    print(f"{options.steps} steps, forests of {min(nodes)} to {max(nodes)} nodes, in {seconds:.1f} s")
    if options.backend != "reference":
        print(f"executables: {run.executables} for training, {ask.executables} for asking")

    after = {name: np.asarray(array) for name, array in ask(**test, state=state).items()}
    said["after"] = after["said"]
    print(f"{len(held_out)} expressions that it was not trained on, before and after:")
    for name, where in ("expressions", roots), ("all nodes", slice(None)):
        wrong = {when: np.abs(each - test["value"])[where] for when, each in said.items()}
        errors = " to ".join(f"{each.mean():.2f}" for each in wrong.values())
        right = " to ".join(f"{100 * (each < 0.5).mean():.0f}" for each in wrong.values())
        print(f"  {name}: mean error {errors}, right when rounded {right} of 100")
    if options.check:
        learned = {name: np.asarray(state[name]) for name in initial}
        for name, wanted in torch_loop(learned, test).items():
            np.testing.assert_allclose(after[name], wanted, atol=1e-4 * np.abs(wanted).max(), rtol=0, err_msg=name)
        times = []
        for again in (lambda: np.asarray(ask(**test, state=state)["out"]), lambda: torch_loop(learned, test)):
            start = time.perf_counter()
            again()
            times.append(1e3 * (time.perf_counter() - start))
        print(
            f"forward and backward through {len(test['value'])} nodes: {times[0]:.1f} ms; "
            f"PyTorch, node by node: {times[1]:.1f} ms"
        )
        print("equal to PyTorch: values and gradients to 1e-4 of the greatest")
    if options.plot:
        plot(options.plot, np.array(losses), test["value"][roots], {when: each[roots] for when, each in said.items()})
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
