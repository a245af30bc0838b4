"""A joint graph cut into a forward and a backward graph.

What the backward graph reads of the program are its inputs, which are passed on, and *residuals*: outputs of the
forward graph beside the user's, inputs of the backward one. Which values these are is a minimum cut by their bytes,
between what is not made twice (contractions, folds, scans, draws, gathers, recurrences) and what reads a cotangent:
values that are cheap to make are made again (elementwise operators, movement, constants, index values) where that
saves memory. So are those that are no one array, since their shape varies along a dim or an axis of theirs shows rows
with lengths of their own, and those of which it is not proven at which points there are any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tempo import dtypes
from tempo.analysis.demand.demand import Demand, demand
from tempo.analysis.rows import Shown
from tempo.autodiff.joint import Joint, fresh
from tempo.autodiff.minimum_cut import minimum_cut
from tempo.sdg.components import reached
from tempo.sdg.graph import Case, Edge, Graph, Node, Output, identity_map
from tempo.sdg.operators import OPERATORS
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Condition, Context, Expr, Symbol

_CHEAP = frozenset({"elementwise", "movement", "creation"})
_USUAL_SIZE = 64
"""Points of a dim whose size is not known."""


@dataclass(frozen=True)
class Partition:
    """`residuals`: by name of an input of `backward` the output of `forward` that it is given."""

    forward: Graph
    backward: Graph
    residuals: Mapping[str, str]


def partition(joint: Joint, sizes: Mapping[Symbol, int]) -> Partition:
    """`sizes`: those that are known, by which bytes are compared."""
    return _Cut(joint, sizes).partition()


def pruned(graph: Graph) -> Graph:
    """Without nodes that nothing needs, but with everything that the caller gives."""
    needed = graph.reachable()
    return replace(graph, nodes={id: each for id, each in graph.nodes.items() if id in needed or each.is_input})


class _Cut:
    def __init__(self, joint: Joint, sizes: Mapping[Symbol, int]) -> None:
        self.joint, self.graph, self.sizes = joint, joint.graph, sizes
        self.asked = pruned(replace(self.graph, outputs=joint.gradients))
        added = set(joint.cotangents.values())
        cotangents = [node.id for node in self.graph.nodes.values() if node.is_input and node.port.name in added]
        after = reached(cotangents, lambda id: [reader for reader, _ in self.asked.consumers.get(id, ())])
        self.backward = after & self.asked.reachable()
        """The nodes that read a cotangent."""
        self.cyclic = {id for each in self.graph.components if len(each) > 1 for id in each} | {
            id for id in self.graph.nodes if id in self.graph.producers(id)
        }
        self.shown = {output.edge.node: output.name for output in self.graph.outputs if self._is_whole(output)}
        """Nodes that are outputs of the user's anyway."""
        self._places: dict[int, Condition | None] = {}

    def _is_whole(self, output: Output) -> bool:
        node = self.graph.nodes[output.edge.node]
        return output.role == "output" and self.graph.is_identity(output.edge) and len(node.results) == 1

    # Which values are handed on.

    def residuals(self) -> list[int]:
        before = self.asked.reachable() - self.backward
        reads = {id: set(self.graph.producers(id)) for id in before | self.backward}
        edges = [(producer, id) for id in before for producer in reads[id] if producer in before]
        read = {producer for id in self.backward for producer in reads[id] if producer in before}
        read |= {each.edge.node for each in self.joint.gradients if each.edge.node in before}
        weights = {id: self._weight(self.graph.nodes[id]) for id in before}
        kept = [id for id in before if self.graph.nodes[id].is_input or not self._is_made_again(id)]
        cut = minimum_cut(edges, weights, kept, read)
        return sorted(id for id in cut if not self.graph.nodes[id].is_input)

    def _is_made_again(self, id: int) -> bool:
        node = self.graph.nodes[id]
        if self._where(id) is None:
            return True
        if node.is_merge:  # every cycle runs through one that was declared
            return node.attr("role") == "cases" or id not in self.cyclic
        return OPERATORS[node.op].kind in _CHEAP

    def _weight(self, node: Node) -> float:
        if node.is_input:
            return 0.0
        if self._where(node.id) is None:
            return math.inf
        if node.id in self.shown:
            return 0.0
        extents = (*(dim.size for dim in self.graph.domain_dims(node)), *node.shape)
        return math.prod(map(self._size, extents), start=dtypes.to_numpy(node.dtype).itemsize)

    def _size(self, extent: Expr) -> int:
        known = {symbol: self.sizes.get(symbol, _USUAL_SIZE) for symbol in extent.symbols()}
        return max(1, int(extent.evaluate(known)))

    # Where there are values.

    @cached_property
    def _shown_rows(self) -> list[Shown]:
        """What values show of rows with lengths of their own."""
        whole = replace(self.graph, outputs=(*self.graph.outputs, *self.joint.gradients))
        return [Shown(whole, end) for end in self.graph.ragged.values()]

    @cached_property
    def _demands(self) -> tuple[Mapping[int, Demand], Mapping[int, Demand]]:
        """By the program, and by its gradients."""
        return demand(pruned(self.graph)), demand(self.asked)

    def _where(self, id: int) -> Condition | None:
        """At which points the value of a node may be asked for, which are all at which the backward graph reads it:
        they are demanded anyway. None: it is not proven where, or the value is no one array."""
        if id not in self._places:
            self._places[id] = self._place(id)
        return self._places[id]

    def _place(self, id: int) -> Condition | None:
        node, own = self.graph.nodes[id], Edge(id, identity_map(self.graph.nodes[id].domain))
        if (
            len(node.results) > 1
            or any(size.dims() for size in node.shape)
            or any(each.read(own) for each in self._shown_rows)
        ):
            return None
        if id in self.shown:
            return TRUE
        everywhere = Context.of(self.graph.domain_dims(node))
        found = [each[id].box.condition() for each in self._demands if id in each and each[id].exact]
        if any(map(everywhere.implies, found)):
            return TRUE
        return next((where for where in reversed(found) if not everywhere.excludes(where)), None)

    # The two graphs.

    def partition(self) -> Partition:
        taken = {node.port.name for node in self.graph.nodes.values() if node.is_input}
        taken |= {output.name for output in self.graph.outputs}
        forward, backward = Rewriter(self.graph), Rewriter(self.graph)
        handed, names = list[Output](), dict[str, str]()
        for id in self.residuals():
            node = self.graph.nodes[id]
            name = fresh(f"residual {id}", taken)
            backward.nodes[id] = _given(node, name, backward.new_declaration())
            names[name] = self.shown.get(id, name)
            if id not in self.shown:
                handed.append(self._handed(forward, node, name))
        rows = tuple(each for each in self.graph.outputs if each.role == "rows")
        first = replace(self.graph, nodes=forward.nodes, outputs=(*self.graph.outputs, *handed))
        added = set(self.joint.cotangents.values())
        first = pruned(first)
        first = replace(first, nodes={id: each for id, each in first.nodes.items() if not _is_of(each, added)})
        second = replace(self.graph, nodes=backward.nodes, outputs=(*self.joint.gradients, *rows))
        needed = second.reachable()
        second = replace(second, nodes={id: each for id, each in second.nodes.items() if id in needed})
        read = {node.port.name for node in second.nodes.values() if node.is_input}
        return Partition(first, second, {name: shown for name, shown in names.items() if name in read})

    def _handed(self, rewriter: Rewriter, node: Node, name: str) -> Output:
        """The value of a node where it is asked for, and zeros elsewhere."""
        where = self._where(node.id)
        assert where is not None, "what is cut is one array"
        edge = Edge(node.id, identity_map(node.domain))
        if where != TRUE:
            zeros = Tensors(rewriter, node.location).zeros(node.type)
            edge = rewriter.cases((Case(where, edge), Case(TRUE, zeros)), node.type, locate=lambda: node.location)
        layout = (*node.domain, *range(len(node.shape)))
        return Output(name, edge, node.domain, node.type, layout, location=node.location)


def _given(node: Node, name: str, declaration: int) -> Node:
    """An input in place of a node of the forward graph."""
    attrs = (("layout", (*node.domain, *range(len(node.shape)))), ("name", name), ("role", "input"))
    return Node(node.id, "input", node.domain, node.results, (), attrs, (), declaration, name, node.location)


def _is_of(node: Node, names: set[str]) -> bool:
    return node.is_input and node.port.role == "input" and node.port.name in names
