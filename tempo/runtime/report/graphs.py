"""The programs that passes were given and made, as lines that are kept once however many programs have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tempo.loop_ir.codegen.source_map import origin_of
from tempo.loop_ir.ir import Buffer, LoopProgram
from tempo.loop_ir.text import program_lines
from tempo.passes.manager import SDG, PassRecord
from tempo.runtime.report.contents import NOWHERE, Lines, PassRun, Snapshot
from tempo.runtime.report.sources import Sources
from tempo.sdg.graph import Graph, Node
from tempo.sdg.text import graph_lines

_Entry = tuple[str, int, int, tuple[int, ...]]


class ProgramTexts:
    """The stages that records of passes have, which must keep programs, and the runs of passes between them."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._entries: dict[_Entry, int] = {}
        self._known: dict[int, int] = {}
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._kept: list[object] = []  # so that no other program has the identity of one that is known
        self.stages: list[Snapshot] = []

    @property
    def lines(self) -> Lines:
        columns = zip(*self._entries, strict=True) if self._entries else iter([()] * 4)
        text, place, node, reads = columns
        return Lines(text, place, node, reads)

    @property
    def first(self) -> Graph:
        """As it was written; where no pass ran there is one stage."""
        found = self._kept[0]
        assert isinstance(found, Graph)
        return found

    def runs(self, records: Sequence[PassRecord]) -> Iterator[PassRun]:
        """Of each run of a pass what it was given and what it made."""
        for record in records:
            assert record.programs is not None, "the records have no programs"
            given, made = record.programs
            first = self.stage(given, _before(record))
            last = self.stage(made, f"after {record.name}")
            told = tuple(map(str, record.decisions))
            ms = round(record.seconds * 1e3, 3)
            yield PassRun(record.name, ms, record.items, record.nodes_before, record.nodes_after, first, last, told)

    def stage(self, program: Graph | LoopProgram, title: str) -> int:
        """The number of the stage with this program, or with another one of the same text."""
        if id(program) not in self._known:
            self._kept.append(program)
            entries = self._of_graph(program) if isinstance(program, Graph) else self._of_loops(program)
            numbers = tuple(self._entries.setdefault(each, len(self._entries)) for each in entries)
            made = Snapshot(title, "graph" if isinstance(program, Graph) else "loops", numbers)
            self._known[id(program)] = number = self._numbers.setdefault((made.ir, numbers), len(self.stages))
            if number == len(self.stages):
                self.stages.append(made)
        return self._known[id(program)]

    def _of_graph(self, graph: Graph) -> Iterator[_Entry]:
        for text, made in graph_lines(graph):
            place = NOWHERE if made is None else self._sources.place(made.location)
            if isinstance(made, Node):
                yield text, place, made.id, tuple(dict.fromkeys(edge.node for _, edge in made.reads()))
            else:
                yield text, place, NOWHERE, () if made is None else (made.edge.node,)

    def _of_loops(self, program: LoopProgram) -> Iterator[_Entry]:
        for text, made in program_lines(program):
            location = None
            if isinstance(made, Buffer):
                location = made.location
            elif made is not None and (origin := origin_of(made, program)) is not None:
                location = origin.location
            yield text, self._sources.place(location), NOWHERE, ()


def _before(record: PassRecord) -> str:
    """A stage that no pass has made is what was written, or what was lowered."""
    return "as written" if record.items == SDG.items else "as lowered"
