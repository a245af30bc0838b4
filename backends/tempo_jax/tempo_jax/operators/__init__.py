"""The operator table: what each primitive is on `jax.numpy` arrays, traced or not.

A builder takes a `Call` and returns a function of the arrays and then the run-time scalars (Python integers or traced
int32 scalars). The result has exactly the shape and dtype of `call.result`, and is never weakly typed. A call with a
64-bit dtype must be traced within `tempo_jax.precision.x64()`.

Compiled code raises nothing, so `checked` indices are clamped as unchecked ones are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tempo.backends.operators import Builder
from tempo_jax.operators.attention import ATTENTION
from tempo_jax.operators.calls import CALLS
from tempo_jax.operators.contractions import CONTRACTIONS, IN_PARTS
from tempo_jax.operators.creation import CREATION
from tempo_jax.operators.elementwise import ELEMENTWISE
from tempo_jax.operators.extents import EXTENTS
from tempo_jax.operators.indexing import INDEXING
from tempo_jax.operators.movement import MOVEMENT
from tempo_jax.operators.random import RANDOM
from tempo_jax.operators.reductions import REDUCTIONS
from tempo_jax.precision import x64

OPERATORS: Mapping[str, Builder] = MappingProxyType(
    {
        **ELEMENTWISE,
        **MOVEMENT,
        **EXTENTS,
        **REDUCTIONS,
        **CONTRACTIONS,
        **ATTENTION,
        **INDEXING,
        **CREATION,
        **RANDOM,
        **CALLS,
    }
)

__all__ = ["IN_PARTS", "OPERATORS", "x64"]
