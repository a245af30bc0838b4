"""What a run keeps in memory, from the plan and the sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tempo import dtypes
from tempo.errors import InputError, MemoryLimitError
from tempo.loop_ir.analysis.liveness import buffer_bytes, peak_bytes
from tempo.loop_ir.ir import Buffer, LoopProgram
from tempo.symbolic import Symbol

_LARGEST = 3


@dataclass(frozen=True)
class BufferMemory:
    """One tensor's memory. `storage`: "register", "point", "window(8)", "full", one per dim ("full x window(2)")."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    storage: str
    role: str


@dataclass(frozen=True)
class Memory:
    """`buffers` of a run: inputs, constants, outputs and the rest; `peak_bytes`: the most that live at once."""

    buffers: tuple[BufferMemory, ...]
    peak_bytes: int

    def __getitem__(self, name: str) -> BufferMemory:
        """The buffer of the tensor called `name`. Raises `InputError` where none has that name."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        names = sorted({buffer.name for buffer in self.buffers})
        raise InputError(f"no buffer is called {name!r}", hint=f"there are: {', '.join(names) or 'none'}")

    def __str__(self) -> str:
        rows = [f"{b.name:<24} {b.role:<9} {b.storage:<20} {b.dtype}{list(b.shape)}  {b.bytes} B" for b in self.buffers]
        return "\n".join([*rows, f"peak {self.peak_bytes} B"])


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
def told_what_is_large(plan: Callable[[], Memory | None]) -> Iterator[None]:
    """A `MemoryError` of an array library becomes a `MemoryLimitError` that names the largest buffers of the plan."""
    try:
        yield
    except MemoryLimitError:
        raise
    except MemoryError as error:
        memory = plan()
        hint = "use smaller sizes, or keep fewer points: what no output needs whole is not stored whole"
        if memory is not None:
            largest = sorted(memory.buffers, key=lambda buffer: buffer.bytes, reverse=True)[:_LARGEST]
            named = "".join(f"\n    {each.name}: {each.dtype}{list(each.shape)}, {each.bytes} B" for each in largest)
            hint = f"{hint}; the plan has {memory.peak_bytes} B, most of it in{named}"
        raise MemoryLimitError(f"the run does not fit into memory: {error}", hint=hint) from error


def memory_of(program: LoopProgram, sizes: Mapping[Symbol, int]) -> Memory:
    kept = [_entry(buffer, sizes, buffer.storage) for buffer in program.buffers.values()]
    registers = [_entry(buffer, sizes, "register") for buffer in program.registers]
    return Memory((*kept, *registers), peak_bytes(program, sizes))


def _entry(buffer: Buffer, sizes: Mapping[Symbol, int], storage: str) -> BufferMemory:
    shape = buffer.extents(sizes)
    role = "temporary" if storage == "register" else buffer.role
    return BufferMemory(
        buffer.name, shape, buffer.dtype, math.prod(shape) * dtypes.itemsize(buffer.dtype), storage, role
    )
