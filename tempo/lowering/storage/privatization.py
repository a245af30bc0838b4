"""Loops of which every iteration has values of its own: it reads only what it wrote itself, and nobody reads it later.

A backend may give such a value a fresh place in every iteration, and that place to something else after the last read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tempo.lowering.scheduling.places import Place
from tempo.lowering.scheduling.reads import ValueRead
from tempo.symbolic import Symbol


def local_to(writes: Sequence[Place], reads: Sequence[ValueRead]) -> frozenset[Symbol]:
    """The variables of the loops around all writes and reads of a value to whose iterations it is local.

    For the loop and each one around it, one coordinate of what is written and of what is read must be the iteration, up
    to a constant. Pieces of a loop never run at the same iteration: what is read was written in the same piece.
    """
    first = writes[0]
    others = (*writes[1:], *(read.place for read in reads))
    depths = min((first.shared_levels(place) for place in others), default=0)
    local = itertools.takewhile(lambda depth: _is_local(depth, writes, reads), range(depths))
    return frozenset(symbol for depth in local for place in writes for symbol in _variable(place, depth))


def _is_local(depth: int, writes: Sequence[Place], reads: Sequence[ValueRead]) -> bool:
    return any(_is_iteration(position, depth, writes, reads) for position in range(len(writes[0].point)))


def _is_iteration(position: int, depth: int, writes: Sequence[Place], reads: Sequence[ValueRead]) -> bool:
    """Whether the coordinate is that of the iteration, by the same constant wherever it is written or read."""
    written = [place.point[position] - place.levels[depth].iteration for place in writes]
    asked = [read.relation[position] for read in reads]
    found = {each - read.place.levels[depth].iteration for read, at in zip(reads, asked) for each in (at.lo, at.hi)}
    return len(found.union(written)) == 1 and written[0].is_const


def _variable(place: Place, depth: int) -> frozenset[Symbol]:
    """The variable of the loop at this depth; none where the place stands beside it."""
    iteration = place.levels[depth].iteration
    return frozenset(loop.var for _, loop in place.loops if {loop.var} == iteration.symbols())
