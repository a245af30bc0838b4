"""An encoder of shared layers that each row leaves when it is sure (BERxiT; Xin et al., 2021): rows that go on moved
together, all rows until the last has left, and both by hand.

Layers that rows take are drawn so that `useful` of what all rows at all layers would be is computed. By hand the rows
that go on are taken out behind every layer: PyTorch computes exactly those, JAX compiles a layer for each eighth of all
rows and computes no more than there are. Nothing is trained, so nobody is sure before the layer that was drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session, close

HEAD = 64
CLASSES = 8
WITHIN = 1.2
"""What Tempo may take, of compaction by hand."""
Arrays = Mapping[str, np.ndarray]


def program(width: int, length: int) -> tp.Program:
    heads = width // HEAD
    with tp.Program("early exit") as made:
        b, layer = tp.dim("b"), tp.dim("l")
        of_qkv, of_values = tp.input("of_qkv", (width, 3 * width)), tp.input("of_values", (width, width))
        up, down = tp.input("up", (width, 4 * width)), tp.input("down", (4 * width, width))
        of_class, leaves = tp.input("of_class", (width, CLASSES)), tp.input("leaves", (), (b,), "int32")
        x = tp.recurrent("x", (length, width), (b, layer))
        x[b, 0] = tp.input("tokens", (length, width), (b,))
        normed = tp.layer_norm(x, axis=1) @ of_qkv
        q, k, v = (normed.spatial[:, at * width : (at + 1) * width].reshape(length, heads, HEAD) for at in range(3))
        q, k, v = (each.transpose(1, 0, 2) for each in (q, k, v))
        seen = tp.softmax(q @ k.transpose(0, 2, 1) * HEAD**-0.5, axis=2) @ v
        y = x + seen.transpose(1, 0, 2).reshape(length, width) @ of_values
        x[b, layer + 1] = y + tp.gelu(tp.layer_norm(y, axis=1) @ up) @ down
        logits = tp.layer_norm(x.spatial[0], axis=0) @ of_class
        tp.output("logits", logits)
        is_sure = tp.softmax(logits, axis=0).max(axis=0) > tp.input("sure", ())
        tp.stop_when(layer, is_sure | (tp.as_tensor(layer) >= leaves), each=b)
    return made


def arrays_of(width: int, rows: int, length: int, layers: int, useful: float) -> Arrays:
    draw = np.random.default_rng(0)
    shapes = {"of_qkv": (width, 3 * width), "of_values": (width, width), "up": (width, 4 * width)}
    shapes |= {"down": (4 * width, width), "of_class": (width, CLASSES), "tokens": (rows, length, width)}
    arrays = {name: draw.normal(0, 1 if name == "tokens" else 0.02, shape) for name, shape in shapes.items()}
    share = np.arange(rows) / max(1, rows - 1)
    taken = np.ceil(layers * share ** (1 / useful - 1)).clip(1, layers)  # the mean of x**k is 1 / (k + 1)
    leaves = draw.permutation(taken).astype(np.int32) - 1
    return {"leaves": leaves, "sure": np.float32(2), **{name: each.astype("f") for name, each in arrays.items()}}


def torch_compacted(arrays: Arrays, layers: int) -> Callable[[], dict[str, Any]]:
    import torch
    from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

    given = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
    rows, length, width = given["tokens"].shape

    def classified(x: Any) -> Any:
        return layer_norm(x[:, 0], (width,)) @ given["of_class"]

    def layer(x: Any) -> Any:
        parts = (layer_norm(x, (width,)) @ given["of_qkv"]).split(width, 2)
        q, k, v = (each.reshape(len(x), length, -1, HEAD).transpose(1, 2) for each in parts)
        seen = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(len(x), length, width)
        y = x + seen @ given["of_values"]
        return y + gelu(layer_norm(y, (width,)) @ given["up"]) @ given["down"]

    @torch.inference_mode()
    def run() -> dict[str, Any]:
        x, live = given["tokens"], torch.arange(rows)
        found = torch.zeros(rows, layers, CLASSES)
        for at in range(layers):
            x = x if at == 0 else layer(x)
            logits = classified(x)
            found[live, at] = logits
            goes_on = ~((logits.softmax(1).amax(1) > given["sure"]) | (at >= given["leaves"][live]))
            if not goes_on.all():
                x, live = x[goes_on], live[goes_on]
            if not len(live):
                break
        return {"logits": found[:, : at + 1]}

    return run


def jax_compacted(arrays: Arrays, layers: int) -> Callable[[], dict[str, Any]]:
    import jax
    import jax.numpy as jnp

    given = {name: jnp.asarray(array) for name, array in arrays.items()}
    rows, length, width = given["tokens"].shape
    part = -(-rows // 8)

    def normed(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)

    @jax.jit
    def classified(x: Any) -> Any:
        logits = normed(x[:, 0]) @ given["of_class"]
        return logits, jax.nn.softmax(logits).max(1)

    @jax.jit
    def layer(x: Any) -> Any:
        parts = jnp.split(normed(x) @ given["of_qkv"], 3, 2)
        q, k, v = (each.reshape(len(x), length, -1, HEAD).transpose(0, 2, 1, 3) for each in parts)
        seen = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * HEAD**-0.5) @ v
        y = x + seen.transpose(0, 2, 1, 3).reshape(len(x), length, width) @ given["of_values"]
        return y + jax.nn.gelu(normed(y) @ given["up"], approximate=False) @ given["down"]

    def run() -> dict[str, Any]:
        x, live = given["tokens"], np.arange(rows)
        found = np.zeros((rows, layers, CLASSES), np.float32)
        for at in range(layers):
            x = x if at == 0 else layer(x)
            logits, sure = map(np.asarray, classified(x))
            found[live, at] = logits[: len(live)]
            goes_on = np.flatnonzero(~((sure[: len(live)] > arrays["sure"]) | (at >= arrays["leaves"][live])))
            if not len(goes_on):
                break
            count = -(-len(goes_on) // part) * part
            if count < len(x):
                x = jnp.take(x, np.pad(goes_on, (0, count - len(goes_on))), 0)
                live = live[goes_on]
            elif len(goes_on) < len(live):  # those that have left stay, behind those that go on
                order = np.concatenate([goes_on, np.setdiff1d(np.arange(len(x)), goes_on)])
                x, live = jnp.take(x, order, 0), live[goes_on]
        return {"logits": found[:, : at + 1]}

    return run


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--widths", type=int, nargs="+", help="heads of 64; default: 256 512; quick: 64")
    parser.add_argument("--rows", type=int, nargs="+", help="default: 8 64; quick: 8")
    parser.add_argument("--length", type=int, help="tokens of a row; default: 32; quick: 4")
    parser.add_argument("--layers", type=int, default=12, help="default: 12")
    parser.add_argument("--useful", type=float, default=0.4, help="of all rows at all layers; default: 0.4")


def measure(session: Session) -> None:
    asked, quick = session.options, session.quick
    for width in asked.widths or ([64] if quick else [256, 512]):
        for rows in asked.rows or ([8] if quick else [8, 64]):
            arrays = arrays_of(width, rows, asked.length or (4 if quick else 32), asked.layers, asked.useful)
            measure_case(session, arrays, asked.layers)


def measure_case(session: Session, arrays: Arrays, layers: int) -> None:
    rows, length, width = arrays["tokens"].shape
    case = f"{rows} rows of {length} tokens, width {width}"
    by_hand = f"compaction by hand, {'JAX' if session.backend == 'jax' else 'PyTorch'}"
    peers = {by_hand: (jax_compacted if session.backend == "jax" else torch_compacted)(arrays, layers)}
    runs = {way: run_of(session, arrays, layers, way) for way in (None, "sequential")}
    peers["tempo, until the last has left"] = runs["sequential"]
    session.compare(case, runs[None], peers, close(1e-3, 1e-3), goals={by_hand: WITHIN})
    session.add(case, "useful", "of all rows at all layers", float((arrays["leaves"] + 1).mean() / layers))


def run_of(session: Session, arrays: Arrays, layers: int, way: str | None) -> Callable[[], Any]:
    length, width = arrays["tokens"].shape[1:]
    chosen = tp.Options() if way is None else tp.Options(mapping={"l": way})
    run = tp.compile(program(width, length), session.backend, device=session.device, options=chosen)
    placed = {name: array if name == "sure" else session.resident(array) for name, array in arrays.items()}
    return lambda: session.ready(run(**placed, sizes={"l": layers}))


BENCHMARK = Benchmark(
    measure,
    title="Rows that leave early",
    repeats=5,
    quick_repeats=1,
    backends=("jax", "torch"),
    add_options=options,
)
