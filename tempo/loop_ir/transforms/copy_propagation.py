"""Copy propagation: where one name stands for another, the other is used.

A name that is left holds its array until it is assigned anew, in the next iteration of a loop at the soonest: with each
other name of a large value it lives that much longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from tempo.loop_ir.analysis.names import made
from tempo.loop_ir.ir import Assign, Block, LoopProgram, Read, Segment, Statement, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten, with_names, with_segments


@dataclass(frozen=True)
class CopyPropagation:
    name: ClassVar[str] = "copy_propagation"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        return with_segments(program, _propagated)


def _propagated(segment: Segment) -> Segment:
    reads = frozenset(each.result for each in walk(segment.body) if isinstance(each, Read))
    return replace(segment, body=rewritten(segment.body, finish=partial(_without_copies, reads=reads)))


def _without_copies(block: Block, scope: BlockScope, reads: frozenset[str]) -> Block:
    """A read stands where it is used, once; what comes after the block looks at the names that leave it."""
    stands_for: dict[str, str] = {}
    last = {name: place for place, statement in enumerate(block) for name in made((statement,))}
    found: list[Statement] = []
    for place, statement in enumerate(block):
        (statement,) = with_names((statement,), stands_for)
        names = (statement.result, statement.value) if isinstance(statement, Assign) else ()
        if names and not any(last.get(name, 0) > place or name in scope.leaving or name in reads for name in names):
            stands_for[names[0]] = names[1]
        else:
            found.append(statement)
    return tuple(found) if stands_for else block
