"""Composites come apart where the backend does not take them, or an axis varies in length."""

from __future__ import annotations

from typing import Any

import pytest

import tempo as tp
from tempo.conformance.operator_samples import SAMPLES
from tempo.errors import InputError
from tempo.passes.composites import Decompose
from tempo.passes.manager import PassContext
from tempo.sdg.operators import OPERATORS
from tempo.sdg.validate import validate
from tests.unit.passes.equivalence import check

ALL = sorted(name for name, operator in OPERATORS.items() if operator.kind == "composite")
COMPOSITES = [name for name in ALL if OPERATORS[name].gradient is not None]
"""Those that the language makes. The others are made by passes, which come after gradients."""
SIZES = tuple({"t": t} for t in (1, 3, 6))


def program(op: str) -> tp.Program:
    """The composite along an axis of a number, along a dim, and along a prefix."""
    function = getattr(tp, op)
    with tp.Program(op) as made:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,))
        tp.output("row", function(x, axis=0))
        tp.output("column", function(x[0 : t.size], axis=0))
        tp.output("prefix", function(x[0 : t + 1], axis=0).sum(axis=0))
    return made


def ops(graph: object) -> list[str]:
    return sorted(node.op for node in graph.nodes.values() if node.op in COMPOSITES)  # type: ignore[attr-defined]


@pytest.mark.parametrize("op", COMPOSITES)
def test_what_is_not_taken_comes_apart_and_means_the_same(op: str) -> None:
    after = check(Decompose(), program(op).graph(), *SIZES)
    assert ops(after) == []


@pytest.mark.parametrize("op", COMPOSITES)
def test_what_is_taken_stays_but_along_an_axis_that_varies(op: str) -> None:
    graph = program(op).graph()
    after = Decompose((op,)).apply(graph, PassContext())
    validate(after)
    assert ops(graph) == [op] * 3
    assert ops(after) == [op] * 2


def test_the_pass_cannot_be_left_out() -> None:
    with tp.Program() as plain:
        tp.output("y", tp.softmax(tp.input("x", (4,), ())))
    with pytest.raises(InputError, match="the pass 'decompose' cannot be left out: backends have primitives"):
        tp.compile(plain, options=tp.Options(disable=("decompose",)))


def test_a_composite_has_a_gradient_and_a_sample() -> None:
    assert COMPOSITES
    for name in ALL:
        operator = OPERATORS[name]
        assert operator.gradient is not None if name in COMPOSITES else operator.gradient_note
        assert any(sample.op == name for sample in SAMPLES)


@pytest.mark.parametrize("options", [{}, {"strides": 2, "padding": 1}, {"dilation": 2, "padding": ((4, 3),)}])
def test_a_convolution_comes_apart_where_its_kernel_varies(options: dict[str, Any]) -> None:
    with tp.Program("filters") as program:
        t = tp.dim("t")
        x = tp.input("x", (1, 2, 9), ())
        past = tp.input("w", (2,), (t,))[tp.max(t - 4, 0) : t + 1].T.reshape(1, 2, tp.min(t + 1, 5))
        tp.output("short", tp.conv(x, tp.ones((3, 2, 2)), **options).max(axis=2))
        tp.output("past", tp.conv(x, past, **options).max(axis=2))
        tp.output("whole", tp.conv(past, past))
    graph = program.graph()
    after = check(Decompose(), graph, *SIZES)
    assert [[node.op for node in each.nodes.values()].count("conv") for each in (graph, after)] == [3, 1]
    contractions = [node for node in after.nodes.values() if node.op == "dot"]
    assert len(contractions) == 2
    assert sum(node.op == "gather" for node in after.nodes.values()) == 1, "what is seen whole is read as it lies"
