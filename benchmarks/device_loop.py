"""A device loop against the same loop written by hand: h[t + 1] = tanh(h @ w), 64 floats, all states are an output.

By hand it is a jitted `lax.scan` on JAX, a loop of eager operators on PyTorch, and a loop of operators on NumPy. The
outputs are compared first; then both run in turn, and a sample is the mean of several calls.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.measure import in_turn, ratio, show

WIDTH = 64
GOALS = {"jax": 1.1, "torch": 1.2, "numpy": 1.2}
CALLS = {"jax": 10, "torch": 1, "numpy": 1}
Arrays = tuple[Any, Any]
Loop = Callable[[], Any]


def recurrence() -> tp.Program:
    with tp.Program("all_states") as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(WIDTH, WIDTH), dims=())
        start = tp.input("start", shape=(WIDTH,), dims=())
        h = tp.recurrent("h", shape=(WIDTH,), dims=(t,))
        h[0] = start
        h[t + 1] = tp.tanh(h @ w)
        tp.output("h", h)
    return program


def jax_loop(w: np.ndarray, start: np.ndarray, steps: int) -> tuple[Arrays, Loop]:
    """The inputs as JAX's arrays, and `lax.scan` over them."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def step(h: Any, w: Any) -> tuple[Any, Any]:
        return jnp.tanh(h @ w), h

    scan = jax.jit(lambda w, start: lax.scan(lambda h, _: step(h, w), start, None, length=steps)[1])
    arrays = jnp.asarray(w), jnp.asarray(start)
    return arrays, lambda: scan(*arrays).block_until_ready()


def torch_loop(w: np.ndarray, start: np.ndarray, steps: int) -> tuple[Arrays, Loop]:
    """The inputs as tensors, and eager operators over them."""
    import torch

    torch.set_num_threads(1)  # the arithmetic is far too little for two
    arrays = torch.from_numpy(w), torch.from_numpy(start)

    @torch.inference_mode()
    def loop() -> Any:
        (matrix, h), states = arrays, torch.empty(steps, WIDTH)
        states[0] = h
        for t in range(1, steps):
            h = torch.tanh(h @ matrix)
            states[t] = h
        return states

    return arrays, loop


def numpy_loop(w: np.ndarray, start: np.ndarray, steps: int) -> tuple[Arrays, Loop]:
    def loop() -> np.ndarray:
        states, h = np.empty((steps, WIDTH), np.float32), start
        states[0] = h
        for t in range(1, steps):
            h = np.tanh(h @ w)
            states[t] = h
        return states

    return (w, start), loop


BY_HAND = {"jax": jax_loop, "torch": torch_loop, "numpy": numpy_loop}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=sorted(BY_HAND), default="jax")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--calls", type=int, help="per sample; default: 10 on JAX, else 1")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="5 repeats")
    options = parser.parse_args()
    repeats = min(5, options.repeats) if options.quick else options.repeats
    calls = options.calls or CALLS[options.backend]
    draw = np.random.default_rng(0)
    w = draw.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32)
    start = draw.normal(0, 1, WIDTH).astype(np.float32)
    (matrix, first), by_hand = BY_HAND[options.backend](w, start, options.steps)
    run = tp.compile(recurrence(), backend=options.backend, sizes={"t": options.steps})

    def tempo() -> Any:
        h = run(w=matrix, start=first)["h"]
        return h.block_until_ready() if options.backend == "jax" else h

    np.testing.assert_allclose(np.asarray(tempo()), np.asarray(by_hand()), rtol=1e-4, atol=1e-5)
    timings = in_turn({"tempo": tempo, "by hand": by_hand}, repeats, calls)
    show(f"{options.backend}: {options.steps} steps of tanh(h @ w), {WIDTH} floats, {calls} calls a sample", timings)
    print(f"  {ratio(timings, 'tempo', 'by hand')} (goal {GOALS[options.backend]})")


if __name__ == "__main__":
    main()
