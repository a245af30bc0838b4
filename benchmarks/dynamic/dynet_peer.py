"""Tree-LSTM in DyNet: a graph of all nodes of all trees, whose operators its agenda batches.

The leaves are batched by hand. Inputs are lookup parameters, which have gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dynet_config
import numpy as np

dynet_config.set(mem=2048, autobatch=1, random_seed=1)

import dynet as dy  # noqa: E402  # it is configured before it is imported

from benchmarks.dynamic.forest import Forest, forest, inputs, weights  # noqa: E402
from benchmarks.dynamic.process import Prepared  # noqa: E402


def cell(gates: Any, width: int, below: Sequence[Any] = ()) -> tuple[Any, Any]:
    """h and c, given c of children."""
    part, product = dy.pick_range, dy.cmult
    u = dy.tanh(part(gates, 0, width))
    other = dy.logistic(part(gates, width, (3 + len(below)) * width))
    c = product(part(other, 0, width), u)
    if below:
        forget = (part(other, at * width, (at + 1) * width) for at in range(2, 2 + len(below)))
        c = dy.esum([c, *map(product, forget, below)])
    return product(part(other, width, 2 * width), dy.tanh(c)), c


def graph(trees: Forest, width: int, x: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
    """h of all nodes, and the loss; nothing is computed yet."""
    dy.renew_cg()
    gates = dy.affine_transform([dy.pick_range(b, 0, 3 * width), w, dy.lookup_batch(x, range(trees.leaves))])
    h, c = ([dy.pick_batch_elem(each, n) for n in range(trees.leaves)] for each in cell(gates, width))
    for left, right in trees.child.tolist():
        gates = dy.affine_transform([b, u, dy.concatenate([h[left], h[right]])])
        for states, made in zip((h, c), cell(gates, width, (c[left], c[right]))):
            states.append(made)
    all_h = dy.concatenate_cols(h)
    return all_h, dy.sum_elems(dy.square(all_h))


def prepare(width: int, trees: int, gradients: bool) -> Prepared:
    batch, made, collection = forest(trees), weights(width), dy.ParameterCollection()
    collection.lookup_parameters_from_numpy(inputs(batch.leaves, width))
    for name in "wub":
        collection.parameters_from_numpy(np.ascontiguousarray(made[name].T))

    def parameters() -> list[Any]:
        """They end with the collection."""
        return [*collection.lookup_parameters_list(), *collection.parameters_list()]

    def whole() -> tuple[Any, Any]:
        h, loss = graph(batch, width, *parameters())
        loss.forward()
        if gradients:
            for each in parameters():
                each.scale_gradient(0)
            loss.backward()
        return h, loss

    def arrays(found: tuple[Any, Any]) -> dict[str, Any]:
        h, loss = found
        taken = {"h": h.npvalue().T, "loss": np.float32(loss.value())}
        if gradients:
            x, *others = (each.grad_as_array() for each in parameters())
            taken |= {"dx": x, **{f"d{name}": each.T for name, each in zip("wub", others)}}
        return taken

    return Prepared(whole, arrays)
