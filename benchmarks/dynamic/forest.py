"""Forests of random binary trees, and the weights and inputs of a Tree-LSTM over them. It needs NumPy alone.

The binary Tree-LSTM of Tai, Socher and Manning 2015 (arXiv 1503.00075, equations 9 to 14), where only leaves have
inputs. Gates lie one behind another in this order, so that those of a leaf are the first three:

    u, i, o                     = b[:3 width] + x w                   at a leaf
    u, i, o, f_left, f_right    = b + [h_left, h_right] u             above
    c = sigmoid(i) tanh(u) + sigmoid(f_left) c_left + sigmoid(f_right) c_right          h = sigmoid(o) tanh(c)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FEWEST, MOST = 12, 34
"""Leaves of a tree, 23 in the mean."""


@dataclass(frozen=True)
class Forest:
    """Nodes are numbered, leaves first, children before parents; `child[n - leaves]` are the two of an inner node."""

    leaves: int
    child: Array

    @property
    def size(self) -> int:
        return self.leaves + len(self.child)


def forest(trees: int, seed: int = 0) -> Forest:
    """Random trees whose numbers of leaves are spread evenly."""
    counts = FEWEST + (np.arange(trees) + 0.5) / trees * (MOST - FEWEST + 1)
    return _grown([int(each) for each in counts], np.random.default_rng(seed))


def forest_of(nodes: int, seed: int = 0) -> Forest:
    """Random trees of so many nodes together, or of one more; the last of them may be small."""
    draw, trees = np.random.default_rng(seed), []
    while nodes > 0:
        trees.append(min(int(draw.integers(FEWEST, MOST + 1)), nodes // 2 + 1))
        nodes -= 2 * trees[-1] - 1
    return _grown(trees, draw)


def _grown(trees: Sequence[int], draw: np.random.Generator) -> Forest:
    """Trees of so many leaves: two random neighbours after another get a parent, as in the parse of a sentence."""
    child: list[tuple[int, int]] = []
    first, leaves = 0, sum(trees)
    for count in trees:
        roots = list(range(first, first + count))
        first += count
        while len(roots) > 1:
            at = int(draw.integers(len(roots) - 1))
            child.append((roots[at], roots[at + 1]))
            roots[at : at + 2] = [leaves + len(child) - 1]
    return Forest(leaves, np.array(child, np.int32).reshape(-1, 2))


def weights(width: int) -> dict[str, Array]:
    """`w` of leaves, `u` of inner nodes, `b` of both."""
    draw = np.random.default_rng(width)
    shapes = {"w": (width, 3 * width), "u": (2 * width, 5 * width), "b": (5 * width,)}
    return {name: draw.standard_normal(shape, np.float32) / np.float32(width**0.5) for name, shape in shapes.items()}


def inputs(leaves: int, width: int) -> Array:
    """`x`, a row to a leaf."""
    return np.random.default_rng(leaves).standard_normal((leaves, width), np.float32)
