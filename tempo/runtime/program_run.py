"""One run of a compiled program: its buffers, item by item."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from tempo import dtypes
from tempo.backends.by_point import ByPoint, each_part, padded, parts_of, placed
from tempo.errors import TempoError
from tempo.loop_ir.ir import Buffer
from tempo.loop_ir.transforms.circular_reads import is_chunked
from tempo.placement.mesh import permuted
from tempo.reference.evaluator import Evaluated
from tempo.runtime.compiled import Array, Item, Ready
from tempo.runtime.host_pool import HostPool
from tempo.runtime.memory import too_large
from tempo.sdg.graph import Port
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.runtime.profile.recorder import Recorder


Length = Callable[[], int]
"""How many points the next chunk of a loop is to have."""


def _cut(lo: int, hi: int, length: Length, forward: bool, until: int) -> Iterator[tuple[int, int]]:
    """The points from `lo` to `hi` in pieces, in a loop's direction; the first of a forward one reaches `until`."""
    while lo < hi:
        if forward:
            start, lo = lo, min(max(until, lo + length()), hi)
            yield start, lo
        else:
            stop, hi = hi, max(lo, hi - length())
            yield hi, stop


class ProgramRun:
    """One run: its buffers, and the items in order. Nothing of it outlives the call."""

    def __init__(self, ready: Ready, given: Mapping[Port, Any], poison: bool, recorder: Recorder | None = None):
        """Once all that it needs is there, what is given to buffers that are donated is the run's own. `recorder`: of
        the profile in which it runs."""
        self.recorder = recorder
        self.ready, self.compiled, self.sizes, self.poison = ready, ready.compiled, ready.sizes, poison
        self.marks: deque[tuple[Any, ...]] = deque(maxlen=self.compiled.depth)
        self.item = -1  # of the driver, that runs
        self.arguments = [self.sizes[symbol] for symbol in self.compiled.parameters]
        inputs = {id: given[port] for port, id in self.compiled.program.inputs.items()}
        self.buffers: list[Array] = [
            self.given(id, inputs[id]) if id in inputs else self.made(buffer) if buffer.role != "internal" else None
            for id, buffer in sorted(self.compiled.program.buffers.items())
        ]
        self._has_points = any(isinstance(self.buffers[id], ByPoint) for id in inputs)
        self.pool = self._pool() if ready.pooled else None
        for id, value in inputs.items() if self.compiled.is_donated else ():
            for array in parts_of(value) if self.compiled.program.buffers[id].donated else ():
                self.compiled.backend.take(array)

    def given(self, id: int, value: Any) -> Array:
        """An array of the caller's as an input has it."""
        backend, buffer = self.compiled.backend, self.compiled.program.buffers[id]
        if self.ready.is_padded(id, value):
            fill = _poison(buffer.dtype) if self.poison else 0
            value = padded(backend, value, self.ready.extents(id), fill)
        elif backend.takes_host_arrays and isinstance(value, np.ndarray):
            value = value.copy()  # the caller may go on writing into it, while segments still run
        if isinstance(value, np.ndarray) and id in self.compiled.handed_over and buffer.pooled is None:
            return value
        if buffer.pooled is not None and isinstance(value, np.ndarray):
            return value.transpose(buffer.from_user)
        array = self.compiled.from_given(id, value)
        return array if self.compiled.lies_as_given(buffer) else backend.transpose(array, buffer.from_user)

    def _pool(self) -> HostPool:
        """With the inputs in it that were given to it, of which some points at a time are here."""
        ready, given = self.ready, dict[int, Array]()
        for buffer in (each for each in ready.pooled if each.is_given):
            array = self.buffers[buffer.id]
            given[buffer.id] = array if isinstance(array, np.ndarray) else self.compiled.backend.to_host(array)
            self.buffers[buffer.id] = self.made(buffer)
        return HostPool(self.compiled.backend, ready.pooled, ready.sizes, ready.folder, given)

    def made(self, buffer: Buffer) -> Array:
        backend, shape = self.compiled.backend, self.ready.shapes[buffer.id]
        if buffer.id in self.compiled.program.constants:
            return self.compiled.constants[buffer.id]
        starts_at_zero = buffer.zeroed or buffer.id in self.compiled.read_early
        poisons = self.poison and not self.compiled.is_donated  # results may lie in the memory of what is given
        fill = 0 if starts_at_zero else _poison(buffer.dtype) if poisons else None
        if self.compiled.is_made_inside(buffer.id) and (fill is None or starts_at_zero):
            return None
        order = self._order(buffer)
        physical = shape if order is None else tuple(shape[at] for at in order)
        try:
            if buffer.id in self.compiled.on_host:
                dtype = dtypes.to_numpy(buffer.dtype)
                made = np.empty(physical, dtype) if fill is None else np.full(physical, fill, dtype)
                return made.transpose(buffer.from_user)
            if buffer.placement and not buffer.is_part:
                lies = permuted(buffer.placement, range(len(physical)) if order is None else order)
                array = backend.allocate_on_mesh(physical, buffer.dtype, fill, lies)
            else:
                array = backend.allocate(physical, buffer.dtype, fill)
        except Exception as error:
            if backend.is_out_of_memory(error):
                raise too_large(buffer, self.sizes, str(error)) from error
            raise
        return array if order is None or self._lies(buffer) is not None else backend.transpose(array, _inverse(order))

    def _order(self, buffer: Buffer) -> tuple[int, ...] | None:
        """The axes in the order in which they lie in memory, where that is not the logical one."""
        order = buffer.to_user if buffer.role == "output" else self.compiled.layouts.get(buffer.id)
        return None if order is None or order == tuple(range(len(order))) else order

    def _lies(self, buffer: Buffer) -> tuple[int, ...] | None:
        """The same, where the backend has no view that shows the array with its logical axes."""
        is_view = buffer.role == "output" or buffer.id in self.compiled.on_host or self.compiled.backend.shares_memory
        return None if is_view else self._order(buffer)

    def bounds(self, item: Item) -> tuple[int, int]:
        assert item.loop is not None
        lo, hi = int(item.loop.lo.evaluate(self.sizes)), int(item.loop.hi.evaluate(self.sizes))
        return lo, max(lo, hi)  # a piece of a loop may end before it begins

    def kept(self, slot: int) -> int:
        """How many points were kept along the dim of a stop; 0 where the run has not ended early."""
        held = self.buffers[slot]
        return 0 if held is None else int(self.compiled.backend.to_host(held))

    def lengths(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        """By a dim along which rows end each by itself, of which there are so many points: how many of each row."""
        found = {}
        for name, id in self._lengths().items():
            if name in sizes and name in self.compiled.stops:
                ends, size = self.compiled.backend.to_host(self._held(id, self.view(id))), sizes[name]
                found[name] = np.where(ends == 0, size, np.clip(ends, 0, size)).astype(np.int32)
        return found

    def computed_lengths(self) -> dict[str, Array]:
        """By a dim along which rows have lengths that the run computes, these, of the points that are kept."""
        ids = ((name, id) for name, id in self._lengths().items() if name not in self.compiled.stops)
        return {name: self.compiled.backend.to_host(self.output(id)) for name, id in ids}

    def _lengths(self) -> dict[str, int]:
        outputs = self.compiled.program.outputs.items()
        there = ((port.name, id) for port, id in outputs if port.role == "lengths")
        return {name: id for name, id in there if not self.is_gone(self.buffers[id])}

    def is_gone(self, array: Array | None) -> bool:
        """Whether it was never made, or a call that failed has taken it."""
        return array is None or self.compiled.backend.is_deleted(array)

    def has_ended(self, item: Item) -> bool:
        return item.stopped is not None and self.kept(item.stopped) > 0

    def _run(self, function: Callable[..., None], start: int, stop: int) -> None:
        if self.recorder is None:
            self._call(function, start, stop)
            return
        with self.recorder.stretch(self, start, stop):
            self._call(function, start, stop)

    def _call(self, function: Callable[..., None], start: int, stop: int) -> None:
        # Padding and points of guarded cases may hold anything; what operators make of it is never looked at.
        try:
            with np.errstate(all="ignore"):
                function(start, stop, *self.arguments, self.buffers, self.ready.tables, self.marks, self.pool)
        except Exception as error:
            if isinstance(error, TempoError) or not self.compiled.backend.is_out_of_memory(error):
                raise
            raise MemoryError(str(error)) from error  # told in the words of the plan by whoever has that

    def whole(self, item: Item) -> None:
        self._make(item)
        if not self.has_ended(item):
            self._run(item.function, *(self.bounds(item) if item.loop else (0, 0)))
        self._drop(item)

    @contextmanager
    def around(self, item: Item) -> Iterator[bool]:
        """Inside, the item may be run by whoever asks, in parts; whether it is run at all."""
        self._make(item)
        yield not self.has_ended(item)
        self._drop(item)

    def part(self, item: Item, start: int, stop: int | None = None) -> None:
        """A loop from there on, to its end or as far as is said; arrays are whole behind it."""
        with self._opened(item, item.drops if stop is None else ()):
            self._run(item.part, start, self.bounds(item)[1] if stop is None else stop)

    def skip(self) -> None:
        """Leave the next item out: what it would make is there."""
        self.item += 1

    def copied(self, id: int, axis: int = 0, first: int = 0, stop: int | None = None) -> np.ndarray[Any, Any]:
        """A copy of a buffer on the host, or of some positions of an axis. What lies in parts is whole: all processes
        that have some ask for it."""
        buffer, backend = self.compiled.program.buffers[id], self.compiled.backend
        array, order = self.buffers[id], self._lies(buffer)
        if self.pool is not None and id in self.pool.arrays:
            array, order = self.pool.arrays[id], None
        if isinstance(array, ByPoint):
            array = array.joined(backend.to_host)
        if stop is not None:
            axis = axis if order is None else order.index(axis)
            array = array[(slice(None),) * axis + (slice(first, stop),)]
        if buffer.is_part and any(buffer.placement):
            lies = permuted(buffer.placement, range(len(buffer.placement)) if order is None else order)
            array = backend.joined(array, lies)
        found = array if isinstance(array, np.ndarray) else backend.to_host(array)
        return np.array(found if order is None else found.transpose(_inverse(order)), order="C")

    def put(self, id: int, array: np.ndarray[Any, Any]) -> None:
        """What `copied` gave, as the buffer's array."""
        buffer, backend = self.compiled.program.buffers[id], self.compiled.backend
        if self.pool is not None and id in self.pool.arrays:
            self.buffers[id] = self.made(buffer)  # where the points come through
            self.pool.restore(id, array)
            return
        order = self._order(buffer) or tuple(range(array.ndim))
        made: Array = np.array(array.transpose(order), order="C")
        if id not in self.compiled.on_host:
            made = backend.owned(placed(backend, made, 0, permuted(buffer.placement, order)))
        if self._lies(buffer) is None:
            back = _inverse(order)
            made = made.transpose(back) if id in self.compiled.on_host else backend.transpose(made, back)
        self.buffers[id] = made

    def like(self, ready: Ready, buffers: Mapping[int, Array]) -> ProgramRun:
        """A run of the program at other sizes, in the middle of an item that has these buffers."""
        run = copy(self)
        run.ready, run.compiled, run.sizes = ready, ready.compiled, ready.sizes
        run.arguments = [run.sizes[symbol] for symbol in run.compiled.parameters]
        run.buffers = [buffers.get(id) for id in sorted(run.compiled.program.buffers)]
        return run

    def upto(self, item: Item, stop: int) -> None:
        """Run a loop only so far."""
        self._make(item)
        lo, hi = self.bounds(item)
        self._run(item.function, lo, max(lo, min(hi, stop)))

    def _make(self, item: Item) -> None:
        self.item += 1
        self.marks.clear()
        for id in item.makes:
            self.buffers[id] = self.made(self.compiled.program.buffers[id])
        if self._has_points:  # else nothing is called by point
            self._make_by_point()

    def _make_by_point(self) -> None:
        statement, buffers = self.compiled.program.items[self.item], self.buffers
        for id in self.compiled.makes_by_point(
            statement, lambda id: isinstance(buffers[id], ByPoint), lambda id: buffers[id] is not None
        ):
            buffers[id] = ByPoint([None] * self.ready.shapes[id][0])

    def _drop(self, item: Item) -> None:
        for id in item.drops:
            self.buffers[id] = None

    def chunks(self, item: Item, length: int | Length, until: int = 0) -> Iterator[tuple[int, int]]:
        """Run a loop in chunks, in its direction, unless the run ends early; yields (start, stop) after each. The first
        chunk of a forward loop goes on to `until`, where that is further."""
        points: Length = length if callable(length) else lambda: length
        assert item.loop is not None
        self._make(item)
        lo, hi = self.bounds(item)
        # All chunks take what a single call could take from the host.
        taken = () if item.segment is None else self.compiled.program.segments[item.segment].buffers
        self._put(
            {
                id: each_part(self.buffers[id], self.compiled.backend.from_host)
                for id in taken
                if id in self.compiled.handed_over
            }
        )
        with self._opened(item):
            for start, stop in _cut(lo, hi, points, item.loop.direction == "forward", until):
                if self.has_ended(item):
                    break
                self._run(item.part, start, stop)
                kept = 0 if item.stopped is None else self.kept(item.stopped)
                yield start, min(stop, kept) if kept else stop
        self._drop(item)

    @contextmanager
    def _opened(self, item: Item, drops: tuple[int, ...] | None = None) -> Iterator[None]:
        """Inside, the arrays of the item's segment are as chunks of it have them. What it only reads is kept whole.
        `drops`: what is not needed afterwards."""
        way = None if item.segment is None else self.compiled.segments[item.segment].in_chunks
        if item.segment is None or way is None:
            yield
            return
        segment = self.compiled.program.segments[item.segment]
        whole = {id: self.buffers[id] for id in segment.buffers}
        self._put(way.opened(whole))

        def close(dropped: tuple[int, ...]) -> None:
            written = {id: self.buffers[id] for id in segment.results if id not in dropped}
            self._put({id: array for id, array in whole.items() if id not in segment.results})
            self._put(way.closed(written))

        try:
            yield
        except TempoError:  # what was made so far may be asked for (`tempo.runtime.results.salvage`)
            close(())
            raise
        close(item.drops if drops is None else drops)

    def _put(self, arrays: Mapping[int, Array]) -> None:
        for id, array in arrays.items():
            self.buffers[id] = array

    def output(self, id: int) -> Array:
        """The array of an output, with the user's axes, and no more points than were kept."""
        backend, buffer, array = self.compiled.backend, self.compiled.program.buffers[id], self.view(id)
        for dim, slot in self.compiled.stops.items():
            if (symbol := Symbol(dim, "dim")) not in buffer.layout or is_chunked(buffer, symbol):
                continue
            axis, kept = buffer.layout.index(symbol), self.kept(slot)
            if 0 < kept < array.shape[axis]:
                array = backend.up_to(array, axis, kept)
        array = self._held(id, array)
        if id in self.compiled.on_host:
            return backend.from_host(array)
        own = backend.owned(array) if buffer.is_slot and backend.shares_memory else array
        return self.compiled.joined(id, own)

    def _given_back(self, id: int) -> Array:
        """The array of an output, which the run holds no longer where that is a copy."""
        array = self.output(id)
        if self.compiled.program.buffers[id].is_slot:
            self.buffers[id] = None
        return array

    def _held(self, id: int, array: Array) -> Array:
        """What an output is of its array, which may have places for all of a bucket."""
        if self.ready.held is None:
            return array
        buffer = self.compiled.program.buffers[id]
        dims = {axis: along for axis, along in enumerate(buffer.layout) if isinstance(along, Symbol)}
        circular = {axis for axis, dim in dims.items() if is_chunked(buffer, dim)}
        for axis, count in enumerate(self.ready.held.get(id, ())):
            if axis not in circular and count < array.shape[axis]:
                array = self.compiled.backend.up_to(array, axis, count)
        return array

    def view(self, id: int) -> Array:
        """What there is of an output, with the user's axes; NumPy's where it is on the host."""
        return self._turned(id, self.compiled.backend.transpose)

    def shown(self, id: int) -> Array:
        """The same, to read parts of, which may be NumPy's."""
        return self._turned(id, self.compiled.backend.shown)

    def _turned(self, id: int, turn: Callable[[Array, tuple[int, ...]], Array]) -> Array:
        array, axes = self.buffers[id], self.compiled.program.buffers[id].to_user
        return array.transpose(axes) if id in self.compiled.on_host else turn(array, axes)

    def handed(self, id: int, part: Array, axis: int) -> Array:
        """A part of what is shown along an axis, or a point of it, for good."""
        backend = self.compiled.backend
        if isinstance(part, np.ndarray | np.generic):
            return backend.from_host(np.array(part))
        buffer = self.compiled.program.buffers[id]
        return self.compiled.joined(id, backend.owned(part), axis if part.ndim < len(buffer.layout) else None)

    def results(self, without: Collection[str] = ()) -> Evaluated:
        """What a run that has ended gives; of outputs over a dim that the caller has taken bit by bit, nothing."""
        self.compiled.backend.synchronize()
        outputs = self.compiled.program.outputs.items()
        shown = ((port.name, id) for port, id in outputs if port.role == "output" and port.name not in without)
        taken = {name: self._given_back(id) for name, id in shown}
        states = {port.name: self._given_back(id) for port, id in outputs if port.role == "state"}
        kept = {dim: count for dim, slot in self.compiled.stops.items() if (count := self.kept(slot))}
        sizes = {**self.ready.named, **kept}
        return Evaluated(taken, states, kept, self.watched(), {**self.lengths(sizes), **self.computed_lengths()})

    def watched(self) -> dict[str, Array]:
        """What the outputs of role "watch" hold so far, as far as there is anything of them."""
        outputs = self.compiled.program.outputs.items()
        held = ((port.name, id) for port, id in outputs if port.role == "watch" and self.buffers[id] is not None)
        return {name: self.compiled.backend.to_host(self.output(id)) for name, id in held}


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def _poison(dtype: str) -> Any:
    if dtypes.is_float(dtype):
        return float("nan")
    return True if dtype == "bool" else dtypes.lowest(dtype)
