"""Which buffers the driver keeps as arrays of NumPy's, whatever the backend.

A call of the host gives one, and to put it into an array of the backend's takes longer than the call, at every step.
"""

from __future__ import annotations

from tempo.loop_ir.analysis.whole_points import source_of
from tempo.loop_ir.ir import CallHost, Loop, LoopProgram, walk
from tempo.loop_ir.transforms.read_ahead import staging


def host_arrays(program: LoopProgram) -> frozenset[int]:
    """What arrays are taken into before a segment is given them, and outputs that calls of the host alone touch."""
    taken = (id for item in program.items if isinstance(item, Loop) for id in staging(item))
    calls = [each for each in walk(program.items) if isinstance(each, CallHost)]
    written = {write.buffer for call in calls for write in call.writes}
    elsewhere = {read.buffer for call in calls for read in call.reads}
    elsewhere.update(id for segment in program.segments for id in segment.buffers)
    elsewhere.update(source_of(program, port) for port in program.outputs if port.role == "state")
    buffers = (program.buffers[id] for id in written - elsewhere)
    outputs = (each.id for each in buffers if each.role == "output" and each.axes and not each.is_circular)
    return frozenset((*taken, *outputs))
