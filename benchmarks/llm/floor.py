"""The least that a token takes: the products of its vectors with all matrices of the model, one after the other.

Each is by the library's own function for it, over weights of their own, so that they come from memory as a model's do.
A vector is made of the one before, as in the model: nothing runs beside anything else, or is left out. Where a library
has several functions for it (PyTorch's for one vector and for several, with the matrix laid out for oneDNN and without;
JAX's precisions) the fastest counts: they differ by up to two, for several rows by more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.harness import Session
from benchmarks.measure import timed

Floor = Callable[[], Any]
_TRIES = 3


def floor(session: Session, shapes: Sequence[tuple[int, int]], dtype: str, rows: int) -> Floor:
    """Computes `rows` vectors through matrices of these shapes, output by input."""
    draw = np.random.default_rng(0)
    chosen = np.dtype(dtype)
    weights = [(draw.standard_normal(shape, np.float32) * shape[1] ** -0.5).astype(chosen) for shape in shapes]
    start = draw.standard_normal((rows, shapes[0][1]), np.float32).astype(chosen)
    ways: list[Floor] = {"jax": _jax, "torch": _torch}[session.backend](session, start, weights)
    for way in ways:
        way()
    return min(ways, key=lambda way: min(timed(way) for _ in range(_TRIES)))


def _through(x: Any, weights: Sequence[Any], product: Callable[[Any, Any], Any]) -> list[Any]:
    """All products; of one that is wider than the next takes, the next takes the first part."""
    found = []
    for weight in weights:
        x = product(x[:, : weight.shape[1]], weight)
        found.append(x)
    return found


def _jax(session: Session, start: np.ndarray, weights: Sequence[np.ndarray]) -> list[Floor]:
    jax = import_module("jax")
    given = session.resident(start), [session.resident(weight) for weight in weights]

    def way(precision: str | None) -> Floor:
        product = partial(jax.numpy.matmul, precision=precision)
        # that all are returned keeps XLA from computing parts of them
        run = jax.jit(lambda x, weights: _through(x, weights, lambda x, weight: product(x, weight.T)))
        return lambda: session.ready(run(*given))

    return [way(None), way("highest")]


def _torch(session: Session, start: np.ndarray, weights: Sequence[np.ndarray]) -> list[Floor]:
    torch = import_module("torch")
    packing = import_module("tempo_torch.operators.packing")
    x, *given = (torch_array(each).to(session.device) for each in (start, *weights))
    packs = packing.may_be_packed(x.dtype, x.device)
    packed = [packing.packed(each) if packs else each.t() for each in given]

    def way(product: Callable[[Any, Any], Any], given: Sequence[Any]) -> Floor:
        run: Floor = torch.inference_mode()(lambda: session.ready(_through(x, given, product)))
        return run

    of_one = [way(lambda x, weight: torch.mv(weight, x[0])[None], given)] if len(start) == 1 else []
    return [way(torch.nn.functional.linear, given), way(packing.by_prepared, packed), *of_one]


def torch_array(array: np.ndarray) -> Any:
    """PyTorch takes no bfloat16 of NumPy's: by its bits."""
    torch = import_module("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
