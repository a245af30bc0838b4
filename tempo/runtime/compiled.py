"""A program compiled for given values of its static sizes, and ready for the values of all others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tempo.backends.base import Backend, CompiledSegment, SegmentRequest, define
from tempo.backends.by_point import ByPoint, axes_by_point, each_part, joined, placed
from tempo.caches import digest
from tempo.compiler.driver import Specialised
from tempo.compiler.plan import Plan
from tempo.errors import AtUserLine
from tempo.logs import say
from tempo.loop_ir.analysis.heap import Heap
from tempo.loop_ir.analysis.index_bits import NARROW
from tempo.loop_ir.analysis.layouts import Matrix, layouts, layouts_in_segments, matrices
from tempo.loop_ir.analysis.liveness import Lifetimes, in_segments
from tempo.loop_ir.analysis.needed_slots import NeededSlots, bytes_at
from tempo.loop_ir.analysis.whole_points import marks
from tempo.loop_ir.codegen.driver import DriverEmitter, host_arrays, taken
from tempo.loop_ir.codegen.source_map import Listing, source_map, text_of
from tempo.loop_ir.ir import (
    Buffer,
    CallSegment,
    Loop,
    LoopProgram,
    PointIndex,
    Read,
    Statement,
    Transfer,
    Write,
    walk,
)
from tempo.passes.manager import PassRecord
from tempo.placement.mesh import Placement, permuted, whole
from tempo.reference.calls import call_host
from tempo.runtime.memory import check_room
from tempo.runtime.strips import in_strips
from tempo.runtime.trial import heap_of
from tempo.sdg.call import static_type
from tempo.sdg.graph import Node, Port
from tempo.symbolic import Symbol

Array = Any
Sizes = Mapping[Symbol, int]


@dataclass(frozen=True)
class Item:
    """One step of the driver. `loop` is set where it can be run in chunks.

    The buffers of `makes` are not needed before it, those of `drops` not after it. Once the slot `stopped` holds
    something other than 0 it is left out. `part` is for a chunk of the loop, with the arrays of `segment`, if it is a
    call of one, as these lie between chunks.
    """

    function: Callable[..., None]
    loop: Loop | None
    part: Callable[..., None]
    segment: int | None
    makes: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()
    stopped: int | None = None


@dataclass(frozen=True, eq=False)
class Compiled:
    """Everything that `run` needs beside arrays."""

    program: LoopProgram
    backend: Backend
    items: tuple[Item, ...]
    parameters: tuple[Symbol, ...]
    segments: tuple[CompiledSegment, ...]
    made_anew: frozenset[int]
    """Large slots that the first item to touch them writes before it reads them."""
    passes: tuple[PassRecord, ...]
    """Those at the sizes that shapes are made of."""
    static: Sizes
    """The values of these."""
    unplaced: LoopProgram
    """The program before it is said where anything lies: the same on every mesh."""
    seconds: float = field(
        default=0.0, compare=False
    )  # that making it took; a backend may compile more at its first run

    def segment_listing(self, number: int) -> Listing:
        """What there is to read of a segment."""
        code = self.segments[number]
        return (code.source, code.origins()) if code.source else text_of(self.program, self.program.segments[number])

    def item_listing(self, number: int) -> Listing:
        """The same of an item of the driver."""
        emitter = DriverEmitter(self.program, self.static, self.backend.operator)
        text = emitter.item(number, self.program.items[number])
        assert emitter.emitted is not None
        return text, source_map(emitter.emitted, text)

    def listings(self) -> Iterator[Listing]:
        """Those of all segments, and of the driver."""
        yield from map(self.segment_listing, range(len(self.segments)))
        yield from map(self.item_listing, range(len(self.items)))

    @cached_property
    def digest(self) -> str:
        """Of the plan, in which buffers have their numbers; the same on every mesh."""
        return digest(str(self.unplaced))

    @cached_property
    def handed_over(self) -> frozenset[int]:
        """Inputs that may stay NumPy's: one call, of one segment, takes them as they lie."""
        if not self.backend.takes_host_arrays:
            return frozenset()
        calls = [item for item in self.program.items if isinstance(item, CallSegment)]
        taken = Counter(id for each in calls for id in self.program.segments[each.segment].buffers)
        given = map(self.program.buffers.__getitem__, set(self.program.inputs.values()) - self.touched_in_host_loops)
        return frozenset(each.id for each in given if taken[each.id] == 1 and self.lies_as_given(each))

    @cached_property
    def read_at_points(self) -> Mapping[int, int]:
        """By input, along how many of its first axes it is read at points alone; whole arrays lie behind them."""
        if not self.backend.takes_points:
            return {}
        given = (self.program.buffers[id] for id in self.program.inputs.values())
        found = {each.id: len(each.axes) for each in given if each.is_as_given and each.shape}
        for read in (each for each in self.program.statements() if isinstance(each, Read) and each.buffer in found):
            points = (at for at, entry in enumerate(read.index) if not isinstance(entry, PointIndex))
            found[read.buffer] = min(found[read.buffer], next(points, len(read.index)))
        for segment, code in zip(self.program.segments, self.segments, strict=True):
            if code.by_point is not None:
                found.update((id, min(found[id], code.by_point(id))) for id in found.keys() & set(segment.buffers))
        return found

    @cached_property
    def left_by_point(self) -> frozenset[int]:
        """What segments alone look at, and all may be given by point: one that is called so leaves it so."""
        if not self.backend.takes_points:
            return frozenset()
        orders = self.layouts.items()
        found = in_segments(self.program) - {id for id, order in orders if order and order[0] != 0}
        for segment, code in zip(self.program.segments, self.segments, strict=True):
            found -= {id for id in found & set(segment.buffers) if code.by_point is None or not code.by_point(id)}
        return found

    def makes_by_point(
        self, item: Statement, is_by_point: Callable[[int], bool], is_there: Callable[[int], bool]
    ) -> frozenset[int]:
        """What an item makes by point, being called so; given which buffers are by point, and which hold anything."""
        if not isinstance(item, CallSegment):
            return frozenset()
        segment = self.program.segments[item.segment]
        made = self.left_by_point & set(segment.results) if any(map(is_by_point, segment.buffers)) else ()
        return frozenset(id for id in made if not is_there(id))

    def from_given(self, id: int, value: Any) -> Array:
        """What an input is given, as the backend has it; the axes are still the user's."""
        axes = self.read_at_points.get(id, 0) if isinstance(value, ByPoint) else 0
        with AtUserLine():
            return placed(self.backend, value, axes, as_given(self.program.buffers[id]))

    def put(self, id: int, value: Any) -> Array:
        """The same for the caller to keep, matrices laid out for the products with them."""
        array, found = self.joined(id, self.from_given(id, value)), self.matrices.get(id)
        if found is None or as_given(self.program.buffers[id]):
            return array
        return each_part(array, partial(self.backend.for_products, contracted=found.contracted, alone=found.alone))

    @cached_property
    def matrices(self) -> Mapping[int, Matrix]:
        return matrices(self.program)

    def joined(self, id: int, array: Array, without: int | None = None) -> Array:
        """The user's array of a buffer; of one that lies in parts a process has its own. `without`: an axis that the
        array does not have."""
        buffer = self.program.buffers[id]
        if not buffer.is_part:
            return array
        lies = as_given(buffer)
        if without is not None:
            lies = (*lies[:without], *lies[without + 1 :])
        return joined(self.backend, array, lies)

    def last_value(self, port: Port, sizes: Sizes) -> Callable[..., Array]:
        """What reads one of the program's `states`, given sizes, the point and buffers. It is made where a call has
        failed, at the values of all sizes: how much it sees need be no number for what runs."""
        emitter = DriverEmitter(self.program, sizes, self.backend.operator)
        return define(emitter.last_value(self.program.states[port]), "last_value", {**self.backend.array_functions()})

    @cached_property
    def layouts(self) -> Mapping[int, tuple[int, ...]]:
        """The buffers whose axes lie in another order than the logical one, with that order: internal ones, and inputs
        that are read as they were given."""
        if self.backend.shares_memory:
            return layouts(self.program)
        return layouts_in_segments(self.program) if self.backend.allocates_inside else {}

    def lies_as_given(self, buffer: Buffer) -> bool:
        """Whether the array of an input lies in its buffer as it is."""
        return buffer.is_as_given or buffer.id in self.layouts

    @cached_property
    def stops(self) -> Mapping[str, int]:
        """By the name of a dim along which the run may end early, the slot that says how many points were kept."""
        return {port.name: id for port, id in self.program.outputs.items() if port.role == "stop"}

    @cached_property
    def read_early(self) -> frozenset[int]:
        """Buffers that are looked at before they are full: stops, rows' ends, what a check of values has found."""
        read = ("stop", "lengths", "watch")
        return frozenset(id for port, id in self.program.outputs.items() if port.role in read)

    @cached_property
    def is_donated(self) -> bool:
        """Whether what it is given is its own."""
        return any(buffer.donated for buffer in self.program.buffers.values())

    @cached_property
    def constants(self) -> Mapping[int, Array]:
        """The program's constants as the backend's arrays. Nothing writes to them, so all runs share them."""
        found = ((self.program.buffers[id], each.array) for id, each in self.program.constants.items())
        lying = ((each, placed(self.backend, array, 0, as_given(each))) for each, array in found)
        return {each.id: self.backend.transpose(array, each.from_user) for each, array in lying}

    @cached_property
    def on_host(self) -> frozenset[int]:
        """The buffers that are arrays of NumPy's."""
        return host_arrays(self.program)

    @cached_property
    def depth(self) -> int:
        """How many iterations of a host loop are remembered."""
        loops = [(at, item) for at, item in enumerate(self.program.items) if at in self.program.offsets]
        found = (marks(self.program, at, item.var).depth for at, item in loops if isinstance(item, Loop))
        return max(found, default=1)

    @cached_property
    def touched_in_host_loops(self) -> frozenset[int]:
        """Buffers that must be there before any segment runs; others may be made by the first that touches them, those
        that live in one call by each."""
        inside = list(walk(tuple(item for item in self.program.items if not isinstance(item, CallSegment))))
        called = [self.program.segments[each.segment] for each in inside if isinstance(each, CallSegment)]
        given = {id for segment in called for id in set(segment.buffers) - segment.unread}
        return frozenset(given | {each.buffer for each in inside if isinstance(each, Write | Transfer)})

    def is_made_inside(self, id: int) -> bool:
        """Whether the first segment that touches a buffer makes it."""
        return id in self.made_anew or (self.backend.allocates_inside and id not in self.touched_in_host_loops)


