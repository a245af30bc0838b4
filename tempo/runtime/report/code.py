"""Generated code, line by line with what it is of."""

from __future__ import annotations

from collections.abc import Mapping

from tempo.loop_ir.codegen.source_map import Listing, Origin
from tempo.runtime.compiled import Compiled
from tempo.runtime.report.contents import NOWHERE, Code, Maker, Measured
from tempo.runtime.report.sources import Sources


class Listings:
    """The source of segments and of what drives them; what their lines are of has numbers."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._numbers: dict[Origin, int] = {}

    def of(self, compiled: Compiled) -> tuple[Code, ...]:
        segments = zip(compiled.program.segments, map(compiled.segment_listing, range(len(compiled.segments))))
        items = (
            (f"step {number} of the driver", compiled.item_listing(number)) for number in range(len(compiled.items))
        )
        return (*(self._code(each.name, listing) for each, listing in segments), *(self._code(*each) for each in items))

    @property
    def makers(self) -> tuple[Maker, ...]:
        return tuple(Maker(each.op, each.name, self._sources.place(each.location)) for each in self._numbers)

    def measured(self, profile: Mapping[Origin, float]) -> tuple[Measured, ...]:
        """A profile, what took longest first."""
        rows = (Measured(of.op, of.name, self._sources.place(of.location), took) for of, took in profile.items())
        return tuple(sorted(rows, key=lambda each: -each.seconds))

    def _code(self, title: str, listing: Listing) -> Code:
        text, origins = listing
        lines = tuple(text.rstrip("\n").split("\n"))
        found = (origins.get(number) for number in range(1, len(lines) + 1))
        return Code(
            title,
            lines,
            tuple(NOWHERE if each is None else self._numbers.setdefault(each, len(self._numbers)) for each in found),
        )
