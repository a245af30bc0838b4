"""Facts about loops for backends that compile them whole: where to split, what iterations hand on, how arrays lie."""

from tempo.loop_ir.analysis.carried_values import Place, Reaches, earlier, overwrites, reaches, read_place, recent
from tempo.loop_ir.analysis.layouts import layouts_in_segments, touched_by_iteration
from tempo.loop_ir.analysis.liveness import (
    Liveness,
    buffer_bytes,
    bytes_at_most,
    dropped,
    given_up,
    in_segments,
    made_first,
)
from tempo.loop_ir.analysis.names import used
from tempo.loop_ir.analysis.whole_points import replaced
from tempo.loop_ir.transforms.array_shrinking import ArrayShrinking
from tempo.loop_ir.transforms.coalescing import Coalescing
from tempo.loop_ir.transforms.loop_splitting import LoopStretch, is_empty, iterations, split

__all__ = [
    "ArrayShrinking",
    "Coalescing",
    "Liveness",
    "LoopStretch",
    "Place",
    "Reaches",
    "buffer_bytes",
    "bytes_at_most",
    "dropped",
    "earlier",
    "given_up",
    "in_segments",
    "is_empty",
    "iterations",
    "layouts_in_segments",
    "made_first",
    "overwrites",
    "read_place",
    "reaches",
    "recent",
    "replaced",
    "split",
    "touched_by_iteration",
    "used",
]
