"""Arrays without the places at either end that nothing touches.

What keeps all points of a dim has a place for each, also for those at which it is never made: a definition by cases
makes one thing of the first points and another of the rest, and each of them would have the places of both. An axis
begins at the first position that is read or written, so all its indices count from there, and is as long as the last
one asks for.

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
    Guard,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Statement,
    Transfer,
    WindowIndex,
    Write,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten_program
from tempo.symbolic import And, Box, Condition, Context, Expr, Symbol, const, over_lengths

_SAVED = 4
"""An axis is shrunk by this part of its places, at least: an index that counts from elsewhere is one more sum."""


@dataclass(frozen=True)
class ArrayShrinking:
    """The program with shorter arrays. Where loops run in chunks arrays stay as they are: there positions are taken
    for points."""

    name: ClassVar[str] = "array_shrinking"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        found = dict(_shrunk(program, context.sizes)) if context.whole else {}
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


# -- what is touched -----------------------------------------------------------------------------------------------


def _touched(program: LoopProgram) -> Mapping[tuple[int, int], set[_Touched | None]]:
    """By buffer and axis, what each statement of the segments touches; None: that is not known."""
    found: dict[tuple[int, int], set[_Touched | None]] = {}

    def look(block: Block, around: Box) -> None:
        for statement in block:
            match statement:
                case Read() | Write():
                    for at, (start, end) in enumerate(_ranges(statement)):
                        first, last = _least(start, around), None if end is None else _greatest(end, around)
                        known = None if first is None or last is None else _Touched(first, last)
                        found.setdefault((statement.buffer, at), set()).add(known)
                case Loop(body=body):
                    look(body, _inside(around, statement))
                case Branch(condition=condition, then=then, otherwise=otherwise):
                    look(then, _where(around, condition))
                    look(otherwise, _where(around, ~condition))
                case Guard(body=body):
                    look(body, around)

    for segment in program.segments:
        look(segment.body, Box(()))
    return found


def _ranges(statement: Read | Write) -> Iterator[tuple[Expr, Expr | None]]:
    """By axis, from which position on and up to which one it touches what is there; None: that is not known."""
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
