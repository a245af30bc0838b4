"""`run.explain()`: what the compiler decided, as text: what fits a screen, or sections by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tempo.compiler.plan import Plan
from tempo.errors import AtUserLine, InputError, nearest
from tempo.lowering.scheduling.places import has_host
from tempo.passes.manager import operator_table
from tempo.passes.vectorize.search import Decision
from tempo.placement.collectives import PASS, collectives
from tempo.runtime.compiled import Compiled, Ready
from tempo.runtime.engine import CompiledEngine
from tempo.runtime.limit import Chosen
from tempo.runtime.memory import memory_of
from tempo.schedule.tree import For, render
from tempo.symbolic import Symbol

EVERYTHING = "all"
_FEW = 5
"""Of what is long, how many lines the short form has."""
_MOST_SCHEDULE = 16
_WIDE = 120
"""Characters of a line of the short form."""


@dataclass(frozen=True)
class Explained:
    """A plan, and what was made of it at sizes, where these are known. `notes`: on runs in tiles, and of rows apart."""

    engine: CompiledEngine
    sizes: Mapping[Symbol, int] | None
    notes: Sequence[str]
    chosen: Chosen | None

    @staticmethod
    def of(engine: CompiledEngine, sizes: Mapping[Symbol, int] | None) -> Explained:
        notes = list(engine.notes)
        if engine.rows is not None:
            notes.append(engine.rows.program.told(sizes or {}))
        if engine.tiles is not None:
            program = engine.tiles.program
            engine, sizes = (engine, sizes) if sizes is None else engine.of_last_run(sizes)
            notes += program.told(sizes or {})
        return Explained(engine, sizes, notes, None if sizes is None else engine.chosen(sizes))

    @cached_property
    def plan(self) -> Plan:
        return self.engine.plan() if self.chosen is None else self.chosen.plan

    @cached_property
    def ready(self) -> Ready | None:
        return None if self.sizes is None else self.engine.at(self.plan, self.sizes)

    @property
    def compiled(self) -> Compiled | None:
        return None if self.ready is None else self.ready.compiled

    @property
    def at(self) -> str:
        """The sizes, as they stand in titles."""
        return sizes_text(self.sizes or {})

    @cached_property
    def hosts(self) -> frozenset[str]:
        return frozenset(cluster.name for cluster in self.plan.program.clusters if cluster.host)

    def loop_note(self, loop: For) -> str:
        return "host" if has_host(loop, self.hosts) else "device"

    @property
    def times(self) -> tuple[tuple[str, float], ...]:
        code = () if self.compiled is None else (("code", self.compiled.seconds),)
        return (*self.plan.stages, *code)


def sizes_text(sizes: Mapping[Symbol, int]) -> str:
    """By the names of dims; of one in a bucket how large that is, too."""
    of = {symbol.name: value for symbol, value in sizes.items() if symbol.kind == "size"}
    room = {symbol.name: value for symbol, value in sizes.items() if symbol.kind == "extent"}
    buckets = {name: f" in a bucket of {room[name]}" if name in room else "" for name in of}
    return " at " + (", ".join(f"{name}={of[name]}{buckets[name]}" for name in sorted(of)) or "fixed sizes")


def explain(engine: CompiledEngine, sizes: Mapping[Symbol, int] | None, wanted: Sequence[str] = ()) -> str:
    """`wanted`: sections by name, or "all"; none: the short form. Raises `InputError` for a name that none has."""
    check_sections(wanted)
    found = Explained.of(engine, sizes)
    if not wanted:
        return "\n".join(_short(found)) + "\n"
    chosen = SECTIONS if EVERYTHING in wanted else dict.fromkeys(wanted)
    parts = (part for name in chosen for part in SECTIONS[name](found))
    return "\n\n".join([_title(found), *(f"# {title}\n{body}" for title, body in parts)]) + "\n"


def check_sections(wanted: Sequence[str]) -> None:
    """Raises `InputError` for a name that none has."""
    names = (*SECTIONS, EVERYTHING)
    for name in wanted:
        if name not in names:
            with AtUserLine():
                hint = nearest(str(name), names, "sections")
                raise InputError(f"explain() has no section {name!r}", hint=hint)


def _title(found: Explained) -> str:
    return f"# backend {found.engine.backend.info.name}, scheduler {found.engine.scheduler_name}"


# -- what fits a screen ------------------------------------------------------------------------------------------------


def _short(found: Explained) -> Iterator[str]:
    yield _title(found) + ("" if found.sizes is None else f",{found.at}")
    yield from _few("mapping", _mapping_in_short(found.plan.decisions))
    yield from _few("points and rows", list(found.notes))
    yield from _few("schedule", schedule_text(found).splitlines(), _MOST_SCHEDULE)
    if found.engine.compiler.placement is not None and found.compiled is not None:
        exchanged = [str(each) for each in collectives(found.compiled.passes)]
        yield from _few(
            f"devices {found.engine.compiler.placement.mesh} exchange", exchanged or ["nothing"], _MOST_SCHEDULE
        )
    if found.ready is not None:
        yield from _memory_in_short(found)
    if found.chosen is not None and found.chosen.choices:
        yield from _few("plans, the last of which is run", [str(each) for each in found.chosen.choices][-_FEW:])
    seconds = ", ".join(f"{name} {seconds:.3g}" for name, seconds in found.times)
    yield f"\ncompiled in {sum(each for _, each in found.times):.3g} s: {seconds}"
    yield f'more by name, run.explain("code"), or "{EVERYTHING}": {", ".join(SECTIONS)}'


def _few(title: str, lines: Sequence[str], most: int = _FEW) -> Iterator[str]:
    """Those that fit, under a title, and how many more there are; nothing where there are none."""
    if lines:
        yield f"\n# {title}"
    yield from (line if len(line) <= _WIDE else f"{line[: _WIDE - 3]}..." for line in lines[:most])
    if len(lines) > most:
        yield f"... {len(lines) - most} more lines"


def _memory_in_short(found: Explained) -> Iterator[str]:
    assert found.ready is not None
    memory, plan = memory_of(found.ready), found.plan
    parts = f"{memory.given_bytes:,} B given, {memory.returned_bytes:,} B returned, {memory.working_bytes:,} B between"
    yield f"\n# memory\npeak {memory.peak_bytes:,} B: {parts}"
    said = {(each.name, each.location): plan.retention.get(each.id) for each in plan.loops.buffers.values()}
    for piece in memory.at_peak[:_FEW]:
        kept = said.get((piece.name, piece.location)) if piece.role == "between" else None
        yield f"  {piece}" + (f": {kept}" if kept else "")


def _mapping_in_short(decisions: Sequence[object]) -> list[str]:
    """Dim by dim how many nodes run in which way, and what else was decided."""
    nodes = Counter[str]()
    for each in decisions:
        if isinstance(each, Decision):
            nodes[f"{each.dim.name}: {each.way}"] += len(each.nodes)
    others = [str(each).splitlines()[0] for each in decisions if not isinstance(each, Decision)]
    return [*(f"{way}, {count} node{'s' * (count > 1)}" for way, count in sorted(nodes.items())), *others]


# -- sections ----------------------------------------------------------------------------------------------------------

Section = Iterator[tuple[str, str]]
"""A title and a text; two where passes run at sizes, too, none where there is nothing to say."""


def _passes(found: Explained) -> Section:
    yield "passes", "\n".join(map(str, found.plan.passes))
    if found.compiled is not None:
        yield f"passes{found.at}", "\n".join(map(str, found.compiled.passes))


def _operators(found: Explained) -> Section:
    yield "operators", operator_table(found.plan.passes)


def _times(found: Explained) -> Section:
    yield "times", "\n".join(f"{name:<16} {seconds * 1e3:9.2f} ms" for name, seconds in found.times)


def _rows(found: Explained) -> Section:
    if found.notes:
        yield "points and rows", "\n".join(found.notes)


def _mapping(found: Explained) -> Section:
    yield "mapping", "\n".join(map(str, found.plan.decisions)) or "nothing to decide"


def _graph(found: Explained) -> Section:
    yield "graph", str(found.plan.graph)


def _statements(found: Explained) -> Section:
    program = found.plan.program
    lines = []
    for cluster in program.clusters:
        nodes = (program.graph.nodes[id] for id in cluster.nodes)
        dims = ", ".join(symbol.name for symbol in cluster.domain)
        lines.append(f"{cluster.name}({dims}): {', '.join(node.name or node.op for node in nodes)}")
    yield "statements", "\n".join(lines)


def schedule_text(found: Explained) -> str:
    return "\n".join([*(f"# {line}" for line in found.plan.notes), render(found.plan.tree, found.loop_note)])


def _order(found: Explained) -> Section:
    yield "schedule", schedule_text(found)


def _buffers(found: Explained) -> Section:
    lines = [
        f"{buffer.label:<5} {buffer.name:<24} {buffer.role:<9} {buffer.storage:<20} {buffer.dtype}"
        f"[{', '.join(map(str, buffer.logical_shape))}]"
        for buffer in found.plan.loops.buffers.values()
    ]
    yield "buffers", "\n".join(lines)


def _kept(found: Explained) -> Section:
    buffers = found.plan.loops.buffers.items()
    said = ((buffer, found.plan.retention.get(id)) for id, buffer in buffers if not buffer.is_given)
    yield "kept", "\n".join(f"{buffer.label:<5} {buffer.name}, {buffer.storage}: {why}" for buffer, why in said if why)


def _plans(found: Explained) -> Section:
    if found.chosen is not None and found.chosen.choices:
        limit = found.engine.compiler.memory_limit
        most = [] if limit is None else [f"a run may hold {limit} B"]
        yield "plans, the last of which is run", "\n".join([*most, *map(str, found.chosen.choices)])


def _extents(found: Explained) -> Section:
    if found.compiled is not None:
        apart = [made for made in found.compiled.passes if made.name != PASS]
        rows = "\n".join(str(each) for made in apart for each in made.decisions) or "no length varies"
        yield f"extents{found.at}", rows


def _placement(found: Explained) -> Section:
    """The mesh, what is cut, and what the devices exchange."""
    request = found.engine.compiler.placement
    if request is None or found.compiled is None:
        return
    buffers = [each for each in found.compiled.program.buffers.values() if any(each.placement)]
    cut = [f"{each.label:<5} {each.name:<24} {each.role:<9} ({each.cut_along})" for each in buffers]
    exchanged = [str(each) for each in collectives(found.compiled.passes)]
    lines = [f"mesh {request.mesh}", *cut, *(exchanged or ["the devices exchange nothing"])]
    yield f"placement{found.at}", "\n".join(lines)


def _memory(found: Explained) -> Section:
    if found.ready is not None:
        yield f"memory{found.at}", str(memory_of(found.ready))


def _code(found: Explained) -> Section:
    if (code := found.compiled) is not None:
        yield "code", "\n\n".join(text for text, _ in code.listings())


SECTIONS: Mapping[str, Callable[[Explained], Section]] = {
    "passes": _passes,
    "operators": _operators,
    "times": _times,
    "rows": _rows,
    "mapping": _mapping,
    "graph": _graph,
    "statements": _statements,
    "schedule": _order,
    "buffers": _buffers,
    "kept": _kept,
    "plans": _plans,
    "extents": _extents,
    "placement": _placement,
    "memory": _memory,
    "code": _code,
}
