"""The models of `examples/dynamic/` batched by hand in PyTorch, from weights as tensors and a batch as NumPy arrays.

What orders a batch (levels of trees, rows by their lengths, stacks) is index arithmetic in NumPy, at each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from benchmarks.dynamic.forest import Forest
from benchmarks.dynamic.torch_peers import levels
from examples.dynamic import berxit as encoder
from examples.dynamic import drnn as growing
from examples.dynamic.stackrnn import SHIFT

Weights = Mapping[str, Tensor]
Arrays = Mapping[str, np.ndarray]
Values = dict[str, Tensor]


def indices(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(array, np.int64))


def taken(table: Tensor, index: np.ndarray) -> Tensor:
    """Rows of a table, one for each index."""
    return table.index_select(0, indices(index).ravel())


# -- MV-RNN ------------------------------------------------------------------------------------------------------------


def mvrnn(w: Weights, batch: Arrays) -> Values:
    """By depth: all nodes of a level over all trees at once, leaves beside those above others."""
    word, width = batch["word"], len(w["W"])
    vectors, nodes = [], []
    below_v = below_m = w["vectors"]  # the deepest level has leaves alone: nobody reads these
    for level, place in reversed(levels(Forest(len(word), batch["child"]))):
        leaves = word[level[level < len(word)]]
        vector, matrix = taken(w["vectors"], leaves), taken(w["matrices"], leaves)
        if len(leaves) < len(level):
            beside = below_v.view(-1, 2, width).flip(1).reshape(-1, width, 1)
            changed = torch.bmm(below_m, beside).view(-1, 2, width).flip(1).reshape(-1, 2 * width)
            vector = torch.cat([vector, torch.tanh(changed @ w["W"].T)])
            v = w["V"].expand(len(changed), -1, -1)
            matrix = torch.cat([matrix, torch.bmm(v, below_m.view(-1, 2 * width, width))])
        vectors.append(vector)
        nodes.append(level)
        below_v, below_m = taken(vector, place), taken(matrix, place)
    kind = indices(batch["kind"][np.concatenate(nodes)])
    return {"loss": functional.cross_entropy(torch.cat(vectors) @ w["S"].T, kind)}


# -- packed rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """Points of rows of `n`, one step behind the other, the longest rows first, as `pack_padded_sequence` does it."""

    n: np.ndarray

    @cached_property
    def counts(self) -> list[int]:
        """Of rows at each step."""
        return [int(each) for each in (np.arange(self.n.max())[:, None] < self.n).sum(1)]

    @cached_property
    def order(self) -> np.ndarray:
        return np.argsort(-self.n, kind="stable")

    @cached_property
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """The row and the step of each."""
        t, rank = np.nonzero(np.arange(self.n.max())[:, None] < self.n[self.order])
        return self.order[rank], t

    def at(self, row: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Where a point lies."""
        first = np.cumsum(self.counts) - self.counts
        return first[t] + np.argsort(self.order)[row]

    @property
    def last(self) -> np.ndarray:
        """Where the last point of each row lies."""
        return self.at(np.arange(len(self.n)), self.n - 1)

    def run(self, x: Tensor, u: Tensor) -> Tensor:
        """h[t] = tanh(x[t] + h[t - 1] u) of all rows that have a step."""
        first, *steps = x.split(self.counts)
        made = [torch.tanh(first)]
        for step in steps:
            made.append(torch.tanh(torch.addmm(step, made[-1][: len(step)], u)))
        return torch.cat(made)


def birnn(w: Weights, batch: Arrays) -> Values:
    """Packed; backward in time the same rows are packed from their ends."""
    packed = Packed(batch["n"])
    row, t = packed.points
    turned = packed.at(row, packed.n[row] - 1 - t)
    of_forward, of_backward = (taken(w["embedding"], batch["number"][row, t]) @ w["W"]).chunk(2, 1)
    backward = taken(packed.run(taken(of_backward, turned), w["V"]), turned)
    logits = torch.cat([packed.run(of_forward, w["U"]), backward], 1) @ w["out"]
    padded = logits.new_zeros(*batch["number"].shape, logits.shape[1])
    return {
        "logits": padded.index_put((indices(row), indices(t)), logits),
        "loss": functional.cross_entropy(logits, indices(batch["tag"][row, t])),
    }


def nestedrnn(w: Weights, batch: Arrays) -> Values:
    """Two packed runs: the words of all sentences, then the sentences of all documents."""
    words, sentences = Packed(batch["words"]), Packed(batch["sentences"])
    read = words.run(taken(w["embedding"], batch["word"][words.points]), w["U"])
    said = taken(read, words.last) @ w["W"]
    document, at = sentences.points
    heard = sentences.run(taken(said, batch["first"][document] + at), w["V"])
    logits = taken(heard, sentences.last) @ w["out"]
    return {"logits": logits, "loss": functional.cross_entropy(logits, indices(batch["liked"]))}


# -- StackRNN ----------------------------------------------------------------------------------------------------------