def as_given(buffer: Buffer) -> Placement:
    """How the user's array lies on a mesh."""
    return permuted(buffer.placement, buffer.to_user)


@dataclass(frozen=True, eq=False)
class Ready:
    """A program at the values of all sizes, for any number of runs."""

    plan: Plan
    compiled: Compiled
    sizes: Sizes
    demanded: Callable[[], Mapping[int, Array]]
    """The exact demand, by node; it may take seconds."""
    named: Mapping[str, int]
    """The size of every dim of the program, by its name."""
    held: Mapping[int, tuple[int, ...]] | None = None
    """By buffer, how much of it an output is, with the user's axes; None where shapes are made for no buckets."""
    folder: Path | None = None
    """Of the host pool; None: it is memory."""

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of every buffer, by its number. Raises `MemoryLimitError` where one does not fit into memory."""
        check_room(self.compiled.program, self.sizes, self.compiled.backend.room())
        return tuple(buffer.extents(self.sizes) for _, buffer in sorted(self.compiled.program.buffers.items()))

    @cached_property
    def heap(self) -> Heap:
        """What a run holds, told beforehand."""
        return heap_of(self)

    def by_point(self, given: Mapping[Port, Any]) -> Mapping[int, int]:
        """By input, along how many of its first axes what is given stays by point."""
        inputs, axes = self.compiled.program.inputs, self.compiled.read_at_points
        known = ((inputs[port], value) for port, value in given.items() if port in inputs)
        return {id: min(axes_by_point(value), axes.get(id, 0)) for id, value in known if not self.is_padded(id, value)}

    def is_padded(self, id: int, value: Array) -> bool:
        """Whether an input is given fewer points than its buffer has places."""
        return self.held is not None and value.shape != self.extents(id)

    def extents(self, id: int) -> tuple[int, ...]:
        """The shape that the user's array of a buffer has, of which this may be a part."""
        buffer, shape = self.compiled.program.buffers[id], self.whole_shape(id)
        return tuple(shape[axis] for axis in buffer.to_user)

    def whole_shape(self, id: int) -> tuple[int, ...]:
        """The shape of a buffer, with all parts of what lies in parts."""
        buffer, shape = self.compiled.program.buffers[id], self.shapes[id]
        return whole(shape, buffer.placement) if buffer.is_part else tuple(shape)

    @cached_property
    def pooled(self) -> list[Buffer]:
        """The buffers of which the points are in the host pool."""
        return [buffer for buffer in self.compiled.program.buffers.values() if buffer.pooled is not None]

    @cached_property
    def tables(self) -> list[Any]:
        """The demanded points that guard statements."""
        guarded = sorted(self.plan.loops.tables.items())
        masks = self.demanded() if guarded else {}
        return [masks[node] for _, node in guarded]


