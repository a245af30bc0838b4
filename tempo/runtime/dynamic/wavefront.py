"""Runs of recurrences that only indices order: inspected, and a tile of points at a time where that is cheaper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tempo.autodiff import expand_gradients
from tempo.compiler.buckets import Bucket, Buckets, bucketed
from tempo.compiler.driver import Compiler
from tempo.compiler.once import Once
from tempo.costs import LikelySizes, PointWork, work_at_points
from tempo.errors import UnsupportedError
from tempo.passes.manager import forced
from tempo.passes.rows import rows_masked
from tempo.passes.vectorize.search import Lift
from tempo.passes.wavefront.bounded import bounded
from tempo.passes.wavefront.components import Wavefront, wavefronts
from tempo.passes.wavefront.rows import row_wavefronts
from tempo.passes.wavefront.tiling import LANES, Tiled, tiled
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.dynamic.inspector import Parallelism, Tiles, parallelism, row_parallelism, row_tiles, tiles
from tempo.sdg.graph import Graph, Port
from tempo.symbolic import Symbol

Sizes = Mapping[Symbol, int]
Array = np.ndarray[Any, Any]
Points = Mapping[int, Array]
"""By indirect read, the points that it takes (`Promises.read`)."""


_COUNTS = (1, *(size << n for n in range(40) for size in (2, 3)))
"""The buckets of numbers of tiles: powers of two, and one between any two. Of a program whose sizes are in
buckets they are powers of two: those of the numbers of points have as much to spare."""
_LANES = (4, 5, 6, 7, *(eighths << power for power in range(7) for eighths in range(8, 16)))
"""Points of a tile from which the cost model chooses. There are `LANES` of them where sizes are in buckets, since there
is code for each."""
_ALIKE = 1.03
"""What smaller tiles may cost more: more of what one makes is in the cache where it is read."""


@dataclass(frozen=True)
class InTiles:
    """A program of which recurrences are run in tiles; `compiler` is that of the program as it was declared, `graph` is
    the program with all of them in tiles."""

    compiler: Compiler
    declared: Graph
    graph: Graph
    parts: tuple[InTilesAlong, ...]

    @property
    def lanes(self) -> tuple[int, ...]:
        """The points of a tile, by part."""
        return tuple(part.lanes for part in self.parts)

    def with_lanes(self, lanes: Sequence[int]) -> InTiles:
        """The same with tiles of so many points."""
        given = {part.symbol: each for part, each in zip(self.parts, lanes, strict=True)}
        made, _ = in_tiles(self.compiler, self.declared, given)
        assert made is not None, "whether it may be does not depend on their number"
        return made

    def best_lanes(self, arguments: Arguments, points: Points) -> tuple[int, ...]:
        """By part, for a run like this one."""
        if self.compiler.buckets.of:
            return self.lanes
        return tuple(part.best_lanes(points, arguments) for part in self.parts)

    def compiled(self) -> Compiler:
        """Of the program in tiles."""
        options = self.compiler.options
        if isinstance(options.mapping, Mapping) or options.mapping is None:
            mine = {part.symbol.name for part in self.parts}
            given = {name: way for name, way in (options.mapping or {}).items() if name not in mine}
            lanes = {part.tiled.lane.symbol.name: "full" for part in self.parts}
            options = replace(options, mapping={**given, **lanes})
        bucket: Bucket = "pow2" if self.compiler.buckets.of else _COUNTS
        tiles = {dim: bucket for part in self.parts for dim in part.tiled.counts}
        buckets = Buckets({**self.compiler.buckets.of, **tiles})
        return replace(self.compiler, graph=self.graph, options=options, buckets=buckets, likely={})

    def told(self, sizes: Sizes) -> list[str]:
        """How a run of these sizes went, or would."""
        return [f"{part.symbol.name}: {part.told(sizes)}" for part in self.parts]

    def given(self, arguments: Arguments, points: Points) -> Arguments | None:
        """What the program in tiles is given; None where points one by one take less time."""
        arrays, counts = dict(arguments.arrays), dict(arguments.sizes)
        for part in self.parts:
            found = part.given(points, arguments)
            if found is None:
                return None
            arrays |= found[0]
            counts |= dict(zip(part.counted, found[1], strict=True))
        return replace(arguments, arrays=arrays, sizes=counts)


@dataclass(frozen=True)
class InTilesAlong:
    """One of the recurrences, along its dim."""

    compiler: Compiler
    declared: Graph
    wave: Wavefront
    tiled: Tiled
    _ratios: Once[frozenset[tuple[Symbol, int]], float] = field(default_factory=Once)

    @property
    def symbol(self) -> Symbol:
        return self.wave.dim.symbol

    @property
    def counted(self) -> list[Symbol]:
        """The sizes that are the numbers of tiles without indirect reads, and with."""
        return [dim.of_kind("size") for dim in self.tiled.counts]

    @property
    def lanes(self) -> int:
        return self.tiled.lane.size.as_int()

    def best_lanes(self, points: Points, arguments: Arguments) -> int:
        """With as few as there may be a tile costs less; with as many as lie beside one another there are fewest. Those
        in a bucket cost what it holds: arrays are made, and multiplied, for as many."""
        if isinstance(forced(self.compiler.options.mapping, self.symbol.name), int):
            return self.lanes
        found, work = self._parallelism(points, arguments), self._work(arguments.sizes)
        if found is None:
            return self.lanes
        rates = self.compiler.backend.costs

        def seconds(lanes: int) -> float:
            held = [bucketed(_COUNTS, count) for count in (found.base(lanes), found.more(lanes))]
            return sum(each or math.inf for each in held) * work.cost(lanes, rates).seconds

        every = {lanes: seconds(lanes) for lanes in _LANES}
        least = min(every.values())
        return min(lanes for lanes in _LANES if every[lanes] <= _ALIKE * least)

    def _parallelism(self, points: Points, arguments: Arguments) -> Parallelism | None:
        """None where nothing is read."""
        sizes = arguments.sizes
        if self.tiled.row is not None:
            size = int(self.wave.dim.size.evaluate(sizes))
            return row_parallelism(arguments.lengths[self.symbol.name], size, self.wave.backward)
        read = self.read(points, sizes)
        return None if any(each.size == 0 for each in read) else parallelism(*self._in_order(read, sizes))

    def told(self, sizes: Sizes) -> str:
        if not sizes.keys() >= set(self.counted):
            says = "lengths" if self.wave.rows else "indices"
            return f"point by point; a run is in tiles where its {says} make that cheaper"
        base, more = (sizes[count] for count in self.counted)
        dims = (self.declared.dim(symbol).size for symbol in self.wave.symbols)
        points = math.prod(int(each.evaluate(sizes)) for each in dims)
        return f"in tiles: {base} and {more} of {self.tiled.lane.size} for {points} points"

    def given(self, points: Points, arguments: Arguments) -> tuple[dict[Port, Array], tuple[int, int]] | None:
        """What the graph in tiles is given beside what is given anyway, and how many tiles there are without indirect
        reads, and with; None where points one by one take less time."""
        sizes = arguments.sizes
        if self.tiled.row is not None:
            return self.of_rows(arguments.lengths[self.symbol.name], sizes)
        read = self.read(points, sizes)
        order = self.order(read, sizes)
        if order is None:
            return None
        return self.arrays(read, order, sizes), (order.base, len(order.order) - order.base)

    def of_rows(self, lengths: Array, sizes: Sizes) -> tuple[dict[Port, Array], tuple[int, int]] | None:
        """The same of points of rows."""
        size, lanes = int(self.wave.dim.size.evaluate(sizes)), self.lanes
        found = row_tiles(lengths, size, lanes, self.wave.backward)
        if found is None:
            return None
        if forced(self.compiler.options.mapping, self.symbol.name) is None:
            ratio = self._ratios.get(frozenset(sizes.items()), lambda: self._ratio(lanes, sizes, len(lengths)))
            if len(found.time) * ratio >= size:
                return None
        (step,), row = self.tiled.reads, self.tiled.row
        assert row is not None
        arrays = {self.tiled.order: found.time, row: found.row, self.tiled.position: found.position, step: found.step}
        return arrays, (found.base, len(found.time) - found.base)

    def reading(self, sizes: Sizes) -> tuple[int, int]:
        """From which to which points read others; at some sizes there are none."""
        low, high = (max(int(each.evaluate(sizes)), 0) for each in self.wave.reading)
        return low, max(low, high)

    def read(self, points: Points, sizes: Sizes) -> list[Array]:
        """By indirect read, what each of the points that read takes."""
        (low, high), size = self.reading(sizes), int(self.wave.dim.size.evaluate(sizes))
        found = ((points[each.node], self.symbol in each.dims) for each in self.wave.reads)
        whole = (each if varies else np.broadcast_to(each, (size, *each.shape)) for each, varies in found)
        return [each[low:high] for each in whole]

    def order(self, read: Sequence[Array], sizes: Sizes) -> Tiles | None:
        """The tiles; None where points one by one take less time."""
        if any(each.size == 0 for each in read):
            return None
        (all_read, first), lanes, most = self._in_order(read, sizes), self.lanes, np.inf
        if forced(self.compiler.options.mapping, self.symbol.name) is None:
            ratio = self._ratios.get(frozenset(sizes.items()), lambda: self._ratio(lanes, sizes))
            most = -(-first // lanes) + len(all_read) / ratio
        found = tiles(all_read, first, lanes, most)
        if found is None or not self.wave.backward:
            return found
        return Tiles(first + len(all_read) - 1 - found.order, found.position[::-1], found.base)

    def _in_order(self, read: Sequence[Array], sizes: Sizes) -> tuple[Array, int]:
        """What each point takes in all, and how many take none and are in front, where points are made upwards."""
        all_read = np.concatenate([each.reshape(len(each), -1) for each in read], axis=1)
        size = int(self.wave.dim.size.evaluate(sizes))
        return size - 1 - all_read[::-1] if self.wave.backward else all_read, size - len(all_read)

    def _ratio(self, lanes: int, sizes: Sizes, together: int = 1) -> float:
        """How many times as long a tile takes as a point, or so many of them."""
        work, rates = self._work(sizes), self.compiler.backend.costs
        return work.cost(lanes, rates).seconds / work.cost(together, rates).seconds

    def _work(self, sizes: Sizes) -> PointWork:
        """Of a point, but for what is computed of all points before."""
        own = [id for id in sorted(self.wave.nodes) if id not in self.tiled.ahead]
        return work_at_points(self.declared, own, self.symbol, LikelySizes(sizes))

    def arrays(self, read: Sequence[Array], order: Tiles, sizes: Sizes) -> dict[Port, Array]:
        """What the graph in tiles is given beside what is given anyway."""
        low, high = self.reading(sizes)
        row = np.clip(order.order - low, 0, high - low - 1)
        places = (order.position[points][row] for points in read)
        own = {self.tiled.order: order.order, self.tiled.position: order.position}
        return {**own, **dict(zip(self.tiled.reads, places, strict=True))}


def in_tiles(
    compiler: Compiler, declared: Graph, lanes: Mapping[Symbol, int] = MappingProxyType({})
) -> tuple[InTiles | None, list[str]]:
    """The program with those of its recurrences in tiles that may be, and what became of the others. `lanes`: by dim,
    the points of a tile, where that is not left open or forced."""
    notes = list[str]()
    if not _may_be(compiler):
        return None, notes
    (graph, unbounded), parts = bounded(declared), list[InTilesAlong]()
    expanded = compiler.graph if graph is declared else expand_gradients(graph)
    finite = graph
    found = (*wavefronts(finite, expanded), *row_wavefronts(finite, expanded))
    for symbol, wave in found:
        way = forced(compiler.options.mapping, symbol.name)
        why = wave if isinstance(wave, str) else "mapping= says so"
        if not isinstance(wave, str) and way != "sequential":
            try:
                made = tiled(graph, wave, way if isinstance(way, int) else lanes.get(symbol, LANES), unbounded)
                graph = made.graph
                parts.append(InTilesAlong(compiler, finite, wave, made))
                continue
            except UnsupportedError as error:
                why = error.message
        notes.append(f"{symbol.name}: point by point: {why}")
    if not parts:
        return None, notes
    return InTiles(compiler, declared, rows_masked(expand_gradients(graph)), tuple(parts)), notes


def _may_be(compiler: Compiler) -> bool:
    """Where nothing is asked for that is of the order in which the program was written."""
    options = compiler.options
    bounded = compiler.memory_limit is not None or compiler.offload is not None or compiler.rivals
    ordered = bounded or options.strips or options.fold_blocks or options.check_finite
    return Lift.name not in compiler.manager.disabled and not ordered
