"""What a run will hold, told beforehand, and what it compiles: the items of the driver on a heap without contents."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tempo.backends.base import CompiledSegment, Submit, Trial
from tempo.backends.room import processors
from tempo.loop_ir.analysis.heap import Frame, Heap, Piece
from tempo.loop_ir.codegen.python import Emitter
from tempo.loop_ir.codegen.trial import Walk, array_of, piece_of, tried
from tempo.loop_ir.ir import Block, Branch, Buffer, CallHost, CallSegment, Fetch, Guard, Loop, Segment, Statement

if TYPE_CHECKING:
    from tempo.runtime.compiled import Ready


def heap_of(ready: Ready, estimate: bool = False) -> Heap:
    """A run of a program, from what it is given to what it returns; an `estimate` compiles nothing for that."""
    heap = Heap()
    with Frame[int](heap) as caller, Frame[int](heap) as buffers:
        _Run(ready, caller, buffers, estimate).all()
    return heap


def compile_ahead(ready: Ready, by_point: Mapping[int, int]) -> None:
    """Compile what a run calls, segments beside each other; `by_point`: along how many of its first axes an input is
    given by point."""
    heap = Heap()
    with ThreadPoolExecutor(processors()) as pool, Frame[int](heap) as caller, Frame[int](heap) as buffers:
        waits = list[Callable[[], None]]()

        def submit(work: Callable[[], None]) -> Callable[[], None]:
            waits.append(pool.submit(contextvars.copy_context().run, work).result)
            return waits[-1]

        _Ahead(ready, caller, buffers, by_point, submit).all()
        for wait in waits:
            wait()


class _Run:
    """The driver. `caller`: what whoever runs the program holds of it; `buffers`: what the run does."""

    def __init__(self, ready: Ready, caller: Frame[int], buffers: Frame[int], estimate: bool) -> None:
        self._estimate = estimate
        self._ready, self._compiled, self._sizes = ready, ready.compiled, ready.sizes
        self._program, self._backend = ready.compiled.program, ready.compiled.backend
        self._heap, self._caller, self._buffers = buffers.heap, caller, buffers
        self._walk, self._taken = Walk(ready.sizes, buffers.heap), list[int]()

    def all(self) -> None:
        program = self._program
        with self._heap.within("given"):
            for id, buffer in program.buffers.items():
                if buffer.is_given:
                    self._buffers[id] = array_of(buffer, self._sizes)
                    self._caller[id] = None if buffer.donated else self._buffers.get(id)
        for id in program.inputs.values():
            if not (self._compiled.lies_as_given(program.buffers[id]) or self._backend.shares_memory):  # it is copied
                self._buffers[id] = replace(array_of(program.buffers[id], self._sizes), role="between")
        with self._heap.within("returned"):
            self._make(tuple(id for id, buffer in program.buffers.items() if buffer.role == "output"))
        for item, statement in zip(self._compiled.items, program.items, strict=True):
            self._make(item.makes)
            self._taken = [id for id in item.drops if program.buffers[id].donated]
            self._block((statement,))
            for id in item.drops:
                self._buffers[id] = None
        with self._heap.within("returned"):
            for id in program.outputs.values():
                self._caller[id] = self._returned(program.buffers[id])
                if program.buffers[id].is_slot:
                    self._buffers[id] = None

    def _returned(self, buffer: Buffer) -> Piece | None:
        """What the caller gets of an output: a copy of what may be a view, or lies in another order than the user's."""
        copied = buffer.is_slot if self._backend.shares_memory else not buffer.is_as_given
        return array_of(buffer, self._sizes) if copied else self._buffers.get(buffer.id)

    def _make(self, ids: tuple[int, ...]) -> None:
        for id in ids:
            if not self._compiled.is_made_inside(id):
                self._buffers[id] = array_of(self._program.buffers[id], self._sizes)

    def _block(self, block: Block) -> None:
        for statement in block:
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case CallSegment(segment):
                self._call(self._program.segments[segment], self._compiled.segments[segment])
            case Loop(body=body):
                self._walk.loop(statement, partial(self._block, body))
            case Guard(body=body):
                self._block(body)
            case Branch(condition, then, otherwise):
                for side in self._walk.sides(condition):
                    self._block(then if side else otherwise)
            case CallHost():
                self._call_host(statement)
            case Fetch():
                self._fetch(statement)

    def _call(self, segment: Segment, code: CompiledSegment) -> None:
        given = {id: None if id in segment.unread else self._buffers.get(id) for id in segment.buffers}
        told = None if self._estimate and code.compiles else code.trial
        trial = told or self._as_generated(segment)
        for id in self._taken:
            self._buffers[id] = None
        with trial(self._heap, given, self._sizes, partial(self._tables, segment)) as made:
            for id, piece in made.items():
                self._buffers[id] = piece

    def _tables(self, segment: Segment) -> list[Any]:
        """Those that the segment is given; finding what is demanded may take seconds."""
        return [self._ready.tables[table] for table in segment.tables]

    def _as_generated(self, segment: Segment) -> Trial:
        emitter = Emitter(self._program, self._sizes, self._backend.operator)
        emitter.segment(segment)
        return partial(tried, emitter, segment)

    def _fetch(self, fetch: Fetch) -> None:
        """What is fetched lies beside the buffer before it is stored there, where it cannot be stored from the host."""
        if not self._backend.shares_memory:
            Frame[int](self._heap, {0: array_of(self._program.buffers[fetch.buffer], self._sizes)}).become({})

    def _call_host(self, call: CallHost) -> None:
        """Its results are there before they are written."""
        node = self._program.hosts[call.call]
        results = (piece_of(type, self._sizes, node.name, node.location) for type in node.results)
        with Frame[str](self._heap, {f"y{at}": piece for at, piece in enumerate(results)}) as made:
            for write in call.writes:
                if not write.index:
                    self._heap.store(made.get(write.value), write.buffer)
                    self._buffers[write.buffer] = made.get(write.value)


class _Ahead(_Run):
    """The same, where calls only say what they would compile."""

    def __init__(
        self, ready: Ready, caller: Frame[int], buffers: Frame[int], by_point: Mapping[int, int], submit: Submit
    ) -> None:
        super().__init__(ready, caller, buffers, estimate=True)
        self._by_point, self._submit = dict(by_point), submit

    def _call(self, segment: Segment, code: CompiledSegment) -> None:
        made = self._compiled.makes_by_point(
            CallSegment(segment.id),
            lambda id: bool(self._by_point.get(id)),
            lambda id: self._buffers.get(id) is not None,
        )
        self._by_point.update(dict.fromkeys(made, 1))
        if code.ahead is not None:
            given = {id: None if id in segment.unread else self._buffers.get(id) for id in segment.buffers}
            code.ahead(given, self._by_point, self._sizes, partial(self._tables, segment), self._submit)
        for id in segment.results:
            self._buffers[id] = array_of(self._program.buffers[id], self._sizes)
