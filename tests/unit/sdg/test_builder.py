from __future__ import annotations

import numpy as np
import pytest

from tempo.errors import Location, ShapeError
from tempo.sdg.builder import NodeBuilder, fresh_dim
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Case, Node, TensorType
from tempo.symbolic import TRUE, Dim, Symbol, const, size, var

T, B = Symbol("t", "dim"), Symbol("b", "dim")
DIMS = (Dim(B, size("b")), Dim(T, size("t")))
HERE = Location("model.py", 3)


def given(number: int = 4, declaration: int = 7) -> Node:
    return Node(number, "input", (B, T), (TensorType((const(2),), "float32"),), (), (), (), declaration, "x")


def test_numbers_and_declarations_come_after_those_that_are_taken() -> None:
    new = NodeBuilder(DIMS, {4: given()})
    assert (new.new_number(), new.new_number(), new.new_declaration()) == (5, 6, 8)
    beside = NodeBuilder(DIMS, taken=[given()])
    assert not beside.nodes
    assert (beside.new_number(), beside.new_declaration()) == (5, 8)


def test_an_equal_pure_node_is_not_made_twice_and_varies_along_what_it_reads() -> None:
    new = NodeBuilder(DIMS, {4: given()})
    last = new.identity(4).substitute({T: const(3)})
    first = new.pure("add", (last, last), {}, lambda: HERE)
    assert new.pure("add", (last, last), {}) == first
    node = new.nodes[first.node]
    assert (node.domain, node.location, len(new.nodes)) == ((B,), HERE, 2)


def test_what_the_rule_of_an_operator_raises_has_the_location() -> None:
    new = NodeBuilder(DIMS, {4: given()})
    with pytest.raises(ShapeError) as caught:
        new.pure("reshape", (new.identity(4),), {"shape": (const(3),)}, lambda: HERE)
    assert caught.value.location == HERE


def test_a_typed_node_keeps_its_number_where_that_is_free() -> None:
    new = NodeBuilder(DIMS, taken=[given(9)])
    type = TensorType((), "float32")
    values = [(("value", ArrayValue(np.float32(number))),) for number in (0, 0, 1)]
    nodes = [Node(3, "constant", (), (type,), attrs=attrs, name="h", location=HERE) for attrs in values]
    assert [new.typed(node).node for node in nodes] == [3, 3, 10]
    assert (new.nodes[10].name, new.nodes[10].location, new.nodes[10].declaration) == ("h", HERE, None)


def test_definitions_are_their_own_and_expressions_by_cases_are_not() -> None:
    new = NodeBuilder(DIMS, {4: given()})
    cases, type = (Case(TRUE, new.identity(4)),), given().type
    assert new.cases(cases, type) == new.cases(cases, type)
    assert new.cases(cases, type, role="gradient") != new.cases(cases, type)
    merge = Node(-1, "merge", (B, T), (type,), cases=cases, declaration=0)
    declared = [new.nodes[new.declare(merge).node].declaration for _ in range(2)]
    assert declared == [10, 11]


def test_a_fresh_dim_has_a_name_that_is_free() -> None:
    assert fresh_dim("t_block", {"t", "t_block", "t_block_"}) == Symbol("t_block__", "dim")
    assert var(fresh_dim("u", ())) == var(Symbol("u", "dim"))
