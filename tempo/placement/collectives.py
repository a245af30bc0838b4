"""What the devices of a mesh do together, foretold."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tempo.errors import GatherWarning, Location, user_location
from tempo.passes.manager import PassRecord
from tempo.symbolic import Symbol

PASS = "sharding_propagation"
Kind = Literal["all-reduce", "all-gather", "permute"]


@dataclass(frozen=True)
class Collective:
    """What the devices along the axis `over` of the mesh do together, once for each iteration of `loops`.

    `bytes`: of its result, on each device; those that a permute moves at most. `why`: what asks for it. `warns`: what
    lies in parts becomes whole, which nobody asked for.
    """

    kind: Kind
    over: str
    bytes: int
    name: str
    why: str
    loops: tuple[Symbol, ...] = ()
    location: Location | None = None
    warns: bool = False

    def warn(self) -> None:
        """Say so at the user's line, where nobody asked for it."""
        if self.warns:
            where = self.location or user_location() or Location("tempo", 0)
            text = f"{self}; what is along {self.over} is copied to all devices there"
            warnings.warn_explicit(text, GatherWarning, where.path, where.line)

    def __str__(self) -> str:
        inside = f"inside {', '.join(symbol.name for symbol in self.loops)}" if self.loops else "outside of loops"
        where = "" if self.location is None else f"  {self.location.path}:{self.location.line}"
        return f"{self.kind} over {self.over}, {self.bytes} B, {inside}: {self.name}, {self.why}{where}"


def collectives(passes: Iterable[PassRecord]) -> tuple[Collective, ...]:
    """What the devices of a mesh exchange, as the pass has found it."""
    found = (record.decisions for record in passes if record.name == PASS)
    return tuple(each for decisions in found for each in decisions if isinstance(each, Collective))
