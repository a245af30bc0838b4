"""Reads of what earlier iterations of the same loop wrote: such a value can be handed on from iteration to iteration.

For a backend that compiles loops, a read of a buffer that the loop writes is worse than needless: the buffer may be
copied whole for it in every iteration. A state and a stack of states, as one writes such a loop by hand, are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tempo.lowering.loop_ir import Loop, PointIndex, Read, Statement, Write, nested, walk
from tempo.symbolic import Context, Expr, var

FURTHEST = 4
"""Iterations between a write and a read of it; beyond, a buffer costs less than what is handed on."""

Place = tuple[int, tuple[Expr, ...]]


@dataclass(frozen=True)
class Recent:
    """What the loop writes at `index` of `buffer`, for reads of it up to `depth` iterations later."""

    buffer: int
    index: tuple[Expr, ...]
    depth: int


def recent(loop: Loop) -> tuple[Recent, ...]:
    """The writes of which the body reads what 1 to `FURTHEST` iterations before wrote.

    Each iteration must write to the buffer once, whatever its conditions, and the read must not come after a write
    of its own iteration that may be to the same place.
    """
    writes = _only_writes(loop)
    depths: dict[int, int] = defaultdict(int)
    for read, written in _reads(loop.body, frozenset()):
        if read.buffer not in writes or (place := read_place(read)) is None:
            continue
        index = writes[read.buffer].index
        distance = _distance(place[1], index, loop)
        if distance and (read.buffer not in written or _differ(place[1], index)):
            depths[read.buffer] = max(depths[read.buffer], distance)
    return tuple(Recent(id, writes[id].index, depth) for id, depth in sorted(depths.items()))


def earlier(each: Recent, loop: Loop, iterations: int) -> Place:
    """Where the write of so many iterations before is, as this iteration would index it."""
    return each.buffer, _shifted(each.index, loop, iterations)


def read_place(read: Read) -> Place | None:
    """The one place that is read; None for a part of the buffer, and for a slot. What is handed on is a copy too."""
    index = tuple(entry.index for entry in read.index if isinstance(entry, PointIndex))
    return (read.buffer, index) if index and len(index) == len(read.index) else None


def _only_writes(loop: Loop) -> dict[int, Write]:
    """The writes that every iteration runs, of buffers that nothing else in the body writes."""
    count: dict[int, int] = defaultdict(int)
    for each in walk(loop.body):
        if isinstance(each, Write):
            count[each.buffer] += 1
    always = (each for each in loop.body if isinstance(each, Write) and each.index)
    return {each.buffer: each for each in always if count[each.buffer] == 1}


def _reads(block: tuple[Statement, ...], written: frozenset[int]) -> Iterator[tuple[Read, frozenset[int]]]:
    """Every read, with the buffers that have been written before it in the iteration."""
    for statement in block:
        if isinstance(statement, Read):
            yield statement, written
        for inner in nested(statement):
            yield from _reads(inner, written)
        written = written | {each.buffer for each in walk((statement,)) if isinstance(each, Write)}


def _differ(first: tuple[Expr, ...], second: tuple[Expr, ...]) -> bool:
    """Whether the two are never the same place."""
    anywhere = Context.of(())
    return any(anywhere.excludes(one.eq(other)) for one, other in zip(first, second, strict=True))


def _distance(read: tuple[Expr, ...], write: tuple[Expr, ...], loop: Loop) -> int | None:
    return next((ago for ago in range(1, FURTHEST + 1) if _shifted(write, loop, ago) == read), None)


def _shifted(index: tuple[Expr, ...], loop: Loop, iterations: int) -> tuple[Expr, ...]:
    step = iterations if loop.direction == "forward" else -iterations
    return tuple(expr.substitute({loop.var: var(loop.var) - step}) for expr in index)
