"""The memory plans of examples and benchmarks, at small sizes, against what is measured."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks.harness import Session
from benchmarks.memory import cases, planned_and_measured

CASES = cases(quick=True)
PAIRS = [("numpy", name) for name in CASES]
PAIRS += [(backend, name) for backend in ("torch", "jax") for name in list(CASES)[:9]]
SLACK = 768 * 1024
"""Bytes: `tracemalloc` counts Python's own objects, too."""


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        *PAIRS[:3],
        *(pytest.param(*each, marks=pytest.mark.slow) for each in PAIRS[3::2]),
        *(pytest.param(*each, marks=pytest.mark.sweep) for each in PAIRS[4::2]),
    ],
)
def test_a_plan_is_what_is_measured(backend: str, name: str) -> None:
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    session = Session(Namespace(device="cpu", quick=True), 1, backend)
    planned, measured = planned_and_measured(session.backend_class()(), CASES[name](), session.resident)
    slack = SLACK if backend == "numpy" else 256 * 1024
    assert planned <= 1.1 * measured + slack
    assert measured <= 1.1 * planned + slack
