"""Blocks: what stands side by side inside the loops that a program cannot do without.

Like `levels`, but seen from the inside: for every body of a loop (and for the whole program) the components in it, and
the links that the loops around it leave among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from tempo.analysis.dependence.levels import AnyLink, LegalLoop, Name, components, loops, within
from tempo.symbolic import Symbol


@dataclass(frozen=True)
class Unit(Generic[Name]):
    """A component of a block. `loop` is None for a name without a cycle, and for one that is `stuck`: no dim serves."""

    names: tuple[Name, ...]
    loop: LegalLoop[Name] | None = None
    stuck: bool = False


@dataclass(frozen=True)
class LoopBody(Generic[Name, AnyLink]):
    """The components inside the same loops, sources first, the dims that are not looped over yet, the links left."""

    units: tuple[Unit[Name], ...]
    dims: Mapping[Name, tuple[Symbol, ...]]
    links: tuple[AnyLink, ...]


def blocks(names: Mapping[Name, tuple[Symbol, ...]], links: Sequence[AnyLink]) -> list[LoopBody[Name, AnyLink]]:
    """All blocks, inner ones before the block that they are in."""
    found: list[LoopBody[Name, AnyLink]] = []
    units: list[Unit[Name]] = []
    for members, inner in components(names, links):
        loop = next((each for each in loops(members, names, inner) if each.carries), None) if inner else None
        units.append(Unit(members, loop, stuck=bool(inner) and loop is None))
        if loop is not None:
            left = {name: tuple(dim for dim in names[name] if dim != loop.dim) for name in members}
            found += blocks(left, within(loop, inner))
    found.append(LoopBody(tuple(units), names, tuple(links)))
    return found
