"""Decoding with attention over all of the past, or a window of it: what a read of varying length costs.

One layer, step by step: h[t + 1] = tanh(x[t + 1] + attention(h[t], h[0:t + 1]) @ w). By hand on JAX it is one jitted
loop over a padded cache that attends to all of it under a mask; on PyTorch and NumPy a loop of eager operators that
attends to as much as there is.

Beside it runs a sweep of what can be forced, executions and tiles, of the program with its operators as they are
written: a kernel for attention, where the backend has one, leaves no length to choose for. What the cost model chose
is put in relation to the best of the sweep. The floor is memory: each token must read the keys and values that it
attends to, at the bandwidth that is measured in the same run. It holds where these are more than the processor's caches
keep. The times of the first and the last tokens are told apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.bandwidth import bandwidth
from benchmarks.harness import Benchmark, Session, close
from benchmarks.measure import ratios

BATCH, HEADS, WIDTH = 4, 8, 32
CHANNELS = HEADS * WIDTH
WITHIN = 1.2
"""What the cost model's choice may take, of the best of a sweep."""
CHOSEN = "tempo, chosen"
SPELLED: Mapping[str, Any] = {"disable": ("compose",)}
MATRICES = "wq", "wk", "wv", "wo"
Data = Mapping[str, Any]
Loop = Callable[[], Any]


def decoder(window: int | None = None) -> tp.Program:
    with tp.Program("attention") as program:
        t = tp.dim("t")
        x = tp.input("x", (BATCH, CHANNELS), (t,))
        w = {name: tp.input(name, (CHANNELS, CHANNELS)) for name in MATRICES}
        h = tp.recurrent("h", (BATCH, CHANNELS), (t,))
        q, k, v = ((h @ w[name]).reshape(BATCH, HEADS, WIDTH) for name in ("wq", "wk", "wv"))
        first = 0 if window is None else tp.max(t - window + 1, 0)
        scores = tp.einsum("bhd,sbhd->bhs", q, k[first : t + 1]) / WIDTH**0.5
        seen = tp.einsum("bhs,sbhd->bhd", tp.softmax(scores, axis=-1), v[first : t + 1])
        h[0] = tp.tanh(x[0])
        h[t + 1] = tp.tanh(x[t + 1] + seen.reshape(BATCH, CHANNELS) @ w["wo"])
        tp.output("h", h)
    return program


