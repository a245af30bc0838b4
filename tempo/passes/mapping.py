"""The mapping: which nodes are lifted along which dim, and why.

For each block (what stands side by side inside the same loops) and each dim, the candidates that hang together are one
group, and a group has one decision. What it costs is memory: a lifted node reads everything along the dim at once, and
is kept for all of it. So a group is lifted where that needs no buffer over the whole dim, or where such buffers are
there anyway: where what it reads is made by an earlier loop, or what it makes is wanted by a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tempo import dtypes
from tempo.analysis.acyclic import Need, needs_of
from tempo.analysis.blocks import Block, blocks
from tempo.analysis.demand import Demand
from tempo.passes.dce import without_dead_nodes
from tempo.passes.frames import Frames
from tempo.passes.hulled import hulled
from tempo.passes.liftable import Candidates, Span, guards
from tempo.passes.loop_stages import Stages
from tempo.passes.manager import PassContext
from tempo.passes.mapping_costs import Sizes
from tempo.passes.selects import Selects
from tempo.sdg.graph import Graph
from tempo.symbolic import Dim, Expr, Symbol

Kind = Literal["sequential", "full"]
KINDS: tuple[Kind, ...] = ("sequential", "full")
MOST_AT_ONCE = 16 << 20
"""No tensor of reads that move with a dim may be larger: of causal attention, the scores of all pairs of points. A
gradient holds some forty of that size."""
MOST_NEW_BYTES = 4
"""A group is lifted when it needs at most so many times the bytes along the dim that are there anyway."""


@dataclass(frozen=True)
class Decision:
    """What was decided for the nodes of one group along one dim. Bytes are those of one point along the dim."""

    dim: Symbol
    kind: Kind
    nodes: tuple[int, ...]
    new_bytes: int
    kept_bytes: int
    why: str

    def __str__(self) -> str:
        count = f"{len(self.nodes)} nodes" if len(self.nodes) > 1 else f"%{self.nodes[0]}"
        bytes = f"{self.new_bytes} bytes more a point, {self.kept_bytes} kept anyway"
        return f"{self.dim.name}: {self.kind:<10} {count} from %{min(self.nodes)} on: {self.why} ({bytes})"


class MappingSearch:
    """Decides dim by dim, the innermost first. Remembers what was taken out of a loop: it stays in the loops around."""

    def __init__(self, context: PassContext) -> None:
        self.context = context
        self.hoisted: set[int] = set()
        self._known: tuple[Graph, list[Block[int, Need]]] | None = None

    def mapped(self, graph: Graph, dim: Dim) -> tuple[Graph, dict[int, Span]]:
        """The nodes to lift along `dim`, and the graph they are of: with selections where these let more be lifted."""
        if not any(guards(node, dim.symbol) for node in graph.nodes.values()):
            return self.spans(graph, dim)
        selecting, changed = Selects(self.candidates(graph, dim)[1]).apply()
        if not changed:
            return self.spans(graph, dim)
        decided, hoisted = len(self.context.decisions), set(self.hoisted)
        mapped, spans = self.spans(selecting, dim)
        if changed <= spans.keys():
            return mapped, spans
        del self.context.decisions[decided:]
        self.hoisted = hoisted
        return self.spans(graph, dim)

    def spans(self, graph: Graph, dim: Dim) -> tuple[Graph, dict[int, Span]]:
        """The nodes to lift along `dim`, with the span of each, and the graph with the axes of those in frames."""
        if not any(dim.symbol in node.domain and node.op != "input" for node in graph.nodes.values()):
            return graph, {}
        found, candidates = self.candidates(graph, dim)
        spans = candidates.spans()
        if self.context.forced(dim.symbol) is None:
            left_out = self.too_large(dim, candidates)
            spans = {id: span for id, span in spans.items() if id not in left_out}
        chosen = self.chosen(graph, dim, found, spans)
        framed = candidates.frames.closed(chosen)
        if not framed:
            return graph, {id: span for id, span in spans.items() if id in chosen}
        last, graph = max(graph.nodes), without_dead_nodes(hulled(graph, candidates.frames, framed))
        spans = self.candidates(graph, dim)[1].spans()
        return graph, {id: span for id, span in spans.items() if id in chosen or id > last}

    def candidates(self, graph: Graph, dim: Dim) -> tuple[list[Block[int, Need]], Candidates]:
        demands = self.context.demand(graph)
        found = self.blocks(graph, demands)
        counts = Sizes(self.context.sizes)
        return found, Candidates(graph, dim, demands, _sequential(found), self.context.facts, counts)

    def too_large(self, dim: Dim, candidates: Candidates) -> set[int]:
        """Nodes of which all points at once hold more than may be, or nobody knows how much."""
        found, frames, looped = set[int](), candidates.frames, candidates.sequential
        for group in frames.groups():
            held = [(id, shape) for id in group for shape in frames.held(frames.graph.nodes[id], looped.get(id, ()))]
            if not frames.sizes.are_known(size for _, shape in held for size in shape):
                why = "how much all points at once hold depends on sizes that are not known"
            elif (most := max(self._bytes(frames, id, shape) for id, shape in held)) > MOST_AT_ONCE:
                why = f"all points at once would hold {most >> 20} MiB in one tensor"
            else:
                continue
            found.update(group)
            self.context.decisions.append(Decision(dim.symbol, "sequential", tuple(group), 0, 0, why))
        return found

    @staticmethod
    def _bytes(frames: Frames, id: int, shape: Iterable[Expr]) -> int:
        return frames.elements(shape) * dtypes.itemsize(frames.graph.nodes[id].dtype)

    def chosen(self, graph: Graph, dim: Dim, found: Iterable[Block[int, Need]], spans: Mapping[int, Span]) -> set[int]:
        """The nodes that are lifted, of those that could be."""
        forced = self.context.forced(dim.symbol)
        if forced is not None:
            return set(spans) if forced == "full" else set()
        chosen: set[int] = set()
        for block in found:
            for decision in self.decide(graph, dim, block, spans.keys(), chosen):
                self.context.decisions.append(decision)
                if decision.kind == "full":
                    chosen.update(decision.nodes)
        return chosen

    def blocks(self, graph: Graph, demands: Mapping[int, Demand]) -> list[Block[int, Need]]:
        """The blocks of the graph; those of the last one are remembered: most dims change nothing."""
        if self._known is None or self._known[0] is not graph:
            links = list(needs_of(graph, demands, self.context.facts))
            self._known = graph, blocks({id: graph.nodes[id].domain for id in demands}, links)
        return self._known[1]

    def decide(
        self, graph: Graph, dim: Dim, block: Block[int, Need], candidates: Iterable[int], chosen: set[int]
    ) -> list[Decision]:
        """One decision for every group of candidates of the block; `chosen` are those lifted in inner blocks."""
        stages = Stages(graph, dim.symbol, block, frozenset(candidates), Sizes(self.context.sizes))
        decisions = []
        for group in stages.bound_groups():
            new, kept = stages.new_bytes(group, chosen), stages.kept_bytes(group)
            lifts = new <= MOST_NEW_BYTES * kept
            why = (
                "reads or makes what is kept for all points" if lifts else "else its loop keeps only what it reads next"
            )
            decisions.append(Decision(dim.symbol, "full" if lifts else "sequential", group, new, kept, why))
            if lifts:
                chosen.update(group)
        for group in stages.free_groups():
            decisions.append(self.hoisting(dim, stages, group, chosen))
        return decisions

    def hoisting(self, dim: Dim, stages: Stages, group: tuple[int, ...], chosen: set[int]) -> Decision:
        """A group that waits for no loop: it is lifted, taken out of the loops that read it, unless it is in vain."""
        new, kept = stages.new_bytes(group, chosen), stages.kept_bytes(group)
        kind: Kind = "full"
        if new == 0:
            why = "no loop over the dim needs it"
        elif not self.hoisted.isdisjoint(group):
            kind, why = "sequential", "it is out of the innermost loop already"
        elif stages.draws(group) or new <= MOST_NEW_BYTES * kept:
            why = "it waits for no loop"
            self.hoisted.update(group)
        else:
            kind, why = "sequential", "cheaper made where it is read"
        return Decision(dim.symbol, kind, group, new, kept, why)


def _sequential(found: Iterable[Block[int, Need]]) -> dict[int, frozenset[Symbol]]:
    """The dims that each node goes through one by one: those of loops around it, and all where no order was found."""
    dims: dict[int, frozenset[Symbol]] = {}
    for block in found:
        for unit in block.units:
            for name in unit.names:
                looped = block.dims[name] if unit.stuck else (unit.loop.dim,) if unit.loop else ()
                dims[name] = dims.get(name, frozenset()) | frozenset(looped)
    return dims
