"""Rows that end each by itself, masked: values say which of them exist, and one stop ends the run with the longest.

For `tp.stop_when(t, condition, each=b)`, with `stop[b, t]` 0 or `t + 1` (see `Graph.stops`):

    ended[b, 0] = stop[b, 0]        ended[b, t] = stop[b, t] if live[b, t] else ended[b, t - 1]
    live[b, 0]  = True              live[b, t]  = ended[b, t - 1] == 0

What varies along `t` and all rows goes on where its row has ended, and nobody sees it: outputs are 0 there, states stay
as they were at the row's last point, and folds over rows get the neutral element. What remains is a graph with a stop
of the whole run, which is all that other passes, schedulers and backends know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tempo.analysis.rows import Mask, is_ragged, row_masks
from tempo.sdg.graph import Case, Edge, Graph, IndexMap, Node, Output, Point, Slice, TensorType
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Symbol, const, var


def rows_masked(graph: Graph) -> Graph:
    """The graph, in which every stop is one of the whole run; an output of role "lengths" has `ended`."""
    found = {dim: (stop, row_masks(graph, stop)) for dim, stop in graph.stops.items() if stop.rows}
    if not found:
        return graph
    rewriter = Rewriter(graph)
    outputs = graph.outputs
    for dim, (stop, masks) in found.items():
        masking = _RowMasking(graph, Tensors(rewriter, stop.location), dim, stop)
        ended = masking.ended()
        live = masking.live(ended)
        for (id, number), each in masks.items():
            node = rewriter.nodes[id]
            operands = list(node.operands)
            for mask in each:
                operands[number] = masking.masked(live, operands[number], mask)
            rewriter.nodes[id] = replace(node, operands=tuple(operands))
        outputs = tuple(made for output in outputs for made in masking.outputs(output, ended, live))
    return replace(graph, nodes=rewriter.nodes, outputs=outputs)


@dataclass(frozen=True)
class _RowMasking:
    graph: Graph
    tensors: Tensors
    dim: Symbol
    stop: Output

    def ended(self) -> Edge:
        def step(before: Edge) -> Edge:
            return self.tensors.apply("where", self._is_zero(before), self.stop.edge, before)

        return self._carried(f"{self.dim.name} ended", self.stop, step)

    def live(self, ended: Edge) -> Edge:
        cases = (Case(var(self.dim).eq(0), self.tensors.constant(True, "bool")), Case(TRUE, self._was_live(ended)))
        return self.tensors.rewriter.cases(cases, TensorType((), "bool"), locate=lambda: self.stop.location)

    def outputs(self, output: Output, ended: Edge, live: Edge) -> tuple[Output, ...]:
        if output is self.stop:
            lengths = replace(output, edge=ended, role="lengths")
            whole = replace(output, edge=self._all(ended), domain=(self.dim,), layout=())
            return whole, lengths
        if output.role in ("stop", "lengths") or not is_ragged(self.stop, output.domain):
            return (output,)
        if output.role == "state":
            was_live = self._was_live(ended)
            held = self._carried(
                output.name, output, lambda before: self.tensors.apply("where", was_live, output.edge, before)
            )
            return (replace(output, edge=held),)
        shown = self.tensors.apply("where", live, output.edge, self._zero(output.type.dtype))
        return (replace(output, edge=shown),)

    def masked(self, live: Edge, operand: Edge, mask: Mask) -> Edge:
        """The operand, with `fill` where the rows that it shows have ended."""
        tensors, axes = self.tensors, mask.rows.axes
        there = replace(live, map=mask.rows.map)
        order = sorted(range(len(axes)), key=axes.__getitem__)
        shape = tensors.shape(operand)
        sizes = tuple(size if axis in axes else const(1) for axis, size in enumerate(shape))[min(axes) :]
        there = tensors.reshape(tensors.transpose(there, tuple(order)), sizes)
        return tensors.apply("where", there, operand, tensors.constant(mask.fill, tensors.seen(operand).dtype))

    def _carried(self, name: str, output: Output, step: Callable[[Edge], Edge]) -> Edge:
        """What begins as the output and goes on with what `step` makes of it, one point before."""
        attrs = (("name", name), ("role", "recurrent"))
        declared = self.tensors.rewriter.declare(
            Node(-1, "merge", output.domain, (output.type,), (), attrs, location=output.location)
        )
        cases = (Case(var(self.dim).eq(0), output.edge), Case(TRUE, step(self._before(declared))))
        self.tensors.rewriter.define(declared, cases)
        return declared

    def _was_live(self, ended: Edge) -> Edge:
        """Whether a row goes on behind the point before."""
        return self._is_zero(self._before(ended))

    def _is_zero(self, edge: Edge) -> Edge:
        return self.tensors.apply("eq", edge, self._zero("int32"))

    def _all(self, ended: Edge) -> Edge:
        """The stop of the whole run."""
        map: IndexMap = tuple(
            Point(var(symbol)) if symbol == self.dim else Slice(const(0), self.graph.dim(symbol).size)
            for symbol in self.stop.domain
        )
        least = self.tensors.apply("reduce_min", replace(ended, map=map), axes=tuple(range(len(self.stop.rows))))
        return self.tensors.apply(
            "where", self._is_zero(least), self._zero("int32"), self.tensors.number(var(self.dim) + 1)
        )

    def _before(self, edge: Edge) -> Edge:
        """One point before."""
        domain = self.tensors.rewriter.nodes[edge.node].domain
        return replace(edge, map=tuple(Point(var(each) - 1 if each == self.dim else var(each)) for each in domain))

    def _zero(self, dtype: str) -> Edge:
        return self.tensors.constant(0, dtype)
