"""A doubly recurrent network (DRNN) grows trees: each node draws whether it has a child, and whether a next sibling.

    above[n] = tanh([above, x] of the parent @ A)        beside[n] = tanh([beside, x] of the sibling before @ F)
    o = tanh([above[n], beside[n]] @ U)                  child, sibling ~ sigmoid(o @ T)
    x[n] = embedding[label]                              label ~ softmax([o, child, sibling] @ W)

Nodes are numbered as they are made: a child first, then the next sibling, then that of the nearest node that waits
for one, `waits[n]`, which is a stack kept as pointers. Whose state a node reads is so an index that is made while it
runs. A frontier that grows cannot be said in the language: a step makes one node of each tree, of which there are at
most `--nodes`, and a tree ends when nobody waits. `--check` compares with PyTorch, tree by tree, grown by recursion
from the same draws.

    python examples/dynamic/drnn.py --backend jax --check

Source: Alvarez-Melis and Jaakkola 2017, section 3, with plain cells.
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

LABELS = "abcdefgh"
FEW = 0.4  # what is taken off the logits of having a child or a sibling, so that trees end
Arrays = dict[str, np.ndarray]


def drnn(shapes: Mapping[str, tuple[int, ...]]) -> tp.Program:
    """Trees of rows: for each node its parent (node 0 of itself), label and state, with the noise that was drawn."""
    with tp.Program("drnn") as program:
        b, n = tp.dims("b n")
        w = {name: tp.input(name, shape) for name, shape in shapes.items()}
        width = w["U"].shape[1]
        above, beside, x = (tp.recurrent(name, (width,), (b, n)) for name in ("above", "beside", "x"))
        child, sibling = (tp.recurrent(name, (), (b, n), tp.bool) for name in ("child", "sibling"))
        parent, waits = (tp.recurrent(name, (), (b, n), tp.int32) for name in ("parent", "waits"))
        uniform = tp.random.uniform((2 + len(LABELS),), dims=(b, n), low=1e-6)
        gumbel = -tp.log(-tp.log(uniform.spatial[2:]))

        # whom it comes after: the child of the node before, the sibling of that, or that of the one which waits
        is_child = child[b, n - 1]
        origin = tp.where(is_child | sibling[b, n - 1], tp.as_tensor(n - 1), waits[b, n - 1])

        def of_origin(state: tp.RecurrentTensor) -> tp.RecurrentTensor:
            return state.gather(n, origin, within=slice(0, n))

        given_down = tp.tanh(tp.concatenate([of_origin(above), of_origin(x)]) @ w["A"])
        given_on = tp.tanh(tp.concatenate([of_origin(beside), of_origin(x)]) @ w["F"])
        above[b, 0], beside[b, 0], parent[b, 0], waits[b, 0] = tp.zeros(width), tp.zeros(width), 0, 0
        above[b, n] = tp.where(is_child, given_down, of_origin(above))
        beside[b, n] = tp.where(is_child, 0.0, given_on)
        parent[b, n] = tp.where(is_child, origin, of_origin(parent))
        waits[b, n] = tp.where(is_child & of_origin(sibling), origin, of_origin(waits))

        o = tp.tanh(tp.concatenate([above, beside]) @ w["U"])
        child[b, n], draw = tp.unstack(uniform.spatial[:2] < tp.sigmoid(o @ w["T"] - FEW))
        sibling[b, n] = draw & (n > 0)  # so nobody waits for one of node 0
        logits = tp.concatenate([o, tp.stack([child, sibling]).astype(tp.float32)]) @ w["W"]
        label = tp.argmax(logits + gumbel)
        x[b, n] = w["embedding"].spatial[label]
        tp.stop_when(n, ~child & ~sibling & (waits == 0), each=b)
        for name, value in {"parent": parent, "label": label, "o": o, "uniform": uniform}.items():
            tp.output(name, value)
    return program


def drawn(width: int, draw: np.random.Generator) -> Arrays:
    shapes = {
        "A": (2 * width, width),
        "F": (2 * width, width),
        "U": (2 * width, width),
        "T": (width, 2),
        "W": (width + 2, len(LABELS)),
        "embedding": (len(LABELS), width),
    }
    deviations = {name: shape[0] ** -0.5 for name, shape in shapes.items()} | {"embedding": 1.0, "T": 2 * width**-0.5}
    return {name: draw.normal(0, deviations[name], shape).astype(np.float32) for name, shape in shapes.items()}


def torch_recursion(weights: Arrays, uniform: np.ndarray, nodes: int) -> Arrays:
    """The peer: one tree in PyTorch, by recursion, from the same noise. At `nodes` nodes it ends, whoever waits."""
    import torch

    w = {name: torch.as_tensor(array) for name, array in weights.items()}
    zero = torch.zeros(w["U"].shape[1])
    made: dict[str, list[np.ndarray]] = {"parent": [], "label": [], "o": []}

    def grow(parent: int, above: torch.Tensor, beside: torch.Tensor) -> None:
        at = len(made["o"])
        if at == nodes:
            return
        o = torch.tanh(torch.cat([above, beside]) @ w["U"])
        of_topology, of_label = torch.tensor(uniform[at, :2]), torch.tensor(uniform[at, 2:])
        drawn = of_topology < torch.sigmoid(o @ w["T"] - FEW)
        drawn[1] &= at > 0
        logits = torch.cat([o, drawn.float()]) @ w["W"]
        label = (logits - torch.log(-torch.log(of_label))).argmax()
        for name, value in {"parent": torch.tensor(parent), "label": label, "o": o}.items():
            made[name].append(value.numpy())
        x = w["embedding"][label]
        child, sibling = drawn.tolist()
        if child:
            grow(at, torch.tanh(torch.cat([above, x]) @ w["A"]), zero)
        if sibling:
            grow(parent, above, torch.tanh(torch.cat([beside, x]) @ w["F"]))

    grow(0, zero, zero)
    return {name: np.array(values) for name, values in made.items()}


def written(parent: np.ndarray, label: np.ndarray, node: int = 0) -> str:
    children = [written(parent, label, int(each)) for each in np.flatnonzero(parent == node) if each > node]
    return LABELS[label[node]] + (f"({' '.join(children)})" if children else "")


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
    parser.add_argument("--rows", type=int, default=64, help="trees of a batch")
    parser.add_argument("--nodes", type=int, default=50, help="the most of a tree")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of weights and draws")
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, tree by tree")
    options = parser.parse_args(arguments)

    weights = drawn(options.width, np.random.default_rng(options.seed))
    shapes = {name: array.shape for name, array in weights.items()}
    sizes = {"b": options.rows, "n": options.nodes}
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(drnn(shapes), options.backend, sizes=sizes, **lies)

    def grown() -> tuple[np.ndarray, Arrays]:
        outputs = run(**weights, seed=options.seed)
        return np.asarray(outputs.lengths["n"]), {name: np.asarray(array) for name, array in outputs.items()}

    (nodes, found), taken = timed(grown)
    print(f"{len(nodes)} trees of {nodes.min()} to {nodes.max()} nodes, {nodes.sum()} in all, in {1e3 * taken:.1f} ms")
    full = (nodes == options.nodes).sum()
    print(f"{full} of them have as many nodes as there may be; some others:")
    trees = [{name: array[row, :count] for name, array in found.items()} for row, count in enumerate(nodes)]
    for tree in sorted((tree for tree in trees if len(tree["o"]) < 12), key=lambda tree: -len(tree["o"]))[:3]:
        print(f"  {written(tree['parent'], tree['label'])}")
    on_mesh.tell(options, run)
    if options.check:
        wanted, taken = timed(lambda: [torch_recursion(weights, each, options.nodes) for each in found["uniform"]])
        print(f"PyTorch, tree by tree: {1e3 * taken:.1f} ms")
        greatest = 0.0
        for tree, peer in zip(trees, wanted):
            for name in ("parent", "label"):
                np.testing.assert_array_equal(tree[name], peer[name], err_msg=name)
            greatest = max(greatest, float(np.abs(tree["o"] - peer["o"]).max()))
        assert greatest < 1e-4, greatest
        print(f"equal to PyTorch: nodes, parents and labels; the greatest difference of a state is {greatest:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
