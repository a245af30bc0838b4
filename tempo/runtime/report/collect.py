"""Finds out what a page knows, from an engine and the sizes of its last run."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping

from tempo.caches import installed
from tempo.loop_ir.codegen.source_map import Origin
from tempo.placement.collectives import collectives
from tempo.placement.request import PlacementRequest
from tempo.runtime.compiled import Compiled
from tempo.runtime.engine import CompiledEngine
from tempo.runtime.explain import Explained
from tempo.runtime.memory import Memory, memory_of
from tempo.runtime.report.code import Listings
from tempo.runtime.report.contents import Contents, Exchange, Placed, Totals
from tempo.runtime.report.graphs import ProgramTexts
from tempo.runtime.report.keeping import buffer_uses
from tempo.runtime.report.lifetimes import lifetimes_of
from tempo.runtime.report.schedule import dims_of, statements_of, steps_of
from tempo.runtime.report.sources import Sources
from tempo.runtime.trial import heap_of
from tempo.symbolic import Symbol

_DISTRIBUTIONS = ("tempo-sdg", "numpy", "tempo-sdg-jax", "jax", "tempo-sdg-torch", "torch")


def contents_of(
    program: str, engine: CompiledEngine, sizes: Mapping[Symbol, int], profile: Mapping[Origin, float] | None = None
) -> Contents:
    """`profile`: the seconds that the code of each origin took."""
    found = Explained.of(engine, sizes)
    engine, plan, ready, compiled = found.engine, found.plan, found.ready, found.compiled
    assert found.sizes is not None
    assert ready is not None
    assert compiled is not None
    sizes = found.sizes  # of what ran, which may be in tiles
    choices = () if found.chosen is None else found.chosen.choices
    again, specialised = engine.planned_again(sizes)
    sources = Sources()
    stages, listings = ProgramTexts(sources), Listings(sources)
    passes = tuple(stages.runs((*again.passes, *specialised.passes)))
    written = stages.first
    estimated = any(each.compiles for each in compiled.segments)
    memory = memory_of(ready, choices)
    code = listings.of(compiled)
    return Contents(
        program=program,
        backend=engine.backend.info.name,
        scheduler=engine.scheduler_name,
        sizes={symbol.name: value for symbol, value in sorted(sizes.items())},
        versions=dict(_versions()),
        lines=stages.lines,
        stages=tuple(stages.stages),
        passes=passes,
        notes=(*found.notes, *plan.notes),
        choices=tuple(map(str, choices)),
        memory=_totals(memory),
        makers=listings.makers,
        code=code,
        seconds=(*again.stages, ("code", compiled.seconds)),
        dims=dims_of(plan, written, sizes),
        statements=statements_of(plan, sources),
        schedule=steps_of(plan, sizes),
        buffers=buffer_uses(compiled.program, plan, written, sizes, sources),
        lifetimes=lifetimes_of(heap_of(ready, estimate=True) if estimated else ready.heap, estimated, sources),
        placement=None if engine.compiler.placement is None else _placed(engine.compiler.placement, compiled, sources),
        profile=None if profile is None else listings.measured(profile),
        places=sources.places,  # which all that is above has asked for
        files=sources.files(),
    )


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    yield from ((name, version) for name in _DISTRIBUTIONS if (version := installed(name)) is not None)


def _totals(memory: Memory) -> Totals:
    return Totals(memory.peak_bytes, memory.given_bytes, memory.returned_bytes, memory.working_bytes, memory.pool_bytes)


def _placed(request: PlacementRequest, compiled: Compiled, sources: Sources) -> Placed:
    cut = [f"{each.name} ({each.cut_along})" for each in compiled.program.buffers.values() if any(each.placement)]
    exchanges = (
        Exchange(str(each).partition("  ")[0], sources.place(each.location)) for each in collectives(compiled.passes)
    )
    return Placed(str(request.mesh), tuple(cut), tuple(exchanges))
