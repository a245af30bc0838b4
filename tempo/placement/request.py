"""What a caller says of where things lie: dims of the program and axes of named tensors, along axes of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tempo.analysis.demand.demand import Demand, demand
from tempo.analysis.dependence.acyclic import bodies
from tempo.analysis.reports import tensor_name
from tempo.errors import InputError, SizeError, UnsupportedError, nearest
from tempo.passes.pipelining.stages import PipelineStages
from tempo.placement.mesh import Mesh, Placement
from tempo.sdg.graph import Graph, Node, Port
from tempo.symbolic import Dim, Symbol

Place = Mapping[str, tuple[str | None, ...]]
"""By name of a tensor, for each of its spatial axes, the axis of the mesh that it lies along, or None."""


@dataclass(frozen=True)
class Pipeline:
    """What is carried along the dim `dim`, through the layers of a network say, goes through the devices along the axis
    `over` of a mesh: each has a run of the layers, one behind the other, and hands on what it has made of one point of
    the dim `microbatches` while it makes the next (Huang et al., GPipe, 2019)."""

    dim: str
    over: str
    microbatches: str


@dataclass(frozen=True, eq=False)
class PlacementRequest:
    """`shard`: dims, with the axis of the mesh that all tensors lie along that have one, that of a pipeline among them.
    `place`: see `Place`. `stages`: those of the pipeline."""

    graph: Graph
    mesh: Mesh
    shard: Mapping[Symbol, str]
    place: Place
    stages: PipelineStages | None = None

    @staticmethod
    def of(graph: Graph, mesh: Any, shard: Any, place: Any, pipeline: Any = None) -> PlacementRequest | None:
        """What was given to `tp.compile`, checked against the program; None without a mesh.

        Raises `InputError` for names and axes that are not there, and `UnsupportedError` for dims along which something
        is carried, or along which the host is called point by point.
        """
        if mesh is None:
            for what, given, over in (
                ("shard", shard, "data"),
                ("place", place, "model"),
                ("pipeline", pipeline, "stage"),
            ):
                if given:
                    raise InputError(
                        f"{what}= says where things lie, on no mesh", hint=f'give mesh=tp.Mesh({{"{over}": 4}})'
                    )
            return None
        if not isinstance(mesh, Mesh):
            raise InputError(f"mesh= is a {type(mesh).__name__}", hint='write mesh=tp.Mesh({"data": 4})')
        dims, stages = _dims(graph, mesh, shard), None
        if pipeline is not None:
            stages = _stages(graph, mesh, dims, pipeline)
            dims[stages.dim] = pipeline.over
        made = PlacementRequest(graph, mesh, dims, _places(mesh, place), stages)
        made._check_tensors()
        for symbol in made.shard:
            made._check_dim(graph.dim(symbol))
        if made.shard:
            made.check_carried(graph, demand(graph))
        return made

    @property
    def dims(self) -> Mapping[Symbol, str]:
        """All dims that lie along an axis of the mesh, that of the stages of a pipeline among them."""
        stages = self.stages
        return self.shard if stages is None else {**self.shard, stages.stage: self.shard[stages.dim]}

    @cached_property
    def inputs(self) -> Mapping[Port, Placement]:
        """How each input lies, with the user's axes: those of its domain, then those of its shape."""
        given = (node for node in self.graph.nodes.values() if node.is_input)
        return {node.port: self.of_tensor(node.port.name, node.domain, len(node.shape)) for node in given}

    def of_tensor(self, name: str, dims: tuple[Symbol, ...], rank: int) -> Placement:
        """Of a tensor with these dims and so many spatial axes."""
        of_dims = (self.shard.get(symbol) for symbol in dims)
        axes = (*of_dims, *self.place.get(name, (None,) * rank))
        return tuple(None if over is None else self.mesh.shards(over) for over in axes)

    def check_at(self, sizes: Mapping[Symbol, int]) -> None:
        """Raises `SizeError` for an axis that cannot be cut into parts of one size."""
        for symbol, over in self.shard.items():
            size, count = int(self.graph.dim(symbol).size.evaluate(sizes)), self.mesh.axes[over]
            self._check_divided(
                f"{symbol.name} has {size} points",
                size,
                over,
                hint=f"every device has as many points: give {symbol.name} a multiple of {count}",
            )
        for node, spec in self._named():
            for axis, over in ((axis, each) for axis, each in enumerate(spec) if each is not None):
                size = int(node.shape[axis].evaluate(sizes))
                what = f"{tensor_name(node)} has {size} elements along axis {axis}"
                self._check_divided(what, size, over, location=node.location)

    def _check_divided(self, what: str, size: int, over: str, **where: Any) -> None:
        count = self.mesh.axes[over]
        if size % count:
            raise SizeError(f"{what}, which {count} devices along {over!r} do not divide", **where)

    # -- checks of names -------------------------------------------------------------------------------------------

    def _named(self) -> Iterator[tuple[Node, tuple[str | None, ...]]]:
        for node in self.graph.nodes.values():
            name = node.port.name if node.is_input else node.name
            if name in self.place:
                yield node, self.place[name]

    def _check_tensors(self) -> None:
        names = {node.port.name if node.is_input else node.name for node in self.graph.nodes.values()} - {"", None}
        for name in self.place:
            if name not in names:
                raise InputError(f"place= names {name!r}, which is no tensor of the program", hint=nearest(name, names))
        for node, spec in self._named():
            if len(spec) != len(node.shape):
                raise InputError(
                    f"place= says of {len(spec)} axes of {tensor_name(node)} where they lie; it has {len(node.shape)}",
                    location=node.location,
                    hint="write an entry for each spatial axis: the name of an axis of the mesh, or None",
                )
        for node in self.graph.nodes.values():
            along = [self.shard.get(symbol) for symbol in node.domain]
            axes = [over for over in (*along, *self.place.get(node.name, ())) if over is not None]
            for over in axes:
                if axes.count(over) > 1:
                    raise InputError(
                        f"two axes of {tensor_name(node)} would lie along {over!r}",
                        location=node.location,
                        hint="an axis of the mesh serves one dim or axis of each tensor",
                    )

    # -- checks of dims --------------------------------------------------------------------------------------------

    def _check_dim(self, dim: Dim) -> None:
        symbol = dim.symbol
        if dim.sequential:
            raise UnsupportedError(
                f"{symbol.name} is declared sequential, so no device can have a part of it", hint=_IN_ORDER
            )
        for node in self.graph.nodes.values():
            if node.has_effect and symbol in node.domain:
                raise UnsupportedError(
                    f"{tensor_name(node)} is called for one point of {symbol.name} after the other, and "
                    f"{self.asked_by(symbol)}= gives the points to several devices",
                    location=node.location,
                    hint="call it in front of the stages, or behind them"
                    if symbol in self._staged
                    else f"let one call take all points: batched=({symbol.name},)",
                )
        if symbol in self.graph.stops:
            raise UnsupportedError(
                f"the run may end early along {symbol.name}: its points come in order",
                location=self.graph.stops[symbol].location,
                hint=_IN_ORDER,
            )

    def asked_by(self, symbol: Symbol) -> str:
        """Which argument says that devices have points of the dim."""
        return "pipeline" if symbol in self._staged else "shard"

    def check_carried(self, graph: Graph, demands: Mapping[int, Demand], planned: bool = False) -> None:
        """Raises `UnsupportedError` where a recurrence goes along a dim that is cut.

        What no order is found for before passes have taken it apart may be no recurrence; `planned`: they have. A sum
        that they make step by step is none of the user's: it is gathered.
        """
        for unit in (unit for body in bodies(graph, demands) for unit in body.units):
            dims = {unit.loop.dim} if unit.loop else set[Symbol]()
            nodes = [graph.nodes[id] for id in unit.names]
            if unit.stuck and planned:
                dims = {symbol for node in nodes for symbol in node.domain}
            defined = [node for node in nodes if node.id in self.graph.nodes and self.graph.nodes[node.id].is_merge]
            for symbol in (dims & self.shard.keys()) - self._staged if defined else ():
                carried = next((node for node in defined if node.name), defined[0])
                raise UnsupportedError(
                    f"{tensor_name(carried)} is carried along {symbol.name}: each point waits for another one, so the "
                    "points cannot lie on several devices",
                    location=carried.location,
                    hint=_CARRIED,
                )

    @property
    def _staged(self) -> frozenset[Symbol]:
        """What is carried along it goes through stages."""
        return frozenset() if self.stages is None else frozenset({self.stages.dim})


