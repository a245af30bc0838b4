"""Composite operators: taken apart for backends that do not take them whole, and made for those that do.

`Decompose` comes first: what is not taken whole is then optimized like everything else (the exponentials of a softmax
are those of its gradient), and what is taken is one node to all passes, which know it by its axis rule. `Compose` comes
late, and finds in what is spelled out what a backend takes: gradients, lifting and splitting know primitives.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.attention.match import KEY, WIDTH, Attention, Operands, find_attention, inside, normalised, summed
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Edge, Graph, Node
from tempo.sdg.operators import OPERATORS, Role
from tempo.sdg.operators.axes import HALF
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
