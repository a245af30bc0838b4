"""Loops on PyTorch against hand-written eager ones, and what a step of a host loop costs beside its function.

From the root of the repository:  PYTHONPATH=. python backends/tempo_torch/benchmarks/loops.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

import tempo as tp
from benchmarks.measure import in_turn, ratio, show

WIDTH = 64


def all_states() -> tp.Program:
    with tp.Program("all_states") as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(WIDTH, WIDTH), dims=())
        start = tp.input("start", shape=(WIDTH,), dims=())
        h = tp.recurrent("h", shape=(WIDTH,), dims=(t,))
        h[0] = start
        h[t + 1] = tp.tanh(h @ w)
        tp.output("h", h)
    return program


def last_state() -> tp.Program:
    with tp.Program("last_state") as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(WIDTH, WIDTH), dims=())
        x = tp.input("x", shape=(WIDTH,), dims=(t,))
        h = tp.recurrent("h", shape=(WIDTH,), dims=(t,))
        h[0] = tp.zeros((WIDTH,))
        h[t + 1] = tp.tanh(h @ w + x)
        tp.output("last", h[t.size - 1])
    return program


@torch.inference_mode()
def eager_all_states(w: torch.Tensor, start: torch.Tensor, steps: int) -> torch.Tensor:
    states, h = torch.empty(steps, WIDTH), start
    states[0] = h
    for t in range(1, steps):
        h = torch.tanh(h @ w)
        states[t] = h
    return states


@torch.inference_mode()
def eager_last_state(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros(WIDTH)
    for t in range(len(x) - 1):
        h = torch.tanh(h @ w + x[t])
    return h


class Environment:
    """Next to nothing, so that a step is what the loop around it costs."""

    def __init__(self) -> None:
        self.observation = np.zeros(4, np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.observation, np.float32(1.0), np.False_


def host_loop() -> tp.Program:
    world = Environment()
    with tp.Program("host_loop") as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(4, 2), dims=())
        seen = tp.recurrent("seen", shape=(4,), dims=(t,))
        action = tp.tanh(seen @ w).argmax(axis=-1)
        results = [((4,), tp.float32), ((), tp.float32), ((), tp.bool)]
        following, reward, _ = tp.host_call(world.step, action, out=results, ordered_by=(t,))
        seen[0] = tp.zeros((4,))
        seen[t + 1] = following
        tp.output("action", action)
        tp.output("reward", reward)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = options.steps
    draw = np.random.default_rng(0)
    w = draw.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32)
    x = draw.normal(0, 1, (steps, WIDTH)).astype(np.float32)
    tensors = torch.from_numpy(w), torch.from_numpy(x)
    every = tp.compile(all_states(), backend="torch", sizes={"t": steps})
    last = tp.compile(last_state(), backend="torch", sizes={"t": steps})
    host = tp.compile(host_loop(), backend="torch", sizes={"t": steps})
    compare(
        f"{steps} steps of tanh(h @ w), {WIDTH} floats, all states",
        lambda: every(w=w, start=x[0])["h"],
        lambda: eager_all_states(tensors[0], tensors[1][0], steps),
        options.repeats,
    )
    compare(
        f"{steps} steps of tanh(h @ w + x), {WIDTH} floats, the last state",
        lambda: last(w=w, x=x)["last"],
        lambda: eager_last_state(*tensors),
        options.repeats,
    )
    timings = in_turn({"host loop": lambda: host(w=np.ones((4, 2), np.float32))}, options.repeats)
    show(f"{steps} steps with a host call", timings)
    print(f"  {timings['host loop'].median / steps * 1e6:.1f} us a step (goal 50)")


def compare(title: str, ours: Callable[[], torch.Tensor], eager: Callable[[], torch.Tensor], repeats: int) -> None:
    torch.testing.assert_close(ours(), eager(), rtol=1e-4, atol=1e-5)
    timings = in_turn({"tempo": ours, "eager": eager}, repeats)
    show(title, timings)
    print(f"  {ratio(timings, 'tempo', 'eager')} (goal 1.2)")


if __name__ == "__main__":
    main()
