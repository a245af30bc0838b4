"""The driver as Python source: one function per item of a program, on a list of buffers.

Some buffers it keeps as arrays of NumPy's, whatever the backend: a call of the host gives one, and to put it into an
array of the backend's takes longer than the call, at every step.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import Any

from tempo.loop_ir.analysis.liveness import given_up
from tempo.loop_ir.analysis.whole_points import Marks, marks, source_of
from tempo.loop_ir.codegen import syntax
from tempo.loop_ir.codegen.python import Emitter, symbols_of
from tempo.loop_ir.codegen.source_map import mark
from tempo.loop_ir.ir import (
    Buffer,
    CallHost,
    CallSegment,
    Fetch,
    LastValue,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    Transfer,
    Write,
    stop_in,
    walk,
)
from tempo.loop_ir.transforms.read_ahead import kept_back, staging
from tempo.symbolic import Expr, Symbol


def host_arrays(program: LoopProgram) -> frozenset[int]:
    """What arrays are taken into before a segment is given them, and outputs that calls of the host alone touch."""
    taken = (id for item in program.items if isinstance(item, Loop) for id in staging(item))
    written = {each.buffer for each in walk(program.items) if isinstance(each, Write)}
    elsewhere = {each.buffer for each in walk(program.items) if isinstance(each, Read)}
    elsewhere.update(id for segment in program.segments for id in segment.buffers)
    elsewhere.update(source_of(program, port) for port in program.outputs if port.role == "state")
    buffers = (program.buffers[id] for id in written - elsewhere)
    outputs = (each.id for each in buffers if each.role == "output" and each.axes and not each.is_circular)
    return frozenset((*taken, *outputs))


def taken(buffers: list[Any], id: int) -> Any:
    """What is in a buffer, which holds it no longer."""
    array, buffers[id] = buffers[id], None
    return array


class DriverEmitter(Emitter):
    """Emits what calls segments and the host. It has host lists: `buffers`, `tables`, and `marks` of how far it is."""

    @cached_property
    def _on_host(self) -> frozenset[int]:
        return host_arrays(self.program)

    def item(self, number: int, item: Statement) -> str:
        """The source of `item_N(start, stop, sizes..., buffers, tables, marks, pool)`: one item of the program."""
        body = self._with_marks(number, item) if isinstance(item, Loop) else self._statement(item)
        mark(body, [item], self.program)
        self.emitted = syntax.function(f"item_{number}", self.item_parameters(), body or [ast.Pass()])
        return syntax.source(self.emitted)

    def item_parameters(self) -> list[str]:
        return [
            "start",
            "stop",
            *(self.names(symbol) for symbol in self.item_sizes()),
            "buffers",
            "tables",
            "marks",
            "pool",
        ]

    def _with_marks(self, number: int, item: Loop) -> list[ast.stmt]:
        """The loop; before it and at the end of each iteration it is noted that it has come so far."""
        if number not in self.program.offsets:
            return [self._loop(item, outermost=True)]
        found = marks(self.program, number, item.var)
        begun = self._mark(syntax.minus_one(syntax.name("start")), found)
        if item.strip > 1:
            return [begun, *self._strips(item, found, kept_back(self.program, number, item))]
        loop = self._loop(item, outermost=True)
        before = len(loop.body) - (stop_in(item) is not None)
        loop.body.insert(before, self._mark(syntax.name(self.names(item.var)), found))
        return [begun, loop]

    def _strips(self, loop: Loop, found: Marks, back: int) -> list[ast.stmt]:
        """What `tempo.runtime.strips.in_strips` runs, as functions, and a call of it."""
        *calls, segment = loop.body
        assert isinstance(segment, CallSegment)
        end = syntax.minus_one(syntax.name("stop"))
        slots = [(syntax.listed("buffers", id, ast.Store()), syntax.listed("buffers", id)) for id in staging(loop)]
        renewed = [syntax.assign(target, syntax.call("fresh", [held])) for target, held in slots]
        arguments = [syntax.name("start"), syntax.name("stop"), ast.Constant(loop.strip), ast.Constant(back)]
        functions = [
            syntax.function("renew", [], renewed),
            syntax.function("take", [self.names(loop.var)], self._block(calls)),
            syntax.function("run", ["start", "stop"], [*self._calls(segment), self._mark(end, found)]),
        ]
        run = syntax.call("in_strips", [*arguments, *(syntax.name(each.name) for each in functions)])
        return [*functions, ast.Expr(run)]

    def _mark(self, iteration: ast.expr, marks: Marks) -> ast.stmt:
        held = (syntax.listed("buffers", id) for id in marks.held)
        kept = [syntax.call("fresh", [each]) if id in marks.copied else each for id, each in zip(marks.held, held)]
        append = ast.Attribute(syntax.name("marks"), "append", ast.Load())
        return ast.Expr(ast.Call(append, [ast.Tuple([iteration, *kept], ast.Load())], []))

    def last_value(self, found: LastValue) -> str:
        """The source of `last_value(sizes..., point..., buffers)`: what a parameter holds at the point."""
        symbols = (*self.item_sizes(), *(dim.symbol for dim in found.dims))
        parameters = [*(self.names(symbol) for symbol in symbols), "buffers"]
        value = self.read(found.read, syntax.listed("buffers", found.read.buffer))
        return syntax.source(syntax.function("last_value", parameters, [ast.Return(value)]))

    def item_sizes(self) -> tuple[Symbol, ...]:
        """The sizes that every item is given, in order."""
        return tuple(sorted(symbol for symbol in symbols_of(self.program) if symbol.kind != "dim"))

    def _held_by(self, slot: Buffer) -> ast.expr:
        return syntax.call("to_host", [syntax.listed("buffers", slot.id)])

    def _table(self, number: int) -> ast.expr:
        return syntax.listed("tables", number)

    def _calls(self, call: CallHost | CallSegment | Transfer) -> list[ast.stmt]:
        if isinstance(call, CallHost):
            return self._call_host(call)
        if isinstance(call, Transfer):
            return [self._transfer(call)]
        return [self._call_segment(self.program.segments[call.segment])]

    def _transfer(self, each: Transfer) -> ast.stmt:
        moves = ast.Attribute(syntax.name("pool"), "fetch" if isinstance(each, Fetch) else "evict", ast.Load())
        given = [ast.Constant(each.buffer), syntax.listed("buffers", each.buffer)]
        given += self._exprs((each.start, each.stop, each.base))
        if not isinstance(each, Fetch):
            return ast.Expr(ast.Call(moves, given, []))
        fetched = ast.Call(moves, [*given, *self._exprs(each.ahead or ())], [])
        return syntax.assign(syntax.listed("buffers", each.buffer, ast.Store()), fetched)

    def _call_segment(self, segment: Segment) -> ast.stmt:
        arguments: list[ast.expr] = [syntax.name("start"), syntax.name("stop")]
        arguments += [syntax.name(self.names(symbol)) for symbol in segment.arguments]
        last = given_up(self.program, segment)
        arguments += [self._handed_to(segment, id, id in last) for id in segment.buffers]
        arguments += [syntax.listed("tables", table) for table in segment.tables]
        call = syntax.call(segment.name, arguments)
        targets = [syntax.listed("buffers", id, ast.Store()) for id in segment.results]
        return syntax.assign(ast.Tuple(list(targets), ast.Store()), call) if targets else ast.Expr(call)

    def _handed_to(self, segment: Segment, id: int, for_good: bool) -> ast.expr:
        """A buffer as a segment is given it."""
        if id in segment.unread:
            return ast.Constant(None)
        if for_good:
            return syntax.call("taken", [syntax.name("buffers"), ast.Constant(id)])
        return syntax.listed("buffers", id)

    def _call_host(self, call: CallHost) -> list[ast.stmt]:
        operands: list[ast.expr] = [
            syntax.call("to_host", [self._trimmed(self.read(read, syntax.listed("buffers", read.buffer)), trims)])
            for read, trims in zip(call.reads, call.trims, strict=True)
        ]
        point = ast.Tuple(self._exprs(call.point), ast.Load())
        made = syntax.call(f"host_{call.call}", [point, ast.Tuple(operands, ast.Load())])
        if not call.writes:
            return [ast.Expr(made)]
        names = [f"y{number}" for number in range(len(self.program.hosts[call.call].results))]
        results = ast.Tuple([syntax.name(name, ast.Store()) for name in names], ast.Store())
        return [syntax.assign(results, made), *map(self._host_write, call.writes)]

    def _host_write(self, write: Write) -> ast.stmt:
        array, index = syntax.listed("buffers", write.buffer), self._exprs(write.index)
        if write.buffer in self._on_host:
            return syntax.assign(syntax.subscript(array, index, ast.Store()), syntax.name(write.value))
        written = syntax.call("host_write", [array, ast.Tuple(index, ast.Load()), syntax.name(write.value)])
        return syntax.assign(syntax.listed("buffers", write.buffer, ast.Store()), written)

    def _trimmed(self, tree: ast.expr, trims: tuple[Expr | None, ...]) -> ast.expr:
        if all(length is None for length in trims):
            return tree
        return syntax.subscript(
            tree, [ast.Slice(None, None if length is None else self._expr(length)) for length in trims]
        )
