"""Which slots a loop must hand from one iteration to the next, and which are written anew before they are read.

A backend that compiles loops carries what a body writes. An array that is written point by point is carried unless
all its reads are in the iteration that wrote what they read (`Buffer.local`). A slot need not be where each iteration
writes it before it reads it, and nothing reads it after the loop: the copies that such a slot costs are then nobody's.

`Lifetimes` are about whole buffers: which steps of the driver each lives through, and what a step needs beside them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from tempo import dtypes
from tempo.loop_ir.ir import (
    Block,
    Branch,
    CallSegment,
    Compute,
    Guard,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    Transfer,
    WindowIndex,
    Write,
    extent_of,
    nested,
    walk,
)
from tempo.symbolic import Context, Expr, Symbol

Slots = Set[int]


class Liveness:
    """The analysis of one segment: its `blocks` run one after another, any number of times in a row.

    Conditions are not followed: what only one side of a branch writes may be what it was before.
    """

    def __init__(self, program: LoopProgram, segment: Segment, blocks: Sequence[Block]) -> None:
        self._buffers = program.buffers
        self._body = tuple(chain.from_iterable(blocks))  # kept, since loops are told apart by identity
        self._effects: dict[int, tuple[set[int], set[int]]] = {}
        self._outlive: dict[int, Slots] = {}
        reads, writes = self._of_block(self._body)
        self.at_end: Slots = needed_elsewhere(program, segment) | reads
        """The slots of which something may read, after the segment, what they hold at its end."""
        self.at_start: Slots = (self.at_end - writes) | reads
        """Those of which something may read what they hold before it."""
        self._enter(self._body, self.at_end)

    def together(self) -> Mapping[int, Slots]:
        """By slot, those that hold what may still be read when it is written, where the blocks run once: then a slot
        holds nothing before its first write."""
        live: dict[int, set[int]] = defaultdict(set)
        held: dict[int, set[int]] = defaultdict(set)
        self._live_at_writes(self._body, self.at_end, live)
        _held_at_writes(self._body, set(), held)
        return {id: live[id] & held[id] for id in live}

    def _live_at_writes(self, block: Block, after: Slots, found: Mapping[int, set[int]]) -> None:
        live = set(after)
        for statement in reversed(block):
            reads, writes = self._of(statement)
            if isinstance(statement, Write):
                found[statement.buffer].update(live)
            again = reads if isinstance(statement, Loop) and not _runs_once(statement) else set()
            for inner in nested(statement):
                self._live_at_writes(inner, live | again, found)
            live -= writes
            live |= reads

    def carried(self, loop: Loop) -> list[int]:
        """The buffers that the loop writes and whose values outlive an iteration, in order."""
        live = self._outlive[id(loop)]
        written = _written(loop) - set(self.local(loop))
        return sorted(id for id in written if not self._buffers[id].is_slot or id in live)

    def local(self, loop: Loop) -> list[int]:
        """The arrays that an iteration may make anew, in order."""
        found = (id for id in _written(loop) if loop.var in self._buffers[id].local)
        return sorted(id for id in found if not self._buffers[id].is_slot)

    def _enter(self, block: Block, after: Slots) -> None:
        """Notes of every loop in the block which slots that it writes outlive an iteration."""
        live = set(after)
        for statement in reversed(block):
            reads, writes = self._of(statement)
            if isinstance(statement, Loop):
                live |= reads  # after an iteration there may be another one
                self._outlive[id(statement)] = _written(statement) & live
            for inner in nested(statement):
                if any(isinstance(each, Loop) for each in walk(inner)):
                    self._enter(inner, live)
            live -= writes
            live |= reads

    def _of_block(self, block: Block) -> tuple[set[int], set[int]]:
        """The slots that it reads before it writes them (`gen`), and the buffers that it writes for sure (`kill`)."""
        reads: set[int] = set()
        writes: set[int] = set()
        for statement in reversed(block):
            before, made = self._of(statement)
            reads -= made
            reads |= before
            writes |= made
        return reads, writes

    def _of(self, statement: Statement) -> tuple[set[int], set[int]]:
        if id(statement) not in self._effects:
            self._effects[id(statement)] = self._found(statement)
        return self._effects[id(statement)]

    def _found(self, statement: Statement) -> tuple[set[int], set[int]]:
        match statement:
            case Read(buffer=buffer) if self._buffers[buffer].is_slot:
                return {buffer}, set()
            case Write(buffer=buffer):
                return set(), {buffer}
            case Branch(then=then, otherwise=otherwise):
                (one, made), (other, also_made) = self._of_block(then), self._of_block(otherwise)
                return one | other, made & also_made
            case Guard(body=body) | Loop(body=body):  # which may not run at all
                return self._of_block(body)[0], set()
        return set(), set()


def _held_at_writes(block: Block, before: Set[int], found: Mapping[int, set[int]]) -> None:
    held = set(before)
    for statement in block:
        if isinstance(statement, Write):
            found[statement.buffer].update(held)
        made = {each.buffer for each in walk((statement,)) if isinstance(each, Write)}
        for inner in nested(statement):
            _held_at_writes(inner, held | made if isinstance(statement, Loop) else held, found)
        held |= made


def _runs_once(loop: Loop) -> bool:
    """Or never, at all sizes."""
    return Context.of(()).implies((loop.hi - loop.lo).le(1))


def _written(loop: Loop) -> set[int]:
    return {each.buffer for each in walk(loop.body) if isinstance(each, Write)}


def needed_elsewhere(program: LoopProgram, segment: Segment) -> Slots:
    """What outputs, other segments and host calls may read after the segment, or whoever asks what a call of the host
    that failed has left of parameters (`tempo.loop_ir.analysis.whole_points`)."""
    kept = (each for each in program.buffers.values() if each.role != "internal" and not each.donated)
    found = {each.id for each in kept} | set(program.outputs.values())
    for other in program.segments:
        if other.id != segment.id:
            found.update(other.buffers)
    found.update(each.buffer for each in walk(program.items) if isinstance(each, Read))
    if program.hosts:
        found.update(state.read.buffer for state in program.states.values())
    return frozenset(id for id in found if program.buffers[id].is_slot)


# -- of buffers, along the driver ----------------------------------------------------------------------------------

Sizes = Mapping[Symbol, int]


@dataclass(frozen=True)
class Lifetimes:
    """By item of the driver: the buffers that nothing touches before it; the internal ones of these, which are made
    just before it; and those that are not needed after it.

    Inputs are there from the start and go with their last use as well. Outputs and constants are there all the time.
    """

    first: tuple[frozenset[int], ...]
    makes: tuple[tuple[int, ...], ...]
    drops: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(program: LoopProgram) -> Lifetimes:
        uses = list(enumerate(touched(program, item) for item in program.items))
        first = {id: number for number, ids in reversed(uses) for id in ids}
        last = {id: number for number, ids in uses for id in ids}

        def at(number: int, of: Mapping[int, int], *roles: str) -> tuple[int, ...]:
            return tuple(sorted(id for id in uses[number][1] if of[id] == number and program.buffers[id].role in roles))

        makes = tuple(at(number, first, "internal") for number, _ in uses)
        drops = tuple(at(number, last, "internal", "input") for number, _ in uses)
        anew = tuple(frozenset(id for id in ids if first[id] == number) for number, ids in uses)
        return Lifetimes(anew, makes, drops)


def given_up(program: LoopProgram, segment: Segment) -> frozenset[int]:
    """The donated buffers that nothing touches after the call of a segment; none where a loop of the host calls it."""
    if not any(program.buffers[id].donated for id in segment.buffers):
        return frozenset()
    return frozenset(id for id in dropped(program, segment) if program.buffers[id].donated)


def dropped(program: LoopProgram, segment: Segment) -> frozenset[int]:
    """Inputs and internal buffers that nothing touches after the call of a segment; none where a loop of the host calls
    it."""
    lifetimes = zip(program.items, Lifetimes.of(program).drops, strict=True)
    return frozenset(id for item, drops in lifetimes if item == CallSegment(segment.id) for id in drops)


def made_first(program: LoopProgram, segment: Segment) -> tuple[int, ...]:
    """The results that nothing touches before the call of a segment; none where a loop of the host calls it."""
    lifetimes = zip(program.items, Lifetimes.of(program).first, strict=True)
    first = (id for item, ids in lifetimes if item == CallSegment(segment.id) for id in ids)
    return tuple(sorted(set(first).intersection(segment.results)))


def in_segments(program: LoopProgram) -> frozenset[int]:
    """The internal buffers that segments alone look at, called one after the other: in loops of the host they are
    given what is there before."""
    elsewhere = {*program.outputs.values(), *(each.read.buffer for each in program.states.values())}
    elsewhere.update(*(touched(program, item) for item in program.items if not isinstance(item, CallSegment)))
    inside = (each for id, each in program.buffers.items() if id not in elsewhere and each.pooled is None)
    return frozenset(each.id for each in inside if each.role == "internal")


def touched(program: LoopProgram, item: Statement) -> set[int]:
    """The buffers that one item of the driver reads or writes."""
    own = {each.buffer for each in walk((item,)) if isinstance(each, Read | Write | Transfer)}
    return own.union(*(segment.buffers for segment in program.called((item,))))


def bytes_at_most(program: LoopProgram, sizes: Sizes) -> int:
    """A bound of what is needed at once, before there is code: the buffers that live through an item, and all values of
    its segments."""
    bytes = {id: buffer_bytes(program, id, sizes) for id in program.buffers}
    lifetimes = Lifetimes.of(program)
    roles = {id: buffer.role for id, buffer in program.buffers.items()}
    live = {id for id, role in roles.items() if role != "internal"}
    peak = sum(bytes[id] for id in live)
    for item, makes, drops in zip(program.items, lifetimes.makes, lifetimes.drops):
        live.update(makes)
        peak = max(peak, sum(bytes[id] for id in live) + _values(program, item, sizes))
        live.difference_update(drops)
    return peak


def buffer_bytes(program: LoopProgram, id: int, sizes: Sizes) -> int:
    buffer = program.buffers[id]
    return math.prod(buffer.local_extents(sizes)) * dtypes.itemsize(buffer.dtype)


def _values(program: LoopProgram, item: Statement, sizes: Sizes) -> int:
    """What the values of a segment take, all at once."""
    bodies = (walk(segment.body) for segment in program.called((item,)))
    return max((sum(_bytes(program, each, sizes) for each in body) for body in bodies), default=0)


def _bytes(program: LoopProgram, statement: Statement, sizes: Sizes) -> int:
    if isinstance(statement, Compute):
        return _size(statement.type.shape, sizes) * dtypes.itemsize(statement.type.dtype)
    if not isinstance(statement, Read):
        return 0
    buffer = program.buffers[statement.buffer]
    windows = [each for each in statement.index if isinstance(each, WindowIndex)]
    # A window that may leave the dim, or wrap around, is gathered.
    if not statement.fresh and all(each.exact for each in windows):
        return 0
    return _size((*(each.extent for each in windows), *buffer.shape), sizes) * dtypes.itemsize(buffer.dtype)


def _size(shape: tuple[Expr, ...], sizes: Sizes) -> int:
    return math.prod(extent_of(extent, sizes) for extent in shape)
