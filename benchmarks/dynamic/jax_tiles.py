"""Tree-LSTM by hand in JAX: all leaves at once, then a scan over tiles of inner nodes, sorted by level, in one `jit`.

h and c lie in buffers, leaves first, then tile after tile; a tile reads rows of them and writes its own behind them.

`jax.grad` adds each tile's gradient into arrays of all nodes, and into those of the weights. The gradient by hand goes
over the tiles backwards, where a node takes what its one parent left for it, so that nothing is added anywhere, and
multiplies once for all tiles for the gradient of the weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.dynamic.forest import Forest, forest, inputs, weights
from benchmarks.dynamic.process import Prepared

Array = jax.Array
Weights = tuple[Array, Array, Array, Array]
LANES = 16


class Tiles(NamedTuple):
    """`at[tile, lane]`: the rows of two children in the buffers; `position[n]`: that of a node. `parent[row]` is a row
    of those that tiles leave for children, two a lane, or that behind all of them for a root."""

    at: np.ndarray
    position: np.ndarray
    parent: np.ndarray


def tiles_of(trees: Forest, lanes: int) -> Tiles:
    level = levels(trees)
    order = np.argsort(level, kind="stable")
    count = np.bincount(level)
    tiles = -(-count // lanes)
    within = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    place = np.repeat((np.cumsum(tiles) - tiles) * lanes, count) + within
    rows = int(tiles.sum()) * lanes
    position = np.arange(trees.size, dtype=np.int32)
    position[trees.leaves + order] = trees.leaves + place
    at = np.zeros((rows, 2), np.int32)
    at[place] = position[trees.child[order]]
    parent = np.full(trees.leaves + rows, 2 * rows, np.int32)
    parent[at[place]] = 2 * place[:, None] + np.arange(2)
    return Tiles(at.reshape(-1, lanes, 2), position, parent)


def levels(trees: Forest) -> np.ndarray:
    """Of inner nodes: how far from the farthest leaf below, less 1."""
    level = np.full(trees.size, -1)
    while True:
        found = level[trees.child].max(axis=1) + 1
        if (found == level[trees.leaves :]).all():
            return found
        level[trees.leaves :] = found


def cell(gates: Array, below: Array | None = None) -> tuple[Array, Array]:
    """h and c of nodes, given c of both children."""
    u, i, o, *forget = jnp.split(gates, 3 if below is None else 5, axis=-1)
    c = jax.nn.sigmoid(i) * jnp.tanh(u)
    for side, f in enumerate(forget):
        c += jax.nn.sigmoid(f) * below[:, side]  # type: ignore[index]
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def rows(buffer: Array, at: Array) -> Array:
    return buffer.at[at].get(mode="promise_in_bounds")


def put(buffer: Array, row: Any, values: Array) -> Array:
    return lax.dynamic_update_slice(buffer, values, (row, 0))


def climbed(h: Array, c: Array, u: Array, b: Array, tiles: Tiles) -> tuple[Array, Array, Array]:
    """The buffers, and the gates of all tiles, given those of the leaves."""
    leaves, width = h.shape
    count, lanes, _ = tiles.at.shape
    room = jnp.zeros((count * lanes, width), h.dtype)

    def step(buffers: tuple[Array, Array], tile: tuple[Array, Array]) -> Any:
        (h, c), (number, at) = buffers, tile
        gates = rows(h, at).reshape(lanes, 2 * width) @ u + b
        made_h, made_c = cell(gates, rows(c, at))
        first = leaves + number * lanes
        return (put(h, first, made_h), put(c, first, made_c)), gates

    begun = jnp.concatenate([h, room]), jnp.concatenate([c, room])
    (h, c), gates = lax.scan(step, begun, (jnp.arange(count), tiles.at))
    return h, c, gates


@jax.custom_vjp
def climbed_by_hand(h: Array, c: Array, u: Array, b: Array, tiles: Tiles) -> Array:
    return climbed(h, c, u, b, tiles)[0]


def _climbed(h: Array, c: Array, u: Array, b: Array, tiles: Tiles) -> Any:
    all_h, all_c, gates = climbed(h, c, u, b, tiles)
    return all_h, (all_h, all_c, gates, u, tiles, h.shape[0])


def _descended(kept: Any, d_h: Array) -> Any:
    h, c, gates, u, tiles, leaves = kept
    count, lanes, _ = tiles.at.shape
    width, u_turned = h.shape[1], u.T
    room = jnp.zeros((2 * count * lanes + 1, width), h.dtype)

    def step(left: tuple[Array, Array], tile: Any) -> Any:
        (left_h, left_c), (number, at, parent, own, gates) = left, tile
        _, back = jax.vjp(cell, gates, rows(c, at))
        d_gates, d_below = back((own + rows(left_h, parent), rows(left_c, parent)))
        first = number * 2 * lanes
        left_h = put(left_h, first, (d_gates @ u_turned).reshape(2 * lanes, width))
        return (left_h, put(left_c, first, d_below.reshape(2 * lanes, width))), d_gates

    parent, own = tiles.parent[leaves:].reshape(count, lanes), d_h[leaves:].reshape(count, lanes, width)
    each = jnp.arange(count), tiles.at, parent, own, gates
    (left_h, left_c), d_gates = lax.scan(step, (room, room), each, reverse=True)
    d_gates = d_gates.reshape(count * lanes, 5 * width)
    d_u = rows(h, tiles.at).reshape(count * lanes, 2 * width).T @ d_gates
    parent = tiles.parent[:leaves]
    return d_h[:leaves] + rows(left_h, parent), rows(left_c, parent), d_u, d_gates.sum(axis=0), None


climbed_by_hand.defvjp(_climbed, _descended)


def loss(given: Weights, tiles: Tiles, by_hand: bool) -> tuple[Array, Array]:
    """The loss, and h of all nodes."""
    x, w, u, b = given
    h, c = cell(x @ w + b[: w.shape[1]])
    h = climbed_by_hand(h, c, u, b, tiles) if by_hand else climbed(h, c, u, b, tiles)[0]
    h = rows(h, tiles.position)
    return (h * h).sum(), h


forward = jax.jit(loss, static_argnums=2)
backward = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=2)


def prepare(width: int, trees: int, gradients: bool, by_hand: bool) -> Prepared:
    batch, made = forest(trees), weights(width)
    given = tuple(map(jnp.asarray, (inputs(batch.leaves, width), made["w"], made["u"], made["b"])))

    def whole() -> Any:
        run = backward if gradients else forward
        return jax.block_until_ready(run(given, tiles_of(batch, LANES), by_hand))

    def arrays(found: Any) -> dict[str, Array]:
        (loss, h), gradients_found = found if gradients else (found, ())
        return {"h": h, "loss": loss, **{f"d{name}": each for name, each in zip("xwub", gradients_found)}}

    return Prepared(whole, arrays)
