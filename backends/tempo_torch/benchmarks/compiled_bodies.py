"""Whether `torch.compile` pays for the body of a loop: a dozen elementwise operators, on vectors of several sizes.

    python backends/tempo_torch/benchmarks/compiled_bodies.py

Eager operators take memory from one another, as the emitter of the backend has them do. CPU time of one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

Tensor = torch.Tensor
SIZES = (64, 4096, 1 << 16, 1 << 20)


def body(h: Tensor, a: Tensor, b: Tensor) -> Tensor:
    x = h * a + b
    y = torch.tanh(x) * torch.sigmoid(x)
    return torch.where(y > 0, y, y * 0.1) + h * 0.5 - torch.exp(-x * x)


def eager(h: Tensor, a: Tensor, b: Tensor) -> Tensor:
    x = (h * a).add_(b)
    y = torch.tanh(x).mul_(torch.sigmoid(x))
    return torch.where(y > 0, y, y * 0.1).add_(h * 0.5).sub_((-x).mul_(x).exp_())


def microseconds(function: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> float:
    calls = min(2000, max(5, 2_000_000 // len(tensors[0])))
    start = time.process_time()
    for _ in range(calls):
        function(*tensors)
    return (time.process_time() - start) / calls * 1e6


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    compiled = torch.compile(body, fullgraph=True, dynamic=False)
    for size in SIZES:
        torch._dynamo.reset()
        h, a, b = (torch.randn(size) for _ in range(3))
        start = time.perf_counter()
        torch.testing.assert_close(compiled(h, a, b), eager(h, a, b))
        first = time.perf_counter() - start
        found: dict[str, list[float]] = {"eager": [], "compiled": []}
        for _ in range(repeats):
            found["eager"].append(microseconds(eager, (h, a, b)))
            found["compiled"].append(microseconds(compiled, (h, a, b)))
        times = ", ".join(f"{name} {statistics.median(each):.0f} us" for name, each in found.items())
        print(f"{size:>8} floats: {times}, first call {first:.1f} s", flush=True)


if __name__ == "__main__":
    main()
