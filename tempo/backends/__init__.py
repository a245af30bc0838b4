"""What a backend is, and all that it may build on. A backend imports nothing else of the core but `tempo.dtypes`,
`tempo.errors`, `tempo.plugins`, `tempo.symbolic` and, to keep files and to tell of long calls, `tempo.caches` and
`tempo.waiting`.

here        the contract, costs, and what the host has
operators   the primitives, their meaning, what a call of one knows
loop_ir     what is compiled: statements, loops, buffers
emission    Python source for it, for backends that run operators one by one
loops       facts about loops, for backends that compile them whole
tracing     a backend's own profiler, for `run.profile`
"""

from tempo.backends.base import (
    Backend,
    CompiledSegment,
    GenericBackend,
    InChunks,
    SegmentFunction,
    SegmentRequest,
    Submit,
)
from tempo.backends.by_point import ByPoint
from tempo.backends.room import host_room, processors
from tempo.costs import EAGER, EAGER_CUDA, FUSED, FUSED_CUDA, POINTS, RUNS, Costs
from tempo.loop_ir.analysis.index_bits import NARROW
from tempo.placement.mesh import Mesh, Placement, Shards, permuted

__all__ = [
    "Backend",
    "ByPoint",
    "CompiledSegment",
    "Costs",
    "EAGER",
    "EAGER_CUDA",
    "FUSED",
    "FUSED_CUDA",
    "GenericBackend",
    "InChunks",
    "Mesh",
    "NARROW",
    "POINTS",
    "Placement",
    "RUNS",
    "SegmentFunction",
    "SegmentRequest",
    "Shards",
    "Submit",
    "host_room",
    "permuted",
    "processors",
]
