"""The host pool of a run: arrays of the host, of which a backend's arrays have some points at a time.

It is memory of the host, or files in a folder that are mapped and gone when the run has ended; all of it is claimed
before the run begins. Of files, what is fetched next is taken out while a chunk runs, by a thread.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.backends.base import Backend
from tempo.backends.room import host_room
from tempo.errors import InputError, MemoryLimitError, user_location
from tempo.loop_ir.ir import (
    Block,
    Branch,
    Buffer,
    Evict,
    Fetch,
    Guard,
    Loop,
    LoopProgram,
    Transfer,
    expressions,
    nested,
    walk,
)
from tempo.symbolic import Symbol

Array = Any
HOST = "host"


def folder_of(offload: Any) -> Path | None:
    """The folder of a pool, None for memory. Raises InputError for what is neither "host" nor a folder to write in."""
    if offload is None or offload == HOST:
        return None
    if not isinstance(offload, str | os.PathLike):
        raise _refused(offload, "it is neither a text nor a path")
    folder = Path(offload).expanduser().absolute()
    if not folder.is_dir():
        raise _refused(offload, "there is no such folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise _refused(offload, f"no file can be made there ({error.strerror})") from error
    return folder


def _refused(offload: Any, why: str) -> InputError:
    hint = 'write offload="host", or a folder that there is and that can be written to'
    return InputError(f"offload={str(offload)!r}: {why}", location=user_location(), hint=hint)


@dataclass
class Traffic:
    """Bytes that went to a pool, and that came from it."""

    evicted: int = 0
    fetched: int = 0


class Ledger:
    """Which points of each buffer are in the pool, and what has gone there and come back."""

    def __init__(self, buffers: Iterable[Buffer], sizes: Mapping[Symbol, int]) -> None:
        buffers = tuple(buffers)
        self.given = {buffer.id for buffer in buffers if buffer.is_given}
        self.traffic = Traffic()
        self.there: dict[int, tuple[int, int]] = {}
        self.shapes = {buffer.id: _whole(buffer, sizes) for buffer in buffers}
        self.axes = {buffer.id: buffer.pooled[0] for buffer in buffers if buffer.pooled is not None}
        whole = [*self.given, *(buffer.id for buffer in buffers if buffer.zeroed)]  # a pool begins with zeros
        self.there.update((id, (0, self.shapes[id][self.axes[id]])) for id in whole)
        self.dtypes = {buffer.id: buffer.dtype for buffer in buffers}

    def bytes(self, buffer: int) -> int:
        return math.prod(self.shapes[buffer]) * dtypes.itemsize(self.dtypes[buffer])

    @property
    def claimed(self) -> int:
        """The bytes that the pool needs: inputs lie where they were given."""
        return sum(self.bytes(id) for id in self.shapes if id not in self.given)

    def moved(self, buffer: int, start: int, stop: int) -> int:
        """The bytes of these points."""
        points = self.shapes[buffer][self.axes[buffer]]
        return (stop - start) * self.bytes(buffer) // max(1, points)

    def evicting(self, buffer: int, start: int, stop: int) -> tuple[int, int]:
        """Those of the points that there are."""
        start, stop = max(0, start), min(stop, self.shapes[buffer][self.axes[buffer]])
        if start < stop:
            first, last = self.there.get(buffer, (start, stop))
            self.there[buffer] = min(first, start), max(last, stop)
            self.traffic.evicted += self.moved(buffer, start, stop)
        return start, stop

    def held(self, buffer: int, start: int, stop: int) -> tuple[int, int]:
        """Those of the points that are there."""
        first, last = self.there.get(buffer, (0, 0))
        return max(first, start), min(last, stop)

    def fetching(self, buffer: int, start: int, stop: int) -> tuple[int, int]:
        start, stop = self.held(buffer, start, stop)
        if start < stop:
            self.traffic.fetched += self.moved(buffer, start, stop)
        return start, stop


def _whole(buffer: Buffer, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
    assert buffer.pooled is not None, "it is in the pool"
    axis, points = buffer.pooled
    shape = buffer.extents(sizes)
    return (*shape[:axis], points, *shape[axis + 1 :])


class HostPool:
    """What the source of the driver calls as `pool`."""

    def __init__(
        self,
        backend: Backend,
        buffers: Iterable[Buffer],
        sizes: Mapping[Symbol, int],
        folder: Path | None,
        given: Mapping[int, np.ndarray[Any, Any]],
    ) -> None:
        """`given`: inputs, which lie where they are."""
        self.backend, self.ledger = backend, Ledger(buffers, sizes)
        made = (id for id in self.ledger.shapes if id not in given)
        self.arrays = {**given, **{id: self._claimed(id, folder) for id in made}}
        self._ahead: dict[int, tuple[tuple[int, int], Future[np.ndarray[Any, Any]]]] = {}
        self._thread = None if folder is None else ThreadPoolExecutor(1, "tempo-host-pool")

    def evict(self, buffer: int, array: Array, start: int, stop: int, base: int) -> None:
        start, stop = self.ledger.evicting(buffer, start, stop)
        self._ahead.pop(buffer, None)  # taken out for a loop that has ended
        if start < stop:
            held = self.backend.to_host(array)
            self._points(buffer, start, stop)[...] = held[self._along(buffer, start - base, stop - base)]

    def fetch(self, buffer: int, array: Array, start: int, stop: int, base: int, *ahead: int) -> Array:
        """The array with these points in it. `ahead`: those that are fetched next, from where to where."""
        start, stop = self.ledger.fetching(buffer, start, stop)
        points, taken = self._ahead.pop(buffer, ((0, 0), None))
        if start < stop:
            is_there = taken is not None and points == (start, stop)
            part = taken.result() if taken and is_there else self._points(buffer, start, stop)
            array = self.backend.stored(array, self.ledger.axes[buffer], start - base, part)
        if ahead and self._thread is not None and (later := self.ledger.held(buffer, *ahead))[0] < later[1]:
            self._ahead[buffer] = later, self._thread.submit(self._taken, buffer, *later)
        return array

    def restore(self, buffer: int, array: np.ndarray[Any, Any]) -> None:
        """All of a buffer, as it was."""
        self.arrays[buffer][...] = array
        self.ledger.there[buffer] = 0, array.shape[self.ledger.axes[buffer]]

    def _taken(self, buffer: int, start: int, stop: int) -> np.ndarray[Any, Any]:
        """A copy of points, which is how they are read from a file; a backend may still look at it when the next is."""
        points = self._points(buffer, start, stop)
        taken = np.ndarray(points.shape, points.dtype, mmap.mmap(-1, max(1, points.nbytes)))
        taken[...] = points
        return taken

    def _points(self, buffer: int, start: int, stop: int) -> np.ndarray[Any, Any]:
        points: np.ndarray[Any, Any] = self.arrays[buffer][self._along(buffer, start, stop)]
        return points

    def _along(self, buffer: int, start: int, stop: int) -> tuple[slice, ...]:
        return (*[slice(None)] * self.ledger.axes[buffer], slice(start, stop))

    def _claimed(self, buffer: int, folder: Path | None) -> np.ndarray[Any, Any]:
        """An array of the pool. Raises MemoryLimitError where there is no room for it."""
        shape, dtype, bytes = self.ledger.shapes[buffer], self.ledger.dtypes[buffer], self.ledger.bytes(buffer)
        try:
            memory = _in_memory(bytes) if folder is None else _in_folder(folder, bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG):
                raise InputError(f"the folder of the host pool {folder} cannot be written to: {error}") from error
            needed = self.ledger.claimed
            where = "memory of the host" if folder is None else f"the folder {folder}"
            hint = "use smaller sizes, or a pool with more room: offload= takes a folder"
            raise MemoryLimitError(f"{where} has no room for the host pool, {needed} B", hint=hint) from error
        return np.ndarray(shape, dtypes.to_numpy(dtype), memory)


def _in_memory(bytes: int) -> mmap.mmap:
    room = host_room()
    if room is not None and bytes > room:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    return mmap.mmap(-1, max(1, bytes))


def _in_folder(folder: Path, bytes: int) -> mmap.mmap:
    """A file without a name, of which every block is there: a mapped file cannot say later that there is none."""
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, max(1, bytes))
        else:
            file.truncate(max(1, bytes))
        return mmap.mmap(file.fileno(), max(1, bytes))


def planned_traffic(program: LoopProgram, sizes: Mapping[Symbol, int]) -> Traffic:
    """What a run of a program sends to its pool and takes from it."""
    pooled = [buffer for buffer in program.buffers.values() if buffer.pooled is not None]
    ledger = Ledger(pooled, sizes)
    _run(program.items, dict(sizes), ledger)
    return ledger.traffic


def _run(block: Block, values: dict[Symbol, int], ledger: Ledger) -> None:
    for statement in block:
        if not any(isinstance(each, Transfer) for each in walk((statement,))):
            continue
        match statement:
            case Evict(buffer, start, stop):
                ledger.evicting(buffer, int(start.evaluate(values)), int(stop.evaluate(values)))
            case Fetch(buffer, start, stop):
                ledger.fetching(buffer, int(start.evaluate(values)), int(stop.evaluate(values)))
            case Loop():
                _repeat(statement, values, ledger)
            case Branch(condition, then, otherwise):
                _run(then if condition.evaluate(values) else otherwise, values, ledger)
            case Guard():
                for inner in nested(statement):
                    _run(inner, values, ledger)


def _repeat(loop: Loop, values: dict[Symbol, int], ledger: Ledger) -> None:
    """Iterations of a loop around others are alike, but for the first, before which there is nothing in the pool."""
    lo, hi = int(loop.lo.evaluate(values)), int(loop.hi.evaluate(values))
    points = range(lo, hi) if loop.direction == "forward" else range(hi - 1, lo - 1, -1)
    is_moving = any(loop.var in expr.symbols() for each in walk(loop.body) for expr in expressions(each))
    before = Traffic()
    for point in points if is_moving else points[:2]:
        before = Traffic(ledger.traffic.evicted, ledger.traffic.fetched)
        _run(loop.body, {**values, loop.var: point}, ledger)
    more = 0 if is_moving else max(0, len(points) - 2)
    ledger.traffic.evicted += more * (ledger.traffic.evicted - before.evicted)
    ledger.traffic.fetched += more * (ledger.traffic.fetched - before.fetched)
