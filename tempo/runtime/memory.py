"""What a run holds in memory, from its code and the sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tempo import dtypes
from tempo.errors import InputError, MemoryLimitError
from tempo.loop_ir.analysis.heap import Heap, Piece
from tempo.loop_ir.analysis.liveness import buffer_bytes
from tempo.loop_ir.ir import Buffer, LoopProgram
from tempo.runtime.host_pool import Traffic, planned_traffic
from tempo.runtime.memory_plot import plot_memory
from tempo.symbolic import Symbol

if TYPE_CHECKING:
    from tempo.runtime.compiled import Ready
    from tempo.runtime.limit import Choice

_LARGEST = 3
_SHOWN = 8


@dataclass(frozen=True)
class BufferMemory:
    """One tensor's memory. `storage`: "register", "point", "window(8)", "full", one per dim ("full x window(2)").

    On a mesh `bytes` are those of one device; `shape` is that of all of it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    storage: str
    role: str


@dataclass(frozen=True)
class Memory:
    """What a run of one executable holds at its sizes, on its backend.

    `buffers` are inputs, constants, outputs and the rest, each whole. What lives at once is found by running the code
    on a heap without contents. What XLA needs for itself is what it says when it has compiled, and the first look waits
    for that; of what other libraries need for themselves, within one operator, nothing is known. `choices`: the plans
    that were looked at where memory is limited (`tp.compile(..., memory_limit=...)`) or several schedulers were asked,
    the last of which is run. `pool`: the arrays in the host pool (`tp.compile(..., offload=...)`), whole; `buffers` has
    what the backend has of them.
    """

    buffers: tuple[BufferMemory, ...]
    choices: tuple[Choice, ...]
    _heap: Callable[[], Heap] = field(repr=False, compare=False)
    _traffic: Callable[[], Traffic] = field(repr=False, compare=False)
    pool: tuple[BufferMemory, ...] = ()

    @cached_property
    def _run(self) -> Heap:
        return self._heap()

    def __getstate__(self) -> dict[str, Any]:
        """With what was found, without the executable that it was found with."""
        kept = {"buffers": self.buffers, "choices": self.choices, "pool": self.pool}
        return {**kept, "_run": self._run, "traffic": self.traffic}

    @cached_property
    def traffic(self) -> Traffic:
        """The bytes that a run sends to the host pool (`evicted`), and those that it takes from there (`fetched`)."""
        return self._traffic()

    @property
    def pool_bytes(self) -> int:
        """What the host pool holds, beside the peak; inputs that stay on the host lie where they were given."""
        return sum(each.bytes for each in self.pool if each.role != "input")

    @property
    def peak_bytes(self) -> int:
        """The most that live at once: `given_bytes`, `returned_bytes` and `working_bytes`."""
        return self._run.peak

    @property
    def at_peak(self) -> tuple[Piece, ...]:
        """What lives when the most does, the largest first: by the user's names and lines."""
        return tuple(sorted(self._run.at_peak, key=lambda piece: -piece.bytes))

    @property
    def given_bytes(self) -> int:
        """Of the peak, inputs and constants: they are there before the run, and after it."""
        return self._at_peak("given")

    @property
    def returned_bytes(self) -> int:
        """Of the peak, arrays that the run returns, as far as they are there by then."""
        return self._at_peak("returned")

    @property
    def working_bytes(self) -> int:
        """Of the peak, what is gone when the run has ended."""
        return self._at_peak("between")

    def _at_peak(self, role: str) -> int:
        return sum(piece.bytes for piece in self._run.at_peak if piece.role == role)

    def plot(self, path: str | Path) -> None:
        """Draw what lives along the run, as a picture in a file: PNG, SVG or PDF, by its name.

        The horizontal axis has all that is made and let go of, in order; of a loop its first iterations. Raises
        `MissingPackageError` without matplotlib.
        """
        plot_memory(self._run, Path(path))

    def __getitem__(self, name: str) -> BufferMemory:
        """The buffer of the tensor called `name`. Raises `InputError` where none has that name."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        names = sorted({buffer.name for buffer in self.buffers})
        raise InputError(f"no buffer is called {name!r}", hint=f"there are: {', '.join(names) or 'none'}")

    def __str__(self) -> str:
        rows = [f"{b.name:<24} {b.role:<9} {b.storage:<20} {b.dtype}{list(b.shape)}  {b.bytes} B" for b in self.buffers]
        parts = f"{self.given_bytes} B given, {self.returned_bytes} B returned, {self.working_bytes} B between"
        largest = (f"  {piece}" for piece in self.at_peak[:_SHOWN] if piece.bytes)
        if self.pool:
            away = ", ".join(each.name for each in self.pool)
            moved = f"{self.traffic.evicted} B go there and {self.traffic.fetched} B come back"
            rows.append(f"in the host pool {self.pool_bytes} B ({away}): {moved}")
        return "\n".join([*rows, f"peak {self.peak_bytes} B: {parts}; then there are", *largest])


def check_room(program: LoopProgram, sizes: Mapping[Symbol, int], room: int | None) -> None:
    """Raises `MemoryLimitError`, before anything is made, for an array that is larger than all memory there is, or
    outputs that are so together. What is given is there already; what lives in a segment may never be there at once.
    """
    made = [buffer for buffer in program.buffers.values() if buffer.role in ("internal", "output")]
    if room is None or not made:
        return
    bytes = {buffer.id: buffer_bytes(program, buffer.id, sizes) for buffer in made}
    largest = max(made, key=lambda buffer: bytes[buffer.id])
    if bytes[largest.id] > room:
        raise too_large(largest, sizes, f"there is memory for {room} B")
    outputs = sum(bytes[buffer.id] for buffer in made if buffer.role == "output")
    if outputs > room:
        raise too_large(largest, sizes, f"the outputs take {outputs} B, and there is memory for {room} B")


def too_large(buffer: Buffer, sizes: Mapping[Symbol, int], why: str) -> MemoryLimitError:
    """The error of an array that cannot be made."""
    entry = _entry(buffer, sizes, buffer.storage)
    return MemoryLimitError(
        f"{entry.name}: {entry.dtype}{list(entry.shape)}, {entry.bytes} B, does not fit into memory: {why}",
        location=buffer.location,
        hint="use smaller sizes, or keep fewer points: what no output needs whole is not stored whole, and"
        " run.stream(..., keep=False) keeps no outputs",
    )


@contextmanager
def told_what_is_large(planned: Callable[[], tuple[BufferMemory, ...]]) -> Iterator[None]:
    """A `MemoryError` of an array library becomes a `MemoryLimitError` that names the largest buffers of the plan."""
    try:
        yield
    except MemoryLimitError:
        raise
    except MemoryError as error:
        hint = "use smaller sizes, or keep fewer points: what no output needs whole is not stored whole"
        if buffers := planned():
            largest = sorted(buffers, key=lambda buffer: buffer.bytes, reverse=True)[:_LARGEST]
            named = "".join(f"\n    {each.name}: {each.dtype}{list(each.shape)}, {each.bytes} B" for each in largest)
            hint = f"{hint}; the largest of the plan are{named}"
        raise MemoryLimitError(f"the run does not fit into memory: {error}", hint=hint) from error


def memory_of(ready: Ready, choices: tuple[Choice, ...] = ()) -> Memory:
    loops, code = ready.plan.loops, ready.compiled.program
    windows = {id: buffer for id, buffer in code.buffers.items() if buffer.pooled or buffer.placement}
    lying = {id: buffer for id, buffer in windows.items() if id in loops.buffers}
    here = buffers_of(replace(loops, buffers={**loops.buffers, **lying}), ready.sizes)
    pool = tuple(_entry(loops.buffers[each.id], ready.sizes, loops.buffers[each.id].storage) for each in ready.pooled)
    return Memory(here, choices, lambda: ready.heap, lambda: planned_traffic(code, ready.sizes), pool)


def buffers_of(program: LoopProgram, sizes: Mapping[Symbol, int]) -> tuple[BufferMemory, ...]:
    """Of a program's loops, all buffers, and the values that never leave the block that makes them."""
    kept = (_entry(buffer, sizes, buffer.storage) for buffer in program.buffers.values())
    registers = (_entry(buffer, sizes, "register") for buffer in program.registers)
    return (*kept, *registers)


def _entry(buffer: Buffer, sizes: Mapping[Symbol, int], storage: str) -> BufferMemory:
    role = "temporary" if storage == "register" else buffer.role
    bytes = math.prod(buffer.local_extents(sizes)) * dtypes.itemsize(buffer.dtype)
    return BufferMemory(buffer.name, buffer.whole_extents(sizes), buffer.dtype, bytes, storage, role)
