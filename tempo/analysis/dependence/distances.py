"""Whether needs among instances at known sizes can be seen to have no cycle, from the bounds of their distances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tempo.analysis.demand.reads import ReadBoxes
from tempo.analysis.dependence.levels import Direction, Distance, levels
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol


def well_founded(graph: Graph, reads: Iterable[ReadBoxes]) -> bool:
    """True: no instance needs itself through `reads`. False: not proven (a skewed order may still exist)."""
    links = [ReadsLink(graph, read) for read in reads if read.count]
    names = {name: graph.nodes[name].domain for link in links for name in (link.source, link.target)}
    return not any(level.stuck for outer in levels(names, links) for level in outer.walk())


@dataclass(frozen=True)
class ReadsLink:
    """Reads at known sizes as a link among nodes."""

    graph: Graph
    reads: ReadBoxes

    @property
    def source(self) -> int:
        return self.reads.source

    @property
    def target(self) -> int:
        return self.reads.reader

    def distance(self, dim: Symbol) -> Distance | None:
        place = self._place(dim)
        if place is None:
            return None
        here, axis = self.reads.points[place[0]], place[1]
        nearest, farthest = here - (self.reads.hi[axis] - 1), here - self.reads.lo[axis]
        return Distance(int(np.min(nearest)), int(np.max(farthest)))

    def narrowed(self, dim: Symbol, direction: Direction, delay: int) -> ReadsLink | None:
        place = self._place(dim)
        assert place is not None, "only a dim that both ends have is looped over"
        axis = place[1]
        met = self.reads.points[place[0]] + (delay if direction == "forward" else -delay)
        lo, hi = self.reads.lo, self.reads.hi
        same = replace(
            self.reads, lo=(*lo[:axis], met, *lo[axis + 1 :]), hi=(*hi[:axis], met + 1, *hi[axis + 1 :])
        ).where((lo[axis] <= met) & (met < hi[axis]))
        return ReadsLink(self.graph, same) if same.count else None

    def _place(self, dim: Symbol) -> tuple[int, int] | None:
        """The positions of `dim` in the domains of reader and source."""
        reader, source = (self.graph.nodes[id].domain for id in (self.target, self.source))
        return (reader.index(dim), source.index(dim)) if dim in reader and dim in source else None
