"""In which order of axes a buffer lies in memory, and which inputs may lie in pieces.

What is kept is read as slices; a contraction with batch axes (heads) reads one batch element after the other, and each
is in one piece where the batch axes come first: `(heads, points, width)`, not `(points, heads, width)`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from tempo.loop_ir.analysis.names import operands
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Buffer,
    CallSegment,
    Compute,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    Transfer,
    WindowIndex,
    Write,
    nested,
    walk,
)
from tempo.symbolic import Expr, Symbol, var

Order = tuple[int, ...]


def layouts(program: LoopProgram) -> Mapping[int, Order]:
    """By buffer, its logical axes in the order of memory; those that all readers want as they are are left out."""
    wanted: dict[int, set[Order]] = {}
    for read, order in (each for segment in program.segments for each in _orders(segment)):
        buffer = program.buffers[read.buffer]
        if buffer.role == "internal":
            wanted.setdefault(buffer.id, set()).add(_of_buffer(buffer, read, order))
    found = {id: orders.pop() for id, orders in wanted.items() if len(orders) == 1}
    return {id: order for id, order in found.items() if order != tuple(range(len(order)))}


def layouts_in_segments(program: LoopProgram) -> Mapping[int, Order]:
    """The same for backends without views, whose segments index what lies in another order: nobody else may. Inputs
    that are read part by part lie as the user gave them."""
    given = {id: program.buffers[id].to_user for id in read_in_parts(program)}
    return {**layouts(program), **given} if all(isinstance(item, CallSegment) for item in program.items) else given


def read_in_parts(program: LoopProgram) -> frozenset[int]:
    """The inputs whose axes lie in another order than those of their buffers, of which nobody but segments reads, in
    loops a point or a window that moves with the iteration: what is read so is little more than what there is, so
    nothing is won by a copy in the order of the buffer."""
    turned = {id for id in program.inputs.values() if not program.buffers[id].is_as_given}
    turned -= {each.buffer for each in walk(program.items) if isinstance(each, Read | Write | Transfer)}

    def look(block: Block, around: frozenset[Symbol], again: bool) -> None:
        for statement in block:
            if isinstance(statement, Read) and again and not any(_is_part(each, around) for each in statement.index):
                turned.discard(statement.buffer)
            variable = {statement.var} if isinstance(statement, Loop) else frozenset[Symbol]()
            for inner in nested(statement):
                look(inner, around | variable, again or bool(variable))

    for segment in program.segments if turned else ():
        outer = frozenset(symbol for symbol in segment.arguments if symbol.kind == "dim")
        look(segment.body, outer, CallSegment(segment.id) not in program.items)
    return frozenset(turned)


def _is_part(entry: PointIndex | WindowIndex, variables: frozenset[Symbol]) -> bool:
    """Whether it is a point, or a window that moves by half of itself or more."""
    if isinstance(entry, PointIndex):
        return True
    steps = (abs(entry.start.coefficient(each)) for each in variables)
    return entry.extent.is_const and any(2 * step >= entry.extent.as_int() for step in steps)


def read_by_iteration(program: LoopProgram, loop: Loop) -> frozenset[int]:
    """The inputs of which an iteration of the loop reads its own point alone, along the first axis."""
    return touched_by_iteration(loop) & frozenset(program.inputs.values())


def touched_by_iteration(loop: Loop) -> frozenset[int]:
    """The buffers of which an iteration of the loop reads and writes its own point alone, along the first axis."""
    point, uses = var(loop.var), [each for each in walk((loop,)) if isinstance(each, Read | Write)]
    others = {each.buffer for each in uses if not _is_at(each, point)}
    return frozenset({each.buffer for each in uses} - others)


def _is_at(use: Read | Write, point: Expr) -> bool:
    if not use.index:
        return False
    return (
        use.index[0] == PointIndex(point) if isinstance(use, Read) else use.index[0] == point and use.extents[0] is None
    )


@dataclass(frozen=True)
class Matrix:
    """What an input is, at a point, that rows are multiplied by: all products contract the axis `contracted` of it.
    `alone`: nothing else reads it."""

    contracted: int
    alone: bool


def matrices(program: LoopProgram) -> Mapping[int, Matrix]:
    """By input."""
    contracted: dict[int, set[int]] = {}
    given = {id for id in program.inputs.values() if len(program.buffers[id].shape) == 2}
    others = {each.buffer for each in walk(program.items) if isinstance(each, Read)}
    for segment in program.segments:
        reads = {each.result: each for each in walk(segment.body) if isinstance(each, Read) and each.buffer in given}
        used = ((each, at, reads[name]) for each in walk(segment.body) for at, name in _looked_at(each, reads))
        for statement, at, read in used:
            axis = _contracted(statement, at) if all(isinstance(entry, PointIndex) for entry in read.index) else None
            if axis is None:
                others.add(read.buffer)
            else:
                contracted.setdefault(read.buffer, set()).add(axis)
    found = {id: axes.pop() for id, axes in contracted.items() if len(axes) == 1}
    return {id: Matrix(axis, id not in others) for id, axis in found.items()}


def _looked_at(statement: Statement, names: Container[str]) -> Iterator[tuple[int, str]]:
    return ((at, name) for at, name in enumerate(operands(statement)) if name in names)


def _contracted(statement: Statement, operand: int) -> int | None:
    """The axis of a matrix that a product contracts where rows are multiplied by it; None for anything else."""
    if not isinstance(statement, Compute) or statement.op != "dot" or operand != 1 or statement.attrs["rhs_batch"]:
        return None
    axes = statement.attrs["rhs_contract"]
    return int(axes[0]) if len(axes) == 1 and len(statement.operand_types[1].shape) == 2 else None


def _orders(segment: Segment) -> Iterator[tuple[Read, Order]]:
    """The slices that an operator would have in one order of axes, with that order."""
    reads: dict[str, Read] = {}  # by all names that they go under
    for statement in walk(segment.body):
        if isinstance(statement, Read) and any(isinstance(entry, WindowIndex) for entry in statement.index):
            reads[statement.result] = statement
        seen = [(at, reads[name]) for at, name in enumerate(operands(statement)) if name in reads]
        if seen and (isinstance(statement, Assign) or (isinstance(statement, Compute) and statement.is_mask)):
            reads[statement.result] = seen[0][1]
        elif isinstance(statement, Compute):
            orders = ((read, _wanted(statement, at)) for at, read in seen)
            yield from ((read, order) for read, order in orders if order is not None)


def _wanted(compute: Compute, operand: int) -> Order | None:
    """None: any."""
    attrs, rank = compute.attrs, len(compute.operand_types[operand].shape)
    if compute.op == "attention":
        axes: Order | None = {1: attrs["key_axes"], 2: attrs["value_axes"]}.get(operand)
        return axes
    if compute.op != "dot":
        return None
    batch = tuple(attrs["rhs_batch" if operand else "lhs_batch"])
    return (*batch, *(axis for axis in range(rank) if axis not in batch)) if batch else None


def _of_buffer(buffer: Buffer, read: Read, order: Order) -> Order:
    """Of the buffer's axes: those that are read at a point stay in front."""
    points = [at for at, entry in enumerate(read.index) if isinstance(entry, PointIndex)]
    seen = [at for at in range(len(buffer.logical_shape)) if at not in points]
    return (*points, *(seen[axis] for axis in order))