def compile_program(made: Specialised, backend: Backend, sizes: Sizes, index_bits: int = NARROW) -> Compiled:
    """`sizes` are all of them, for the shapes of host results."""
    start, program, static = time.perf_counter(), made.loops, made.sizes
    requests = (SegmentRequest(program, segment, static, index_bits) for segment in program.segments)
    segments = tuple(map(backend.compile_segment, requests))
    emitter = DriverEmitter(program, static, backend.operator)
    namespace: dict[str, Any] = {**backend.array_functions(), "in_strips": in_strips, "taken": taken}
    namespace.update((f"host_{at}", _host_function(node, sizes)) for at, node in enumerate(program.hosts))
    namespace.update((each.name, code.function) for each, code in zip(program.segments, segments, strict=True))
    sources = [emitter.item(number, item) for number, item in enumerate(program.items)]
    lifetimes, items = Lifetimes.of(program), []
    for number, (source, statement) in enumerate(zip(sources, program.items, strict=True)):
        called = statement.segment if isinstance(statement, CallSegment) else None
        loop = statement if isinstance(statement, Loop) else None if called is None else program.segments[called].loop
        function = part = define(source, f"item_{number}", namespace)
        if called is not None and loop is not None and (way := segments[called].in_chunks) is not None:
            in_chunks = {**namespace, program.segments[called].name: way.function}
            part = define(source, f"item_{number}", in_chunks)
        lives = lifetimes.makes[number], lifetimes.drops[number]
        items.append(Item(function, loop, part, called, *lives, program.stopped[number]))
    parameters = emitter.item_sizes()
    anew = frozenset[int]() if backend.allocates_inside else _made_anew(program, lifetimes, static)
    seconds = time.perf_counter() - start
    code = Compiled(
        program, backend, tuple(items), parameters, segments, anew, made.passes, static, made.unplaced, seconds
    )
    say("code", lambda: "\n\n".join(text for text, _ in code.listings()))
    return code


def _made_anew(program: LoopProgram, lifetimes: Lifetimes, sizes: Sizes) -> frozenset[int]:
    found = set[int]()
    for number, item in enumerate(program.items):
        if isinstance(item, CallSegment) and program.stopped[number] is None:
            needed = NeededSlots.of(program, program.segments[item.segment], bytes_at(sizes))
            found |= needed.slots & lifetimes.first[number] - needed.at_start.keys()
    return frozenset(found)


def _host_function(node: Node, sizes: Sizes) -> Callable[..., tuple[Array, ...]]:
    types = [static_type(result, lambda expr: int(expr.evaluate(sizes))) for result in node.results]
    return partial(call_host, node, results=[(type.shape, type.numpy_dtype) for type in types])
