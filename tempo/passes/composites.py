"""Composite operators: taken apart for backends that do not take them whole, and made for those that do.

`Decompose` comes first: what is not taken whole is then optimized like everything else (the exponentials of a softmax
are those of its gradient), and what is taken is one node to all passes, which know it by its axis rule. `Compose` comes
late, and finds in what is spelled out what a backend takes: gradients, lifting and splitting know primitives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np

from tempo import dtypes
from tempo.passes.attention.match import KEY, WIDTH, Attention, Operands, find_attention, inside, normalised, summed
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.composites.activations import FORMS
from tempo.sdg.graph import Edge, Graph, Node, TensorType
from tempo.sdg.operators import OPERATORS, Role
from tempo.sdg.operators.axes import HALF
from tempo.sdg.operators.making import Formula
from tempo.sdg.rewriter import Rewriter, Tensors, take_apart


@dataclass(frozen=True)
class Decompose:
    """`composites` names what the backend takes.

    What is opaque along an axis whose length varies is taken apart as well: what it is made of tells padding from
    values. (`attention`, made later, is told a length instead.)
    """

    composites: tuple[str, ...] = ()
    name: ClassVar[str] = "decompose"
    needed: ClassVar[str] = "backends have primitives, and the composites that they name"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        found = [node for node in graph.nodes.values() if _comes_apart(graph, node, self.composites)]
        if not found:
            return graph
        new = Rewriter(graph)
        for node in found:
            take_apart(new, node)
        return replace(graph, nodes=new.nodes)


def _comes_apart(graph: Graph, node: Node, taken: Collection[str]) -> bool:
    operator = OPERATORS[node.op]
    if operator.decompose is None:
        return False
    if operator.kind == "composite" and node.op not in taken:
        return True
    shapes = [graph.seen_type(edge).shape for edge in node.operands]
    opaque = (each for each in operator.axes(node.attributes, shapes, node.shape) if each.role is Role.OPAQUE)
    return any(shapes[number][axis].varies for factor in opaque for number, axis in factor.places)


@dataclass(frozen=True)
class Compose:
    """`composites` names what the backend takes. What others read, too, is left as it is.

    A softmax over an axis of varying length is one for `static_extents`, which takes it apart again.
    """

    composites: tuple[str, ...] = ()
    name: ClassVar[str] = "compose"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        new, is_changed = Rewriter(graph), False
        for node in graph.nodes.values():
            made = self.composite(graph, node, Tensors(new, node.location))
            if made is not None:
                new.put(node, made)
                is_changed = True
        return without_dead_nodes(replace(graph, nodes=new.nodes)) if is_changed else graph

    def composite(self, graph: Graph, node: Node, tensors: Tensors) -> Edge | None:
        scores = _varying_softmax(graph, node)
        if scores is not None:
            return tensors.apply("softmax", scores[0], axes=(scores[1],))
        if (activation := spelled_out(graph, node, self.composites)) is not None:
            return tensors.apply(activation[0], activation[1])
        found = attention_at(graph, node) if "attention" in self.composites else None
        if found is None or inside(graph, node, found.given()) is None:
            return None
        return tensors.reshape(_attention(found, node.dtype, tensors), node.shape)


def _varying_softmax(graph: Graph, node: Node) -> tuple[Edge, int] | None:
    """The scores of a softmax over an axis of varying length, and that axis: padding is masked once, not by step.

    The operator computes halves in float32, which these steps do not.
    """
    if node.op != "div" or node.dtype in HALF:
        return None
    found = normalised(node, graph)
    if found is None or not graph.seen_type(found[0]).shape[found[1]].varies:
        return None
    return None if inside(graph, node, found[:1]) is None else found


def spelled_out(graph: Graph, node: Node, composites: Collection[str]) -> tuple[str, Edge] | None:
    """The activation that a node is the last step of, and its operand, where nobody reads of what lies between."""
    if node.op != "mul" or not dtypes.is_float(node.dtype):
        return None
    for name in FORMS.keys() & set(composites):
        steps, last = _steps(name, node.dtype)
        for x in _matched(graph, node, steps, last):
            if graph.seen_type(x) == node.type and inside(graph, node, (x,)) is not None:
                return name, x
    return None


@cache
def _steps(name: str, dtype: str) -> tuple[Mapping[int, Node], Node]:
    """How an activation is spelled out, and the last step."""
    made = NodeBuilder()
    x = made.declare(Node(-1, "input", (), (TensorType((), dtype),)))
    return made.nodes, made.nodes[FORMS[name](Formula({}, (x,), Tensors(made, None))).node]


def _matched(graph: Graph, node: Node, steps: Mapping[int, Node], step: Node) -> Iterator[Edge]:
    """The operands of which `node` is what `step` is of one."""
    if node.op != step.op:
        return
    orders = (node.operands, node.operands[::-1]) if node.op in ("add", "mul") else (node.operands,)
    for operands in orders:
        found: frozenset[Edge] | None = None
        for edge, wanted in zip(operands, step.operands, strict=True):
            each = _operand(graph, edge, steps, steps[wanted.node])
            if each is not None:
                found = each if found is None else found & each
        yield from found or ()


def _operand(graph: Graph, edge: Edge, steps: Mapping[int, Node], step: Node) -> frozenset[Edge] | None:
    """What the operand may be, where `edge` is this step of it; None: any, of a number that is the step's."""
    if step.op == "input":
        return frozenset({edge})
    node = graph.view(edge)
    if node is None:
        return frozenset()
    if step.op == "constant":
        number, own = (each.attr("value").array for each in (step, node)) if node.op == "constant" else (0, np.empty(0))
        return None if own.size == 1 and own.reshape(()) == number else frozenset()
    return frozenset(_matched(graph, node, steps, step))


def attention_at(graph: Graph, node: Node) -> Attention | None:
    """What a node is attention of, where an operator for it can take that; None where it is none."""
    if node.op != "dot" or not node.dtype.endswith(("float16", "float32", "float64")):
        return None
    return find_attention(node, graph)


def _attention(found: Attention, dtype: str, tensors: Tensors) -> Edge:
    """The operator, and its result as the contraction has it."""
    operands, keys = Operands(found, dtype, tensors, found.queries), found.keys
    (axis,) = keys.axes((KEY,))
    made = tensors.apply(
        "attention",
        *operands.of_dtype(operands.arranged(found.queries, WIDTH), keys.edge, found.values.edge),
        *(operands.arranged(extra, KEY) for extra in (*summed(found, tensors), *found.mask)),
        **operands.attrs(),
        length=tensors.shape(keys.edge)[axis],
    )
    return operands.result(made)
