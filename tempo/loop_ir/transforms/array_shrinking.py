"""Arrays without the places at either end that nothing touches.

What keeps all points of a dim has a place for each, also for those at which it is never made: a definition by cases
makes one thing of the first points and another of the rest, and each of them would have the places of both. An axis
begins at the first position that is read or written, so all its indices count from there, and is as long as the last
one asks for. What is written where nobody reads is not written: an adjoint of which only the points of a prologue are
read behind its loop.

Array shrinking, after Song, Xu, Wang, Li, Improving Data Locality by Array Contraction, IEEE Transactions on Computers
53 (2004).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from tempo.analysis.demand.images import extremes, tightened
from tempo.loop_ir.ir import (
    Axis,
    Block,
    Branch,
    Buffer,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Statement,
    Transfer,
    WindowIndex,
    Write,
    nested,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, returning_what_it_writes, rewritten_program, with_segments
from tempo.symbolic import And, Box, Condition, Context, Expr, Symbol, const, over_lengths

_SAVED = 4
"""An axis is shrunk by this part of its places, at least: an index that counts from elsewhere is one more sum."""


@dataclass(frozen=True)
class ArrayShrinking:
    """The program with shorter arrays. Where loops run in chunks arrays stay as they are: there positions are taken
    for points."""

    name: ClassVar[str] = "array_shrinking"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        if not context.whole:
            return program
        program = _without_unread(program)
        found = dict(_shrunk(program, context.sizes))
        if not found:
            return program

        def changed(each: Statement, scope: BlockScope) -> Block | None:
            if not isinstance(each, Read | Write) or each.buffer not in found:
                return None
            axes = found[each.buffer]
            if isinstance(each, Read):
                entries = (axes[at].entry(entry) if at in axes else entry for at, entry in enumerate(each.index))
                return (replace(each, index=tuple(entries)),)
            index = (start - axes[at].first if at in axes else start for at, start in enumerate(each.index))
            return (replace(each, index=tuple(index)),)

        buffers = {id: _with(program.buffers[id], axes) for id, axes in found.items()}
        return replace(rewritten_program(program, changed), buffers={**program.buffers, **buffers})


@dataclass(frozen=True)
class _Part:
    """Of the positions of an axis those from `first` on, so many."""

    first: Expr
    extent: Expr

    def entry(self, entry: PointIndex | WindowIndex) -> PointIndex | WindowIndex:
        if isinstance(entry, PointIndex):
            return PointIndex(entry.index - self.first)
        start = entry.start - self.first
        within = _EVERYWHERE.implies(start.ge(0) & (start + entry.extent).le(self.extent))
        return replace(entry, start=start, exact=entry.exact or within)


class _Touched(NamedTuple):
    """The positions that a statement touches, in all iterations: `first`, and that behind the last one."""

    first: Expr
    end: Expr


_EVERYWHERE = Context.of(())
_Parts = Mapping[int, _Part]


def _with(buffer: Buffer, parts: _Parts) -> Buffer:
    axes = (replace(axis, extent=parts[at].extent) if at in parts else axis for at, axis in enumerate(buffer.axes))
    return replace(buffer, axes=tuple(axes))


def _shrunk(program: LoopProgram, sizes: Mapping[Symbol, int]) -> Iterator[tuple[int, _Parts]]:
    """By buffer and axis, the positions that are left."""
    touched = _touched(program)
    for id in _of_segments(program):
        buffer = program.buffers[id]
        each = ((at, axis, touched.get((id, at))) for at, axis in enumerate(buffer.axes) if axis.kind == "full")
        parts = {at: part for at, axis, found in each if found and (part := _part(found, axis, sizes)) is not None}
        if parts:
            yield id, parts


def _of_segments(program: LoopProgram) -> Iterator[int]:
    """The arrays that segments alone look at, always by position."""
    known = {
        *program.inputs.values(),
        *program.outputs.values(),
        *(each.read.buffer for each in program.states.values()),
    }
    known.update(each.buffer for each in walk(program.items) if isinstance(each, Read | Write | Transfer))
    for segment in program.segments:
        touching = (each for each in walk(segment.body) if isinstance(each, Read | Write))
        known.update(each.buffer for each in touching if len(each.index) < len(program.buffers[each.buffer].axes))
    for id, buffer in program.buffers.items():
        if buffer.axes and buffer.role == "internal" and buffer.pooled is None and id not in known:
            yield id


def _part(touched: Iterable[_Touched | None], axis: Axis, sizes: Mapping[Symbol, int]) -> _Part | None:
    """None where an axis is to stay as it is, or it is not known what is touched."""
    known = set(touched)
    if None in known or not axis.extent.symbols() <= sizes.keys():
        return None
    ranges = [each for each in known if each is not None]
    starts = dict.fromkeys(each.first for each in ranges)
    least = next((each for each in starts if all(_EVERYWHERE.implies(other.ge(each)) for other in starts)), None)
    if least is None or not _EVERYWHERE.implies(least.ge(0)):
        return None
    extents = {over_lengths(_EVERYWHERE.simplify(each.end - least)) for each in ranges}
    numbers = {each: int(each.evaluate(sizes)) for each in extents if each.symbols() <= sizes.keys()}
    if len(numbers) < len(extents):
        return None
    extent = max(numbers, key=lambda each: (numbers[each], -len(str(each))))
    size = int(axis.extent.evaluate(sizes))
    return _Part(least, extent) if 0 < numbers[extent] <= size - size / _SAVED else None


def _without_unread(program: LoopProgram) -> LoopProgram:
    """The program without writes of places that no read means, of buffers of which another write is left."""
    read: dict[int, set[tuple[_Touched | None, ...]]] = {id: set() for id in _of_segments(program)}
    written: list[tuple[int, tuple[_Touched | None, ...]]] = []
    for segment in program.segments:
        for statement, around in _placed(segment.body, Box(())):
            if isinstance(statement, Read) and statement.buffer in read:
                read[statement.buffer].add(tuple(_known(each, around) for each in _meant(statement)))
            elif isinstance(statement, Write) and statement.buffer in read:
                written.append((statement.buffer, tuple(_known(each, around) for each in _ranges(statement))))
    is_read = [not all(any(map(_apart, places, each)) for each in read[id]) for id, places in written]
    some = {id for (id, _), each in zip(written, is_read) if each}
    stays = [each or id not in some for (id, _), each in zip(written, is_read)]
    if all(stays):
        return program
    in_order = iter(stays)

    def changed(statement: Statement, scope: BlockScope) -> Block | None:
        is_asked = isinstance(statement, Write) and statement.buffer in read
        return () if is_asked and not next(in_order) else None

    return with_segments(rewritten_program(program, changed), returning_what_it_writes)


def _apart(one: _Touched | None, other: _Touched | None) -> bool:
    """Whether no position is in both, at any sizes."""
    if one is None or other is None:
        return False
    return _EVERYWHERE.implies(one.end.le(other.first)) or _EVERYWHERE.implies(other.end.le(one.first))


# -- what is touched -----------------------------------------------------------------------------------------------


def _touched(program: LoopProgram) -> Mapping[tuple[int, int], set[_Touched | None]]:
    """By buffer and axis, what each statement of the segments touches; None: that is not known."""
    found: dict[tuple[int, int], set[_Touched | None]] = {}
    for segment in program.segments:
        for statement, around in _placed(segment.body, Box(())):
            if isinstance(statement, Read | Write):
                for at, each in enumerate(_ranges(statement)):
                    found.setdefault((statement.buffer, at), set()).add(_known(each, around))
    return found


def _placed(block: Block, around: Box) -> Iterator[tuple[Statement, Box]]:
    """All statements, each with the iterations that it runs in, as far as they are known."""
    for statement in block:
        yield statement, around
        for inner, where in zip(nested(statement), _insides(statement, around)):
            yield from _placed(inner, where)


def _insides(statement: Statement, around: Box) -> tuple[Box, ...]:
    """The iterations that each block directly inside a statement runs in."""
    match statement:
        case Loop():
            return (_inside(around, statement),)
        case Branch(condition=condition):
            return _where(around, condition), _where(around, ~condition)
    return (around,)


_Range = tuple[Expr, Expr | None]
"""From which position on and up to which one; None: that is not known."""


def _known(touched: _Range, around: Box) -> _Touched | None:
    start, end = touched
    first, last = _least(start, around), None if end is None else _greatest(end, around)
    return None if first is None or last is None else _Touched(first, last)


def _meant(read: Read) -> Iterator[_Range]:
    """By axis, what means anything of what a read touches."""
    for entry, (start, end) in zip(read.index, _ranges(read), strict=True):
        length = entry.length if isinstance(entry, WindowIndex) else None
        yield start, end if length is None else start + length


def _ranges(statement: Read | Write) -> Iterator[_Range]:
    """By axis, what it touches."""
    if isinstance(statement, Write):
        for start, extent in zip(statement.index, statement.extents, strict=True):
            yield start, start + (const(1) if extent is None else extent)
        return
    for entry in statement.index:
        if isinstance(entry, PointIndex):
            yield entry.index, entry.index + 1
        elif entry.exact:
            yield entry.start, entry.start + entry.extent
        else:  # what is clamped is not looked at
            yield entry.start, None if entry.length is None else entry.start + entry.length


def _inside(around: Box, loop: Loop) -> Box:
    """The iterations of the loop and of those around it, as far as bounds of them are known in sizes."""
    lo, hi = _least(loop.lo, around), _greatest(loop.hi, around)
    return around if lo is None or hi is None else Box((*around.bounds, (loop.var, lo, hi)))


def _where(iterations: Box, condition: Condition) -> Box:
    """Those in which the condition may hold."""
    for part in condition.args if isinstance(condition, And) else (condition,):
        if part.dims() <= set(iterations.dims):
            iterations, _ = tightened(iterations, part, _EVERYWHERE)
    return iterations


def _least(expr: Expr, iterations: Box) -> Expr | None:
    """In sizes; None where that is not known, as of what loops outside of the segment have a say in."""
    if not expr.dims() <= set(iterations.dims):
        return None
    found, _, _ = extremes(expr, iterations, _EVERYWHERE, _EVERYWHERE)
    return None if found is None else _EVERYWHERE.simplify(found)


def _greatest(expr: Expr, iterations: Box) -> Expr | None:
    least = _least(-expr, iterations)
    return None if least is None else -least
