"""All-reduces that do not wait for one another become one: an exchange costs its latency whatever it carries.

In a block each is put off, with what waits for it, until nothing else is left to do; those put off are one by then.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tempo.loop_ir.analysis.names import results, used
from tempo.loop_ir.ir import Block, CallHost, CallSegment, Compute, Read, Statement, Stop, Write, walk
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.making import cut_attrs
from tempo.symbolic import Expr, const

ALL_REDUCE = "all_reduce"


@dataclass
class _PutOff:
    """Statements that wait, the names that they make, and the buffers that they touch."""

    statements: list[Statement] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    def has_to_wait(self, statement: Statement) -> bool:
        """Whether it looks at what is not there yet, or touches what is touched by what waits."""
        reads, writes = _touched(statement)
        stops = any(isinstance(each, Stop | CallHost | CallSegment) for each in walk((statement,)))
        looks = not self.names.isdisjoint(used((statement,)))
        return (
            looks or bool(reads & self.written or writes & (self.read | self.written)) or (stops and bool(self.names))
        )

    def add(self, statement: Statement) -> None:
        self.statements.append(statement)
        reads, writes = _touched(statement)
        self.names |= results(statement)
        self.read |= reads
        self.written |= writes


def _touched(statement: Statement) -> tuple[set[int], set[int]]:
    inside = list(walk((statement,)))
    reads = {each.buffer for each in inside if isinstance(each, Read | Stop)}
    return reads, {each.buffer for each in inside if isinstance(each, Write)}


def combined(block: Block, number: Callable[[Expr], int]) -> Block:
    """The block, and those inside it, with all-reduces that may be one."""
    counter = itertools.count()

    def finish(inner: Block, scope: BlockScope) -> Block:
        sums = sum(isinstance(each, Compute) and each.op == ALL_REDUCE for each in inner)
        return tuple(_ordered(inner, number, counter)) if sums > 1 else inner

    return rewritten(block, finish=finish)


def _ordered(block: Block, number: Callable[[Expr], int], counter: Iterator[int]) -> Iterator[Statement]:
    while block:
        sums, later = list[Compute](), _PutOff()
        for statement in block:
            if later.has_to_wait(statement):
                later.add(statement)
            elif isinstance(statement, Compute) and statement.op == ALL_REDUCE:
                sums.append(statement)
                later.names.add(statement.result)
            else:
                yield statement
        groups: dict[tuple[str, str], list[Compute]] = {}
        for each in sums:
            groups.setdefault((each.attrs["over"], each.type.dtype), []).append(each)
        for group in groups.values():
            yield from group if len(group) == 1 else _as_one(group, number, next(counter))
        block = tuple(later.statements)


def _as_one(group: list[Compute], number: Callable[[Expr], int], at: int) -> Iterator[Statement]:
    """Their elements in a row, the sum of that, and each part of it."""
    counts = [math.prod(map(number, each.type.shape)) for each in group]
    dtype, row = group[0].type.dtype, f"sum__row{at}"
    parts = list[Compute]()
    for place, (each, count) in enumerate(zip(group, counts, strict=True)):
        flat = TensorType((const(count),), dtype)
        parts.append(_apply(f"{row}_{place}", "reshape", {"shape": flat.shape}, each.operands[0], each.type, flat))
    yield from parts
    type = TensorType((const(sum(counts)),), dtype)
    names, types = tuple(each.result for each in parts), tuple(each.type for each in parts)
    yield Compute(f"{row}_all", "concat", {"axis": 0}, names, types, type)
    yield _apply(row, ALL_REDUCE, group[0].attrs, f"{row}_all", type, type)
    for place, (each, start) in enumerate(zip(group, itertools.accumulate(counts, initial=0))):
        flat = parts[place].type
        yield _apply(
            f"{row}_{place}_cut", "slice", cut_attrs(type.shape, 0, const(start), flat.shape[0]), row, type, flat
        )
        yield _apply(each.result, "reshape", {"shape": each.type.shape}, f"{row}_{place}_cut", flat, each.type)


def _apply(result: str, op: str, attrs: Mapping[str, Any], name: str, given: TensorType, type: TensorType) -> Compute:
    return Compute(result, op, attrs, (name,), (given,), type, OPERATORS[op].scalars(attrs))
