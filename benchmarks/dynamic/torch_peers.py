"""Tree-LSTM by hand in PyTorch: by depth, all nodes of a level over all trees at once, and node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.dynamic.forest import Forest, forest, inputs, weights
from benchmarks.dynamic.process import Prepared


def cell(gates: Tensor, width: int, below: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """h and c of nodes, given c of their left and of their right children."""
    u, other = torch.tanh(gates[..., :width]), torch.sigmoid(gates[..., width:])
    i, o, *forget = other.split(width, dim=-1)
    c = i * u
    for f, each in zip(forget, below):
        c = torch.addcmul(c, f, each)
    return o * torch.tanh(c), c


def levels(trees: Forest) -> list[tuple[np.ndarray, np.ndarray]]:
    """By depth, from the roots down: the nodes, leaves first, and where each child of the level above is among them."""
    is_root = np.ones(trees.size, bool)
    is_root[trees.child] = False
    children, found = np.flatnonzero(is_root), []
    while children.size:
        order = np.argsort(children >= trees.leaves, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        nodes = children[order]
        found.append((nodes, place))
        children = trees.child[nodes[nodes >= trees.leaves] - trees.leaves].ravel()
    return found


def by_depth(trees: Forest, x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """h of all nodes. Children are a level deeper than their parents, so a level reads rows of one other."""
    width, from_below = x.shape[1], levels(trees)[::-1]
    counts = [int((nodes < trees.leaves).sum()) for nodes, _ in from_below]
    leaves = np.concatenate([nodes[:count] for (nodes, _), count in zip(from_below, counts)])
    gates = torch.addmm(b[: 3 * width], x.index_select(0, torch.from_numpy(leaves)), w)
    of_leaves = zip(*(each.split(counts) for each in cell(gates, width)))
    found, below_h, below_c = [], x, x
    for (nodes, place), count, (h, c) in zip(from_below, counts, of_leaves):
        if count < len(nodes):
            gates = torch.addmm(b, below_h.view(-1, 2 * width), u)
            inner = cell(gates, width, below_c.view(-1, 2, width).unbind(1))
            h, c = (torch.cat(each) for each in zip((h, c), inner))
        found.append(h)
        at = torch.from_numpy(place)
        below_h, below_c = h.index_select(0, at), c.index_select(0, at)
    nodes = np.concatenate([nodes for nodes, _ in from_below])
    position = np.empty_like(nodes)
    position[nodes] = np.arange(len(nodes))
    return torch.cat(found).index_select(0, torch.from_numpy(position))


def one_by_one(trees: Forest, x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """h of all nodes; the leaves are made at once."""
    width, u_turned = x.shape[1], u.t()
    h, c = (list(each.unbind()) for each in cell(torch.addmm(b[: 3 * width], x, w), width))
    for left, right in trees.child.tolist():
        gates = torch.addmv(b, u_turned, torch.cat([h[left], h[right]]))
        for states, made in zip((h, c), cell(gates, width, (c[left], c[right]))):
            states.append(made)
    return torch.stack(h)


WAYS = {"by depth": by_depth, "one by one": one_by_one}


def prepare(width: int, trees: int, gradients: bool, way: str) -> Prepared:
    torch.set_num_threads(1)
    batch, made = forest(trees), weights(width)
    arrays = {"x": inputs(batch.leaves, width), **made}
    given = [torch.from_numpy(each).requires_grad_(gradients) for each in arrays.values()]

    def whole() -> dict[str, Any]:
        with torch.inference_mode(not gradients):
            h = WAYS[way](batch, *given)
            loss = h.square().sum()
        found = torch.autograd.grad(loss, given) if gradients else ()
        return {"h": h, "loss": loss, **{f"d{name}": each for name, each in zip(arrays, found)}}

    return Prepared(whole, lambda found: {name: each.detach().numpy() for name, each in found.items()})
