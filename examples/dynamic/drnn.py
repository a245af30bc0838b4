"""A doubly recurrent network (DRNN) grows trees: each node draws whether it has a child, and whether a next sibling.

    above[n] = tanh([above, x] of the parent @ A)        beside[n] = tanh([beside, x] of the sibling before @ F)
    o = tanh([above[n], beside[n]] @ U)                  child, sibling ~ sigmoid(o @ T)
    x[n] = embedding[label]                              label ~ softmax([o, child, sibling] @ W)

Trees grow level by level, all nodes of a level of all trees at once: level l has what descends from level l - 1, a
first child and a next sibling of each of its nodes, as these draw. So a level has as many nodes as the one before
makes: `i = tp.dim("i", room, lengths=count)`, with a `count` that is computed while the trees grow. Node i of a level
reads the state of the node that it descends from at an index that the run makes. A level has room for as many nodes
as there are trees; the others are not made. The run ends at a level of none.

`--check` compares with PyTorch, tree by tree, grown by recursion from the same draws. With `--mesh data=2` there are
two forests, each of half of the trees.

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


def drnn(shapes: Mapping[str, tuple[int, ...]], trees: int) -> tp.Program:
    """Forests of so many trees: for each node its parent (a root: itself), counted level by level, label and state,
    with the noise that was drawn."""
    with tp.Program("drnn") as program:
        b, l = tp.dims("b l")
        count = tp.recurrent("count", (), (b, l), tp.int32)
        i = tp.dim("i", trees, lengths=count)
        w = {name: tp.input(name, shape) for name, shape in shapes.items()}
        width = w["U"].shape[1]
        above, beside, x = (tp.recurrent(name, (width,), (b, l, i)) for name in ("above", "beside", "x"))
        child, sibling = (tp.recurrent(name, (), (b, l, i), tp.bool) for name in ("child", "sibling"))
        parent = tp.recurrent("parent", (), (b, l, i), tp.int32)
        uniform = tp.random.uniform((2 + len(LABELS),), dims=(b, l, i), low=1e-6)
        gumbel = -tp.log(-tp.log(uniform.spatial[2:]))

        # whom it comes after: a first child and a next sibling of the first node, then those of the second
        descend = child.astype(tp.int32) + sibling.astype(tp.int32)
        every, before = descend[b, l - 1, :], descend[b, l, 0:i].sum(axis=0)
        origin = (tp.cumsum(every, axis=0) <= tp.as_tensor(i)).sum(axis=0)
        count[b, 0], count[b, l] = trees, tp.minimum(every.sum(axis=0), trees)

        def of_origin(state: tp.RecurrentTensor) -> tp.RecurrentTensor:
            return state[b, l - 1].gather(i, origin)

        is_child = of_origin(child) & (of_origin(before) == tp.as_tensor(i))
        given_down = tp.tanh(tp.concatenate([of_origin(above), of_origin(x)]) @ w["A"])
        given_on = tp.tanh(tp.concatenate([of_origin(beside), of_origin(x)]) @ w["F"])
        above[b, 0, i], beside[b, 0, i], parent[b, 0, i] = tp.zeros(width), tp.zeros(width), tp.as_tensor(i)
        above[b, l, i] = tp.where(is_child, given_down, of_origin(above))
        beside[b, l, i] = tp.where(is_child, 0.0, given_on)
        parent[b, l, i] = tp.where(is_child, origin + trees * tp.as_tensor(l - 1), of_origin(parent))

        o = tp.tanh(tp.concatenate([above, beside]) @ w["U"])
        child[b, l, i], draw = tp.unstack(uniform.spatial[:2] < tp.sigmoid(o @ w["T"] - FEW))
        sibling[b, l, i] = draw & (l > 0)  # a root has none
        logits = tp.concatenate([o, tp.stack([child, sibling]).astype(tp.float32)]) @ w["W"]
        label = tp.argmax(logits + gumbel)
        x[b, l, i] = w["embedding"].spatial[label]
        tp.stop_when(l, count == 0)
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


def torch_recursion(weights: Arrays, uniform: np.ndarray, counts: np.ndarray) -> Arrays:
    """The peer: a forest in PyTorch, tree by tree, by recursion, from the same noise. Level l ends at `counts[l]`."""
    import torch

    w = {name: torch.as_tensor(array) for name, array in weights.items()}
    zero = torch.zeros(w["U"].shape[1])
    levels, trees = uniform.shape[:2]
    wanted = [0] * levels
    parents, labels = (np.zeros((levels, trees), np.int32) for _ in range(2))
    states = np.zeros((levels, trees, len(zero)), np.float32)

    def grow(level: int, parent: int, above: torch.Tensor, beside: torch.Tensor) -> None:
        if level == levels:
            return
        at, wanted[level] = wanted[level], wanted[level] + 1
        if at >= counts[level]:
            return
        o = torch.tanh(torch.cat([above, beside]) @ w["U"])
        of_topology, of_label = torch.tensor(uniform[level, at, :2]), torch.tensor(uniform[level, at, 2:])
        drawn = of_topology < torch.sigmoid(o @ w["T"] - FEW)
        drawn[1] &= level > 0
        logits = torch.cat([o, drawn.float()]) @ w["W"]
        label = (logits - torch.log(-torch.log(of_label))).argmax()
        parents[level, at], labels[level, at], states[level, at] = parent, label, o
        x = w["embedding"][label]
        child, sibling = drawn.tolist()
        if child:
            grow(level + 1, level * trees + at, torch.tanh(torch.cat([above, x]) @ w["A"]), zero)
        if sibling:
            grow(level + 1, parent, above, torch.tanh(torch.cat([beside, x]) @ w["F"]))

    for root in range(trees):
        grow(0, root, zero, zero)
    np.testing.assert_array_equal(counts, np.minimum(wanted, trees), err_msg="nodes of a level")
    return {"parent": parents, "label": labels, "o": states}


def trees_of(counts: np.ndarray, parent: np.ndarray) -> dict[int, list[int]]:
    """The nodes of a forest, level by level, by the root of their tree."""
    found: dict[int, list[int]] = {}
    root: dict[int, int] = {}
    for level, count in enumerate(counts):
        for node in range(level * parent.shape[1], level * parent.shape[1] + count):
            above = int(parent.flat[node])
            root[node] = root.get(above, node)
            found.setdefault(root[node], []).append(node)
    return found


def written(nodes: list[int], parent: np.ndarray, label: np.ndarray) -> str:
    """The first of a tree's nodes, and what is below it."""
    below = [each for each in nodes if parent.flat[each] == nodes[0] and each != nodes[0]]
    children = [written([child, *(node for node in nodes if node > child)], parent, label) for child in below]
    return LABELS[label.flat[nodes[0]]] + (f"({' '.join(children)})" if children else "")


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
    parser.add_argument("--rows", type=int, default=64, help="trees of all forests")
    parser.add_argument("--nodes", type=int, default=50, help="the most that descend from one another")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="of weights and draws")
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, tree by tree")
    options = parser.parse_args(arguments)

    weights = drawn(options.width, np.random.default_rng(options.seed))
    shapes = {name: array.shape for name, array in weights.items()}
    lies = on_mesh.arguments(options, shard={"b": "data"})
    forests = options.mesh.axes.get("data", 1) if options.mesh else 1
    sizes = {"b": forests, "l": options.nodes}
    run = tp.compile(drnn(shapes, -(-options.rows // forests)), options.backend, sizes=sizes, **lies)

    def grown() -> tuple[np.ndarray, Arrays]:
        outputs = run(**weights, seed=options.seed)
        return outputs.lengths["i"], {name: np.asarray(array) for name, array in outputs.items()}

    (counts, found), taken = timed(grown)
    pairs = [(nodes, row) for row in range(forests) for nodes in trees_of(counts[row], found["parent"][row]).values()]
    least, most = min(len(nodes) for nodes, _ in pairs), max(len(nodes) for nodes, _ in pairs)
    print(f"{len(pairs)} trees of {least} to {most} nodes, {counts.sum()} in all, in {1e3 * taken:.1f} ms")
    print(f"{counts.shape[1]} levels, of which the last has {counts[:, -1].sum()} nodes; some trees:")
    for nodes, row in sorted(((n, row) for n, row in pairs if len(n) < 12), key=lambda pair: -len(pair[0]))[:3]:
        print(f"  {written(nodes, found['parent'][row], found['label'][row])}")
    on_mesh.tell(options, run)
    if options.check:
        wanted, taken = timed(lambda: [torch_recursion(weights, *each) for each in zip(found["uniform"], counts)])
        print(f"PyTorch, tree by tree: {1e3 * taken:.1f} ms")
        peers = {name: np.stack([peer[name] for peer in wanted]) for name in wanted[0]}
        for name in ("parent", "label"):
            np.testing.assert_array_equal(found[name], peers[name], err_msg=name)
        greatest = float(np.abs(found["o"] - peers["o"]).max())
        assert greatest < 1e-4, greatest
        print(f"equal to PyTorch: nodes, parents and labels; the greatest difference of a state is {greatest:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
