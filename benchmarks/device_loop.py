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
from benchmarks.harness import Benchmark, Session, close

WIDTH = 64
GOALS = {"jax": 1.1, "torch": 1.2, "numpy": 1.2}
CALLS = {"jax": 10, "torch": 1, "numpy": 1}
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


def jax_loop(w: Any, start: Any, steps: int) -> Loop:
    """`lax.scan`."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def step(h: Any, w: Any) -> tuple[Any, Any]:
        return jnp.tanh(h @ w), h

    scan = jax.jit(lambda w, start: lax.scan(lambda h, _: step(h, w), start, None, length=steps)[1])
    return lambda: scan(w, start)


def torch_loop(w: Any, start: Any, steps: int) -> Loop:
    """Eager operators."""
    import torch

    torch.set_num_threads(1)  # the arithmetic is far too little for two

    @torch.inference_mode()
    def loop() -> Any:
        h, states = start, torch.empty(steps, WIDTH, device=start.device)
        states[0] = h
        for t in range(1, steps):
            h = torch.tanh(h @ w)
            states[t] = h
        return states

    return loop


def numpy_loop(w: np.ndarray, start: np.ndarray, steps: int) -> Loop:
    def loop() -> np.ndarray:
        states, h = np.empty((steps, WIDTH), np.float32), start
        states[0] = h
        for t in range(1, steps):
            h = np.tanh(h @ w)
            states[t] = h
        return states

    return loop


BY_HAND = {"jax": jax_loop, "torch": torch_loop, "numpy": numpy_loop}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help="default: 100,000; quick 20,000")
    parser.add_argument("--calls", type=int, help="per sample; default: 10 on JAX, else 1")


def measure(session: Session) -> None:
    steps = session.options.steps or (20_000 if session.quick else 100_000)
    calls = session.options.calls or CALLS[session.backend]
    draw = np.random.default_rng(0)
    w = session.resident(draw.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32))
    start = session.resident(draw.normal(0, 1, WIDTH).astype(np.float32))
    by_hand = BY_HAND[session.backend](w, start, steps)
    run = session.compile(recurrence(), {"t": steps})
    session.compare(
        f"{steps} steps of tanh(h @ w), {WIDTH} floats",
        lambda: session.ready(run(w=w, start=start)["h"]),
        {"by hand": lambda: session.ready(by_hand())},
        close(1e-4, 1e-5),
        goals={"by hand": GOALS[session.backend]},
        calls=calls,
    )


BENCHMARK = Benchmark(
    measure,
    "A loop of small steps, JAX and PyTorch",
    repeats=11,
    quick_repeats=5,
    backends=("numpy", "jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
)
