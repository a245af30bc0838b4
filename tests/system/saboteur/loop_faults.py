"""LoopIR with one planted fault, of twelve kinds: what a rewriting of statements may get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random

from tempo.loop_ir.ir import (
    Assign,
    Compute,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    WindowIndex,
    Write,
    walk,
)
from tempo.loop_ir.rewriter import Block, BlockScope, rewritten, rewritten_program
from tempo.sdg.graph import NOMINAL, TensorType
from tempo.symbolic import Symbol, const

Sizes = Mapping[Symbol, int]
Fault = Callable[[LoopProgram, Sizes, Random], LoopProgram | None]
"""The program with a fault; None where it has no place for one."""
Named = Read | Compute | Assign


def _every(program: LoopProgram) -> list[Statement]:
    return [each for segment in program.segments for each in walk(segment.body)]


def _one(program: LoopProgram, draw: Random, *kinds: type[Statement]) -> Statement | None:
    found = [each for each in _every(program) if isinstance(each, kinds)]
    return draw.choice(found) if found else None


def _put(program: LoopProgram, target: Statement, *new: Statement) -> LoopProgram:
    return rewritten_program(program, lambda each, scope: new if each is target else None)


def _used(program: LoopProgram) -> set[str]:
    every = _every(program)
    operands = {name for each in every if isinstance(each, Compute) for name in each.operands}
    return operands | {each.value for each in every if isinstance(each, Assign | Write)}


def _definition(program: LoopProgram, draw: Random) -> Named | None:
    used = _used(program)
    found = [each for each in _every(program) if isinstance(each, Named) and each.result in used]
    return draw.choice(found) if found else None


def lost_definition(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    target = _definition(program, draw)
    return None if target is None else _put(program, target)


def late_definition(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    target = _definition(program, draw)

    def moved(block: Block, scope: BlockScope) -> Block:
        rest = tuple(each for each in block if each is not target)
        return block if target is None or len(rest) == len(block) else (*rest, target)

    found = rewritten_program(program, finish=moved)
    return None if found is program or found == program else found


def unknown_name(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    """A name of another segment's, where there is one."""
    target = _one(program, draw, Assign, Write)
    if not isinstance(target, Assign | Write):
        return None
    home = next(each for each in program.segments if any(target is inner for inner in walk(each.body)))
    own = {each.result for each in walk(home.body) if isinstance(each, Named)}
    others = sorted({each.result for each in _every(program) if isinstance(each, Named)} - own)
    return _put(program, target, replace(target, value=draw.choice(others) if others else "nobody"))


