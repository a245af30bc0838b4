"""Every pass on LoopIR, in order: those for all sizes, and those at the sizes that shapes are made of."""

from __future__ import annotations

from tempo.costs import Way
from tempo.loop_ir.passes import LoopPass
from tempo.loop_ir.transforms.array_shrinking import ArrayShrinking
from tempo.loop_ir.transforms.circular_reads import ChunkedOutputs, CircularReads
from tempo.loop_ir.transforms.copy_propagation import CopyPropagation
from tempo.loop_ir.transforms.dynamic_extent.versions import DynamicExtents
from tempo.loop_ir.transforms.forwarding import Forwarding
from tempo.loop_ir.transforms.fuse_segments import FuseSegments, PassThrough
from tempo.loop_ir.transforms.mask_elimination import MaskElimination
from tempo.loop_ir.transforms.offload.rewriting import Offload
from tempo.loop_ir.transforms.read_ahead import TakeAhead
from tempo.loop_ir.transforms.rematerialization import Rematerialization


def for_all_sizes() -> tuple[LoopPass, ...]:
    return (Forwarding(), CopyPropagation(), Rematerialization())


def for_streams() -> tuple[LoopPass, ...]:
    """For all sizes, where a caller takes outputs as they come."""
    return (ChunkedOutputs(),)


def at_sizes(extent: Way | None = None, tile: int | None = None) -> tuple[LoopPass, ...]:
    return (
        FuseSegments(),
        CircularReads(),
        ArrayShrinking(),
        DynamicExtents(extent, tile),
        MaskElimination(),  # of what is still read at its greatest length
        Offload(),
        TakeAhead(),
        PassThrough(),
    )
