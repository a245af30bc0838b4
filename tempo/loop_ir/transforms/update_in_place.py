"""Destructive updates: what is added to at indices, and is nothing else's, is added to where it lies.

    if t == 0: v = b0 else: v = b1              if t == 0: v = copy of b0 else: v = b1
    w = scatter_add(v, index, more)     is      w = v, with more added at index
    b1 = w                                      b1 = w

A step then costs what it adds, whatever it is added to. The slot is read in one place, but for those who have looked
and gone when it is added to, and all that it ever holds was made for it, so nobody else has it. (Hudak and Bloss, "The
aggregate update problem in functional programming systems", 1985.) XLA does this by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from tempo.loop_ir.analysis.names import blocks, made_anew, operands
from tempo.loop_ir.analysis.whole_points import replaced
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Branch,
    CallHost,
    Compute,
    LoopProgram,
    Read,
    Segment,
    Statement,
    Write,
    nested,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten, with_segments
from tempo.sdg.operators.axes import HALF


@dataclass(frozen=True)
class UpdateInPlace:
    """For backends whose operators are called one by one."""

    name: ClassVar[str] = "update_in_place"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        if not any(isinstance(each, Compute) and each.op == _UPDATE for each in program.statements()):
            return program
        uses = {segment.id: _Uses.of(segment.body) for segment in program.segments}
        return with_segments(program, partial(_updated, _own_slots(program, uses), uses))


_UPDATE = "scatter_add"


@dataclass(frozen=True)
class _Uses:
    """How often names are looked at in a segment, and how often by what may hold on to what it is given."""

    every: Counter[str]
    holding: Counter[str]

    @staticmethod
    def of(body: Block) -> _Uses:
        holding = [each for each in walk(body) if _may_hold(each)]
        return _Uses(*(Counter(name for each in part for name in operands(each)) for part in (walk(body), holding)))


def _may_hold(statement: Statement) -> bool:
    if isinstance(statement, Compute):
        return not made_anew(statement)
    return isinstance(statement, Assign) or (isinstance(statement, Write) and not statement.index)


def _own_slots(program: LoopProgram, uses: Mapping[int, _Uses]) -> Mapping[int, frozenset[str]]:
    """Slots that are read in one place, glances aside, and that hold nothing but what was made for them, anew for each
    write; and the names of what somebody else looks at as well."""
    calls = [each for each in program.statements() if isinstance(each, CallHost)]
    seen = {each.read.buffer for each in program.states.values()} | replaced(program)
    seen |= {each.buffer for call in calls for part in (call.reads, call.writes) for each in part}
    reads = Counter(each.buffer for each in program.statements() if isinstance(each, Read))
    reads -= Counter(slot for segment in program.segments for slot in _glances(segment.body, uses[segment.id]))
    slots = {id for id, each in program.buffers.items() if each.is_slot and each.role == "internal"} - seen
    found: dict[int, set[str]] = {id: set() for id in slots if reads[id] == 1}
    for segment in program.segments:
        held = uses[segment.id]
        for block in blocks(segment.body):
            made = {each.result for each in block if isinstance(each, Compute) and made_anew(each)}
            for write in (each for each in block if isinstance(each, Write) and each.buffer in found):
                if write.value not in made or held.holding[write.value] != 1:
                    del found[write.buffer]
                elif held.every[write.value] > 1:
                    found[write.buffer].add(write.value)
    return {id: frozenset(names) for id, names in found.items()}


def _glances(body: Block, uses: _Uses) -> Iterator[int]:
    """The slots of reads that nothing keeps, in blocks in which nothing is added to what these slots hold."""
    for block in blocks(body):
        is_added_to = any(isinstance(each, Compute) and each.op == _UPDATE for each in walk(block))
        written = {each.buffer for each in walk(block) if isinstance(each, Write)}
        reads = (each for each in block if isinstance(each, Read) and not uses.holding[each.result])
        yield from (each.buffer for each in reads if not (is_added_to and each.buffer in written))


def _updated(own: Mapping[int, frozenset[str]], uses: Mapping[int, _Uses], segment: Segment) -> Segment:
    return replace(segment, body=rewritten(segment.body, finish=partial(_in_block, own, uses[segment.id])))


def _in_block(own: Mapping[int, frozenset[str]], uses: _Uses, block: Block, scope: BlockScope) -> Block:
    for update in block:
        if isinstance(update, Compute) and update.op == _UPDATE and update.type.dtype not in HALF:
            block = _rewritten(block, update, own, uses)
    return block


def _rewritten(block: Block, update: Compute, own: Mapping[int, frozenset[str]], uses: _Uses) -> Block:
    """The block with the update in place, where it may be."""
    base, made = update.operands[0], update.result
    at = next(number for number, each in enumerate(block) if each is update)
    before, behind = block[:at], block[at + 1 :]
    slots = {each.buffer for each in behind if isinstance(each, Write) and not each.index and each.value == made}
    if not slots & own.keys() or uses.holding[made] != 1 or uses.every[base] != 1:
        return block
    (slot,) = slots
    if own[slot] - {made} or any(isinstance(each, Read) and each.buffer == slot for each in walk(behind)):
        return block
    choice = next((each for each in before if isinstance(each, Branch) and _makes(each, base)), None)
    if choice is not None:
        before = _with_copies(before, choice, base, slot, uses)
    elif not any(isinstance(each, Read) and each.result == base and each.buffer == slot for each in before):
        return block
    placed = replace(update, attrs={**update.attrs, "in_place": True})
    return (*before, placed, *behind) if before else block


def _makes(branch: Branch, name: str) -> bool:
    return all(any(isinstance(each, Assign) and each.result == name for each in side) for side in nested(branch))


def _with_copies(block: Block, choice: Branch, base: str, slot: int, uses: _Uses) -> Block:
    """The block in which each side of the choice takes what is its own; empty where one cannot."""
    then, otherwise = (_side(side, base, slot, uses) for side in (choice.then, choice.otherwise))
    chosen = replace(choice, then=then, otherwise=otherwise)
    return tuple(chosen if each is choice else each for each in block) if then and otherwise else ()


def _side(block: Block, base: str, slot: int, uses: _Uses) -> Block:
    """One side, which takes what the slot held, or a copy of what it reads; empty where it takes anything else."""
    value = next(each.value for each in block if isinstance(each, Assign) and each.result == base)
    read = next((each for each in block if isinstance(each, Read) and each.result == value), None)
    if read is None or uses.every[value] != 1:
        return ()
    return tuple(replace(each, fresh=each.buffer != slot) if each is read else each for each in block)
