"""Gradients by the reference evaluator against central differences in float64.

A difference takes two runs for every number that there is, so the losses that are subtracted are compiled, for NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tempo as tp
from tempo.conformance.gradient_programs import differences
from tempo.plugins import list_backends

INSTALLED = tuple(each.name for each in list_backends() if each.descriptor and each.name != "reference")

Declare = Callable[[], tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]]
"""Inside a program: a loss, and by name of an input what it is differentiated with respect to."""


def check(
    declare: Declare,
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    backends: tuple[str, ...] = ("numpy",),
    tolerance: float = 1e-6,
) -> dict[str, np.ndarray]:
    """The gradients by name, after they were compared with differences, and backends with the evaluator."""
    with tp.Program("checked") as program:
        loss, wrt = declare()
        tp.output("loss", loss)
        for name, gradient in tp.grad(loss, wrt).items():
            tp.output(f"grad_{name}", gradient)
    with tp.Program("forward") as forward:
        tp.output("loss", declare()[0])
    run = tp.compile(program, backend="reference", sizes=sizes)
    found = run(**arrays)
    value = tp.compile(forward, backend="numpy", sizes=sizes)
    np.testing.assert_allclose(np.asarray(value(**arrays)["loss"]), found["loss"], rtol=1e-9, atol=1e-9)
    for name in wrt:
        expected = differences(lambda **moved: float(np.sum(value(**moved)["loss"])), arrays, name)
        np.testing.assert_allclose(found[f"grad_{name}"], expected, rtol=tolerance, atol=tolerance, err_msg=name)
    for backend in backends:
        compiled = tp.compile(program, backend=backend, sizes=sizes)(**arrays)
        for key in ("loss", *(f"grad_{name}" for name in wrt)):
            np.testing.assert_allclose(np.asarray(compiled[key]), found[key], rtol=1e-9, atol=1e-9, err_msg=key)
    return {name: found[f"grad_{name}"] for name in wrt}


def numbers(*shape: int, seed: int = 0, low: float = -1.5, high: float = 1.5) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape)
