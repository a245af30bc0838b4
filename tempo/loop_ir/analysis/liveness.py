"""Which slots a loop must hand from one iteration to the next, and which are written anew before they are read.

A backend that compiles loops carries what a body writes. An array that is written point by point is carried unless
all its reads are in the iteration that wrote what they read (`storage.privatization`). A slot need not be where each
iteration writes it before it reads it, and nothing reads it after the loop: the copies that such a slot costs are then
nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tempo.loop_ir.ir import Block, Branch, CallHost, Guard, Loop, LoopProgram, Read, Segment, Write, walk

Slots = frozenset[int]


class Liveness:
    """The analysis of one segment: its `blocks` run one after another, any number of times in a row.

    Conditions are not followed: what only one side of a branch writes may be what it was before.
    """

    def __init__(self, program: LoopProgram, segment: Segment, blocks: Sequence[Block]) -> None:
        self._buffers = program.buffers
        self._blocks = tuple(blocks)  # kept, since loops are told apart by identity
        self._at_end: dict[int, Slots] = {}
        self.at_end = self._at_least(_needed_elsewhere(program, segment), self._whole)
        """The slots of which something may read, after the segment, what they hold at its end."""
        self.at_start = self._whole(self.at_end)
        """Those of which something may read what they hold before it."""

    def carried(self, loop: Loop) -> list[int]:
        """The buffers that the loop writes and whose values outlive an iteration, in order."""
        live = self._at_end[id(loop)]
        written = self._written(loop) - set(self.local(loop))
        return sorted(id for id in written if not self._buffers[id].is_slot or id in live)

    def local(self, loop: Loop) -> list[int]:
        """The arrays that an iteration may make anew, in order."""
        found = (id for id in self._written(loop) if loop.var in self._buffers[id].local)
        return sorted(id for id in found if not self._buffers[id].is_slot)

    @staticmethod
    def _written(loop: Loop) -> set[int]:
        return {each.buffer for each in walk(loop.body) if isinstance(each, Write)}

    @staticmethod
    def _at_least(after: Slots, before: Callable[[Slots], Slots]) -> Slots:
        """The least set that holds `after` and, since what it is the end of may run again, what is live before that."""
        found, live = after, before(after)
        while not live <= found:
            found = found | live
            live = before(found)
        return found

    def _whole(self, after: Slots) -> Slots:
        for block in reversed(self._blocks):
            after = self._before(block, after)
        return after

    def _before(self, block: Block, after: Slots) -> Slots:
        """The slots whose values at the start of the block may be read in it, or are live after it."""
        for statement in reversed(block):
            match statement:
                case Read(buffer=buffer):
                    after = after | {buffer} if self._buffers[buffer].is_slot else after
                case Write(buffer=buffer):
                    after = after - {buffer}
                case Branch(then=then, otherwise=otherwise):
                    after = self._before(then, after) | self._before(otherwise, after)
                case Guard(body=body):
                    after = after | self._before(body, after)
                case Loop():
                    after = self._loop(statement, after)
        return after

    def _loop(self, loop: Loop, after: Slots) -> Slots:
        """A loop may run no iteration, and after an iteration another one."""
        found = self._at_least(after, lambda live: self._before(loop.body, live))
        self._at_end[id(loop)] = found
        return found


def _needed_elsewhere(program: LoopProgram, segment: Segment) -> Slots:
    """What outputs, other segments and host calls may read after the segment, or whoever asks what a call of the host
    that failed has left of parameters (`tempo.loop_ir.analysis.whole_points`)."""
    found = {id for id, buffer in program.buffers.items() if buffer.role != "internal"} | set(program.outputs.values())
    for other in program.segments:
        if other.id != segment.id:
            found.update(other.buffers)
    for call in walk(program.items):
        if isinstance(call, CallHost):
            found.update(read.buffer for read in call.reads)
    if program.hosts:
        found.update(state.read.buffer for state in program.states.values())
    return frozenset(id for id in found if program.buffers[id].is_slot)
