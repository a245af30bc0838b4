"""Runs of a recurrence that only indices order: inspected, and a tile of points at a time where that is cheaper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tempo.autodiff import expand_gradients
from tempo.compiler.buckets import Buckets
from tempo.compiler.driver import Compiler
from tempo.compiler.once import Once
from tempo.compiler.options import Options
from tempo.costs import LikelySizes, work_at_points
from tempo.errors import IndexOutOfRangeError, UnsupportedError
from tempo.passes.manager import forced
from tempo.passes.rows import rows_masked
from tempo.passes.wavefront.components import IndirectRead, Wavefront, wavefronts
from tempo.passes.wavefront.tiling import LANES, Tiled, tiled
from tempo.plugins.manager import get_backend, get_scheduler
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.inspector import Tiles, tiles
from tempo.sdg.graph import Case, Graph, Output
from tempo.sdg.operators.located import name_of_data, out_of_range, within_at
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Symbol, var

Sizes = Mapping[Symbol, int]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class InTiles:
    """A program of which a recurrence is run in tiles; `compiler` is that of the program as it was declared."""

    compiler: Compiler
    declared: Graph
    wave: Wavefront
    tiled: Tiled
    graph: Graph
    _ratios: Once[frozenset[tuple[Symbol, int]], float] = field(default_factory=Once)

    @property
    def way(self) -> str | int | None:
        """How the user has the dim run."""
        return forced(self.compiler.options.mapping, self.wave.dim.symbol.name)

    def compilers(self) -> tuple[Compiler, Compiler]:
        """Of what computes the indices of all points, and of the program in tiles."""
        return self._of_indices(), self._of_tiles()

    def _of_indices(self) -> Compiler:
        rewriter, outputs, symbol = Rewriter(self.declared), [], self.wave.dim.symbol
        for number, read in enumerate(self.wave.reads):
            type, tensors = self.declared.seen_type(read.index), Tensors(rewriter, None)
            reading = Case(var(symbol).ge(self.wave.first), read.index), Case(TRUE, tensors.zeros(type))
            edge, layout = rewriter.cases(reading, type), (symbol, *range(len(type.shape)))
            outputs.append(Output(str(number), edge, (symbol,), type, layout))
        alone = replace(self.declared, nodes=rewriter.nodes, outputs=tuple(outputs), sinks=())
        kept = alone.reachable()
        graph = replace(alone, nodes={id: node for id, node in alone.nodes.items() if id in kept})
        options = Options(checks=self.compiler.options.checks)
        return Compiler(graph, get_backend("numpy"), get_scheduler("greedy"), options)

    def _of_tiles(self) -> Compiler:
        options, lane = self.compiler.options, self.tiled.lane.symbol.name
        if isinstance(options.mapping, Mapping) or options.mapping is None:
            given = {name: way for name, way in (options.mapping or {}).items() if name != self.wave.dim.symbol.name}
            options = replace(options, mapping={**given, lane: "full"})
        buckets = Buckets({**self.compiler.buckets.of, self.tiled.base: "pow2", self.tiled.more: "pow2"})
        return replace(self.compiler, graph=self.graph, options=options, buckets=buckets, likely={})

    def told(self, sizes: Sizes) -> str:
        """How a run of these sizes went, or would."""
        counts = [sizes.get(dim.of_kind("size")) for dim in (self.tiled.base, self.tiled.more)]
        if None in counts:
            return "point by point; a run is in tiles where its indices make that cheaper"
        base, more = counts
        _, size = self.points(sizes)
        return f"in tiles: {base} and {more} of {self.tiled.lane.size} for {size} points"

    # -- a run -------------------------------------------------------------------------------------------------------

    def points(self, sizes: Sizes) -> tuple[int, int]:
        """From which to which points read others."""
        return int(self.wave.first.evaluate(sizes)), int(self.wave.dim.size.evaluate(sizes))

    def read(self, indices: Sequence[Array], sizes: Sizes) -> list[Array]:
        """By indirect read the points that each reads. Raises for an index that is out of the range promised."""
        first, size = self.points(sizes)
        env: dict[Symbol, Any] = {**sizes, self.wave.dim.symbol: np.arange(first, size)}
        found = []
        for read, index in zip(self.wave.reads, indices, strict=True):
            shape = (size - first, *(1,) * (index.ndim - 1))
            start, length = (
                np.broadcast_to(each.evaluate(env), (size - first,)).reshape(shape)
                for each in (read.start, read.length)
            )
            index = index[first:]
            if self.compiler.options.checks is False:
                index = np.clip(index, 0, length - 1)
            elif (bad := (index < 0) | (index >= length)).any():
                raise self._error(read, index, bad, length, sizes)
            found.append((index + start).astype(np.int32))
        return found

    def _error(self, read: IndirectRead, index: Array, bad: Array, length: Array, sizes: Sizes) -> IndexOutOfRangeError:
        node, symbol = self.declared.nodes[read.node], self.wave.dim.symbol
        at, *place = (int(each) for each in np.argwhere(bad)[0])
        point = {symbol: self.points(sizes)[0] + at}
        within, name = within_at(node.attributes, point, sizes), name_of_data(self.declared, node)
        return out_of_range(
            int(index[(at, *place)]), int(length[at].flat[0]), name, point, place, node.location, within
        )

    def order(self, read: Sequence[Array], sizes: Sizes) -> Tiles | None:
        """The tiles; None where points one by one take less time."""
        first, size = self.points(sizes)
        all_read = np.concatenate([each.reshape(size - first, -1) for each in read], axis=1)
        if not all_read.shape[1]:
            return None
        lanes = self.tiled.lane.size.as_int()
        if self.way is not None:
            return tiles(all_read, first, lanes, np.inf)
        ratio = self._ratios.get(frozenset(sizes.items()), lambda: self._ratio(lanes, sizes))
        return tiles(all_read, first, lanes, -(-first // lanes) + (size - first) / ratio)

    def _ratio(self, lanes: int, sizes: Sizes) -> float:
        """How many times as long a tile takes as a point."""
        work = work_at_points(self.declared, self.wave.nodes, self.wave.dim.symbol, LikelySizes(sizes))
        alone, at_once = (work.cost(each, self.compiler.backend.costs).seconds for each in (1, lanes))
        return at_once / alone

    def given(self, arguments: Arguments, read: Sequence[Array], order: Tiles) -> Arguments:
        """What the program in tiles is given."""
        first, _ = self.points(arguments.sizes)
        behind = np.maximum(order.order - first, 0)
        arrays = {self.tiled.order: order.order, self.tiled.position: order.position}
        for port, points in zip(self.tiled.reads, read, strict=True):
            arrays[port] = order.position[points][behind]
        count = {self.tiled.base: order.base, self.tiled.more: len(order.order) - order.base}
        sizes = {dim.of_kind("size"): size for dim, size in count.items()}
        return replace(arguments, arrays={**arguments.arrays, **arrays}, sizes={**arguments.sizes, **sizes})


def in_tiles(compiler: Compiler, declared: Graph) -> tuple[InTiles | None, list[str]]:
    """The program with one of its recurrences in tiles, if one may be, and what became of the others."""
    found: InTiles | None = None
    notes = []
    for symbol, wave in wavefronts(declared, compiler.graph):
        way = forced(compiler.options.mapping, symbol.name)
        why = wave if isinstance(wave, str) else "mapping= says so" if way == "sequential" else None
        if why is None and found is not None:
            why = "another recurrence is in tiles"
        if why is None and not isinstance(wave, str):
            try:
                made = tiled(declared, wave, way if isinstance(way, int) else LANES)
                found = InTiles(compiler, declared, wave, made, rows_masked(expand_gradients(made.graph)))
                continue
            except UnsupportedError as error:
                why = error.message
        notes.append(f"{symbol.name}: point by point: {why}")
    return found, notes
