"""Meshes for programs that say nothing of one: a legal dim, or an axis of an input, drawn for each program."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import tempo as tp
from tempo.passes.manager import forced
from tempo.placement.request import PlacementRequest
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

AXIS = "data"


def drawn(program: tp.Program, sizes: Mapping[str, int] | None, devices: int, options: tp.Options) -> dict[str, Any]:
    """Arguments of `tp.compile`: a mesh of so many devices, and what lies along it, as far as sizes are known.

    Dims of which the options make loops, or put in buckets, are not cut.
    """
    graph, mesh, given = program.graph(), tp.Mesh({AXIS: devices}), sizes or {}
    known = {symbol: given[symbol.name] for dim in graph.dims for symbol in dim.size.sizes() if symbol.name in given}
    free = [
        name
        for name in _dims(graph, known, devices)
        if forced(options.mapping, name) in (None, "full") and name not in (options.buckets or {})
    ]
    dims = [name for name in free if _is_legal(graph, mesh, name)]
    chosen = random.Random(len(graph.nodes))
    if dims:
        return {"mesh": mesh, "shard": {chosen.choice(dims): AXIS}}
    axes = list(_axes(graph, known, devices))
    chosen.shuffle(axes)
    place: dict[str, tuple[str | None, ...]] = {}
    for name, axis, rank in axes[: chosen.randint(1, 2)]:
        place.setdefault(name, tuple(AXIS if at == axis else None for at in range(rank)))
    if place:
        return {"mesh": mesh, "place": place}
    return {"mesh": mesh}


def _dims(graph: Graph, known: Mapping[Symbol, int], devices: int) -> Iterator[str]:
    for dim in graph.dims:
        if dim.size.sizes() <= known.keys() and int(dim.size.evaluate(known)) % devices == 0:
            yield dim.symbol.name


def _is_legal(graph: Graph, mesh: tp.Mesh, name: str) -> bool:
    try:
        PlacementRequest.of(graph, mesh, {name: AXIS}, None)
    except tp.UnsupportedError:
        return False
    return True


def _axes(graph: Graph, known: Mapping[Symbol, int], devices: int) -> Iterator[tuple[str, int, int]]:
    """Inputs with an axis that is divided: the name, the axis, and how many there are."""
    inputs = [node for node in graph.nodes.values() if node.is_input and node.port.role == "input"]
    named = [node.name for node in graph.nodes.values()]
    for node in inputs:
        for axis, extent in enumerate(node.shape):
            is_known = extent.symbols() <= known.keys() and int(extent.evaluate(known)) % devices == 0
            if is_known and named.count(node.port.name) <= 1:
                yield node.port.name, axis, len(node.shape)
