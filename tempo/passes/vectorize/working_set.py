"""What the points of a dim hold when they are computed at once: whether that is too much, and what it costs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from tempo import dtypes
from tempo.costs import BLOCK, MOST_AT_ONCE, MOST_BETWEEN, Cost, Costs, GroupWork, work
from tempo.passes.vectorize.fusion_stages import FusionStages
from tempo.passes.vectorize.legality import Candidates
from tempo.passes.vectorize.strip_mining import shown, strippable
from tempo.symbolic import Expr, Symbol


@dataclass(frozen=True)
class Held:
    """For the candidates of one dim. `groups` hang together by axes that move; `why` says it of each node.

    Those in `never` are never held: they become part of an operator (`tempo.passes.attention.banded`). `loops` are the
    dims that stay loops.
    """

    candidates: Candidates
    rates: Costs
    never: frozenset[int] = frozenset()
    loops: frozenset[Symbol] = frozenset()

    @cached_property
    def groups(self) -> Mapping[tuple[int, ...], str]:
        """The nodes with axes that move of which all points at once hold too much, or nobody knows how much."""
        found = {}
        for group in self.candidates.frames.groups():
            why = self._too_much(group, MOST_AT_ONCE, may_be_unknown=False)
            if why and not self._is_there_anyway(group):
                found[group] = why
        return found

    def _is_there_anyway(self, group: Collection[int]) -> bool:
        """Whether a loop over the dim, where blocks do not suit, reads or makes what is kept for all points and is as
        large as anything that all points at once hold: the weights of attention, which a gradient needs again.
        """
        if not self._is_known(group) or strippable(self.candidates, self.candidates.spans) >= set(group):
            return False
        nodes = self.candidates.graph.nodes
        touched = {*group, *(edge.node for id in group for _, edge in nodes[id].reads())}
        held = max((self._bytes(id) for id in group if id not in self.never), default=0)
        return held <= max(map(self._bytes, touched & self._kept), default=0)

    @cached_property
    def _kept(self) -> Set[int]:
        """The candidates that are kept for all points though nothing is lifted."""
        given = self.candidates
        blocks = (
            FusionStages(given.graph, given.dim.symbol, block, given.spans, given.counts) for block in given.blocks
        )
        return {id for block in blocks for id in block.candidates if block.is_kept(id)}

    @cached_property
    def why(self) -> Mapping[int, str]:
        """For each node of which all points at once would hold too much, what that is."""
        found = {id: why for group, why in self.groups.items() for id in group}
        plain = self.candidates.spans.keys() - self.candidates.frames.nodes
        large = {id: why for id in sorted(plain) if (why := self._too_much([id], MOST_BETWEEN, may_be_unknown=True))}
        if large:
            inside = strippable(self.candidates, self.candidates.spans)
            inside -= shown(self.candidates, inside)
            found.update({id: why for id, why in large.items() if id in inside})
        return found

    def too_much(self, nodes: Iterable[int]) -> str:
        """Why not all points of the nodes at once; empty where nothing is against it."""
        return next((self.why[id] for id in nodes if id in self.why), "")

    def _too_much(self, group: Collection[int], most: int, *, may_be_unknown: bool) -> str:
        if not self._is_known(group):
            return "" if may_be_unknown else "how much all points at once hold depends on sizes that are not known"
        largest = max((self._bytes(id) for id in group if id not in self.never), default=0)
        return f"all points at once would hold {largest >> 20} MiB in one tensor" if largest > most else ""

    def _is_known(self, group: Iterable[int]) -> bool:
        """Whether the sizes that what they hold depends on are."""
        shapes = (shape for id in group if id not in self.never for shape in self._shapes(id))
        return self.candidates.counts.are_known(size for shape in shapes for size in shape)

    def _shapes(self, id: int) -> list[tuple[Expr, ...]]:
        """Of what all points of a node hold at once: its result, and what is copied for every point."""
        node, frames = self.candidates.graph.nodes[id], self.candidates.frames
        looped = self.loops | self.candidates.sequential.get(id, frozenset())
        if id in frames.nodes:
            return frames.held(node, looped)
        dims = (dim.size for dim in self.candidates.graph.domain_dims(node) if dim.symbol not in looped)
        return [(*dims, *node.shape)]

    def _bytes(self, id: int) -> int:
        item = dtypes.itemsize(self.candidates.graph.nodes[id].dtype)
        return max(self.candidates.frames.elements(shape) for shape in self._shapes(id)) * item

    # -- the model ---------------------------------------------------------------------------------------------------

    def block(self, nodes: Collection[int]) -> int:
        """How many points of the nodes make a block."""
        if not all(self._is_known(group) for group in self.groups if not set(group).isdisjoint(nodes)):
            return BLOCK
        return self.work(nodes).best_block(MOST_AT_ONCE, self.rates)

    def costs(self, nodes: Collection[int], block: int | None) -> tuple[tuple[str, Cost], ...]:
        """What the ways to run the nodes cost by the model."""
        found = self.work(nodes)
        ways = {"sequential": 1, "full": found.points}
        if block is not None:
            ways[f"blocks of {block}"] = block
        return tuple((name, found.cost(at_once, self.rates)) for name, at_once in ways.items())

    def work(self, nodes: Collection[int]) -> GroupWork:
        points = max((self._points(id) for id in nodes), default=1)
        held = max((self._bytes(id) // max(self._points(id), 1) for id in nodes if id not in self.never), default=0)
        return work(self.candidates.graph, nodes, held, points, self._is_hosted, self.candidates.counts)

    def _points(self, id: int) -> int:
        span = self.candidates.spans.get(id)
        return self.candidates.counts.extent(self.candidates.dim.size if span is None else span.size)

    @cached_property
    def _is_hosted(self) -> bool:
        """Whether a loop over the dim calls the host."""
        hosts = (node for node in self.candidates.graph.nodes.values() if node.has_effect)
        return any(self.candidates.dim.symbol in node.domain for node in hosts)
