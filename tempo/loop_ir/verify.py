"""What holds for every LoopIR program; the pass manager checks it between passes where it debugs.

Names are defined once where they are seen, before they are used, and have the types that operators say. Expressions
look at sizes and at variables of loops around them. Reads and writes name a buffer, have an entry for each of its axes,
and stay inside of it, as far as sizes are known. A segment names all that it is given and that others need of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from tempo.errors import InternalError, TempoError
from tempo.loop_ir.analysis.liveness import Liveness
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Branch,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Evict,
    Fetch,
    Guard,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Segment,
    Statement,
    Stop,
    Transfer,
    WindowIndex,
    Write,
    expressions,
    walk,
)
from tempo.loop_ir.text import statement_text
from tempo.sdg.graph import NOMINAL, Node, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.text import type_text
from tempo.symbolic import Condition, Context, Expr, Symbol, const

Sizes = Mapping[Symbol, int]
Names = dict[str, TensorType]
Points = np.ndarray[Any, Any]
"""Numbers, for each point of the loops around."""
_MOST_POINTS = 1 << 12
"""Iterations that are looked at for an index: with more, the first and the last of each loop are."""


def verify(program: LoopProgram, sizes: Sizes | None = None) -> None:
    """Raises InternalError, with the statement, where an invariant does not hold; where `sizes` are given, at these."""
    _Verifier(program, sizes or {}).program_holds()


class _WrongError(Exception):
    """What is wrong; `verify` says where."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise _WrongError(message)


@contextmanager
def _at(where: str, statement: Statement | None = None) -> Iterator[None]:
    try:
        yield
    except _WrongError as broken:
        shown = "" if statement is None else f": {statement_text(statement)}"
        raise InternalError(f"{broken}, in {where}{shown}") from broken


@dataclass(frozen=True)
class _Around:
    """`symbols`: what expressions may look at. `path`: loops and conditions, outer first. `guarded`: a table decides
    at which points. `segment`: None in the driver."""

    symbols: frozenset[Symbol]
    path: tuple[Loop | Condition, ...] = ()
    guarded: bool = False
    segment: Segment | None = None

    def within(self, loop: Loop) -> _Around:
        return replace(self, symbols=self.symbols | {loop.var}, path=(*self.path, loop))

    def where(self, condition: Condition) -> _Around:
        return replace(self, path=(*self.path, condition))


def _may_stop(stop: Stop, block: Block, around: _Around) -> bool:
    """A loop is left in its own body, at one place, which in the driver is the last."""
    loop = around.path[-1] if around.path else None
    is_its_own = isinstance(loop, Loop) and block is loop.body and sum(isinstance(each, Stop) for each in block) == 1
    return is_its_own and (around.segment is not None or block[-1] is stop)


