"""Nodes that can be made at points where they are not demanded for sure.

`harmless`: at every point of the demanded box, whether that point is demanded or not. The corners of a stencil's edge
are read by nobody, and the demand of all that is read is no box. But they can be made like the rest: every read of
theirs is in range, every case decides, nothing is called, and so it is for what they read.

`AllOrNone`: all points of the box are demanded, or none: which, is a matter of sizes. The prompt of a decoder is read
as a whole by the first step, and there is such a step if the sequence is longer than the prompt. So the demand of what
is made of the prompt is no box for all sizes, and yet all that there is to make.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from tempo.analysis.demand.demand import Demand, demand
from tempo.analysis.demand.images import Image, Images, Readers, covers
from tempo.analysis.obligations import obligations_of
from tempo.sdg.components import reached
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators.located import must_not_fail
from tempo.symbolic import TRUE, Condition, Context
from tempo.symbolic.structural import memoised


def harmless(
    graph: Graph,
    demands: Mapping[int, Demand],
    nodes: Iterable[int],
    facts: Condition = TRUE,
    is_whole: Callable[[int], bool] = lambda id: False,
) -> set[int]:
    """Those of `nodes` that can be made at all points of their boxes: each on its own, and all that it reads there.

    The box of what is read holds every point that is read from the reader's box. It is assumed of all that they are,
    and dropped where it fails until nothing does. `is_whole`: whether all of a node's box is demanded, or nothing of
    it and so nothing of those that read it; asked of what fails for some indices.
    """
    # The nodes and what they are made of, up to what is demanded at all points.
    cone = reached(nodes, lambda id: [each for each in graph.producers(id) if not _is_there(graph, demands, each)])
    readers: dict[int, set[int]] = defaultdict(set)
    for id in cone:
        for _, edge in graph.nodes[id].reads():
            readers[edge.node].add(id)
    failing = [id for id in cone if not _can_be_made(graph, graph.nodes[id], demands, facts)]
    whole = {id for id in failing if must_not_fail(graph.nodes[id]) and is_whole(id)}
    lost = reached(set(failing) - whole, lambda id: readers[id] - whole)
    return cone - lost


def _is_there(graph: Graph, demands: Mapping[int, Demand], id: int) -> bool:
    return demands[id].exact or graph.nodes[id].is_given


def _can_be_made(graph: Graph, node: Node, demands: Mapping[int, Demand], facts: Condition) -> bool:
    if node.is_call or must_not_fail(node) or node.attr("role") == "parameter":
        return False
    here = Context.of(graph.domain_dims(node), facts, box=demands[node.id].box)
    return all(here.assume(each.guard).implies(each.goal) for each in obligations_of(graph, node))


_MOST_CONDITIONS = 4


class AllOrNone:
    """Asked node by node, and remembered. `readers` gives those of facts."""

    def __init__(
        self,
        graph: Graph,
        demands: Mapping[int, Demand],
        facts: Condition = TRUE,
        readers: Callable[[Condition], Readers] = Readers,
    ) -> None:
        self.graph, self.demands, self.facts, self.readers = graph, demands, facts, readers
        self._found: dict[int, Condition | None] = {}

    def holds(self, id: int) -> bool:
        return self._when(id) is not None

    def holds_for_some_condition(self, id: int) -> bool:
        """The same, asked more thoroughly: for each condition that whoever is demanded for sure might say."""
        if id not in self.demands:
            return False
        return self.holds(id) or any(self._decides(condition, id) for condition in self._conditions(id))

    def _conditions(self, id: int) -> list[Condition]:
        """When there is anything of those that read a node, through others whose demand is not exact."""
        readers, demands = self._readers, self.demands
        unsure = reached([id], lambda id: (r for r in readers[id] if r in demands and not demands[r].exact))
        sure = (r for each in sorted(unsure) for r in readers[each] if r in demands and demands[r].exact)
        found = dict.fromkeys(demands[reader].box.nonempty() for reader in sure)
        return [condition for condition in found if condition.sizes()][:_MOST_CONDITIONS]

    def _decides(self, condition: Condition, id: int) -> bool:
        """Whether all of the box is demanded where the condition holds, and nothing where it does not."""
        there, elsewhere = self._given_that(condition, True), self._given_that(~condition, False)
        if id not in there or not there[id].exact:
            return False
        if not covers(self.demands[id].box, [there[id].box], self._under(condition).sizes):
            return False
        return id not in elsewhere or self._under(~condition).sizes.excludes(elsewhere[id].box.nonempty())

    @memoised
    def _given_that(self, condition: Condition, thorough: bool) -> Mapping[int, Demand]:
        """The demand where something more is known of the sizes."""
        facts = self.facts & condition
        return demand(self.graph, facts, self.readers(facts), thorough)

    @cached_property
    def _readers(self) -> dict[int, frozenset[int]]:
        return {id: frozenset(reader for reader, _ in reads) for id, reads in self.graph.consumers.items()}

    @cached_property
    def _outside(self) -> frozenset[int]:
        """What is read from outside, or called: these are demanded for other reasons than a reader's."""
        calls = (node.id for node in self.graph.nodes.values() if node.has_effect)
        return frozenset((*calls, *(output.edge.node for output in self.graph.outputs)))

    def _when(self, id: int) -> Condition | None:
        """The condition on sizes under which all of the box is demanded, where otherwise none is."""
        if id not in self.demands:
            return None
        if self.demands[id].exact:
            return TRUE
        if id not in self._found:
            self._found[id] = None  # for those that come back to it
            self._found[id] = None if id in self._outside else self._of_readers(id)
        return self._found[id]

    def _of_readers(self, id: int) -> Condition | None:
        """All readers are demanded under one condition, and then read the whole box."""
        conditions: set[Condition] = set()
        readers = [reader for reader in self._readers[id] if self._reads(reader, id, TRUE)]
        for reader in readers:
            when = self._when(reader)
            if when is None:
                return None
            conditions |= {self._and_not_empty(when, image) for image in self._reads(reader, id, TRUE)}
        if len(conditions) != 1:
            return None
        (condition,) = conditions
        parts = [image.box for reader in readers for image in self._reads(reader, id, condition) if image.exact]
        return condition if covers(self.demands[id].box, parts, self._under(condition).sizes) else None

    def _and_not_empty(self, when: Condition, image: Image) -> Condition:
        some = image.reader.box.nonempty()
        return when if self._under(when).sizes.implies(some) else when & some

    def _reads(self, reader: int, id: int, condition: Condition) -> list[Image]:
        if reader not in self.demands:
            return []
        made = self._under(condition).of(self.graph.nodes[reader], self.demands[reader].box)
        return [image for image in made if image.producer == id]

    @memoised
    def _under(self, condition: Condition) -> Images:
        return Images(self.graph, self.readers(self.facts & condition))
