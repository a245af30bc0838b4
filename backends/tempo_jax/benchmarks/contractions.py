"""How a query meets a cache: the forms of a contraction that mean the same, timed in a loop that writes the cache.

    python backends/tempo_jax/benchmarks/contractions.py [--repeats 7]

What `dot` of the operator table chooses should be as fast as the fastest form, on every version of JAX.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tempo_jax.operators import OPERATORS

from tempo.sdg.call import Call, StaticType

Array = Any
Form = Callable[[Array, Array], Array]
STEPS = 16
SIZES = ((4, 8, 1024, 32), (1, 8, 1024, 64), (1, 12, 256, 64))  # batch, heads, positions, features


def product(x: Array, y: Array, contract: Any, batch: Any) -> Array:
    return lax.dot_general(x, y, (contract, batch), precision=lax.Precision.HIGHEST)


def chosen(shapes: tuple[tuple[int, ...], ...], result: tuple[int, ...], contract: Any, batch: Any) -> Form:
    """The function of the operator table."""
    names = ("lhs_contract", "rhs_contract", "lhs_batch", "rhs_batch")
    attrs = dict(zip(names, (*contract, *batch), strict=True))
    operands = tuple(StaticType(shape, "float32") for shape in shapes)
    form: Form = OPERATORS["dot"](Call("dot", attrs, operands, StaticType(result, "float32")))
    return form


def forms(sizes: tuple[int, int, int, int]) -> Mapping[str, Mapping[str, Form]]:
    """Scores: query (b, h, d) with keys (s, b, h, d). Mixtures: weights (b, h, s) with values (s, b, h, d)."""
    b, h, s, d = sizes
    scores, mixtures = (((2,), (3,)), ((0, 1), (1, 2))), (((2,), (0,)), ((0, 1), (1, 2)))
    turned = [tuple(axes[::-1] for axes in numbers) for numbers in (scores, mixtures)]
    cache = (s, b, h, d)
    return {
        "scores": {
            "chosen": chosen(((b, h, d), cache), (b, h, s), *scores),
            "query first": lambda q, k: product(q, k, *scores),
            "cache first": lambda q, k: product(k, q, *turned[0]),
            "multiply and reduce": lambda q, k: jnp.moveaxis(jnp.sum(q * k, -1), 0, -1),
        },
        "mixtures": {
            "chosen": chosen(((b, h, s), cache), (b, h, d), *mixtures),
            "weights first": lambda w, v: product(w, v, *mixtures),
            "cache first": lambda w, v: product(v, w, *turned[1]),
            "multiply and reduce": lambda w, v: jnp.sum(jnp.moveaxis(w, -1, 0)[..., None] * v, 0),
        },
    }


def loop(form: Form, operand: Array, cache: Array) -> Callable[[], None]:
    """`STEPS` contractions, each after one position of the cache was written."""

    def body(t: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        total, held = state
        row = jnp.broadcast_to(total.mean() * np.float32(1e-6), (1, *held.shape[1:]))
        held = lax.dynamic_update_slice(held, row, (t, 0, 0, 0))
        return form(operand + total.mean() * np.float32(1e-6), held), held

    shape = jax.eval_shape(form, operand, cache).shape
    compiled = jax.jit(lambda held: lax.fori_loop(0, STEPS, body, (jnp.zeros(shape, np.float32), held)))
    return lambda: jax.block_until_ready(compiled(cache))


def measure(runs: Mapping[str, Callable[[], None]], repeats: int) -> Mapping[str, float]:
    """Median seconds of a contraction, run in turn: machines are shared and noisy."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if repeat:
                seconds[name].append((time.perf_counter() - start) / STEPS)
    return {name: statistics.median(found) for name, found in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    random = np.random.default_rng(0)
    print(f"JAX {jax.__version__} on {jax.devices()[0]}")
    for sizes in SIZES:
        b, h, s, d = sizes
        cache = jnp.asarray(random.random((s, b, h, d)), np.float32)
        for kind, of_kind in forms(sizes).items():
            operand = jnp.asarray(random.random((b, h, d if kind == "scores" else s)), np.float32)
            runs = {name: loop(form, operand, cache) for name, form in of_kind.items()}
            found = measure(runs, repeats)
            print(f"{kind}, batch {b}, {h} heads, {s} positions, {d} features")
            for name, taken in found.items():
                print(f"  {name:<20} {taken * 1e6:8.0f} us")


if __name__ == "__main__":
    main()