@dataclass
class _Verifier:
    program: LoopProgram
    sizes: Sizes
    known: dict[Symbol, Expr] = field(init=False)
    written: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.known = {symbol: const(size) for symbol, size in self.sizes.items()}
        self.written = {each.buffer for each in self.program.statements() if isinstance(each, Write)}

    # -- the program -----------------------------------------------------------------------------------------------

    @cached_property
    def for_all_sizes(self) -> bool:
        """Where sizes are known passes leave out what makes nothing: what reads it masks it, or never runs."""
        return not self.sizes and any(expr.sizes() for each in self.program.statements() for expr in expressions(each))

    def program_holds(self) -> None:
        program = self.program
        with _at("the program"):
            self._buffers_exist((*program.inputs.values(), *program.outputs.values(), *program.constants))
            _require(all(id == buffer.id for id, buffer in program.buffers.items()), "a buffer has another number")
            _require(all(at == each.id for at, each in enumerate(program.segments)), "a segment has another number")
            _require(len(program.stopped) == len(program.items), "there is not a stop, or None, for each item")
            self._given_is_kept()
        for segment in program.segments:
            with _at(segment.name):
                self._segment_holds(segment)
        self.block(program.items, {}, _Around(frozenset()))

    def _buffers_exist(self, ids: Iterable[int]) -> None:
        for id in ids:
            _require(id in self.program.buffers, f"there is no buffer b{id}")

    def _given_is_kept(self) -> None:
        touching = (each for each in self.program.statements() if isinstance(each, Read | Write | Stop | Transfer))
        self._buffers_exist(each.buffer for each in touching)
        for buffer in map(self.program.buffers.__getitem__, self.written):
            _require(not buffer.is_given, f"{buffer.label}, which is written, is an {buffer.role}")

    def _segment_holds(self, segment: Segment) -> None:
        is_loop = len(segment.body) == 1 and isinstance(segment.body[0], Loop)
        _require(is_loop or not segment.is_loop, "it is no loop")
        _require(set(segment.tables) <= self.program.tables.keys(), "there is no such table")
        written = {each.buffer for each in walk(segment.body) if isinstance(each, Write)}
        _require(set(segment.results) <= written, "it returns what it does not write")
        lost = {id for id in written - set(segment.results) if self._is_needed(id, segment)}
        _require(not lost, f"it does not return {_labels(lost)}")
        live = Liveness(self.program, segment, [segment.body])
        _require(segment.unread.isdisjoint(live.at_start), "it reads what it is not given")

    def _is_needed(self, id: int, segment: Segment) -> bool:
        """Whether anything looks at a buffer after a call of the segment that writes it: others, or its next call."""
        elsewhere = {other for each in self.program.segments if each.id != segment.id for other in each.buffers}
        elsewhere |= {each.buffer for each in walk(self.program.items) if isinstance(each, Read)}
        if self.program.buffers[id].role != "internal" or id in elsewhere:
            return True
        if segment.loop is None and CallSegment(segment.id) in self.program.items:
            return False
        if self.program.buffers[id].is_slot:
            return id in Liveness(self.program, segment, [segment.body]).at_end
        touching = (each for each in walk(segment.body) if isinstance(each, Read | Write) and each.buffer == id)
        return not isinstance(next(touching), Write)

    # -- statements ------------------------------------------------------------------------------------------------

    def block(self, block: Block, names: Names, around: _Around) -> Names:
        """The names seen behind the block."""
        names = dict(names)
        for statement in block:
            with _at(around.segment.name if around.segment else "the driver", statement):
                _require(not isinstance(statement, Stop) or _may_stop(statement, block, around), "no loop is left here")
                names.update(self.statement(statement, names, around))
        return names

    def statement(self, statement: Statement, names: Names, around: _Around) -> Names:
        """The names that the statement adds to those that are seen."""
        self._symbols_are_seen(statement, around)
        if isinstance(statement, Branch | Guard | Loop):
            return self._compound(statement, names, around)
        in_driver = isinstance(statement, CallHost | CallSegment | Transfer)
        _require(isinstance(statement, Stop) or in_driver == (around.segment is None), "it cannot run here")
        made: Names = {}
        match statement:
            case Read():
                made = {statement.result: self._read(statement, around)}
            case Compute():
                made = {statement.result: self._computed(statement, names)}
            case Assign(result, value):
                made = {result: self._named(value, names)}
            case Write():
                self._written(statement, self._named(statement.value, names), around)
            case Stop(buffer):
                _require(self.program.buffers[buffer].is_slot, f"b{buffer} is no slot")
            case Fetch(buffer) | Evict(buffer):
                _require(self.program.buffers[buffer].pooled is not None, f"b{buffer} is in no pool")
            case CallHost():
                self._called(statement, around)
            case CallSegment(segment):
                self._segment_called(segment, around)
        _require(made.keys().isdisjoint(names), f"{''.join(made)} is defined again")
        return made

    def _compound(self, statement: Branch | Guard | Loop, names: Names, around: _Around) -> Names:
        if isinstance(statement, Branch):
            then = self.block(statement.then, names, around.where(statement.condition))
            otherwise = self.block(statement.otherwise, names, around.where(~statement.condition))
            return self._leaving(names, then, otherwise)
        if isinstance(statement, Guard):
            self.block(statement.body, names, replace(around, guarded=True))
            return {}
        _require(statement.var not in around.symbols, f"{statement.var} is the variable of a loop around it")
        self.block(statement.body, names, around.within(statement))
        return {}

    def _symbols_are_seen(self, statement: Statement, around: _Around) -> None:
        """The driver knows all sizes, and a segment of one loop is told from where to where it runs."""
        if around.segment is not None and statement is around.segment.loop:
            return
        for expr in expressions(statement):
            unknown = {each for each in expr.symbols() - around.symbols if around.segment or each.kind == "dim"}
            _require(not unknown, f"{_names(unknown)} stands for nothing here")

    def _leaving(self, names: Names, then: Names, otherwise: Names) -> Names:
        made = {name: type for name, type in then.items() if name in otherwise and name not in names}
        for name, type in made.items():
            _require(self._same(type, otherwise[name]), f"{name} is of two types")
        return made

    def _named(self, name: str, names: Names) -> TensorType:
        _require(name in names, f"{name} is not defined here")
        return names[name]

    def _computed(self, compute: Compute, names: Names) -> TensorType:
        found = [self._named(name, names) for name in compute.operands]
        _require(len(found) == len(compute.operand_types), "there is not a type for each operand")
        for name, type, wanted in zip(compute.operands, found, compute.operand_types):
            _require(self._same(type, wanted), f"{name} is {type_text(type)}, not {type_text(wanted)}")
        _require(compute.op in OPERATORS, f"there is no operator {compute.op!r}")
        if compute.op in NOMINAL or OPERATORS[compute.op].kind == "nominal":
            return compute.type
        operator = OPERATORS[compute.op]
        _require(
            len(compute.scalars) == len(operator.scalars(compute.attrs)), "it is given too many or too few scalars"
        )
        type = self._inferred(compute)
        _require(
            self._same(type, compute.type),
            f"the operator's rule gives {type_text(type)}, not {type_text(compute.type)}",
        )
        return compute.type

    def _inferred(self, compute: Compute) -> TensorType:
        """By the operator's rule. What it refuses at these sizes alone, a slice of length -1, is where none runs."""
        try:
            return _inferred_at(compute, self.known)
        except TempoError as error:
            refused = error
        try:
            return _inferred_at(compute, {})
        except TempoError:
            raise _WrongError(f"the operator's rule refuses this ({refused.message})") from refused

    def _same(self, one: TensorType, other: TensorType) -> bool:
        return one.dtype == other.dtype and self._same_shape(one.shape, other.shape)

    def _same_shape(self, one: tuple[Expr, ...], other: tuple[Expr, ...]) -> bool:
        return len(one) == len(other) and all(map(self._equal, one, other))

    def _equal(self, one: Expr, other: Expr) -> bool:
        one, other = one.substitute(self.known), other.substitute(self.known)
        return one == other or Context.of(()).implies(one.eq(other))

    # -- buffers ---------------------------------------------------------------------------------------------------

    def _read(self, read: Read, around: _Around) -> TensorType:
        buffer = self._indexed(read.buffer, len(read.index))
        windows: list[Expr] = []
        for axis, entry in zip(buffer.axes, read.index):
            if isinstance(entry, WindowIndex):
                windows.append(entry.extent)
            if isinstance(entry, PointIndex):
                self._inside(entry.index, const(1), axis.extent, around)
            elif entry.exact and axis.kind == "full":
                self._inside(entry.start, entry.extent, axis.extent, around)
        is_made = buffer.is_given or read.buffer in self.written
        _require(is_made or not self.for_all_sizes, f"nothing writes {buffer.label}")
        return _seen(buffer, read.index, windows)

    def _written(self, write: Write, value: TensorType, around: _Around) -> None:
        buffer = self._indexed(write.buffer, len(write.index))
        extents = [extent for extent in write.extents if extent is not None]
        wanted = _seen(buffer, write.index, extents)
        _require(self._same(value, wanted), f"{write.value} is {type_text(value)}, and its place {type_text(wanted)}")
        for axis, start, extent in zip(buffer.axes, write.index, write.extents):
            self._inside(start, const(1) if extent is None else extent, axis.extent, around)

    def _indexed(self, id: int, entries: int) -> Buffer:
        buffer = self.program.buffers[id]
        # Without an index it is the whole buffer.
        _require(entries in (0, len(buffer.axes)), f"{buffer.label} has {len(buffer.axes)} axes")
        return buffer

    def _inside(self, start: Expr, count: Expr, extent: Expr, around: _Around) -> None:
        """That positions lie inside the buffer at every iteration, where sizes say which iterations there are."""
        if around.guarded:
            return  # which points a table marks, and whether there is one, is known to a run alone
        given = [expr.substitute(self.known) for expr in (start, count, extent)]
        points = self._points(given, around.path)
        if points is None:
            return
        first, length, end = (np.asarray(expr.evaluate(points)) for expr in given)
        outside = (length > 0) & ((first < 0) | (first + length > end))
        runs = np.asarray(True)
        for each in around.path:
            runs = runs & self._holds(each, points)
        _require(not (outside & runs).any(), f"{start} leaves the buffer, of which there are {extent}")

    def _holds(self, each: Loop | Condition, points: dict[Symbol, Points]) -> Points:
        if isinstance(each, Condition):
            return np.asarray(each.map_exprs(lambda expr: expr.substitute(self.known)).evaluate(points))
        lo, hi = (np.asarray(bound.substitute(self.known).evaluate(points)) for bound in (each.lo, each.hi))
        return (points[each.var] >= lo) & (points[each.var] < hi)

    def _points(self, given: list[Expr], path: tuple[Loop | Condition, ...]) -> dict[Symbol, Points] | None:
        """Values of the variables of the loops around; None where sizes do not say them."""
        spans: dict[Symbol, tuple[int, int]] = {}
        for each in path:
            if isinstance(each, Loop):
                bounds = [expr.substitute(self.known) for expr in (each.lo, each.hi)]
                if any(bound.symbols() - spans.keys() for bound in bounds):
                    return None
                corners = [dict(zip(spans, at)) for at in itertools.product(*spans.values())]
                lo = min((int(bounds[0].evaluate(at)) for at in corners), default=0)
                hi = max((int(bounds[1].evaluate(at)) for at in corners), default=0)
                spans[each.var] = lo, max(lo, hi - 1)
        used = {symbol for each in path if isinstance(each, Condition) for symbol in each.symbols()} - self.known.keys()
        if used - spans.keys() or any(expr.symbols() - spans.keys() for expr in given):
            return None
        if math.prod(hi - lo + 1 for lo, hi in spans.values()) > _MOST_POINTS:
            axes = [np.array([lo, min(lo + 1, hi), max(lo, hi - 1), hi]) for lo, hi in spans.values()]
        else:
            axes = [np.arange(lo, hi + 1) for lo, hi in spans.values()]
        grid = np.meshgrid(*axes, indexing="ij") if axes else []
        return dict(zip(spans, grid, strict=bool(axes)))

    # -- the driver ------------------------------------------------------------------------------------------------

    def _called(self, call: CallHost, around: _Around) -> None:
        _require(0 <= call.call < len(self.program.hosts), f"there is no call {call.call}")
        node = self.program.hosts[call.call]
        _require(
            len(call.point) == len(node.domain), f"the point of {node.name or node.op} has too many dims or too few"
        )
        _require(len(call.reads) == len(node.operands), f"{node.name or node.op} takes {len(node.operands)} operands")
        for read in call.reads:
            self._read(read, around)
        for write in call.writes:
            self._written(write, _result(node, write.value), around)

    def _segment_called(self, number: int, around: _Around) -> None:
        _require(0 <= number < len(self.program.segments), f"there is no segment {number}")
        segment = self.program.segments[number]
        needed = {each for each in segment.arguments if each.kind == "dim"}
        _require(needed <= around.symbols, f"{_names(needed - around.symbols)} stands for nothing here")
        self.block(segment.body, {}, replace(around, symbols=frozenset(segment.arguments), segment=segment))


