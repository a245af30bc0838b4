"""What a run has made of whole points when a call fails in the middle of one.

Points are whole that come before all of what the iteration that failed makes. Outputs have places for them. A parameter
may have been replaced since: what a loop of the host replaces is held over its last iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tempo.loop_ir.ir import Buffer, CallHost, Loop, LoopProgram, Offsets, Statement, Write, walk
from tempo.sdg.graph import Port
from tempo.symbolic import Symbol, var


@dataclass(frozen=True)
class Marks:
    """At the end of each iteration of a loop, the buffers that are remembered; `copied`: they are written in place.

    `late`: how many iterations after its own a point is whole; `depth`: how many iterations are remembered.
    """

    held: tuple[int, ...] = ()
    copied: frozenset[int] = frozenset()
    late: int = 0
    depth: int = 2


def marks(program: LoopProgram, number: int, dim: Symbol) -> Marks:
    """Of the item `number`, a loop of the host over `dim`."""
    offsets = program.offsets.get(number, {})
    sources = {source_of(program, port) for port in program.outputs if port.role == "state"}
    counted = [id for port, id in program.outputs.items() if port.role == "output" or id in sources]
    late = max((-offsets[id][0] for id in (*counted, *sources) if id in offsets), default=0)
    late = max(late, 0, *(-behind for behind in _calls(program, program.items[number], dim)))
    held = tuple(sorted(id for id in sources if id in offsets and not _stays(program.buffers[id], dim, offsets, late)))
    copied = frozenset(id for id in held if not program.buffers[id].is_slot)
    ahead = max((offsets[id][1] for id in held), default=0)
    return Marks(held, copied, late, late + max(ahead, 0) + 2)


def _calls(program: LoopProgram, item: Statement, dim: Symbol) -> Iterator[int]:
    """How many points after its own the calls are for that an iteration makes."""
    calls = ((each, program.hosts[each.call].domain) for each in walk((item,)) if isinstance(each, CallHost))
    points = (call.point[domain.index(dim)] - var(dim) for call, domain in calls if dim in domain)
    return (point.as_int() for point in points if point.is_const)


def source_of(program: LoopProgram, state: Port) -> int:
    """The buffer from which the state is read."""
    found = program.states.get(state)
    return program.outputs[state] if found is None else found.read.buffer


def replaced(program: LoopProgram) -> frozenset[int]:
    """Slots that are remembered as they are: nobody may write to what was in them."""
    found: set[int] = set()
    for number, item in enumerate(program.items):
        if isinstance(item, Loop) and number in program.offsets:
            found.update(marks(program, number, item.var).held)
    return frozenset(id for id in found if program.buffers[id].is_slot)


def _stays(buffer: Buffer, dim: Symbol, offsets: Offsets, late: int) -> bool:
    """Whether the last whole point has a place that the iteration after it does not write to."""
    axis = next((axis for axis in buffer.axes if axis.dim == dim), None)
    if axis is None:
        return False
    return axis.kind == "full" or axis.extent.as_int() > 1 + offsets[buffer.id][1] + late


def writers(program: LoopProgram) -> Mapping[int, set[int]]:
    """By buffer, the items that write to it."""
    found: dict[int, set[int]] = {}
    for number, item in enumerate(program.items):
        own = {each.buffer for each in walk((item,)) if isinstance(each, Write)}
        for id in own.union(*(segment.results for segment in program.called((item,)))):
            found.setdefault(id, set()).add(number)
    return found
