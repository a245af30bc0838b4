"""Loops in stretches: XLA takes longer over a conditional in a loop than over the code of another loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.backends.loop_ir import Branch, Buffer, Loop, LoopContext, LoopProgram, Segment, Statement, walk
from tempo.backends.loops import LoopStretch, split
from tempo.symbolic import Symbol
from tempo_jax.work import operators, work

Buffers = Mapping[int, Buffer]
Sizes = Mapping[Symbol, int]
LARGEST_SELECTION = 1 << 14
"""A selection evaluates both sides; beyond this many elements a conditional is cheaper."""
_ELEMENT = 8
"""One that memory is read or written for takes as long as so many operations."""
_LONG, _SHARE = 32, 8
"""A body of so many operators is long; a branch with at most this share of them, and of the body's work, does little in
it."""


def stretches(loop: Loop, buffers: Buffers, sizes: Sizes) -> tuple[LoopStretch, ...]:
    """The loop in pieces between which its conditions, or choices, change, in its direction."""
    return split(loop, sizes, _stays(loop, buffers, sizes), choices=True)


def _stays(loop: Loop, buffers: Buffers, sizes: Sizes) -> Callable[[Branch], bool]:
    """In a long body a branch that does little stays one: XLA would compile the whole body again without it."""
    count = operators(loop.body)
    if count < _LONG:
        return lambda branch: False
    most = max(_ELEMENT * LARGEST_SELECTION, work(loop.body, buffers, sizes, _ELEMENT) / _SHARE)

    def stays(branch: Branch) -> bool:
        if any(isinstance(each, Loop) and not _is_known(each, sizes) for each in walk((branch,))):
            return False  # how much it does is not known
        return operators((branch,)) * _SHARE <= count and work((branch,), buffers, sizes, _ELEMENT) <= most

    return stays


def _is_known(loop: Loop, sizes: Sizes) -> bool:
    """Whether the sizes say how often it runs."""
    return loop.lo.symbols() | loop.hi.symbols() <= sizes.keys()


@dataclass(frozen=True)
class SplitLoops:
    """The loops at the top of segments in stretches. A segment of one loop is split where it is traced, since chunks of
    it begin and end anywhere."""

    name: ClassVar[str] = "split_loops"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        def apart(statement: Statement) -> Iterator[Statement]:
            if isinstance(statement, Loop):
                yield from (each.loop for each in stretches(statement, program.buffers, context.sizes))
            else:
                yield statement

        def divided(segment: Segment) -> Segment:
            made = Segment.of(segment.id, tuple(new for each in segment.body for new in apart(each)))
            return replace(segment, body=made.body, results=tuple(id for id in segment.results if id in made.results))

        segments = (each if each.loop else divided(each) for each in program.segments)
        return replace(program, segments=tuple(segments))
