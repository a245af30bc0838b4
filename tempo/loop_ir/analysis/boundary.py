"""Live variables at the boundary between two iterations of a loop of the driver: what has to be there to go on from it.

Slots are followed through all that is left of the program, segments and calls of the host included (`needed_slots`).
Of an array with axes is known that an iteration makes it anew (`Buffer.local`), or which points along the loop each
iteration writes; one of which neither is known may hold anything of all iterations before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo.loop_ir.analysis.liveness import touched
from tempo.loop_ir.analysis.needed_slots import Around, Flow, Needs, either
from tempo.loop_ir.ir import Block, CallSegment, Loop, LoopProgram, Read, Statement, Write, walk
from tempo.symbolic import TRUE, Condition, Context, Symbol, conjunction, var

Sizes = Mapping[Symbol, int]


@dataclass(frozen=True)
class Points:
    """What iteration i writes of a buffer: its points from i + `first` to i + `last` along `axis`."""

    axis: int
    first: int
    last: int


@dataclass(frozen=True)
class Boundary:
    """What is live between iterations of one loop of the driver.

    `given` was made before the loop, which does not change it. Of `points` the iterations write each its own; those
    that are `shown` nobody reads. `changing` is everything else that has axes.
    """

    loop: Loop
    given: tuple[int, ...]
    points: Mapping[int, Points]
    shown: frozenset[int]
    changing: tuple[int, ...]
    _head: Needs
    _after: Needs

    def live(self, at: int | None, sizes: Sizes) -> tuple[int, ...]:
        """The slots and the changing arrays, before the iteration `at`; None: after the loop."""
        here, found = (sizes, self._after) if at is None else ({**sizes, self.loop.var: at}, self._head)
        slots = (id for id, needed in found.items() if any(each.evaluate(here) for each in needed))
        return tuple(sorted({*slots, *self.changing} - set(self.given)))


def loop_of(program: LoopProgram, number: int) -> Loop | None:
    """The loop that an item of the driver is."""
    item = program.items[number]
    found = program.segments[item.segment].loop if isinstance(item, CallSegment) else item
    return found if isinstance(found, Loop) else None


def boundary(program: LoopProgram, number: int, sizes: Sizes) -> Boundary:
    """Of the item `number`, which is a loop."""
    loop = loop_of(program, number)
    assert loop is not None
    stores = {id: each for id, each in program.buffers.items() if each.role in ("internal", "output")}
    slots = {id for id, each in stores.items() if each.is_slot}
    known = Around(Context.of((), _all_of(sizes)), notes=False)
    flow = Flow(slots, _reads, called=_called(program))
    after = _after(program, number, flow, known, slots)
    head = flow.head(loop, after, known)
    written = {each.buffer for each in _inside(program, program.items[number]) if isinstance(each, Write)}
    later = set[int]().union(*(touched(program, item) for item in program.items[number:]))
    earlier = set[int]().union(*(touched(program, item) for item in program.items[:number]))
    arrays = (later | set(program.outputs.values())) & stores.keys() - slots
    carried = {id for id in arrays & written if loop.var not in stores[id].local or _is_read(program, number + 1, id)}
    points = {id: found for id in carried if (found := _points(program, number, id, loop)) is not None}
    given = {id for id in (arrays | (head.keys() | after.keys())) & earlier if id not in written}
    left = (each for item in program.items[number:] for each in _inside(program, item))
    read = {each.buffer for each in left if isinstance(each, Read)}
    shown, changing = frozenset(points.keys() - read), tuple(sorted(carried - points.keys()))
    return Boundary(loop, tuple(sorted(given)), points, shown, changing, head, after)


def _all_of(sizes: Sizes) -> Condition:
    return conjunction(var(symbol).eq(size) for symbol, size in sizes.items())


def _called(program: LoopProgram) -> dict[int, Block]:
    """By segment, what one call of it does: of the points of a loop of the host that it makes by itself (as many as
    were called for ahead), an iteration."""
    found = {segment.id: segment.body for segment in program.segments}
    for item in (each for each in program.items if isinstance(each, Loop)):
        for segment in program.called((item,)):
            if segment.loop is not None and segment.loop.var == item.var:
                found[segment.id] = segment.loop.body
    return found


def _reads(statement: Statement) -> set[int]:
    return {statement.buffer} if isinstance(statement, Read) else set()


def _after(program: LoopProgram, number: int, flow: Flow, known: Around, slots: set[int]) -> Needs:
    """Behind an item of the driver."""
    needed: Needs = dict.fromkeys(slots & set(program.outputs.values()), (TRUE,))
    stops = program.stopped or (None,) * len(program.items)
    for item, stopped in reversed(list(zip(program.items, stops, strict=True))[number + 1 :]):
        before = flow.block((item,), needed, known)
        needed = before if stopped is None else either(before, needed)
    return needed


def _inside(program: LoopProgram, item: Statement) -> Iterator[Statement]:
    """All that is in an item, the bodies of the segments that it calls included."""
    yield from walk((item,))
    for segment in program.called((item,)):
        yield from walk(segment.body)


def _is_read(program: LoopProgram, number: int, id: int) -> bool:
    """Whether an item from there on touches a buffer, or a result is what is in it."""
    return id in program.outputs.values() or any(id in touched(program, item) for item in program.items[number:])


def _points(program: LoopProgram, number: int, id: int, loop: Loop) -> Points | None:
    """What each iteration writes of an array with a place for every point of the loop; None if that may be more."""
    axes = program.buffers[id].axes
    axis = next((at for at, each in enumerate(axes) if each.dim == loop.var and each.kind == "full"), None)
    if axis is None:
        return None
    found = []
    for each in _inside(program, program.items[number]):
        if isinstance(each, Write) and each.buffer == id:
            offset = each.index[axis] - var(loop.var)
            if not offset.is_const or (each.extents and each.extents[axis] is not None):
                return None
            found.append(offset.as_int())
    return Points(axis, min(found), max(found))
