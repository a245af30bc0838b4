"""Live variables at the boundary between two iterations of a loop of the driver: what has to be there to go on from it.

A slot is live if what is left of the program reads it before it writes it. Sizes are numbers here and so is the
iteration, so that is seen by walking through the next iterations, as they will run, until each slot has been met; a
slot that two iterations of a loop have not met and a later one may read counts as live. Of an array with axes is known
that an iteration makes it anew (`Buffer.local`), or which points along the loop each iteration writes; one of which
neither is known may hold anything of all iterations before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tempo.loop_ir.analysis.liveness import touched
from tempo.loop_ir.ir import (
    Block,
    Branch,
    CallHost,
    CallSegment,
    Guard,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    Stop,
    Write,
    stop_in,
    walk,
)
from tempo.symbolic import Symbol, var

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

    program: LoopProgram
    item: int
    sizes: Sizes
    given: tuple[int, ...]
    points: Mapping[int, Points]
    shown: frozenset[int]
    changing: tuple[int, ...]

    @property
    def is_forward(self) -> bool:
        return _loop_of(self.program, self.item).direction == "forward"

    def live(self, at: int | None) -> tuple[int, ...]:
        """The slots and the changing arrays, before the iteration `at`; None: after the loop."""
        walk = _Walk(self.program, self.sizes)
        if at is not None:
            walk.iterations(_loop_of(self.program, self.item), dict(self.sizes), at)
        walk.items(self.item + 1)
        return tuple(sorted({*walk.live, *self.changing} - set(self.given)))


def boundary(program: LoopProgram, number: int, sizes: Sizes) -> Boundary:
    """Of the item `number`, which is a loop."""
    variable = _loop_of(program, number).var
    stores = {id: each for id, each in program.buffers.items() if each.role in ("internal", "output")}
    written = {each.buffer for each in _inside(program, program.items[number]) if isinstance(each, Write)}
    earlier = set[int]().union(*(touched(program, item) for item in program.items[:number]))
    later = set[int]().union(*(touched(program, item) for item in program.items[number + 1 :]))
    shown = later | set(program.outputs.values())
    used = (touched(program, program.items[number]) | shown) & stores.keys()
    arrays = {id for id in used & written if not stores[id].is_slot}
    carried = {id for id in arrays if variable not in stores[id].local or id in shown}
    points = {id: found for id in carried if (found := _points(program, number, id, variable)) is not None}
    left = (each for item in program.items[number:] for each in _inside(program, item))
    read = {each.buffer for each in left if isinstance(each, Read)}
    unread, changing = frozenset(points.keys() - read), tuple(sorted(carried - points.keys()))
    return Boundary(program, number, sizes, tuple(sorted(used & earlier - written)), points, unread, changing)


def _loop_of(program: LoopProgram, number: int) -> Loop:
    item = program.items[number]
    found = program.segments[item.segment].loop if isinstance(item, CallSegment) else item
    assert isinstance(found, Loop)
    return found


def _inside(program: LoopProgram, item: Statement) -> Iterator[Statement]:
    """All that is in an item, the bodies of the segments that it calls included."""
    yield from walk((item,))
    for segment in program.called((item,)):
        yield from walk(segment.body)


def _points(program: LoopProgram, number: int, id: int, variable: Symbol) -> Points | None:
    """What each iteration writes of an array with a place for every point of the loop; None if that may be more."""
    axes = program.buffers[id].axes
    axis = next((at for at, each in enumerate(axes) if each.dim == variable and each.kind == "full"), None)
    if axis is None:
        return None
    found = []
    for each in _inside(program, program.items[number]):
        if isinstance(each, Write) and each.buffer == id:
            offset = each.index[axis] - var(variable)
            if not offset.is_const or each.extents[axis] is not None:
                return None
            found.append(offset.as_int())
    return Points(axis, min(found), max(found))


_FIRST = 2  # iterations of a loop that are walked through


class _Walk:
    """Through what is left of a program, as it will run: a slot is `live` that is read before it is written. `left` are
    those of which neither has been seen."""

    def __init__(self, program: LoopProgram, sizes: Sizes) -> None:
        self.program, self.sizes = program, sizes
        stores = (each for each in program.buffers.values() if each.role in ("internal", "output"))
        self.left = {each.id for each in stores if each.is_slot}
        self.live: set[int] = set()

    def items(self, first: int) -> None:
        """From an item of the driver to the end; results are read there."""
        stops = self.program.stopped or (None,) * len(self.program.items)
        for item, stopped in list(zip(self.program.items, stops, strict=True))[first:]:
            self.block((item,), dict(self.sizes), stopped is None)
        self._read(self.program.outputs.values())

    def block(self, block: Block, values: dict[Symbol, int], certain: bool = True) -> None:
        """`certain`: it will run."""
        for statement in block:
            match statement:
                case Read(buffer=buffer):
                    self._read((buffer,))
                case Write(buffer=buffer) if certain:
                    self.left.discard(buffer)
                case Branch(condition=condition, then=then, otherwise=otherwise):
                    self.block(then if condition.evaluate(values) else otherwise, values, certain)
                case Guard(body=body):
                    self.block(body, values, False)
                case Loop():
                    self.iterations(statement, values, certain=certain)
                case CallSegment(segment=number):
                    self._called(self.program.segments[number], values, certain)
                case CallHost(reads=reads, writes=writes):
                    self.block((*reads, *writes), values, certain)
                case Stop():  # what comes behind may not run
                    certain = False

    def iterations(self, loop: Loop, values: dict[Symbol, int], begin: int | None = None, certain: bool = True) -> None:
        """Of a loop, from `begin` on."""
        touched, read = self._uses(loop)
        if self.left.isdisjoint(touched):
            return
        lo, hi = (int(end.evaluate(values)) for end in (loop.lo, loop.hi))
        order = range(lo if begin is None else begin, hi)
        if loop.direction == "backward":
            order = range(hi - 1 if begin is None else begin, lo - 1, -1)
        for at in order[:_FIRST]:
            self.block(loop.body, {**values, loop.var: at}, certain)
            certain = certain and stop_in(loop) is None
        if len(order) > _FIRST:
            self._read(read)

    def _called(self, segment: Segment, values: dict[Symbol, int], certain: bool) -> None:
        """Of a loop that a loop of the host runs in strips, over the same dim, an iteration."""
        if segment.loop is not None and segment.loop.var in values:
            self.block(segment.loop.body, values, certain)
        else:
            self.block(segment.body, values, certain)

    def _uses(self, loop: Loop) -> tuple[set[int], set[int]]:
        """The buffers that it touches, and those that it reads."""
        inside = list(_inside(self.program, loop))
        read = {each.buffer for each in inside if isinstance(each, Read)}
        return read | {each.buffer for each in inside if isinstance(each, Write)}, read

    def _read(self, buffers: Iterable[int]) -> None:
        found = self.left.intersection(buffers)
        self.live |= found
        self.left -= found
