"""The mapping: which nodes are lifted along which dim, and why.

For each block (what stands side by side inside the same loops) and each dim, the candidates that hang together are one
group, and a group has one decision. What it costs is memory: a lifted node reads everything along the dim at once, and
is kept for all of it. So a group is lifted where that needs no buffer over the whole dim, or where such buffers are
there anyway: where what it reads is made by an earlier loop, or what it makes is wanted by a later one. Where all
points at once would hold too much in between, the model of the costs (`tempo.costs`) says how many do not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from tempo.analysis.demand.speculation_safety import AllOrNone
from tempo.analysis.dependence.acyclic import Need, bodies, sequential_dims
from tempo.analysis.dependence.levels import LoopBody
from tempo.costs import EAGER, Cost, Costs, LikelySizes
from tempo.passes.attention.banded import OPERATOR, BandedAttention, bands, with_bands
from tempo.passes.manager import Decided, Forced, PassContext, forced
from tempo.passes.ragged.masking import hulled
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.passes.vectorize.fusion_stages import FusionStages
from tempo.passes.vectorize.if_conversion import Selects
from tempo.passes.vectorize.legality import Candidates, Span
from tempo.passes.vectorize.rewrite import lifted
from tempo.passes.vectorize.strip_mining import between, strippable, stripped
from tempo.passes.vectorize.working_set import Held
from tempo.sdg.graph import Graph
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Context, Dim, Symbol

Kind = Literal["sequential", "blocks", "full"]
KINDS: tuple[str, ...] = ("sequential", "full")
MOST_NEW_BYTES = 4
"""A group is lifted when it needs at most so many times the bytes along the dim that are there anyway."""
_FUSED = ("elementwise", "movement")
"""What costs nothing beside its reader where operators are fused: it is not lifted to be kept for a loop."""

Way = int | None
"""How many points a block has, or None: all points at once."""


class Ways(NamedTuple):
    """The nodes that are lifted, and how many points at once; what was decided, where that was by cost."""

    of: Mapping[int, Way]
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What was decided for the nodes of one group along one dim. Bytes are those of one point along the dim.

    `points` is the size of blocks, `costs` what the model says of every way that was considered.
    """

    dim: Symbol
    kind: Kind
    nodes: tuple[int, ...]
    new_bytes: int
    kept_bytes: int
    why: str
    points: int | None = None
    costs: tuple[tuple[str, Cost], ...] = ()

    @property
    def way(self) -> str:
        return self.kind if self.points is None else f"{self.kind} of {self.points}"

    def __str__(self) -> str:
        count = f"{len(self.nodes)} nodes" if len(self.nodes) > 1 else f"%{self.nodes[0]}"
        bytes = f"{self.new_bytes} bytes more a point, {self.kept_bytes} kept anyway"
        lines = [f"{self.dim.name}: {self.way:<10} {count} from %{min(self.nodes)} on: {self.why} ({bytes})"]
        return "\n".join([*lines, *(f"    {name + ':':<16} {cost}" for name, cost in self.costs)])


