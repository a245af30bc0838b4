"""NumPy's backend as if it had many devices: plans are made, and sizes looked at, but nothing runs on a mesh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.compiler.driver import Specialised
from tempo.runtime.engine import CompiledEngine
from tempo.symbolic import conjunction, var


class Meshed(NumpyBackend):
    """The capability, and no more."""

    info = replace(NumpyBackend.info, capabilities=replace(NumpyBackend.info.capabilities, meshes=True))

    def __init__(self, coordinates: dict[str, int] | None = None) -> None:
        """`coordinates`: it is the process at this place of the mesh."""
        self.coordinates = coordinates

    def with_mesh(self, mesh: tp.Mesh) -> Meshed:
        return self


def specialised(
    program: tp.Program,
    mesh: dict[str, int],
    sizes: dict[str, int],
    coordinates: dict[str, int] | None = None,
    **given: Any,
) -> Specialised:
    """The program's loops at these sizes, with placements, or those of one device."""
    engine = tp.compile(program, Meshed(coordinates), mesh=tp.Mesh(mesh), **given)._engine
    assert isinstance(engine, CompiledEngine)
    known = {symbol: sizes[symbol.name] for dim in engine.graph.dims for symbol in dim.size.sizes()}
    facts = conjunction(var(symbol).eq(known[symbol]) for symbol in engine.compiler.counted)
    return engine.compiler.specialise(engine.compiler.plan(facts=facts), known)
