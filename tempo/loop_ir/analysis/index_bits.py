"""In how many bits a segment's indices, bounds and conditions must be computed at the sizes of a run.

A backend whose loops run on a device computes them in integers of the device. Every expression of every segment is
bounded by interval arithmetic, with the loops around it between their own bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tempo.errors import Location, UnsupportedError
from tempo.loop_ir.ir import (
    Block,
    Branch,
    CallSegment,
    Compute,
    Loop,
    LoopProgram,
    Read,
    Statement,
    WindowIndex,
    expressions,
    nested,
)
from tempo.sdg.builder import attribute_exprs
from tempo.sdg.graph import Graph, index_exprs
from tempo.symbolic import Condition, Expr, Symbol, as_expr
from tempo.symbolic.widths import IntegerRange, Ranges, bounds, decided, exactly, reach

NARROW, WIDE = 32, 64
Step = tuple[Expr | Condition, IntegerRange]


def index_bits(program: LoopProgram, graph: Graph, sizes: Mapping[Symbol, int], backend: str) -> int:
    """32 where that is enough for all segments, else 64; `UnsupportedError` where neither is.

    `graph` is what the user wrote.
    """
    bits = NARROW
    for value, found in _steps(program.items, {at: exactly(size) for at, size in sizes.items()}, program):
        if not found.fits(WIDE):
            raise _too_wide(value, found, _users_line(graph, sizes), backend)
        if not found.fits(NARROW):
            bits = WIDE
    return bits


def _too_wide(
    value: Expr | Condition, found: IntegerRange, location: Location | None, backend: str
) -> UnsupportedError:
    return UnsupportedError(
        f"{value} may be, on the way, as far from 0 as {max(-found.lo, found.hi)} at these sizes, "
        f"and the {backend!r} backend computes indices in {WIDE} bits",
        location=location,
        hint='make its numbers smaller, or use backend="numpy", which has no such limit',
    )


def _users_line(graph: Graph, sizes: Mapping[Symbol, int]) -> Location | None:
    """Where an expression is written that goes as far."""
    ranges = {symbol: exactly(size) for symbol, size in sizes.items()}
    ranges.update((dim.symbol, IntegerRange(0, bounds(dim.size, ranges).hi - 1)) for dim in graph.dims)
    return next((location for value, location in _written(graph) if not reach(value, ranges).fits(WIDE)), None)


def _written(graph: Graph) -> Iterator[tuple[Expr | Condition, Location | None]]:
    edges = [(output.edge, output.location) for output in graph.outputs]
    for node in graph.nodes.values():
        cases = [(case, case.location or node.location) for case in node.cases]
        yield from ((each, node.location) for each in attribute_exprs(node))
        yield from ((case.condition, location) for case, location in cases)
        edges += [(edge, node.location) for edge in node.operands]
        edges += [(case.edge, location) for case, location in cases]
    yield from ((each, location) for edge, location in edges for index in edge.map for each in index_exprs(index))


def _steps(block: Sequence[Statement], ranges: Ranges, program: LoopProgram | None) -> Iterator[Step]:
    """What the segments in a block compute. `program`: the block is of the driver, which has Python's integers."""
    for statement in block:
        if isinstance(statement, CallSegment):
            assert program is not None
            yield from _steps(program.segments[statement.segment].body, ranges, None)
            continue
        if program is None:
            yield from _computed(statement, ranges)
        for inner, known in _inside(statement, ranges):
            yield from _steps(inner, known, program)


def _inside(statement: Statement, ranges: Ranges) -> Iterator[tuple[Block, Ranges]]:
    """The blocks in a statement that may run, with what is known there."""
    if isinstance(statement, Loop):
        lo, hi = bounds(statement.lo, ranges).lo, bounds(statement.hi, ranges).hi - 1
        if lo <= hi:
            yield statement.body, {**ranges, statement.var: IntegerRange(lo, hi)}
        return
    holds = decided(statement.condition, ranges) if isinstance(statement, Branch) else None
    for side, block in zip((True, False), nested(statement)):
        if holds is None or holds is side:
            yield block, ranges


def _computed(statement: Statement, ranges: Ranges) -> Iterator[Step]:
    """The expressions of one statement, each with all that is computed on its way, and right after it."""
    for value in expressions(statement):
        yield value, reach(value, ranges)
    for start, length, step in _counted(statement):
        yield start, bounds(start, ranges) + bounds(length, ranges) * step


def _counted(statement: Statement) -> Iterator[tuple[Expr, Expr, int]]:
    """From where positions are counted, how many and in which steps."""
    match statement:
        case Read(index=index):
            yield from ((entry.start, entry.extent, 1) for entry in index if isinstance(entry, WindowIndex))
        case Compute(op="slice", scalars=starts, attrs=attrs):
            exprs = (each for each in starts if isinstance(each, Expr))
            yield from zip(exprs, map(as_expr, attrs["lengths"]), attrs["steps"], strict=True)
        case Loop(lo=lo, hi=hi, direction="backward"):
            yield lo, hi, 1  # `lo + hi - 1 - step`