def jax_loop(data: Data, length: int, window: int | None) -> Loop:
    """A padded cache, all of it attended to; the window is a mask, too."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def run(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        def step(t: Any, carry: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
            h, k, v, all_h = carry
            all_h = lax.dynamic_update_slice(all_h, h[None], (t, 0, 0))
            q = (h @ wq).reshape(BATCH * HEADS, 1, WIDTH)
            k = lax.dynamic_update_slice(k, (h @ wk).reshape(BATCH * HEADS, 1, WIDTH), (0, t, 0))
            v = lax.dynamic_update_slice(v, (h @ wv).reshape(BATCH * HEADS, 1, WIDTH), (0, t, 0))
            at = jnp.arange(length)
            valid = (at <= t) if window is None else (at <= t) & (at > t - window)
            scores = jnp.where(valid, jnp.matmul(q, k.transpose(0, 2, 1)) / WIDTH**0.5, -jnp.inf)
            seen = jnp.matmul(jax.nn.softmax(scores, axis=-1), v).reshape(BATCH, CHANNELS)
            ahead = lax.dynamic_index_in_dim(x, jnp.minimum(t + 1, length - 1), keepdims=False)
            return jnp.tanh(ahead + seen @ wo), k, v, all_h

        cache = jnp.zeros((BATCH * HEADS, length, WIDTH))
        start = jnp.tanh(x[0]), cache, cache, jnp.zeros((length, BATCH, CHANNELS))
        return lax.fori_loop(0, length, step, start)[3]

    compiled = jax.jit(run)
    return lambda: compiled(**data)


def torch_loop(data: Data, length: int, window: int | None) -> Loop:
    import torch

    @torch.inference_mode()
    def loop() -> Any:
        x, wq, wk, wv, wo = (data[name] for name in ("x", *MATRICES))
        k, v = (torch.empty(BATCH * HEADS, length, WIDTH, device=x.device) for _ in range(2))
        found, h = torch.empty(length, BATCH, CHANNELS, device=x.device), torch.tanh(x[0])
        for t in range(length):
            found[t] = h
            if t == length - 1:
                break
            first = 0 if window is None else max(t - window + 1, 0)
            k[:, t], v[:, t] = (h @ wk).reshape(-1, WIDTH), (h @ wv).reshape(-1, WIDTH)
            scores = torch.bmm((h @ wq).reshape(-1, 1, WIDTH), k[:, first : t + 1].mT) / WIDTH**0.5
            seen = torch.bmm(torch.softmax(scores, -1), v[:, first : t + 1])
            h = torch.tanh(x[t + 1] + seen.reshape(BATCH, CHANNELS) @ wo)
        return found

    return loop


def numpy_loop(data: Data, length: int, window: int | None) -> Loop:
    def loop() -> np.ndarray:
        x, wq, wk, wv, wo = (data[name] for name in ("x", *MATRICES))
        k, v = (np.empty((BATCH * HEADS, length, WIDTH), np.float32) for _ in range(2))
        found, h = np.empty((length, BATCH, CHANNELS), np.float32), np.tanh(x[0])
        for t in range(length):
            found[t] = h
            if t == length - 1:
                break
            first = 0 if window is None else max(t - window + 1, 0)
            k[:, t], v[:, t] = (h @ wk).reshape(-1, WIDTH), (h @ wv).reshape(-1, WIDTH)
            scores = (h @ wq).reshape(-1, 1, WIDTH) @ k[:, first : t + 1].swapaxes(1, 2) / np.float32(WIDTH**0.5)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            seen = weights / weights.sum(-1, keepdims=True) @ v[:, first : t + 1]
            h = np.tanh(x[t + 1] + seen.reshape(BATCH, CHANNELS) @ wo)
        return found

    return loop


BY_HAND = {
    "jax": ("padded", jax_loop),
    "torch": ("by hand", torch_loop),
    "numpy": ("by hand", numpy_loop),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", help="default: 512 2048; quick: 512")
    parser.add_argument("--windows", type=int, nargs="+", default=(0, 256), help="0: all of the past; default: 0 256")
    parser.add_argument(
        "--tiles", type=int, nargs="*", help="of the sweep; default: 64 256 1024, quick: 64; none: none"
    )


def measure(session: Session) -> None:
    rate = max(bandwidth(session) for _ in range(1 if session.quick else 3))
    session.add("memory", "bandwidth", "GB/s", rate / 1e9)
    for length in session.options.lengths or ([512] if session.quick else [512, 2048]):
        draw = np.random.default_rng(0)
        arrays = {name: draw.normal(0, 0.3 / CHANNELS**0.5, (CHANNELS, CHANNELS)) for name in MATRICES}
        arrays["x"] = draw.normal(0, 1, (length, BATCH, CHANNELS))
        data = {name: session.resident(array.astype(np.float32)) for name, array in arrays.items()}
        for window in session.options.windows:
            measure_length(session, data, length, window or None, rate)


def measure_length(session: Session, data: Data, length: int, window: int | None, rate: float) -> None:
    """`rate`: bytes per second of memory."""
    case = f"{length} tokens, {'all of the past' if window is None else f'a window of {window}'}"
    free = compiled(session, length, window, SPELLED)
    runs = {"tempo": run_of(session, data, compiled(session, length, window, {}))}
    runs[CHOSEN] = run_of(session, data, free)
    swept = {_name(way): way for way in sweep(session, min(length, window or length))}
    for name, way in swept.items():
        runs[name] = run_of(session, data, compiled(session, length, window, {**way, **SPELLED}))
    by_hand, peer = BY_HAND[session.backend]
    looped = peer(data, length, window)
    runs[by_hand] = lambda: session.ready(looped())
    peers = {name: run for name, run in runs.items() if name != "tempo"}
    timings = session.compare(case, runs["tempo"], peers, close(1e-3, 1e-4))
    for name, timing in timings.items():
        session.add(case, name, "us/token", *(seconds / length * 1e6 for seconds in timing.seconds))
    if session.options.no_peers:
        return
    best = min(swept, key=lambda name: timings[name].median)
    session.add(case, f"chosen ({choice(free)}) / best of the sweep", "x", *ratios(timings, CHOSEN, best), goal=WITHIN)
    session.add(case, f"best of the sweep: {best}", "us/token", timings[best].median / length * 1e6)
    floor = cache_bytes(length, window) / rate
    session.add(case, "floor: the cache, read once", "us/token", floor / length * 1e6)
    for name in ("tempo", by_hand):
        session.add(case, f"{name} / floor", "floors", *(seconds / floor for seconds in timings[name].seconds))
    run = compiled(session, length, window, {})
    parts = [tokens(session, run, data, length) for _ in range(2)][1]
    for at, seconds in parts.items():
        session.add(case, f"tokens from {at} on", "us/token, streamed", seconds * 1e6)


def choice(run: tp.Executable) -> str:
    """How the lengths are run, as `explain()` has it under "# extents"."""
    lines = run.explain("extents").split("# extents")[1].split("\n\n")[0].splitlines()[1:]
    return ", ".join(dict.fromkeys(line.rpartition(": ")[2] for line in lines))


def sweep(session: Session, hull: int) -> list[Mapping[str, Any]]:
    """Executions of the extent that may be forced: the hull, and both others with each tile that is shorter."""
    tiles = session.options.tiles
    if tiles is None:
        tiles = [64] if session.quick else [64, 256, 1024]
    shorter = [tile for tile in tiles if tile < hull]
    return [
        {"extent": "hull"},
        *({"extent": way, "tile": tile} for way in ("blocks", "specialise") for tile in shorter),
    ]


def cache_bytes(length: int, window: int | None) -> int:
    """Of keys and values, which each token must read up to its own. Weights stay in the processor's caches."""
    seen = np.minimum(np.arange(1, length + 1), window or length).sum()
    return int(seen) * 2 * BATCH * CHANNELS * np.dtype(np.float32).itemsize


def _name(way: Mapping[str, Any]) -> str:
    return f"tempo, {' '.join(map(str, way.values()))}"


def compiled(session: Session, length: int, window: int | None, way: Mapping[str, Any]) -> tp.Executable:
    options = tp.Options(**way)
    return tp.compile(decoder(window), session.backend, device=session.device, sizes={"t": length}, options=options)


def run_of(session: Session, data: Data, run: tp.Executable) -> Loop:
    return lambda: session.ready(run(**data)["h"])


def tokens(session: Session, run: tp.Executable, data: Data, length: int) -> dict[int, float]:
    """Seconds per token in the first and in the last of eight parts of a run."""
    chunk, found = length // 8, dict[int, float]()
    stream = run.stream("t", chunk=chunk, **data)
    for part in range(8):
        start = time.perf_counter()
        session.ready(next(stream)["h"])
        if part in (0, 7):
            found[part * chunk] = (time.perf_counter() - start) / chunk
    return found


BENCHMARK = Benchmark(
    measure,
    "Attention alone",
    repeats=3,
    quick_repeats=3,
    backends=("numpy", "jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
    docs=lambda row: row.what.startswith(("chosen", "tempo / padded", "tempo / by hand")),
)
