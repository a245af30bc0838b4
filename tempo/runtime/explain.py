"""`run.explain()`: what the compiler decided, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tempo.lowering.scheduling.clusters import Clustered
from tempo.lowering.scheduling.places import has_host
from tempo.passes.manager import operator_table
from tempo.placement.collectives import PASS, collectives
from tempo.placement.request import PlacementRequest
from tempo.runtime.compiled import Compiled
from tempo.runtime.engine import CompiledEngine
from tempo.runtime.memory import memory_of
from tempo.schedule.tree import For, render
from tempo.symbolic import Symbol


def explain(engine: CompiledEngine, sizes: Mapping[Symbol, int] | None) -> str:
    notes = list(engine.notes)
    if engine.rows is not None:
        notes.append(engine.rows.program.told(sizes or {}))
    if engine.tiles is not None:
        program = engine.tiles.program
        engine, sizes = (engine, sizes) if sizes is None else engine.of_last_run(sizes)
        notes += program.told(sizes or {})
    chosen = None if sizes is None else engine.chosen(sizes)
    plan = engine.plan() if chosen is None else chosen.plan
    ready = engine.at(plan, sizes) if sizes is not None else None
    compiled = None if ready is None else ready.compiled
    stages = plan.stages if compiled is None else (*plan.stages, ("code", compiled.seconds))
    hosts = frozenset(cluster.name for cluster in plan.program.clusters if cluster.host)

    def note(loop: For) -> str:
        return "host" if has_host(loop, hosts) else "device"

    buffers = [
        f"{buffer.label:<5} {buffer.name:<24} {buffer.role:<9} {buffer.storage:<20} {buffer.dtype}"
        f"[{', '.join(map(str, buffer.logical_shape))}]"
        for buffer in plan.loops.buffers.values()
    ]
    parts = [
        f"# backend {engine.backend.info.name}, scheduler {engine.scheduler_name}",
        _section("passes", "\n".join(map(str, plan.passes))),
        _section("operators", operator_table(plan.passes)),
        _section("stages", "\n".join(f"{name:<16} {seconds * 1e3:9.2f} ms" for name, seconds in stages)),
        *([_section("points and rows", "\n".join(notes))] if notes else []),
        _section("mapping", "\n".join(map(str, plan.decisions)) or "nothing to decide"),
        _section("graph", str(plan.graph)),
        _section("statements", "\n".join(_statements(plan.program))),
        _section("schedule", "\n".join([*(f"# {line}" for line in plan.notes), render(plan.tree, note)])),
        _section("buffers", "\n".join(buffers)),
    ]
    if chosen is not None and chosen.choices:
        limit = engine.compiler.memory_limit
        most = [] if limit is None else [f"a run may hold {limit} B"]
        parts.append(_section("plans, the last of which is run", "\n".join([*most, *map(str, chosen.choices)])))
    if sizes is not None and ready is not None and compiled is not None:
        apart = [made for made in compiled.passes if made.name != PASS]
        rows = "\n".join(str(each) for made in apart for each in made.decisions) or "no length varies"
        parts.append(_section(f"passes at {_sizes(sizes)}", "\n".join(map(str, compiled.passes))))
        parts.append(_section(f"extents at {_sizes(sizes)}", rows))
        if engine.compiler.placement is not None:
            parts.append(_section(f"placement at {_sizes(sizes)}", _placement(engine.compiler.placement, compiled)))
        parts.append(_section(f"memory at {_sizes(sizes)}", str(memory_of(ready))))
        segments = (compiled.segment_listing(number) for number in range(len(compiled.segments)))
        driver = (compiled.item_listing(number) for number in range(len(compiled.items)))
        parts.append(_section("code", "\n\n".join(text for text, _ in (*segments, *driver))))
    return "\n\n".join(parts) + "\n"


def _placement(request: PlacementRequest, compiled: Compiled) -> str:
    """The mesh, what is cut, and what the devices exchange."""
    buffers = [each for each in compiled.program.buffers.values() if any(each.placement)]
    axes = [", ".join("-" if cut is None else cut.over for cut in each.placement) for each in buffers]
    cut = [f"{each.label:<5} {each.name:<24} {each.role:<9} ({lies})" for each, lies in zip(buffers, axes)]
    exchanged = [str(each) for each in collectives(compiled.passes)]
    return "\n".join([f"mesh {request.mesh}", *cut, *(exchanged or ["the devices exchange nothing"])])


def _section(title: str, body: str) -> str:
    return f"# {title}\n{body}"


def _sizes(sizes: Mapping[Symbol, int]) -> str:
    return ", ".join(f"{symbol.name}={value}" for symbol, value in sorted(sizes.items())) or "fixed sizes"


def _statements(program: Clustered) -> Iterator[str]:
    for cluster in program.clusters:
        nodes = (program.graph.nodes[id] for id in cluster.nodes)
        dims = ", ".join(symbol.name for symbol in cluster.domain)
        yield f"{cluster.name}({dims}): {', '.join(node.name or node.op for node in nodes)}"
