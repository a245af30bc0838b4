"""Seconds per iteration of PPO, in turn with the peer of the same backend; losses are compared first."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.measure import in_turn, ratio, show
from benchmarks.ppo.program import program
from benchmarks.ppo.settings import Settings, noise, weights


def ours(settings: Settings, backend: str) -> tuple[Callable[[], Any], float]:
    """A run of all iterations, and the seconds that compiling took."""
    start = time.perf_counter()
    run = tp.compile(program(settings), backend)
    state, given = weights(settings), noise(settings)
    if backend == "jax":
        import jax

        given = {name: jax.numpy.asarray(array) for name, array in given.items()}

    def train() -> tuple[Any, Any]:
        found = run(state=state, **given)
        return np.asarray(found["loss"]), np.asarray(found["reward"])

    train()
    return train, time.perf_counter() - start


def theirs(settings: Settings, backend: str) -> Callable[[], Any]:
    if backend == "jax":
        import jax

        from benchmarks.ppo.jax_peer import peer

        train = peer(settings)
        given = jax.tree.map(jax.numpy.asarray, (weights(settings), noise(settings)))
        return lambda: [np.asarray(each) for each in train(*given)]
    from benchmarks.ppo.torch_peer import train as loop

    return lambda: loop(settings, weights(settings), noise(settings))


def measure(settings: Settings, backend: str, repeats: int) -> None:
    run, seconds = ours(settings, backend)
    peer = theirs(settings, backend)
    for name, found, wanted in zip(("loss", "reward"), run(), peer()):
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-4, err_msg=name)
    timings = in_turn({"tempo": run, "by hand": peer}, repeats)
    points, network = (
        f"{settings.environments} environments x {settings.steps}",
        f"{settings.layers} x {settings.width}",
    )
    show(f"{backend}: {points} steps, {network}, {settings.iterations} iterations", timings)
    print(f"  {timings['tempo'].median / settings.iterations:.4f} s an iteration; {ratio(timings, 'tempo', 'by hand')}")
    print(f"  first call, compilation included: {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="jax", choices=("jax", "torch"))
    parser.add_argument("--environments", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--layers", type=int, nargs="+", default=[2])
    parser.add_argument("--quick", action="store_true", help="32 environments, few repeats")
    options = parser.parse_args()
    counts = options.environments[:1] if options.quick else options.environments
    for layers in options.layers:
        for count in counts:
            measure(replace(Settings(), environments=count, layers=layers), options.backend, 3 if options.quick else 10)


if __name__ == "__main__":
    main()
