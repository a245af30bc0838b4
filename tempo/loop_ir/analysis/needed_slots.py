"""When what a large slot holds is needed: until which statement, and under which condition.

    for i in 0..T:                              for i in 0..T:
      if i >= 1: w = b0  else: w = b1             if i >= 1: w = b0; let go of b0  else: w = b1
      b2 = w                              is      if i >= T - 1: b2 = w
      if i < T - 1: b0 = w - g                    if i < T - 1: b0 = w - g
    b3 = b2                                     b3 = b2

Liveness, backward along the statements, with the condition under which each slot is read later in place of a bit
(`tempo.loop_ir.analysis.liveness` follows none): at the end of an iteration what the next one reads is asked of that
one, by its number, and what is read after the loop is needed in the last iteration alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tempo import dtypes
from tempo.loop_ir.analysis.liveness import needed_elsewhere
from tempo.loop_ir.analysis.names import LEAST, operands
from tempo.loop_ir.analysis.whole_points import replaced
from tempo.loop_ir.ir import (
    Block,
    Branch,
    Buffer,
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
from tempo.symbolic import FALSE, TRUE, Condition, Context, Symbol, conjunction, const, var

Needs = Mapping[int, tuple[Condition, ...]]
"""By slot, when something reads later what it holds: where one of the conditions is true."""
Bytes = Callable[[Buffer], float]


def bytes_at(sizes: Mapping[Symbol, int]) -> Bytes:
    """The bytes of a buffer; infinite where these sizes do not say."""

    def bytes(buffer: Buffer) -> float:
        shape = buffer.logical_shape
        if any(not extent.symbols() <= sizes.keys() for extent in shape):
            return math.inf
        return math.prod(buffer.extents(sizes)) * dtypes.itemsize(buffer.dtype)

    return bytes


@dataclass
class NeededSlots:
    """The analysis of one segment, of its slots that are large. Statements are known by their identity.

    `reads`: by the name of what is read of them, the slots, with those that are given. `slots`: those that may be let
    go of. `after`: by statement, when the slots that it reads or writes are needed after it. `at_start`: when slots are
    before the segment.
    """

    reads: Mapping[str, int] = field(default_factory=dict)
    slots: frozenset[int] = frozenset()

    after: dict[int, dict[int, tuple[Condition, ...]]] = field(default_factory=dict)
    at_start: Needs = field(default_factory=dict)

    @staticmethod
    def of(program: LoopProgram, segment: Segment, bytes: Bytes) -> NeededSlots:
        remembered = replaced(program)
        large = {id for id in segment.buffers if _is_large(program.buffers[id], bytes)}
        own = (program.buffers[id] for id in large - remembered)
        slots = frozenset(each.id for each in own if each.donated or not each.is_given)
        reads = (each for each in walk(segment.body) if isinstance(each, Read))
        found = NeededSlots({each.result: each.buffer for each in reads if each.buffer in large}, slots)
        if slots:
            flow, at_end = _Flow(found), set(slots & needed_elsewhere(program, segment))
            if CallSegment(segment.id) not in program.items:  # a loop of the host calls it again
                at_end |= flow.block(segment.body, {}, _Around(notes=False)).keys()
            found.at_start = flow.block(segment.body, dict.fromkeys(at_end, (TRUE,)), _Around())
        return found

    def released(self, statement: Statement) -> tuple[int, ...]:
        """The slots that the statement reads, and nothing after it reads before they are written anew."""
        return tuple(sorted(id for id, needed in self.after.get(id_of(statement), {}).items() if not needed))

    def needed(self, write: Write) -> tuple[Condition, ...]:
        """When what it writes is read; TRUE where nothing is known of that."""
        return self.after.get(id_of(write), {}).get(write.buffer, (TRUE,))


def _is_large(buffer: Buffer, bytes: Bytes) -> bool:
    """What has no axes may be a scalar of the source, which is there from the start."""
    return buffer.is_slot and bool(buffer.shape) and bytes(buffer) >= LEAST


id_of = id


@dataclass(frozen=True)
class _Around:
    """What holds where a block stands, and what is needed where the loop around it is left early. `notes`: whether this
    is the last time that the block is looked at."""

    known: Context = field(default_factory=lambda: Context.of(()))
    at_exit: Needs = field(default_factory=dict)
    notes: bool = True


class _Flow:
    def __init__(self, found: NeededSlots) -> None:
        self._found = found

    def block(self, block: Block, after: Needs, around: _Around) -> Needs:
        for statement in reversed(block):
            after = self._before(statement, after, around)
        return after

    def _before(self, statement: Statement, after: Needs, around: _Around) -> Needs:
        match statement:
            case Branch():
                return self._choice(statement, after, around)
            case Guard(body=body):  # which may not run
                return _either(self.block(body, after, around), after)
            case Loop():
                return self._loop(statement, after, around)
            case Stop():
                return _either(after, around.at_exit)
        read = self._found.reads  # which stands where its name is used
        used = {read[name] for name in operands(statement) if name in read} & self._found.slots
        written = {statement.buffer} & self._found.slots if isinstance(statement, Write) else set[int]()
        if around.notes and (used or written):
            self._note(statement, {id: after.get(id, ()) for id in used | written}, around.known)
        kept = {id: needed for id, needed in after.items() if id not in written}
        return {**kept, **dict.fromkeys(used, (TRUE,))}

    def _note(self, statement: Statement, after: Needs, known: Context) -> None:
        """What may stand in several places is needed after it where it is after one of them."""
        noted = self._found.after.setdefault(id_of(statement), {})
        for id, needed in after.items():
            here = (TRUE if known.implies(each) else each for each in needed)
            noted[id] = _joined(noted.get(id, ()), here)

    def _choice(self, branch: Branch, after: Needs, around: _Around) -> Needs:
        sides = []
        for condition, block in ((branch.condition, branch.then), (~branch.condition, branch.otherwise)):
            known = around.known.assume(condition)
            within = _Around(known, around.at_exit, around.notes)
            sides.append((condition, self.block(block, _possible(after, known), within)))
        (one, then), (other, otherwise) = sides
        return {
            id: _joined(
                (each if each in otherwise.get(id, ()) else each & one for each in then.get(id, ())),
                (each if each in then.get(id, ()) else each & other for each in otherwise.get(id, ())),
            )
            for id in then.keys() | otherwise.keys()
        }

    def _loop(self, loop: Loop, after: Needs, around: _Around) -> Needs:
        """What one iteration reads of the one before it is asked of that one; what outlives two is needed always."""
        here, step = var(loop.var), 1 if loop.direction == "forward" else -1
        first, last = (loop.lo, loop.hi - 1) if step == 1 else (loop.hi - 1, loop.lo)
        known = around.known.assume(here.ge(loop.lo), here.lt(loop.hi))
        is_last = here.ge(last) if step == 1 else here.le(last)
        leaving = after if stop_in(loop) is not None else _where(after, is_last, known)

        def run(at_end: Needs, notes: bool = False) -> Needs:
            return self.block(loop.body, at_end, _Around(known, after, around.notes and notes))

        own = run({})
        asked = _where(_at(own, {loop.var: here + step}), ~is_last, known)
        at_end = _either(leaving, asked)
        outliving = {id: (TRUE,) for id, needed in run(at_end).items() if set(needed) - set(own.get(id, ()))}
        begun = _at(run(_either(at_end, outliving), notes=True), {loop.var: first})
        runs = loop.hi.ge(loop.lo + const(1))
        return _possible(begun if around.known.implies(runs) else _either(begun, after), around.known)


def _joined(*needed: Iterable[Condition]) -> tuple[Condition, ...]:
    found = dict.fromkeys(condition for each in needed for condition in each if condition != FALSE)
    return (TRUE,) if TRUE in found else tuple(found)


def _either(one: Needs, other: Needs) -> Needs:
    return {id: _joined(one.get(id, ()), other.get(id, ())) for id in one.keys() | other.keys()}


def _where(needs: Needs, condition: Condition, known: Context) -> Needs:
    def both(each: Condition) -> Condition:
        return known.simplify_condition(conjunction((each, condition)))

    return _possible({id: tuple(map(both, needed)) for id, needed in needs.items()}, known)


def _at(needs: Needs, values: Mapping[Symbol, object]) -> Needs:
    return {id: tuple(each.substitute(values) for each in needed) for id, needed in needs.items()}  # type: ignore[arg-type]


def _possible(needs: Needs, known: Context) -> Needs:
    """Without what cannot be where this is known."""
    left = {id: _joined(each for each in needed if not known.excludes(each)) for id, needed in needs.items()}
    return {id: needed for id, needed in left.items() if needed}
