"""Rows that end each by itself, masked: values say which of their points exist.

For `tp.dim("t", lengths=n)`, `live[b, t] = t < n[b]`: what varies along `t` and the rows is computed for every point of
the arrays. Outputs are 0 where a row has none, and so is a read of one; folds get the neutral element.

For `tp.stop_when(t, condition, each=b)`, with `stop[b, t]` 0 or `t + 1` (see `Graph.stops`):

    ended[b, 0] = stop[b, 0]        ended[b, t] = stop[b, t] if live[b, t] else ended[b, t - 1]
    live[b, 0]  = True              live[b, t]  = ended[b, t - 1] == 0

What varies along `t` and all rows goes on where its row has ended, and nobody sees it: outputs are 0 there, states stay
as they were at the row's last point, and folds over rows get the neutral element. What remains is a graph with a stop
of the whole run, which is all that other passes, schedulers and backends know. It holds once all rows have ended, or
once no more of them go on than an input says (`tempo.passes.compaction`).

What is read at the last point, `x[b, t.last]`, is an output of role "last", held as a state is, and an input of the
rest of the program: in one place, whatever the point was at which the loop was left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from tempo.analysis.rows import (
    OUTPUTS,
    Mask,
    Rows,
    ends_of,
    exists,
    is_known,
    is_ragged,
    row_ends,
    row_masks,
    selected,
    with_own_points,
)
from tempo.sdg.graph import Case, Edge, Graph, IndexMap, Node, Output, Point, Slice, TensorType, identity_map
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Symbol, const, var


def rows_masked(graph: Graph, most: Mapping[str, Edge] | None = None) -> Graph:
    """The graph, in which no row ends: every stop is one of the whole run; an output of role "lengths" has `ended`.

    `most`: by stop, how many rows that go on are left alone.
    """
    graph = with_own_points(graph) if graph.ragged else graph  # gradients have such cases, too
    found = [(end, row_masks(graph, end)) for end in row_ends(graph)]
    asked = graph.reachable()
    lasts = [node for node in graph.nodes.values() if node.is_last and node.id in asked]
    if not found and not lasts:
        return graph
    rewriter = Rewriter(graph)
    shown: list[tuple[Output, ...]] = [(output,) for output in graph.outputs]  # what each of them becomes
    held: list[Output] = []
    for end, masks in found:
        tensors = Tensors(rewriter, end.location)
        given = end.role == "rows"
        masking = _Given(graph, tensors, end) if given else _stopping(graph, tensors, end, (most or {}).get(end.name))
        for (id, number), each in masks.items():
            if id == OUTPUTS:
                shown[number] = tuple(replace(made, edge=masking.masked(made.edge, each)) for made in shown[number])
                continue
            node = rewriter.nodes[id]
            operands, cases = list(node.operands), list(node.cases)
            if node.is_merge:
                cases[number] = replace(cases[number], edge=masking.masked(cases[number].edge, each))
            else:
                operands[number] = masking.masked(operands[number], each)
            rewriter.nodes[id] = replace(node, operands=tuple(operands), cases=tuple(cases))
        shown = [tuple(made for output in each for made in masking.outputs(output)) for each in shown]
        if isinstance(masking, _Stopping):
            held += (masking.held(_last(graph, node)) for node in lasts if node.attr("along") == end.along)
    held += (_last(graph, node) for node in lasts if not graph.stops[node.attr("along")].rows)
    rewriter.nodes.update({node.id: _given_again(node) for node in lasts})
    return replace(graph, nodes=rewriter.nodes, outputs=(*chain.from_iterable(shown), *held))


def _last(graph: Graph, node: Node) -> Output:
    """What a merge of role "last" reads, at each point of the loop: the one before it is left counts."""
    (case,), along = node.cases, node.attr("along")
    places = zip(graph.nodes[case.edge.node].domain, case.edge.map, strict=True)
    edge = replace(case.edge, map=tuple(Point(var(along)) if symbol == along else index for symbol, index in places))
    domain, layout = graph.canonical((*node.domain, along)), (*node.domain, *range(len(node.shape)))
    return Output(_name(node), edge, domain, node.type, layout, "last", location=node.location)


def _given_again(node: Node) -> Node:
    layout = (*node.domain, *range(len(node.shape)))
    attrs = (("layout", layout), ("name", _name(node)), ("role", "last"))
    return replace(node, op="input", attrs=attrs, cases=())


def _name(node: Node) -> str:
    return f"{node.name} {node.id}"


def rows_going(tensors: Tensors, ended: Edge, along: Symbol) -> Edge:
    """Which rows go on behind a point, with an axis for each of their dims."""
    rewriter = tensors.rewriter
    sizes, domain = {dim.symbol: dim.size for dim in rewriter.dims}, rewriter.nodes[ended.node].domain
    map: IndexMap = tuple(
        Point(var(symbol)) if symbol == along else Slice(const(0), sizes[symbol]) for symbol in domain
    )
    return tensors.apply("eq", replace(ended, map=map), tensors.constant(0, "int32"))


@dataclass(frozen=True)
class _Masking(ABC):
    graph: Graph
    tensors: Tensors
    end: Output

    @abstractmethod
    def there(self, rows: Rows) -> Edge:
        """Which points there are of what is shown: axes as those of the slices of the map."""

    @abstractmethod
    def outputs(self, output: Output) -> tuple[Output, ...]:
        """What an output becomes."""

    def masked(self, operand: Edge, masks: tuple[Mask, ...]) -> Edge:
        """The operand, with `fill` where the points that it shows do not exist."""
        for mask in masks:
            operand = selected(self.tensors, self.there(mask.rows), operand, mask)
        return operand

    def shown(self, output: Output) -> Output:
        """An output over the rows and their dim: 0 where there is no point."""
        mask = Mask(Rows(identity_map(self.end.domain), ()), 0)
        return replace(output, edge=self.masked(output.edge, (mask,)))


@dataclass(frozen=True)
class _Given(_Masking):
    """The length of each row is an input, or computed: then it is an output of role "lengths"."""

    def there(self, rows: Rows) -> Edge:
        return exists(self.end, self.tensors, rows)

    def outputs(self, output: Output) -> tuple[Output, ...]:
        if output is self.end:
            rows = replace(output, domain=output.rows, layout=output.rows, role="lengths")
            return () if is_known(self.graph, output) else (rows,)
        is_shown = output.role in ("output", "watch") and is_ragged(self.end, output.domain)
        return (self.shown(output) if is_shown else output,)


def _stopping(graph: Graph, tensors: Tensors, stop: Output, most: Edge | None) -> _Stopping:
    """Rows that are not there, since they are points of other rows, have ended before their first point: -1."""
    for given in ends_of(graph, stop.domain):
        rows = Rows(identity_map(given.domain), ())
        stop = replace(stop, edge=selected(tensors, exists(given, tensors, rows), stop.edge, Mask(rows, -1)))
    return _Stopping(graph, tensors, stop, most)


@dataclass(frozen=True)
class _Stopping(_Masking):
    """Rows end where a condition holds first."""

    most: Edge | None = None

    def there(self, rows: Rows) -> Edge:
        return replace(self.live, map=rows.map)

    @cached_property
    def ended(self) -> Edge:
        def step(before: Edge) -> Edge:
            return self.tensors.apply("where", self._is_zero(before), self.end.edge, before)

        return self._carried(f"{self.end.along.name} ended", self.end, step)

    @cached_property
    def live(self) -> Edge:
        cases = (Case(var(self.end.along).eq(0), self.tensors.constant(True, "bool")), Case(TRUE, self._was_live()))
        return self.tensors.rewriter.cases(cases, TensorType((), "bool"), locate=lambda: self.end.location)

    def outputs(self, output: Output) -> tuple[Output, ...]:
        if output.port == self.end.port:
            lengths = replace(output, edge=self.ended, role="lengths")
            of_run = replace(output, domain=(self.end.along,), layout=())
            return replace(of_run, edge=self._all(), resumes=self.most is not None), lengths
        of_stop = output.role in ("stop", "lengths") and Symbol(output.name, "dim") in self.graph.stops
        if of_stop or not is_ragged(self.end, output.domain):
            return (output,)
        return (self.held(output) if output.role == "state" else self.shown(output),)

    def held(self, output: Output) -> Output:
        """As it was at the row's last point."""
        was_live = self._was_live()
        held = self._carried(
            output.name, output, lambda before: self.tensors.apply("where", was_live, output.edge, before)
        )
        return replace(output, edge=held)

    def _carried(self, name: str, output: Output, step: Callable[[Edge], Edge]) -> Edge:
        """What begins as the output and goes on with what `step` makes of it, one point before."""
        attrs = (("name", name), ("role", "recurrent"))
        declared = self.tensors.rewriter.declare(
            Node(-1, "merge", output.domain, (output.type,), (), attrs, location=output.location)
        )
        cases = (Case(var(self.end.along).eq(0), output.edge), Case(TRUE, step(self._before(declared))))
        self.tensors.rewriter.define(declared, cases)
        return declared

    def _was_live(self) -> Edge:
        """Whether a row goes on behind the point before."""
        return self._is_zero(self._before(self.ended))

    def _is_zero(self, edge: Edge) -> Edge:
        return self.tensors.apply("eq", edge, self._zero("int32"))

    def _all(self) -> Edge:
        """The stop of the whole run."""
        going, axes = rows_going(self.tensors, self.ended, self.end.along), tuple(range(len(self.end.rows)))
        if self.most is None:
            goes_on = self.tensors.apply("reduce_any", going, axes=axes)
        else:
            rows = self.tensors.apply("reduce_sum", self.tensors.cast(going, "int32"), axes=axes)
            goes_on = self.tensors.apply("gt", rows, self.most)
        here = self.tensors.number(var(self.end.along) + 1)
        return self.tensors.apply("where", goes_on, self._zero("int32"), here)

    def _before(self, edge: Edge) -> Edge:
        """One point before."""
        domain = self.tensors.rewriter.nodes[edge.node].domain
        return replace(
            edge, map=tuple(Point(var(each) - 1 if each == self.end.along else var(each)) for each in domain)
        )

    def _zero(self, dtype: str) -> Edge:
        return self.tensors.constant(0, dtype)
