"""A model on a mesh of devices: its matrices in columns and rows along "model", its rows of text along "data".

Of two maps one behind the other the first is cut by its outputs and the second by its inputs, so that what lies between
them lies in parts and one all-reduce adds up what the second gives: two for each layer and token.

Source: Shoeybi et al. 2019, "Megatron-LM", section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tempo as tp
from tempo.llm.families import Family
from tempo.llm.weights import SCALE

MODEL, DATA = "model", "data"


@dataclass(frozen=True)
class Parallel:
    """How the programs of a model lie on a mesh."""

    mesh: tp.Mesh
    family: Family
    quantized: bool = False

    def __post_init__(self) -> None:
        """Raises `tp.InputError` for axes that are none of these, `tp.SizeError` for heads that are not divided."""
        unknown = [name for name in self.mesh.axes if name not in (MODEL, DATA)]
        if unknown:
            raise tp.InputError(f"a model does not lie along {unknown[0]!r}", hint=f"there are {MODEL!r} and {DATA!r}")
        count = self.mesh.axes.get(MODEL, 1)
        for what, size in (("key-value heads", self.family.kv_heads), ("inner features", self.family.intermediate)):
            if size % count:
                raise tp.SizeError(f"the model has {size} {what}, which {count} devices along {MODEL!r} do not divide")

    def ways(self, *, rows: str | None = None, weights: bool = True, caches: Sequence[str] = ()) -> dict[str, Any]:
        """Arguments of `tp.compile`. `rows`: the dim of the rows of text; `weights`: whether the program has them;
        `caches`: its inputs that hold keys or values, (kv_heads, head_dim)."""
        place = self._weights() if weights else {}
        place |= dict.fromkeys(caches, (self._over, None))
        cut = {name: axes for name, axes in place.items() if any(axes)}
        shard = {rows: DATA} if rows is not None and DATA in self.mesh.axes else {}
        return {"mesh": self.mesh, "place": cut, "shard": shard}

    @property
    def _over(self) -> str | None:
        return MODEL if MODEL in self.mesh.axes else None

    def _weights(self) -> dict[str, tuple[str | None, ...]]:
        weights, found = self.family.weights(), dict[str, tuple[str | None, ...]]()
        for names, is_column in ((self.family.columns, True), (self.family.rows, False)):
            for name in (name for name in names if name in weights):
                outputs = weights[name].outputs
                assert outputs is not None, "a matrix"
                axis = outputs if is_column else 1 - outputs
                found[name] = tuple(self._over if at == axis else None for at in range(2))
                if is_column:
                    beside = [f"{name}_bias"] if f"{name}_bias" in weights else []
                    beside += [name + SCALE] if self.quantized else []
                    found |= dict.fromkeys(beside, (self._over,))
        return found
