"""Names: a program means the same whatever its dims, inputs and tensors are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers

X = numbers((4, 3, 2))

PAIRS = [
    ("µ", "μ"),  # the sign and the letter: one name to Python, as the next five
    ("𝑡", "t"),
    ("ﬁ", "fi"),
    ("x1", "x１"),
    ("ª", "a"),
    ("℘", "p"),
    ("T", "t"),  # sizes are upper case in generated code
    ("ß", "ss"),
    ("and", "True"),
    ("lambda", "None"),
    ("min", "max"),
    ("size", "of"),
    ("position", "over"),
    ("picked", "rows"),  # functions of generated code
    ("add", "fresh"),
    ("b0", "start"),
    ("__debug__", "range"),
    ("कि", "क"),
]


def grid(first: str, second: str) -> tp.Program:
    """A recurrence in two dims, a window and a prefix, a place that an index chooses."""
    with tp.Program() as program:
        i, j = tp.dim(first), tp.dim(second)
        x = tp.input(first, shape=(2,), dims=(i, j))
        h = tp.recurrent(second, shape=(2,), dims=(i, j))
        h[0, 0] = x
        h[0, j] = h[0, j - 1] * 0.5 + x
        h[i, 0] = h[i - 1, 0] + x
        h[i, j] = h[i - 1, j] * 0.5 + tp.tanh(h[i, j - 1]) + x + (i - 2 * j)
        tp.output(first, h)
        tp.output("prefix", x[0 : i + 1].sum(axis=0) * tp.max(i - j, 0))
        tp.output("window", h[tp.max(i - 1, 0) : i + 1, j].mean(axis=0))
        tp.output(second, h.spatial[tp.min(i, 1)])
    return program


@pytest.fixture(scope="module")
def expected() -> list[Array]:
    found = tp.compile(grid("i", "j"), backend="reference")(i=X)
    return [np.asarray(found[name]) for name in ("i", "prefix", "window", "j")]


@pytest.mark.one_configuration
@pytest.mark.parametrize(
    ("first", "second"), [*PAIRS[:3], *(pytest.param(*each, marks=pytest.mark.slow) for each in PAIRS[3:])]
)
def test_any_two_identifiers_name_two_dims(target: Target, expected: list[Array], first: str, second: str) -> None:
    program = grid(first, second)
    mappings = [None] if target.interprets else ["full", "sequential"] if target.thorough else ["sequential"]
    for mapping in mappings:
        given: dict[str, Any] = {first: X}
        found = target.arrays(target.compile(program, mapping=mapping)(**given))
        for name, want in zip((first, "prefix", "window", second), expected, strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6)


def test_a_name_may_look_like_a_role(target: Target) -> None:
    """Outputs, parameters and dims that are called alike, or as others are with a colon, stay apart."""
    with tp.Program() as program:
        w = tp.dim("w")
        x = tp.input("x", shape=(), dims=(w,))
        kept = tp.parameter("w", (), 1.0, (w,))
        kept[w + 1] = kept + x[w + 1]
        tp.output("w", x * 2)
        tp.output("state:w", x * 3)
        tp.output("stop:w", x * 4)
        tp.stop_when(w, x > 2)
    out = target.compile(program)(x=np.arange(6, dtype=np.float32))
    for name, factor in {"w": 2, "state:w": 3, "stop:w": 4}.items():
        np.testing.assert_allclose(target.to_numpy(out[name]), np.arange(4) * factor)
    np.testing.assert_allclose(target.to_numpy(out.state["w"]), 1 + 1 + 2 + 3)
