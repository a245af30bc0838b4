"""Destination passing for `concat`: parts that are put in a row in a buffer are written there, each to its place.

    v = concat(a, b);  write k[0 +: n + p] = v;  f(v)      becomes
    write k[0 +: n] = a;  write k[n +: p] = b;  f(read k[0 +: n + p])

Keys that are known and keys that are new then are copied once, not twice. XLA does this by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from tempo.loop_ir.analysis.names import operands
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Buffer,
    Compute,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    WindowIndex,
    Write,
    walk,
)
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten, with_segments
from tempo.sdg.operators import OPERATORS


@dataclass(frozen=True)
class ConcatInPlace:
    name: ClassVar[str] = "concat_in_place"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        def changed(segment: Segment) -> Segment:
            finish = partial(_in_place, buffers=program.buffers, views=_Aliases(segment.body))
            return replace(segment, body=rewritten(segment.body, finish=finish))

        return with_segments(program, changed)


class _Aliases:
    """Which names may share memory with which buffers and names, in one segment."""

    def __init__(self, body: Block) -> None:
        self._of: dict[str, set[str]] = {}
        self._buffers: dict[str, set[int]] = {}
        for each in walk(body):
            if isinstance(each, Read):
                self._buffers.setdefault(each.result, set()).add(each.buffer)
            elif isinstance(each, Assign) or (isinstance(each, Compute) and _may_be_view(each)):
                self._of.setdefault(each.result, set()).update(operands(each))

    def sources(self, name: str) -> set[str]:
        """The names that it may be a view of, itself included."""
        found, pending = {name}, [name]
        while pending:
            fresh = self._of.get(pending.pop(), set()) - found
            found |= fresh
            pending.extend(fresh)
        return found

    def buffers(self, name: str) -> set[int]:
        return {id for each in self.sources(name) for id in self._buffers.get(each, ())}


def _may_be_view(compute: Compute) -> bool:
    return compute.op not in OPERATORS or OPERATORS[compute.op].views


def _in_place(block: Block, scope: BlockScope, buffers: Mapping[int, Buffer], views: _Aliases) -> Block:
    found = block
    for compute in block:
        if isinstance(compute, Compute) and compute.op == "concat" and compute.result not in scope.leaving:
            found = _rewritten(found, compute, buffers, views)
    return found


def _rewritten(block: Block, concat: Compute, buffers: Mapping[int, Buffer], views: _Aliases) -> Block:
    """The block with the parts in their places, if it may have them there."""
    at = next(number for number, each in enumerate(block) if each is concat)
    looking = (number for number, each in enumerate(block) if number > at and _looks_at(each, concat.result.__eq__))
    first = next(looking, None)
    write = None if first is None else block[first]
    if first is None or not isinstance(write, Write) or not _takes_rows(write, buffers[write.buffer], concat):
        return block
    shown = {id for name in concat.operands for id in views.buffers(name)}
    if write.buffer in shown:
        return block  # a part would be written over before it is moved
    if any(_touches(each, write.buffer) or any(_writes(each, id) for id in shown) for each in block[at:first]):
        return block
    behind = block[first + 1 :]
    users = [
        number for number, each in enumerate(behind) if _looks_at(each, lambda n: concat.result in views.sources(n))
    ]
    if any(_is_kept(each, concat.result, views) for each in behind):
        return block  # what shares memory with the buffer is no other buffer's
    if any(_writes(each, write.buffer) for each in behind[: max(users, default=-1) + 1]):
        return block
    read_again = tuple(_read_back(write, concat.result)) if users else ()
    return (*block[:at], *block[at + 1 : first], *_parts(write, concat), *read_again, *behind)


def _takes_rows(write: Write, buffer: Buffer, concat: Compute) -> bool:
    """Whether what is put in a row lies along an axis of the buffer that does not go round."""
    along = _axes(write)
    axis = concat.attrs["axis"]
    return write.value == concat.result and axis < len(along) and buffer.axes[along[axis]].kind == "full"


def _axes(write: Write) -> list[int]:
    """The axes of the buffer that those of the value lie along."""
    return [at for at, extent in enumerate(write.extents) if extent is not None]


def _parts(write: Write, concat: Compute) -> Iterator[Write]:
    axis = concat.attrs["axis"]
    at = _axes(write)[axis]
    start = write.index[at]
    for name, type in zip(concat.operands, concat.operand_types, strict=True):
        length = type.shape[axis]
        index, extents = list(write.index), list(write.extents)
        index[at], extents[at] = start, length
        yield Write(write.buffer, tuple(index), name, tuple(extents))
        start = start + length


def _read_back(write: Write, name: str) -> Iterator[Statement]:
    index = (
        PointIndex(start) if extent is None else WindowIndex(start, extent, exact=True)
        for start, extent in zip(write.index, write.extents, strict=True)
    )
    yield Read(f"{name}__placed", write.buffer, tuple(index))
    yield Assign(name, f"{name}__placed")


def _looks_at(statement: Statement, is_meant: Callable[[str], bool]) -> bool:
    return any(is_meant(name) for each in walk((statement,)) for name in operands(each))


def _touches(statement: Statement, buffer: int) -> bool:
    return any(isinstance(each, Read | Write) and each.buffer == buffer for each in walk((statement,)))


def _writes(statement: Statement, buffer: int) -> bool:
    return any(isinstance(each, Write) and each.buffer == buffer for each in walk((statement,)))


def _is_kept(statement: Statement, name: str, views: _Aliases) -> bool:
    return any(isinstance(each, Write) and name in views.sources(each.value) for each in walk((statement,)))
