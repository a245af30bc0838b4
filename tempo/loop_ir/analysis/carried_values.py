"""Reads of what earlier iterations of the same loop wrote: such a value can be handed on from iteration to iteration.

For a backend that compiles loops, a read of a buffer that the loop writes is worse than needless: the buffer may be
copied whole for it in every iteration. A state and a stack of states, as one writes such a loop by hand, are not.

Beside that: how much of each axis of its buffers a statement touches (`reaches`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo.loop_ir.ir import Block, Buffer, Loop, PointIndex, Read, Statement, WindowIndex, Write, nested, walk
from tempo.symbolic import Context, Expr, Mod, Symbol, const, var

FURTHEST = 4
"""Iterations between a write and a read of it; beyond, a buffer costs less than what is handed on."""

Place = tuple[int, tuple[Expr, ...]]


@dataclass(frozen=True)
class Recent:
    """What the loop writes at `index` of `buffer`, for reads of it up to `depth` iterations later.

    `replaces`: what is handed on is all that the loop leaves in the buffer, and the loop reads nothing else of it. So
    the buffer need not be written before the loop has ended.
    """

    buffer: int
    index: tuple[Expr, ...]
    depth: int
    replaces: bool = False


def recent(loop: Loop) -> tuple[Recent, ...]:
    """The writes of which the body reads what 1 to `FURTHEST` iterations before wrote.

    Each iteration must write to the buffer once, whatever its conditions, and the read must not come after a write
    of its own iteration that may be to the same place.
    """
    writes, depths, others = _known(loop)
    found = ((id, writes[id].index, depth) for id, depth in sorted(depths.items()) if depth)
    return tuple(
        Recent(id, index, depth, id not in others and _places(index, loop.var) in range(1, depth + 1))
        for id, index, depth in found
    )


def circles(loop: Loop) -> tuple[Recent, ...]:
    """Circular buffers of a few places of which the body reads only what iterations before wrote.

    The values of the last iterations, as many as the buffer has places, stand for it while the loop runs.
    """
    writes, depths, others = _known(loop)
    found = ((id, writes[id].index, _places(writes[id].index, loop.var)) for id in sorted(depths) if id not in others)
    return tuple(Recent(id, index, places, True) for id, index, places in found if 1 <= places <= FURTHEST)


def _known(loop: Loop) -> tuple[dict[int, Write], dict[int, int], set[int]]:
    """The writes of every iteration, how long ago was written what is read of each buffer, and those read otherwise."""
    writes = _only_writes(loop)
    depths: dict[int, int] = defaultdict(int)
    others: set[int] = set()
    for read, is_written in _reads(loop.body, set()):
        distance = _handed(read, is_written, writes, loop)
        depths[read.buffer] = max(depths[read.buffer], distance)
        others |= set() if distance else {read.buffer}
    return writes, depths, others


def _handed(read: Read, is_written: bool, writes: Mapping[int, Write], loop: Loop) -> int:
    """How many iterations ago what is read was written; 0 where it is read from the buffer."""
    place = read_place(read)
    if place is None or read.buffer not in writes:
        return 0
    index = writes[read.buffer].index
    distance = _distance(place[1], index, loop)
    return distance if distance and (not is_written or _differ(place[1], index)) else 0


def _places(index: tuple[Expr, ...], variable: Symbol) -> int:
    """To how many places the iterations write in turn; 0 where they do not go round."""
    moving = [expr for expr in index if variable in expr.symbols()]
    if len(moving) != 1 or moving[0].const or len(moving[0].terms) != 1:
        return 0
    ((atom, factor),) = moving[0].terms
    if not isinstance(atom, Mod) or factor != 1:
        return 0
    step = atom.expr.coefficient(variable)
    return atom.divisor if abs(step) == 1 and variable not in (atom.expr - step * var(variable)).symbols() else 0


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
    always = (each for each in loop.body if isinstance(each, Write) and each.index and each.is_point)
    return {each.buffer: each for each in always if count[each.buffer] == 1}


def _reads(block: Block, written: set[int]) -> Iterator[tuple[Read, bool]]:
    """Every read, and whether what it reads of may have been written before it in the iteration: `written` grows."""
    for statement in block:
        if isinstance(statement, Read):
            yield statement, statement.buffer in written
        elif isinstance(statement, Write):
            written.add(statement.buffer)
        for inner in nested(statement):
            yield from _reads(inner, written)


def overwrites(write: Write, place: Place) -> bool:
    """Whether what was at a place may be another value from then on: what was handed on does not stand for it."""
    return write.buffer == place[0] and not _differ(place[1], write.index)


def _differ(first: tuple[Expr, ...], second: tuple[Expr, ...]) -> bool:
    """Whether the two are never the same place."""
    anywhere = Context.of(())
    return any(anywhere.excludes(one.eq(other)) for one, other in zip(first, second, strict=True))


def _distance(read: tuple[Expr, ...], write: tuple[Expr, ...], loop: Loop) -> int | None:
    return next((ago for ago in range(1, FURTHEST + 1) if _shifted(write, loop, ago) == read), None)


def _shifted(index: tuple[Expr, ...], loop: Loop, iterations: int) -> tuple[Expr, ...]:
    step = iterations if loop.direction == "forward" else -iterations
    return tuple(expr.substitute({loop.var: var(loop.var) - step}) for expr in index)


Reaches = Mapping[tuple[int, int], int]
"""By buffer and axis: no more than its first so many positions are read or written."""


def reaches(statement: Statement, buffers: Mapping[int, Buffer], sizes: Mapping[Symbol, int]) -> Reaches:
    """For the axes of kind "full" of the buffers that the statement, or one inside, touches."""
    finder = _FootprintFinder(buffers, sizes)
    finder.look(statement, Context.of(()))
    return finder.found


class _FootprintFinder:
    def __init__(self, buffers: Mapping[int, Buffer], sizes: Mapping[Symbol, int]) -> None:
        self.buffers, self.sizes = buffers, sizes
        self.found: dict[tuple[int, int], int] = {}

    def look(self, statement: Statement, here: Context) -> None:
        if isinstance(statement, Read | Write):
            self.touch(statement, here)
        if isinstance(statement, Loop):
            at = var(statement.var)
            here = here.assume(at.ge(statement.lo.substitute(self.sizes)), at.lt(statement.hi.substitute(self.sizes)))
        for block in nested(statement):
            for each in block:
                self.look(each, here)

    def touch(self, statement: Read | Write, here: Context) -> None:
        for at, axis in enumerate(self.buffers[statement.buffer].axes):
            size = axis.extent.substitute(self.sizes)
            if axis.kind != "full" or not size.is_const:
                continue
            end = _end(statement, at)
            last = None if end is None else here.constant_bounds(end.substitute(self.sizes))[1]
            key, whole = (statement.buffer, at), size.as_int()
            self.found[key] = max(self.found.get(key, 0), whole if last is None else min(last, whole))


def _end(statement: Read | Write, at: int) -> Expr | None:
    """Behind the last position along the axis; None where it may be any."""
    if at >= len(statement.index):
        return None
    if isinstance(statement, Write):
        extent = statement.extents[at]
        return statement.index[at] + (const(1) if extent is None else extent)
    entry = statement.index[at]
    if isinstance(entry, PointIndex):
        return entry.index + 1
    assert isinstance(entry, WindowIndex)
    return entry.start + entry.extent if entry.exact else None