def defined_again(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    pairs = [pair for each in _blocks(program) for pair in _pairs(each)]
    if not pairs:
        return None
    first, second = draw.choice(pairs)
    return _put(program, second, second, Assign(first.result, second.result))


def wrong_rank(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    target = _one(program, draw, Read, Write)
    if isinstance(target, Read):
        shorter = draw.random() < 0.5 and target.index
        index = target.index[:-1] if shorter else (*target.index, PointIndex(const(0)))
        return _put(program, target, replace(target, index=index))
    if isinstance(target, Write):
        longer = replace(target, index=(*target.index, const(0)), extents=(*target.extents, None))
        return _put(program, target, longer)
    return None


def outside(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    """Positions are those behind the end of the buffer."""
    found = [
        (each, axis) for each in _every(program) if isinstance(each, Read | Write) for axis in _exact(each, program)
    ]
    if not found:
        return None
    target, at = draw.choice(found)
    extent = program.buffers[target.buffer].axes[at].extent
    if isinstance(target, Write):
        index = (*target.index[:at], target.index[at] + extent, *target.index[at + 1 :])
        return _put(program, target, replace(target, index=index))
    entry = target.index[at]
    moved = (
        PointIndex(entry.index + extent)
        if isinstance(entry, PointIndex)
        else replace(entry, start=entry.start + extent)
    )
    return _put(program, target, replace(target, index=(*target.index[:at], moved, *target.index[at + 1 :])))


def _exact(each: Read | Write, program: LoopProgram) -> Iterator[int]:
    for at, axis in enumerate(program.buffers[each.buffer].axes[: len(each.index)]):
        entry = each.index[at]
        if not isinstance(entry, WindowIndex) or (entry.exact and axis.kind == "full"):
            yield at


def other_buffer(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    """One that is not there, or whose values are of another type."""
    target = _one(program, draw, Read, Write)
    if not isinstance(target, Read | Write):
        return None
    right = program.buffers[target.buffer]
    wrong = [
        id for id, each in program.buffers.items() if (each.dtype, len(each.shape)) != (right.dtype, len(right.shape))
    ]
    return _put(program, target, replace(target, buffer=draw.choice([*wrong, len(program.buffers)])))


def other_operand(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    """A value of another type."""
    found = []
    for block in _blocks(program):
        for first, second in _pairs(block):
            if isinstance(first, Compute) and isinstance(second, Compute) and second.operand_types:
                place = draw.randrange(len(second.operands))
                if _differ(first.type, second.operand_types[place], sizes):
                    found.append((first, second, place))
    if not found:
        return None
    first, second, place = draw.choice(found)
    operands = (*second.operands[:place], first.result, *second.operands[place + 1 :])
    return _put(program, second, replace(second, operands=operands))


def wrong_type(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    target = _one(program, draw, Compute)
    if not isinstance(target, Compute) or target.op in (*NOMINAL, "backend_call", "backend_result"):
        return None
    if draw.random() < 0.5:
        wrong = replace(target.type, dtype="int32" if target.type.dtype != "int32" else "float32")
    else:
        wrong = replace(target.type, shape=(*target.type.shape, const(2)))
    return _put(program, target, replace(target, type=wrong))


def wrong_value(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    """What is written is a value of another type."""
    found = []
    for block in _blocks(program):
        types = {each.result: each.type for each in block if isinstance(each, Compute)}
        for at, each in enumerate(block):
            before = [other for other in block[:at] if isinstance(other, Compute)]
            if isinstance(each, Write) and each.value in types:
                found += [(each, other) for other in before if _differ(types[each.value], other.type, sizes)]
    if not found:
        return None
    target, other = draw.choice(found)
    return _put(program, target, replace(target, value=other.result))


def other_variable(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    """The loop counts something else than what its body looks at."""
    target = _one(program, draw, Loop)
    if not isinstance(target, Loop):
        return None
    return _put(program, target, replace(target, var=replace(target.var, name="elsewhere")))


def forgotten(program: LoopProgram, sizes: Sizes, draw: Random) -> LoopProgram | None:
    """A segment does not return something."""
    wrong: list[Segment] = []
    for each in program.segments:
        wrong += [replace(each, results=tuple(other for other in each.results if other != id)) for id in each.results]
    if not wrong:
        return None
    chosen = draw.choice(wrong)
    segments = tuple(chosen if each.id == chosen.id else each for each in program.segments)
    return replace(program, segments=segments)


def _blocks(program: LoopProgram) -> list[Block]:
    found: list[Block] = []

    def keep(block: Block, scope: BlockScope) -> Block:
        found.append(block)
        return block

    for segment in program.segments:
        rewritten(segment.body, finish=keep)
    return found


def _pairs(block: Block) -> Iterator[tuple[Named, Named]]:
    """Two definitions of a block, in order."""
    named = [each for each in block if isinstance(each, Named)]
    for at, second in enumerate(named):
        yield from ((first, second) for first in named[:at])


def _differ(one: TensorType, other: TensorType, sizes: Sizes) -> bool:
    shapes = [tuple(int(extent.evaluate(sizes)) for extent in type.shape) for type in (one, other)]
    return one.dtype != other.dtype or shapes[0] != shapes[1]


KINDS: tuple[Fault, ...] = (
    lost_definition,
    late_definition,
    unknown_name,
    defined_again,
    wrong_rank,
    outside,
    other_buffer,
    other_operand,
    wrong_type,
    wrong_value,
    other_variable,
    forgotten,
)
