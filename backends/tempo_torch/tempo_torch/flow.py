"""What may be done to a segment's values: whose memory is free for a result, which reads are repeated.

Facts about LoopIR alone; `emitter.py` makes use of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tempo.backends.emission import blocks, made_anew, operands
from tempo.backends.loop_ir import Compute, Loop, PointIndex, Read, Segment, Statement, Write, nested, walk
from tempo.backends.operators import OPERATORS, Role
from tempo.symbolic import Symbol, const

Statements = tuple[Statement, ...]


@dataclass(frozen=True)
class Flow:
    """What is known of a segment's values. A name may be assigned in several places, so places are told apart.

    applications   result and operands of an operator -> operands of its type whose memory nobody else looks at
    repeated       reads of a point that an enclosing loop reads again and again
    looped         reads within a loop
    replaced       slots that the segment gives another array
    """

    applications: Mapping[tuple[str, tuple[str, ...]], tuple[int, ...]]
    repeated: frozenset[Read]
    looped: frozenset[Read]
    replaced: frozenset[int]

    def free(self, compute: Compute) -> tuple[int, ...]:
        """The operands whose memory the result may take."""
        return self.applications.get((compute.result, compute.operands), ())

    @staticmethod
    def of(segment: Segment) -> Flow:
        body: Statements = (segment.loop,) if segment.loop else segment.body
        every = tuple(walk(body))
        uses = Counter(name for statement in every for name in operands(statement))
        depths = list(_enclosed(body, ()))
        return Flow(
            applications={key: free for block in blocks(body) for key, free in _free(block, uses)},
            repeated=frozenset(read for read, loops in depths if _is_repeated(read, loops)),
            looped=frozenset(read for read, loops in depths if loops),
            replaced=frozenset(each.buffer for each in every if isinstance(each, Write) and not each.index),
        )


def _free(block: Statements, uses: Mapping[str, int]) -> Iterator[tuple[tuple[str, tuple[str, ...]], tuple[int, ...]]]:
    """A value made and used once in one block is free after that use, if its operator made it anew."""
    owned: set[str] = set()
    for statement in block:
        if not isinstance(statement, Compute):
            continue
        mine = [at for at, name in enumerate(statement.operands) if name in owned and uses[name] == 1]
        fitting = tuple(at for at in mine if statement.operand_types[at] == statement.type)
        if fitting:
            yield (statement.result, statement.operands), fitting
        if made_anew(statement) or (0 in mine and _is_view(statement)):
            owned.add(statement.result)


def _is_view(compute: Compute) -> bool:
    """Of what the operand holds, each element at most once: who may write to the operand may write to it."""
    operator, shape = OPERATORS[compute.op], compute.type.shape
    if not operator.views or operator.kind == "nominal":
        return False
    factors = operator.axes(compute.attrs, [type.shape for type in compute.operand_types], shape)
    repeated = (each.result for each in factors if not each.places and each.role is Role.PARALLEL)
    return all(axis is None or shape[axis] == const(1) for axis in repeated)


def _enclosed(body: Iterable[Statement], loops: tuple[Symbol, ...]) -> Iterator[tuple[Read, tuple[Symbol, ...]]]:
    """Every read with the variables of the loops around it, outer first."""
    for statement in body:
        if isinstance(statement, Read):
            yield statement, loops
        inner = (*loops, statement.var) if isinstance(statement, Loop) else loops
        for block in nested(statement):
            yield from _enclosed(block, inner)


def _is_repeated(read: Read, loops: tuple[Symbol, ...]) -> bool:
    """The first entry is a point that varies with an inner loop only, the others are slices that vary with none."""
    if read.fresh or not read.index or not isinstance(read.index[0], PointIndex):
        return False
    if any(isinstance(entry, PointIndex) for entry in read.index[1:]):
        return False
    varying = [at for at, symbol in enumerate(loops) if symbol in read.index[0].index.symbols()]
    return bool(varying) and varying[0] > 0