def transitions(batch: Arrays) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """All stacks in step, of numbers: 0 the bottom, then the words, then what is reduced, in order. At each step which
    two are reduced, by row; at each point what is seen, and what is done."""
    points, action = batch["points"], batch["action"]
    rows, made = len(points), 1 + len(batch["word"])
    stack, top, following = np.zeros((rows, points.max() + 1), int), np.ones(rows, int), 1 + batch["first"]
    reduced, seen, done = [], [], []
    for t in range(1, points.max()):
        live = np.flatnonzero(t < points)
        seen.append(np.stack([stack[live, top[live] - 1], stack[live, top[live]], following[live]], 1))
        done.append(action[live, t])
        shift = done[-1] == SHIFT
        ups, downs = live[shift], live[~shift]
        reduced.append(seen[-1][~shift, :2])
        top[ups] += 1
        stack[ups, top[ups]] = following[ups]
        following[ups] += 1
        top[downs] -= 1
        stack[downs, top[downs]] = made + np.arange(len(downs))
        made += len(downs)
    return [each for each in reduced if len(each)], np.concatenate(seen), np.concatenate(done)


def stackrnn(w: Weights, batch: Arrays) -> Values:
    """All stacks in step: at each, those that reduce. What is done is given, so logits of all points come at once."""
    reduced, seen, done = transitions(batch)
    width = w["W"].shape[1]
    h = functional.pad(taken(w["embedding"], batch["word"]), (0, 0, 1, 0))  # at the bottom are zeros
    for each in reduced:
        h = torch.cat([h, torch.tanh(taken(h, each).view(-1, 2 * width) @ w["W"])])
    logits = torch.tanh(taken(h, seen).view(-1, 3 * width) @ w["V"]) @ w["out"]
    return {"loss": functional.cross_entropy(logits, indices(done))}


# -- BERxiT ------------------------------------------------------------------------------------------------------------


def padded(rows: Sequence[Arrays]) -> Values:
    """Arrays of rows of different lengths, with zeros behind their ends."""
    return {name: pad_sequence([torch.from_numpy(row[name]) for row in rows], True) for name in rows[0]}


def berxit_one_by_one(w: Weights, *given: Any) -> Values:
    return padded(encoder.torch_loop(w, *given))


def berxit(w: Weights, batch: Arrays, heads: int, threshold: float) -> Values:
    """Tokens without padding, but in attention; sentences that are sure are taken out behind every layer."""
    n = indices(batch["n"])
    width, live = heads * encoder.OF_HEAD, torch.arange(len(n))
    there = torch.arange(int(n.max())) < n[:, None]
    row, s = np.nonzero(there.numpy())
    x = taken(w["embedding"], batch["token"][row, s]) + taken(w["position"], s)
    x = functional.layer_norm(x, (width,))
    found = {"h": x.new_zeros(len(n), len(w["C"]), width), "p": x.new_zeros(len(n), len(w["C"]), w["C"].shape[2])}
    for at, classifier in enumerate(w["C"]):
        qkv = x.new_zeros(*there.shape, 3 * width)
        qkv[there] = x @ w["QKV"]
        q, k, v = (each.unflatten(2, (heads, encoder.OF_HEAD)).transpose(1, 2) for each in qkv.chunk(3, 2))
        seen = functional.scaled_dot_product_attention(q, k, v, there[:, None, None])
        a = functional.layer_norm(x + seen.transpose(1, 2).flatten(2)[there] @ w["O"], (width,))
        x = functional.layer_norm(a + functional.gelu(a @ w["U"]) @ w["V"], (width,))
        h = x[n.cumsum(0) - n]
        p = torch.softmax(torch.tanh(h @ w["P"]) @ classifier, 1)
        found["h"][live, at], found["p"][live, at] = h, p
        goes_on = p.amax(1) <= threshold
        if not goes_on.any():
            break
        if not goes_on.all():
            x, n, live = x[goes_on.repeat_interleave(n)], n[goes_on], live[goes_on]
            there = there[goes_on, : int(n.max())]
    return {name: each[:, : at + 1] for name, each in found.items()}


# -- DRNN --------------------------------------------------------------------------------------------------------------


def drnn_one_by_one(w: Weights, uniform: np.ndarray, counts: np.ndarray) -> Values:
    found = growing.torch_recursion(w, uniform, counts)
    return {name: torch.as_tensor(array)[None] for name, array in found.items()}


def drnn(w: Weights, uniform: np.ndarray) -> Values:
    """All nodes of a level of all trees at once, as many as there are."""
    noise, trees, width = torch.tensor(uniform), uniform.shape[1], w["U"].shape[1]
    gumbel = -torch.log(-torch.log(noise[..., 2:]))
    o = torch.zeros(1, *noise.shape[:2], width)
    parent, label = (torch.zeros(1, *noise.shape[:2], dtype=torch.int32) for _ in range(2))
    above, beside, below = torch.zeros(trees, width), torch.zeros(trees, width), torch.arange(trees)
    for level in range(len(uniform)):
        count = len(above)
        out = torch.tanh(torch.cat([above, beside], 1) @ w["U"])
        drawn = noise[level, :count, :2] < torch.sigmoid(out @ w["T"] - growing.FEW)
        drawn[:, 1] &= level > 0
        chosen = (torch.cat([out, drawn.float()], 1) @ w["W"] + gumbel[level, :count]).argmax(1)
        o[0, level, :count], label[0, level, :count], parent[0, level, :count] = out, chosen, below
        origin, is_sibling = (each[:trees] for each in drawn.nonzero(as_tuple=True))
        if not len(origin):
            break
        x, is_child = w["embedding"][chosen][origin], is_sibling == 0
        given_down = torch.tanh(torch.cat([above[origin], x], 1) @ w["A"])
        given_on = torch.tanh(torch.cat([beside[origin], x], 1) @ w["F"])
        below = torch.where(is_child, level * trees + origin, below[origin])
        above, beside = torch.where(is_child[:, None], given_down, above[origin]), given_on
        beside[is_child] = 0
    return {"parent": parent, "label": label, "o": o}
