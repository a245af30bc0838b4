"""One key for attributes: by bits, in every place that looks for equal ones."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.loop_ir.ir import Compute
from tempo.sdg.call import Call, StaticType
from tempo.sdg.exact import exact, same
from tempo.sdg.graph import Graph, Node, TensorType
from tempo.sdg.rewriter import Rewriter
from tempo.symbolic import const

NAN, OTHER_NAN = (struct.unpack("d", struct.pack("Q", bits))[0] for bits in (0x7FF8 << 48, (0x7FF8 << 48) + 1))
DIFFERENT: list[tuple[Any, Any]] = [
    (0.0, -0.0),
    (0.0, 0),
    (1, True),
    (1.0, 1),
    (NAN, -NAN),
    (NAN, OTHER_NAN),
    (np.float32(0.0), np.float32(-0.0)),
    (np.float32(1), np.int32(1)),
    ((1, (2.0, 0.0)), (1, (2.0, -0.0))),
    ({"a": 0.0}, {"a": -0.0}),
]
TYPE = TensorType((const(2),), "float32")


@pytest.mark.parametrize("pair", DIFFERENT, ids=str)
def test_keys_tell_apart_what_differs_in_bits(pair: tuple[Any, Any]) -> None:
    left, right = pair
    assert exact(left) != exact(right) and not same(left, right)
    assert exact(left) == exact(left) and hash(exact(left)) == hash(exact(left))


def test_a_nan_is_the_same_as_another_of_its_bits() -> None:
    again = struct.unpack("d", struct.pack("d", NAN))[0]
    assert exact((1, NAN)) == exact((1, again)) and same({"a": NAN}, {"a": again})


@pytest.mark.parametrize("pair", DIFFERENT, ids=str)
def test_nodes_calls_and_statements_differ_as_their_attributes_do(pair: tuple[Any, Any]) -> None:
    nodes = [Node(0, "pad", (), (TYPE,), attrs=(("value", value),)) for value in pair]
    calls = [Call("pad", {"value": value}, (), StaticType((2,), "float32")) for value in pair]
    statements = [Compute("v", "pad", {"value": value}, (), (), TYPE) for value in pair]
    for first, second in (nodes, calls, statements):
        assert first != second
        assert first == replace(first)
        assert hash(first) == hash(replace(first))


def test_what_is_added_to_a_graph_is_one_node_only_if_it_is_the_same() -> None:
    with tp.Program() as program:
        x = tp.input("x", (2,))
        tp.output("x", x)
    graph: Graph = program.graph()
    (edge,) = (output.edge for output in graph.outputs)
    rewriter = Rewriter(graph)
    sides = {"low": (const(1),), "high": (const(0),)}
    made = [
        rewriter.pure("pad", (edge,), {"value": value, **sides}) for value in (0.0, -0.0, NAN, OTHER_NAN, 0.0, NAN * 1)
    ]
    assert len(set(made)) == 4 and made[4] == made[0] and made[5] == made[2]


def test_what_is_written_is_one_node_only_if_it_is_the_same() -> None:
    with tp.Program():
        x = tp.input("x", (2,))
        made = [tp.pad(x, 1, constant_values=value).edge for value in (0.0, -0.0, NAN, -NAN, 0, NAN * 1)]
    assert len(set(made)) == 4 and made[4] == made[0] and made[5] == made[2]
