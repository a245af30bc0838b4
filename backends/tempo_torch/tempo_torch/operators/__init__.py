"""The operator table: name to `builder(call, device)`, which makes a function of tensors, then run-time scalars."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tempo_torch.operators.attention import ATTENTION
from tempo_torch.operators.banded import BANDED
from tempo_torch.operators.builder import Builder, Function, Operation, moved_first
from tempo_torch.operators.calls import CALLS
from tempo_torch.operators.composites import COMPOSITES
from tempo_torch.operators.contractions import CONTRACTIONS
from tempo_torch.operators.creation import CREATION
from tempo_torch.operators.elementwise import ELEMENTWISE
from tempo_torch.operators.extents import EXTENTS
from tempo_torch.operators.indexing import INDEXING
from tempo_torch.operators.movement import MOVEMENT
from tempo_torch.operators.reductions import REDUCTIONS

TABLE: Mapping[str, Builder] = MappingProxyType(
    {
        **ELEMENTWISE,
        **MOVEMENT,
        **EXTENTS,
        **REDUCTIONS,
        **CONTRACTIONS,
        **COMPOSITES,
        **ATTENTION,
        **BANDED,
        **INDEXING,
        **CREATION,
        **CALLS,
    }
)

__all__ = ["TABLE", "Builder", "Function", "Operation", "moved_first"]
