"""LoopIR to Python source: `ast` nodes, unparsed. Readable, and quick to run: no schedule is interpreted.

A segment becomes one function `segment_N(start, stop, sizes..., buffers..., tables...)` that returns the buffers it
wrote. Operators come from a backend's table as functions on its arrays. The driver is emitted by
`tempo.loop_ir.codegen.driver`.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tempo import dtypes
from tempo.errors import InternalError
from tempo.loop_ir.analysis.carried_values import Place, Recent, circles, earlier, read_place
from tempo.loop_ir.analysis.names import LEAST, operands, releases
from tempo.loop_ir.analysis.needed_slots import NeededSlots, bytes_at
from tempo.loop_ir.codegen import syntax
from tempo.loop_ir.codegen.names import Names
from tempo.loop_ir.codegen.source_map import mark
from tempo.loop_ir.ir import (
    Assign,
    Axis,
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
    stop_in,
    walk,
)
from tempo.sdg.call import Call, static_type
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS, call_for
from tempo.sdg.operators.located import located
from tempo.symbolic import Condition, Expr, Symbol, to_python


def static_sizes(program: LoopProgram, buffers: bool = False) -> frozenset[Symbol]:
    """The sizes that shapes are made of: an executable is made for their values. All others stay run-time scalars.

    `buffers`: the backend needs the shapes of buffers to be static too.
    """
    results = (type for node in program.hosts for type in node.results)
    extents = [size for type in results for size in type.shape]
    for statement in program.statements():
        extents.extend(_static_extents(statement))
    if buffers:
        extents.extend(extent for buffer in program.buffers.values() for extent in buffer.logical_shape)
    return frozenset(symbol for extent in extents for symbol in extent.symbols())


def _static_extents(statement: Statement) -> Iterable[Expr]:
    """What must be a number where one statement is emitted: shapes of operators, lengths, extents of windows."""
    if isinstance(statement, Compute):
        types = (*statement.operand_types, statement.type)
        yield from (extent for type in types for extent in type.shape)
        yield from OPERATORS[statement.op].static(statement.attrs)
    if isinstance(statement, Write):
        yield from (extent for extent in statement.extents if extent is not None)
    if isinstance(statement, Read):
        yield from (entry.extent for entry in statement.index if isinstance(entry, WindowIndex))


@dataclass(frozen=True)
class Step:
    """Statements whose source is one piece, and the names, of slots too, that nothing needs after them. `kept`: where
    it is not all of the results, those that there are afterwards.
    """

    statements: Block
    gone: tuple[str, ...]
    kept: tuple[Compute, ...] | None = None


class Emitter:
    """Emits functions for one program at given values of its static sizes.

    `operator` makes the function for a call. `namespace` collects all that the source refers to.
    """

    def __init__(
        self, program: LoopProgram, sizes: Mapping[Symbol, int], operator: Callable[[Call], Callable[..., Any]]
    ) -> None:
        self.program = program
        self.sizes = sizes
        self.operator = operator
        points = (dim.symbol for each in program.states.values() for dim in each.dims)
        self.names = Names(program, {*symbols_of(program), *points})
        self.namespace: dict[str, Any] = {}
        self._functions: dict[int, str] = {}
        self._held: dict[str, ast.expr] = {}  # reads stand where they are used
        self._handed: dict[Place | None, str] = {}  # places of circular buffers whose values have names
        self._made_now: dict[int, str] = {}  # by such a buffer, the name of what this iteration writes
        self._once: tuple[Loop, ...] = ()  # the loops of a segment that are in no other
        self._releases: Mapping[int, tuple[str, ...]] = {}
        self._read_of: Mapping[str, str] = {}  # by the name of what is read of them, the labels of large slots
        self._stays: set[str] = set()  # names that may be looked at, or let go of, after they were let go of
        self.emitted: ast.FunctionDef | None = None  # what the last text was made of, for `source_map`

    # -- segments --------------------------------------------------------------------------------------------------

    def segment(self, segment: Segment) -> str:
        """The source of `segment_N`."""
        self._releases = self._released(segment)
        self._once = tuple(each for each in (segment.loop, *segment.body) if isinstance(each, Loop))
        body = self._loops(segment.loop, outermost=True) if segment.loop else self._block(segment.body)
        body.append(ast.Return(ast.Tuple([self.result(id) for id in segment.results], ast.Load())))
        body = self.surrounded(segment, [*self.prologue(), *body])
        self.emitted = syntax.function(segment.name, self.parameters(segment), body)
        return syntax.source(self.emitted)

    def _released(self, segment: Segment) -> Mapping[int, tuple[str, ...]]:
        """By the identity of a statement, what nothing needs after it: names of values, labels of slots."""
        needed = NeededSlots.of(self.program, segment, bytes_at(self.sizes))
        self._read_of = {name: self._buffer(slot).label for name, slot in needed.reads.items()}
        names = releases(segment, self._bytes, needed.reads)
        slots = {id(each): [self._buffer(slot).label for slot in needed.released(each)] for each in walk(segment.body)}
        found = {key: (*names.get(key, ()), *slots.get(key, ())) for key in names.keys() | slots.keys()}
        often = Counter(chain.from_iterable(names.values()))
        returned = (self._buffer(slot).label for slot in segment.results)
        self._stays = {*self._read_of.values(), *returned, *(name for name, count in often.items() if count > 1)}
        return found

    def let_go(self, names: Iterable[str]) -> list[ast.stmt]:
        """Statements after which the names hold nothing. What may be looked at once more, as a slot is to be returned,
        and a value that the side of a choice has let go of, is there."""
        stay = [syntax.name(each, ast.Store()) for each in names if each in self._stays]
        gone = syntax.deleted(each for each in names if each not in self._stays)
        return [*gone, ast.Assign([*stay], ast.Constant(None), lineno=0)] if stay else gone

    def lookups(self, statement: Statement) -> frozenset[str]:
        """The names that one statement looks at itself, of values and of large slots."""
        names = frozenset(operands(statement))
        return names | {self._read_of[name] for name in names & self._read_of.keys()}

    def surrounded(self, segment: Segment, body: list[ast.stmt]) -> list[ast.stmt]:
        """The body of a segment in what it runs within: a hook."""
        return body

    def prologue(self) -> list[ast.stmt]:
        """Block before the body of a segment, asked for when the body is made: a hook for what can be hoisted."""
        return []

    def result(self, buffer: int) -> ast.expr:
        """A buffer that the segment has written, as it is returned: a hook."""
        return syntax.name(self._buffer(buffer).label)

    def parameters(self, segment: Segment) -> list[str]:
        """The names of a segment function's parameters, in order."""
        sizes = [self.names(symbol) for symbol in segment.arguments]
        buffers = [self._buffer(id).label for id in segment.buffers]
        return ["start", "stop", *sizes, *buffers, *(f"table_{table}" for table in segment.tables)]

    def _buffer(self, id: int) -> Buffer:
        return self.program.buffers[id]

    def _block(self, statements: Iterable[Statement]) -> list[ast.stmt]:
        return self.block(tuple(statements)) or [ast.Pass()]

    def block(self, statements: Block) -> list[ast.stmt]:
        """The source of statements that run one after the other, and lets go of large values after their last use."""
        return [tree for step in self.steps(statements) for tree in (*self._marked(step), *self.let_go(step.gone))]

    def _marked(self, step: Step) -> list[ast.stmt]:
        trees = self.step(step)
        mark(trees, step.statements, self.program)
        return trees

    def steps(self, statements: Block) -> list[Step]:
        """The statements, and what is let go of after each: a hook for what runs several of them together."""
        return [Step((each,), self._releases.get(id(each), ())) for each in statements]

    def step(self, step: Step) -> list[ast.stmt]:
        """The source of one step: a hook for those of several statements."""
        return [tree for each in step.statements for tree in self._statement(each)]

    def overwritten(self, compute: Compute) -> int | None:
        """The operand whose memory the result takes: a hook for what works in place."""
        return 0 if compute.attrs.get("in_place") else None

    def copied(self, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
        """The buffers of which the source makes another array before its loop, at these sizes: a hook for what lays
        them out anew."""
        return ()

    def _bytes(self, type: TensorType) -> float:
        """Infinite where a size is known when the source runs, not before."""
        if any(not size.symbols() <= self.sizes.keys() for size in type.shape):
            return math.inf
        return math.prod(self._resolve(size) for size in type.shape) * dtypes.itemsize(type.dtype)

    def _statement(self, statement: Statement) -> list[ast.stmt]:
        match statement:
            case Read(result):
                self._held[result] = self._read(statement)
                return []
            case Compute(result):
                return [syntax.assign(syntax.name(result, ast.Store()), self.compute(statement))]
            case Assign(result, value):
                return [syntax.assign(syntax.name(result, ast.Store()), self.value(value))]
            case Write(_, _, value):
                return [syntax.assign(self._target(statement), self.value(value))]
            case Branch(condition, then, otherwise):
                held = dict(self._held)  # both sides may use what was read before them
                tail = self._block(otherwise) if otherwise else []
                self._held = held
                return [ast.If(self._expr(condition), self._block(then), tail)]
            case Guard(table, point, body):
                return [ast.If(syntax.subscript(self._table(table), self._exprs(point)), self._block(body), [])]
            case Loop():
                return self._loops(statement)
            case Stop(buffer):
                return [ast.If(self._held_by(self._buffer(buffer)), [ast.Break()], [])]
            case CallHost() | CallSegment() | Fetch() | Evict():
                return self._calls(statement)

    def _read(self, read: Read) -> ast.expr:
        place = read_place(read)
        if place in self._handed:
            return syntax.name(self._handed[place])
        return self.read(read, syntax.name(self._buffer(read.buffer).label))

    def _target(self, write: Write) -> ast.expr:
        if write.buffer in self._made_now:
            return syntax.name(self._made_now[write.buffer], ast.Store())
        return self._place(syntax.name(self._buffer(write.buffer).label, syntax.context(not write.index)), write)

    def _held_by(self, slot: Buffer) -> ast.expr:
        return syntax.name(slot.label)

    def _calls(self, call: CallHost | CallSegment | Transfer) -> list[ast.stmt]:
        raise InternalError(f"a segment holds {type(call).__name__}, which needs the host")

    def _table(self, number: int) -> ast.expr:
        return syntax.name(f"table_{number}")

    def value(self, name: str) -> ast.expr:
        """A value by its name: a read stands where it is used."""
        return self._held.pop(name) if name in self._held else syntax.name(name)

    def _expr(self, value: Expr | Condition) -> ast.expr:
        return to_python(value, self.names)

    def _exprs(self, values: Iterable[Expr]) -> list[ast.expr]:
        return [self._expr(value) for value in values]

    def _resolve(self, expr: Expr) -> int:
        return int(expr.evaluate(self.sizes))

    def _loops(self, loop: Loop, outermost: bool = False) -> list[ast.stmt]:
        """The loop. What it hands on of circular buffers is read before it, and put back behind it."""
        handed = [(each, self._names_of(each)) for each in self._circles(loop)]
        if not handed:
            return [self._loop(loop, outermost)]
        places = [(earlier(each, loop, ago), names[ago]) for each, names in handed for ago in range(1, each.depth + 1)]
        lo, hi = self._ends(loop, outermost)
        forward, here = loop.direction == "forward", syntax.name(self.names(loop.var), ast.Store())
        end = syntax.call("max", [lo, hi]) if forward else syntax.minus_one(syntax.call("min", [lo, hi]))
        first = syntax.assign(here, lo if forward else syntax.minus_one(hi))
        before = [first, *(self._opened_place(*each) for each in places)]
        self._handed.update(places)
        self._made_now.update({each.buffer: names[0] for each, names in handed})
        tree = self._loop(loop, outermost)
        for each, names in handed:
            self._made_now.pop(each.buffer)
            for ago in range(each.depth, 0, -1):
                tree.body.append(syntax.assign(syntax.name(names[ago], ast.Store()), syntax.name(names[ago - 1])))
        self._handed = {}
        return [*before, tree, syntax.assign(here, end), *(self._closed_place(*each) for each in places)]

    def _circles(self, loop: Loop) -> list[Recent]:
        """Those of small arrays, whose copies would hold more memory than is planned for otherwise."""
        if stop_in(loop) is not None or all(loop is not each for each in self._once):
            return []
        buffers = ((each, self._buffer(each.buffer)) for each in circles(loop))
        return [each for each, buffer in buffers if self._bytes(TensorType(buffer.shape, buffer.dtype)) < LEAST]

    def _names_of(self, each: Recent) -> list[str]:
        """What this iteration writes, what the one before it wrote, and so on."""
        return [self.names.fresh(f"{self._buffer(each.buffer).label}_{ago}") for ago in range(each.depth + 1)]

    def _opened_place(self, place: Place, name: str) -> ast.stmt:
        buffer, index = place
        read = Read(name, buffer, tuple(PointIndex(each) for each in index), fresh=True)
        return syntax.assign(syntax.name(name, ast.Store()), self.read(read, syntax.name(self._buffer(buffer).label)))

    def _closed_place(self, place: Place, name: str) -> ast.stmt:
        return syntax.assign(self._target(Write(*place, name)), syntax.name(name))

    def _ends(self, loop: Loop, outermost: bool) -> tuple[ast.expr, ast.expr]:
        """From where to where it runs."""
        return (syntax.name("start"), syntax.name("stop")) if outermost else (self._expr(loop.lo), self._expr(loop.hi))

    def _loop(self, loop: Loop, outermost: bool = False) -> ast.For:
        lo, hi = self._ends(loop, outermost)
        arguments = [hi] if isinstance(lo, ast.Constant) and lo.value == 0 else [lo, hi]
        if loop.direction == "backward":
            arguments = [syntax.minus_one(hi), syntax.minus_one(lo), ast.Constant(-1)]
        target = syntax.name(self.names(loop.var), ast.Store())
        held = dict(self._held)  # what was read before the loop may be used after it, too
        body = self._block(loop.body)
        self._held = held
        return ast.For(target, syntax.call("range", arguments), body, [])

    def compute(self, compute: Compute) -> ast.expr:
        """The expression of an operator's result."""
        return self.applied(compute, self.function_of(compute), [self.value(name) for name in compute.operands])

    def applied(self, compute: Compute, function: Callable[..., Any], operands: list[ast.expr]) -> ast.expr:
        """`function` of the operands, then of the run-time scalars."""
        scalars = [self._expr(scalar) for scalar in compute.scalars]
        return syntax.call(self.named(function, compute.op), [*operands, *scalars])

    def function_of(self, compute: Compute) -> Callable[..., Any]:
        """What the backend's table makes of one application."""
        function = self.operator(self.call_of(compute))
        return located(function, compute.attrs, compute.location, compute.name, self._point_of(compute), self.sizes)

    def call_of(self, compute: Compute) -> Call:
        """The application with everything static known."""
        operands = tuple(static_type(type, self._resolve) for type in compute.operand_types)
        result = static_type(compute.type, self._resolve)
        return call_for(compute.op, compute.attrs, operands, result, self._resolve)

    def _point_of(self, compute: Compute) -> Callable[[Mapping[str, Any]], Mapping[Symbol, int]]:
        """From the variables of the source the point at which an operator runs."""
        names = {symbol: self.names(symbol) for _, index in compute.point for symbol in index.symbols()}

        def point(variables: Mapping[str, Any]) -> Mapping[Symbol, int]:
            values = {symbol: variables[name] for symbol, name in names.items()}
            return {symbol: int(index.evaluate(values)) for symbol, index in compute.point}

        return point

    def named(self, function: Callable[..., Any], op: str) -> str:
        """The name under which a function is in the namespace, after its operator; equal functions share one."""
        if id(function) not in self._functions:
            self._functions[id(function)] = name = self.names.fresh(op)
            self.namespace[name] = function
        return self._functions[id(function)]

    # -- access to buffers -----------------------------------------------------------------------------------------

    def read(self, read: Read, array: ast.expr) -> ast.expr:
        """What `array`, the buffer of `read`, holds at its index."""
        buffer = self._buffer(read.buffer)
        tree = self._partial(read, buffer, array)
        return syntax.call("fresh", [tree]) if read.fresh else tree

    @staticmethod
    def _is_whole(axis: Axis, index: WindowIndex) -> bool:
        if axis.kind == "window":
            return False
        return index.start.is_const and index.start.as_int() == 0 and index.extent == axis.extent

    def _partial(self, read: Read, buffer: Buffer, array: ast.expr) -> ast.expr:
        """Points and plain slices first, in one subscript; then the windows that are clamped or wrapped."""
        subscript: list[ast.expr] = []
        later: list[tuple[int, int, WindowIndex]] = []
        axis_now = 0
        for at, entry in enumerate(read.index):
            if isinstance(entry, PointIndex):
                subscript.append(self._expr(entry.index))
                continue
            whole = self._is_whole(buffer.axes[at], entry)
            if entry.exact and not whole:
                stop = entry.start + self._resolve(entry.extent)
                subscript.append(ast.Slice(self._expr(entry.start), self._expr(stop)))
            else:
                subscript.append(ast.Slice())
                later.extend([] if whole else [(axis_now, at, entry)])
            axis_now += 1
        while subscript and isinstance(subscript[-1], ast.Slice) and subscript[-1].lower is None:
            subscript.pop()
        tree = syntax.subscript(array, subscript) if subscript else array
        for axis_now, at, entry in later:
            function = "wrapped" if buffer.axes[at].kind == "window" else "clamped"
            extent = ast.Constant(self._resolve(entry.extent))
            tree = syntax.call(function, [tree, ast.Constant(axis_now), self._expr(entry.start), extent])
        return tree

    def _place(self, array: ast.expr, write: Write) -> ast.expr:
        if not write.index:
            return array
        places = self._exprs(write.index)
        for at, extent in enumerate(write.extents):
            if extent is not None:
                places[at] = ast.Slice(places[at], self._expr(write.index[at] + self._resolve(extent)))
        return syntax.subscript(array, places, ast.Store())


def symbols_of(program: LoopProgram) -> frozenset[Symbol]:
    """The symbols that the source of a program has names for."""
    found: set[Symbol] = set()
    for statement in program.statements():
        found.update(symbol for expr in expressions(statement) for symbol in expr.symbols())
        if isinstance(statement, Loop):
            found.add(statement.var)
    for buffer in program.buffers.values():
        found.update(symbol for extent in buffer.logical_shape for symbol in extent.symbols())
    return frozenset(found)