_IN_ORDER = "shard another dim, such as that of a batch"
_CARRIED = (
    f"{_IN_ORDER}; where microbatches go through layers, "
    'pipeline=tp.Pipeline("l", over="stage", microbatches="m") hands on from device to device what is carried'
)


def _dims(graph: Graph, mesh: Mesh, shard: Any) -> dict[Symbol, str]:
    dims = {dim.symbol.name: dim.symbol for dim in graph.dims}
    for name, over in _entries("shard", shard):
        if name not in dims:
            raise InputError(f"shard= names {name!r}, which is no dim of the program", hint=nearest(str(name), dims))
        _check_axis(mesh, f"shard= of {name!r}", over)
    return {dims[name]: over for name, over in _entries("shard", shard)}


def _stages(graph: Graph, mesh: Mesh, shard: Mapping[Symbol, str], given: Any) -> PipelineStages:
    if not isinstance(given, Pipeline):
        hint = 'write pipeline=tp.Pipeline("l", over="stage", microbatches="m")'
        raise InputError(f"pipeline= is a {type(given).__name__}", hint=hint)
    dims, found = {dim.symbol.name: dim.symbol for dim in graph.dims}, list[Symbol]()
    for what, name in (("is along", given.dim), ("has microbatches=", given.microbatches)):
        if not isinstance(name, str):
            raise InputError(f"pipeline= {what} a {type(name).__name__}", hint="dims are given by their names")
        if name not in dims:
            raise InputError(f"pipeline= {what} {name!r}, which is no dim of the program", hint=nearest(name, dims))
        if dims[name] in (*found, *shard):
            raise InputError(f"{name} is in pipeline= and in another place, too", hint="a dim is in one of them")
        found.append(dims[name])
    _check_axis(mesh, "over= of pipeline=", given.over)
    dim, microbatches = found
    return PipelineStages.of(graph, dim, microbatches, mesh.axes[given.over])


def _places(mesh: Mesh, place: Any) -> Place:
    for name, spec in _entries("place", place):
        if not isinstance(name, str):
            raise InputError(f"place= names {name!r}, which is no name of a tensor", hint='write place={"w": (...)}')
        if not isinstance(spec, tuple | list):
            hint = "write a tuple with an entry for each spatial axis: the name of an axis of the mesh, or None"
            raise InputError(f"place= of {name!r} is {spec!r}", hint=hint)
        for over in spec:
            if over is not None:
                _check_axis(mesh, f"place= of {name!r}", over)
    return {name: tuple(spec) for name, spec in _entries("place", place)}


def _entries(what: str, given: Any) -> Iterator[tuple[str, Any]]:
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{what}= is a {type(given).__name__}", hint=f'write {what}={{"name": ...}}')
    yield from (given or {}).items()


def _check_axis(mesh: Mesh, what: str, over: Any) -> None:
    if not isinstance(over, str) or over not in mesh.axes:
        raise InputError(f"{what} names {over!r}, which is no axis of the mesh", hint=nearest(str(over), mesh.axes))
