"""How long buffers keep what they hold, in words, and what reads them: from the loops around writes and reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tempo.compiler.plan import Plan
from tempo.errors import Location
from tempo.loop_ir.analysis.liveness import buffer_bytes
from tempo.loop_ir.codegen.source_map import origin_of
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Buffer,
    CallHost,
    CallSegment,
    Compute,
    Loop,
    LoopProgram,
    Read,
    Statement,
    Write,
    nested,
)
from tempo.lowering.construct.build import make_buffers
from tempo.lowering.retention import Reason, Retained
from tempo.runtime.report.contents import NOWHERE, BufferUse, Reader, Why
from tempo.runtime.report.sources import Sources
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

Sizes = Mapping[Symbol, int]


@dataclass
class Uses:
    """By buffer: the variables of the loops around its writes, outermost first, and what is made of what is read."""

    loops: dict[int, tuple[Symbol, ...]] = field(default_factory=dict)
    readers: dict[int, dict[tuple[str, Location | None], None]] = field(default_factory=lambda: defaultdict(dict))


def uses_of(program: LoopProgram) -> Uses:
    found = Uses()
    _Follower(program, found).block(program.items, (), {})
    return found


class _Follower:
    """Goes through the driver and the segments it calls; `held`: of which buffer a value in hand is a part."""

    def __init__(self, program: LoopProgram, uses: Uses) -> None:
        self._program, self._uses = program, uses

    def block(self, block: Block, loops: tuple[Symbol, ...], held: dict[str, int]) -> None:
        for statement in block:
            self._statement(statement, loops, held)

    def _statement(self, statement: Statement, loops: tuple[Symbol, ...], held: dict[str, int]) -> None:
        match statement:
            case Read(result=result, buffer=buffer):
                held[result] = buffer
            case Assign(result=result, value=value) if value in held:
                held[result] = held[value]
            case Compute(operands=operands):
                self._read(operands, statement, held)
            case Write(buffer=buffer, value=value):
                self._uses.loops.setdefault(buffer, loops)
                self._read((value,), statement, held)
            case CallHost(reads=reads, writes=writes):
                self.block(writes, loops, {})
                self._read(tuple(each.result for each in reads), statement, {r.result: r.buffer for r in reads})
            case CallSegment(segment=segment):
                self.block(self._program.segments[segment].body, loops, {})
            case Loop(var=var, body=body):
                self.block(body, (*loops, var), held)
            case _:
                for inner in nested(statement):
                    self.block(inner, loops, held)

    def _read(self, names: tuple[str, ...], statement: Compute | Write | CallHost, held: Mapping[str, int]) -> None:
        for buffer in dict.fromkeys(held[name] for name in names if name in held):
            self._uses.readers[buffer][self._told(statement)] = None

    def _told(self, statement: Compute | Write | CallHost) -> tuple[str, Location | None]:
        """A reader as the user knows it."""
        if isinstance(statement, Compute):
            return statement.name or statement.op, statement.location
        origin = origin_of(statement, self._program)
        assert origin is not None, "writes and calls are of a tensor"
        return origin.name, origin.location


def buffer_uses(
    program: LoopProgram, plan: Plan, written: Graph, sizes: Sizes, sources: Sources
) -> tuple[BufferUse, ...]:
    """Every buffer of the program that runs. `written`: the graph before all passes."""
    uses, lifted = uses_of(program), _lifted(plan, written)
    found = []
    for id, buffer in program.buffers.items():
        anew = _replacing(buffer, uses.loops.get(id, ()))
        points = _points(buffer, lifted.get(id, ()), plan.graph, sizes)
        found.append(
            BufferUse(
                id,
                buffer.label,
                buffer.name,
                buffer.dtype,
                buffer.whole_extents(sizes),
                buffer_bytes(program, id, sizes),
                buffer.storage,
                buffer.role,
                sources.place(buffer.location),
                _kept(buffer, points, anew),
                _way(buffer, points),
                anew,
                _why(plan.retention.get(id), sources, frozenset(each.dim for each in points)),
                tuple(Reader(name, sources.place(location)) for name, location in uses.readers.get(id, ())),
            )
        )
    return tuple(found)


def _why(retained: Retained | None, sources: Sources, dims: frozenset[str]) -> tuple[Why, ...]:
    """What is said of one of `dims`; reads that ask for points along several are told once."""
    if retained is None:
        return ()
    asked: dict[Reason, list[Reason]] = {}
    for each in retained.reasons:
        if each.dim is None or each.dim.name in dims:
            asked.setdefault(replace(each, dim=None, points=""), []).append(each)
    found = [Why("returned", NOWHERE)] if retained.role == "returned" else []
    for read, those in asked.items():
        along = [f"{each.points} of {each.dim.name}" for each in those if each.dim is not None]
        text = f"{', '.join(along)}: {replace(read, location=None)}" if along else str(replace(read, location=None))
        found.append(Why(text.replace("every of", "every point of"), sources.place(read.location)))
    return tuple(found)


def _replacing(buffer: Buffer, loops: tuple[Symbol, ...]) -> tuple[str, ...]:
    """Of the loops around its writes those of which it has no axis: there is another value in each iteration."""
    axes = {axis.dim for axis in buffer.axes}
    return () if buffer.is_given else tuple(dict.fromkeys(each.name for each in loops if each not in axes))


def _lifted(plan: Plan, written: Graph) -> Mapping[int, tuple[Symbol, ...]]:
    """By buffer the dims of what it holds, as that was written, that have become axes of its values."""
    found = dict[int, tuple[Symbol, ...]]()
    for (node, _), buffer in make_buffers(plan.program, plan.storage).of_value.items():
        if node in written.nodes:
            left = plan.graph.nodes[node].domain
            found[buffer.id] = tuple(symbol for symbol in written.nodes[node].domain if symbol not in left)
    for output in written.outputs:
        if (id := plan.loops.outputs.get(output.port)) is not None:
            axes = {axis.dim for axis in plan.loops.buffers[id].axes}
            found[id] = tuple(symbol for symbol in output.domain if symbol in set(output.layout) - axes)
    return found


@dataclass(frozen=True)
class Points:
    """How many points of one dim a buffer holds, of how many; `kind` is that of an axis."""

    dim: str
    kind: str
    held: int
    size: int

    @property
    def is_all(self) -> bool:
        return self.kind == "full" and self.held >= self.size

    def __str__(self) -> str:
        if self.kind == "window":
            return f"the last {self.held} points of {self.dim}"
        if self.is_all:
            return f"all {self.size} points of {self.dim}" if self.size != 1 else f"one point of {self.dim}"
        return f"{self.held} of the {self.size} points of {self.dim}"


def _points(buffer: Buffer, lifted: tuple[Symbol, ...], graph: Graph, sizes: Sizes) -> list[Points]:
    """In canonical order. A dim of one point says nothing beside others."""
    of = {each.symbol.name: int(each.size.evaluate(sizes)) for each in graph.dims}
    found = {
        axis.dim.name: Points(axis.dim.name, axis.kind, held, of.get(axis.dim.name, held))
        for axis in buffer.axes
        for held in [int(axis.extent.evaluate(sizes))]
    }
    extents = [int(each.evaluate(sizes)) for each in buffer.shape]
    for symbol, held in zip(lifted, extents):  # lifting puts axes in front
        name = symbol.name
        if name in of:
            found.setdefault(name, Points(name, "full", of[name] if of[name] in extents else held, of[name]))
    for extent in buffer.shape:  # an axis that a pass has made
        names = {symbol.name for symbol in extent.symbols()}
        if len(names) == 1 and (name := names.pop()) in of:
            found.setdefault(name, Points(name, "full", int(extent.evaluate(sizes)), of[name]))
    order = list(of)
    told = sorted(found.values(), key=lambda each: order.index(each.dim) if each.dim in of else len(order))
    return [each for each in told if each.held != 1 or each.size != 1] or told


def _in_words(points: list[Points]) -> str:
    whole = [each for each in points if each.is_all]
    parts = [f"all points of {' × '.join(each.dim for each in whole)}"] if len(whole) > 1 else [*map(str, whole)]
    return ", ".join([*parts, *(str(each) for each in points if not each.is_all)]) or "one value"


def _kept(buffer: Buffer, points: list[Points], anew: tuple[str, ...]) -> str:
    """How much of a tensor a buffer keeps, and for how long."""
    what = _in_words(points)
    if buffer.role == "constant":
        return "a constant, there all the time"
    if buffer.role == "input":
        return "given: there all the time" + (f", {what}" if points else "")
    again = f", replaced at each {', '.join(anew)}" if anew else ", made once"
    until = "; returned when the run has ended" if buffer.role == "output" else ""
    return f"{what}{again}{until}"


def _way(buffer: Buffer, points: list[Points]) -> str:
    if buffer.role != "internal":
        return "returned" if buffer.role == "output" else "given"
    kinds = {each.kind for each in points}
    return "full" if "full" in kinds else "window" if "window" in kinds else "point"