def _seen(buffer: Buffer, index: Sequence[object], extents: Sequence[Expr]) -> TensorType:
    """What is read or written at an index with these extents: without an index all of the buffer."""
    return TensorType((*extents, *buffer.shape) if index else buffer.logical_shape, buffer.dtype)


def _inferred_at(compute: Compute, known: Mapping[Symbol, Expr]) -> TensorType:
    operator = OPERATORS[compute.op]
    attrs = operator.with_exprs(compute.attrs, lambda expr: expr.substitute(known))
    return operator.infer(attrs, tuple(_at_sizes(type, known) for type in compute.operand_types))


def _at_sizes(type: TensorType, known: Mapping[Symbol, Expr]) -> TensorType:
    return replace(type, shape=tuple(extent.substitute(known) for extent in type.shape))


def _result(node: Node, name: str) -> TensorType:
    number = int(name.removeprefix("y")) if name[:1] == "y" and name[1:].isdigit() else -1
    _require(0 <= number < len(node.results), f"{node.name or node.op} has no result {name}")
    return node.results[number]


def _labels(ids: Iterable[int]) -> str:
    return ", ".join(f"b{id}" for id in sorted(ids))


def _names(symbols: Iterable[Symbol]) -> str:
    return ", ".join(map(str, sorted(symbols)))