class MappingSearch:
    """Decides dim by dim, the innermost first. Remembers what was taken out of a loop: it stays in the loops around.

    `loops` are the dims that stay loops where they are dims still: those that were decided, and that nobody decides."""

    def __init__(
        self,
        context: PassContext,
        mapping: Forced,
        composites: Collection[str],
        rates: Costs,
        cut: Collection[str] = (),
    ) -> None:
        self.context, self.mapping, self.composites, self.rates, self.cut = context, mapping, composites, rates, cut
        self.decisions: list[Decision] = []
        self.hoisted: set[int] = set()
        self.loops: frozenset[Symbol] = frozenset()
        self._last: Candidates | None = None

    def mapped(self, graph: Graph, dim: Dim) -> Graph:
        """The graph with `dim` lifted as decided: with selections where these let more be lifted."""
        if not any(dim.symbol in node.domain and not node.is_input for node in graph.nodes.values()):
            return graph
        candidates = self.candidates(graph, dim)
        selecting, changed = Selects(candidates, dim.symbol.name in self.cut).apply()
        if not changed:
            return self.carried_out(candidates, self.ways(candidates))
        hoisted = set(self.hoisted)
        selects = self.candidates(selecting, dim)
        ways = self.ways(selects)
        if changed <= ways.of.keys():
            return self.carried_out(selects, ways)
        self.hoisted = hoisted
        return self.carried_out(candidates, self.ways(candidates))

    def bands(self, candidates: Candidates) -> tuple[BandedAttention, ...]:
        """Attention among the candidates, where the backend has the operator for all points at once."""
        return bands(candidates) if OPERATOR in self.composites else ()

    def candidates(self, graph: Graph, dim: Dim) -> Candidates:
        """What no dim changes is remembered of the last graph: most dims change nothing."""
        if self._last is None or self._last.graph is not graph:
            context, demands = self.context, self.context.demand(graph)
            blocks = bodies(graph, demands, context.facts)
            as_one = AllOrNone(graph, demands, context.facts, context.readers)
            order, counts = sequential_dims(blocks), LikelySizes(context.sizes)
            self._last = Candidates(graph, dim, demands, order, as_one, context.facts, counts, blocks)
        return self._last.along(dim.symbol)

    # -- what is done ------------------------------------------------------------------------------------------------

    def carried_out(self, candidates: Candidates, chosen: Ways) -> Graph:
        """Blocks first, whose points are a dim of their own, then everything else."""
        self.decisions += chosen.decisions
        graph, dim, ways = candidates.graph, candidates.dim, chosen.of
        sizes = {id: size for id, size in ways.items() if size is not None}
        if not sizes:
            return self.at_once(candidates, ways) if ways else graph
        last = max(graph.nodes)
        graph, strips = stripped(candidates, sizes)
        for strip in strips:
            graph = self.at_once(self.candidates(graph, strip.dims[1]), graph.nodes)
        return self.at_once(self.candidates(graph, dim), {*ways, *(id for id in graph.nodes if id > last)})

    def at_once(self, candidates: Candidates, chosen: Collection[int]) -> Graph:
        """The graph with the dim as an axis of those of the chosen nodes for which that can be."""
        graph, dim, last = candidates.graph, candidates.dim, max(candidates.graph.nodes)
        chosen = candidates.spans.keys() & chosen
        if whole := [each for each in self.bands(candidates) if each.members <= chosen]:
            graph = with_bands(graph, whole, dim.symbol)
            candidates = self.candidates(graph, dim)
            chosen = {id for id in candidates.spans if id in chosen or id > last}
        if framed := candidates.frames.closed(chosen):
            graph = without_dead_nodes(hulled(graph, candidates.frames, framed))
            candidates = self.candidates(graph, dim)
        # What has axes that move and got no frame, as it reads such axes of what stays a loop, stays one as well.
        fit = candidates.spans.keys() - candidates.frames.ragged
        spans = {id: span for id, span in candidates.spans.items() if id in fit and (id in chosen or id > last)}
        if not spans:
            return graph
        return without_dead_nodes(lifted(graph, dim, spans, Context.of((), self.context.facts)))

    # -- what is decided ---------------------------------------------------------------------------------------------

    def ways(self, candidates: Candidates) -> Ways:
        """Of the nodes that could be lifted."""
        spans, way = candidates.spans, forced(self.mapping, candidates.dim.symbol.name)
        if way == "sequential":
            return Ways({})
        if isinstance(way, int):
            in_blocks = self.longer(candidates, spans, way)
            return Ways({id: way if id in in_blocks else None for id in spans})
        if way == "full":
            return Ways(dict.fromkeys(spans))
        return self.by_cost(candidates)

    def by_cost(self, candidates: Candidates) -> Ways:
        """By the bytes that are kept; where all points at once hold too much, in blocks."""
        sizes = candidates.sizes
        banded = frozenset(id for each in self.bands(candidates) for id in each.members)
        held = Held(candidates, self.rates, banded, self.loops)
        spans, refused = self.without_refused(held)
        chosen: set[int] = set()
        blocks = candidates.blocks
        decisions = [decision for block in blocks for decision in self.decide(candidates, block, spans, chosen)]
        large = {each.nodes: why for each in decisions if each.kind == "full" and (why := held.too_much(each.nodes))}
        members = {id for nodes in large for id in nodes if id in held.why}
        points = held.block(members)
        in_blocks = self.longer(candidates, between(candidates, members, chosen), points)
        ways: dict[int, Way] = {}
        explained = refused
        for decision in decisions:
            why = large.get(decision.nodes, "")
            if why:
                decision = replace(decision, kind="blocks", points=points, why=why)
                whole = (id for id in decision.nodes if id not in held.why or sizes.implies(spans[id].size.le(points)))
                ways.update(dict.fromkeys(whole))
            elif decision.kind == "full":
                ways.update(dict.fromkeys(decision.nodes))
            explained.append(replace(decision, costs=held.costs(decision.nodes, points if why else None)))
        return Ways(ways | dict.fromkeys(in_blocks, points), tuple(explained))

    @staticmethod
    def longer(candidates: Candidates, nodes: Iterable[int], points: int) -> set[int]:
        """The nodes that can be computed in blocks of so many points, and have more than one block."""
        spans, sizes = candidates.spans, candidates.sizes
        found = {id for id in nodes if not sizes.implies(spans[id].size.le(points))}
        return strippable(candidates, found)

    def without_refused(self, held: Held) -> tuple[dict[int, Span], list[Decision]]:
        """The candidates without those of which all points at once hold too much, and that blocks do not suit."""
        candidates, refused = held.candidates, list[Decision]()
        spans = dict(candidates.spans)
        for group, why in held.groups.items():
            if not spans.keys().isdisjoint(group) and not strippable(candidates, spans) >= set(group):
                spans = {id: span for id, span in spans.items() if id not in group}
                refused.append(Decision(candidates.dim.symbol, "sequential", group, 0, 0, why))
        return spans, refused

    def decide(
        self, candidates: Candidates, block: LoopBody[int, Need], spans: Mapping[int, Span], chosen: set[int]
    ) -> list[Decision]:
        """One decision for every group of candidates of the block; `chosen` are those lifted so far."""
        graph, symbol = candidates.graph, candidates.dim.symbol
        stages = FusionStages(graph, symbol, block, spans, candidates.counts)
        decisions = []
        for group in stages.bound_groups():
            new, kept = stages.new_bytes(group, chosen), stages.kept_bytes(group)
            fuses = not self.rates.copies and all(OPERATORS[graph.nodes[id].op].kind in _FUSED for id in group)
            fuses = fuses and not stages.reads_free(group) and not stages.grows(group, MOST_NEW_BYTES)
            lifts = new <= (0 if fuses else MOST_NEW_BYTES * kept)
            why = "reads or makes what is kept for all points"
            if not lifts:
                why = "part of what reads it" if fuses else "else its loop keeps only what it reads next"
            decisions.append(Decision(symbol, "full" if lifts else "sequential", group, new, kept, why))
            if lifts:
                chosen.update(group)
        for group in stages.free_groups():
            decisions.append(self.hoisting(symbol, stages, group, chosen))
        chosen.update(id for decision in decisions if decision.kind == "full" for id in decision.nodes)
        return decisions

    def hoisting(self, symbol: Symbol, stages: FusionStages, group: tuple[int, ...], chosen: set[int]) -> Decision:
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
        return Decision(symbol, kind, group, new, kept, why)


@dataclass(frozen=True)
class Lift:
    """Lifts the dims of the nodes that the mapping says (`tempo.passes.vectorize.search`), but for those in `exclude`.

    A dim along which the run may end early stays a loop, and one that is `sequential`. `mapping`: how the user has dims
    run. `composites`: what the backend takes whole; `costs`: what things cost there. `cut`: dims of which many devices
    have parts.

    The lifted dims lie in front of a value's axes, in canonical order.
    """

    exclude: frozenset[Symbol] = frozenset()
    mapping: Forced = None
    composites: tuple[str, ...] = ()
    costs: Costs = EAGER
    cut: tuple[str, ...] = ()
    name: ClassVar[str] = "lift"

    def apply(self, graph: Graph, context: PassContext) -> Decided[Graph]:
        graph = without_dead_nodes(graph)
        search = MappingSearch(context, self.mapping, self.composites, self.costs, self.cut)
        kept = self.exclude | graph.stops.keys() | {dim.symbol for dim in graph.dims if dim.sequential}
        search.loops = frozenset(kept)
        for dim in reversed(graph.dims):
            if dim.symbol not in kept:
                graph = search.mapped(graph, dim)
                search.loops |= {dim.symbol}
        return Decided(graph, tuple(search.decisions))
