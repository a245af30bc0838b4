"""Indices of points that are known before a run: computed at once, and checked, whatever executes the reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tempo.compiler.driver import Compiler
from tempo.compiler.options import Options
from tempo.errors import IndexOutOfRangeError
from tempo.passes.wavefront.components import IndirectRead
from tempo.plugins.manager import get_backend, get_scheduler
from tempo.sdg.graph import Case, Graph, Output
from tempo.sdg.operators.located import name_of_data, out_of_range, within_at
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import TRUE, Box, Symbol, disjunction

Sizes = Mapping[Symbol, int]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Promises:
    """`checks`: whether an index that is out of its range raises; else it is clamped."""

    declared: Graph
    reads: tuple[IndirectRead, ...]
    checks: bool

    @cached_property
    def compiler(self) -> Compiler:
        """Of what computes the indices, on NumPy: an output for each read, by its node."""
        graph, rewriter, outputs = self.declared, Rewriter(self.declared), list[Output]()
        for read in self.reads:
            type, dims = graph.seen_type(read.index), self._dims(read)
            boxes = (Box(tuple(bound for bound in box.bounds if bound[0] in dims)) for box in read.points)
            asked = Case(disjunction(box.condition() for box in boxes), read.index)
            edge = rewriter.cases((asked, Case(TRUE, Tensors(rewriter, None).zeros(type))), type)
            layout = (*dims, *range(len(type.shape)))
            outputs.append(Output(str(read.node), edge, dims, type, layout))
        alone = replace(graph, nodes=rewriter.nodes, outputs=tuple(outputs), sinks=())
        kept = alone.reachable()
        alone = replace(alone, nodes={id: node for id, node in alone.nodes.items() if id in kept})
        return Compiler(alone, get_backend("numpy"), get_scheduler("greedy"), Options(checks=self.checks))

    def _dims(self, read: IndirectRead) -> tuple[Symbol, ...]:
        return self.declared.canonical(read.index.dims())

    def read(self, indices: Mapping[str, Array], sizes: Sizes) -> dict[int, Array]:
        """Which points each read takes, at all points of its `dims`, from what the program of `compiler` gives.

        Raises `IndexOutOfRangeError` for an index that is out of its range and surely asked for.
        """
        return {read.node: self._read(read, indices[str(read.node)], sizes) for read in self.reads}

    def _read(self, read: IndirectRead, index: Array, sizes: Sizes) -> Array:
        dims = self.declared.canonical(read.dims)
        extents = [int(self.declared.dim(symbol).size.evaluate(sizes)) for symbol in dims]
        axes = len(dims) + index.ndim - len(self._dims(read))
        at = {
            symbol: _along(place, axes, np.arange(extent)) for place, (symbol, extent) in enumerate(zip(dims, extents))
        }
        env: dict[Symbol, Any] = {**sizes, **at}
        missing = tuple(place for place, symbol in enumerate(dims) if symbol not in read.index.dims())
        index = np.expand_dims(index, missing)
        start, length = (np.asarray(each.evaluate(env)) for each in (read.start, read.length))
        if self.checks:
            bad = (index < 0) | (index >= length)
            for box in read.points if bad.any() else ():
                asked = bad
                for symbol, low, high in box.bounds:
                    if symbol in at:
                        asked = asked & (at[symbol] >= low.evaluate(env)) & (at[symbol] < high.evaluate(env))
                if asked.any():
                    raise self._error(read, index, asked, length, dims, sizes)
        points: Array = np.clip(index, 0, np.maximum(length - 1, 0)) + start
        return points.astype(np.int32)

    def _error(
        self, read: IndirectRead, index: Array, bad: Array, length: Array, dims: tuple[Symbol, ...], sizes: Sizes
    ) -> IndexOutOfRangeError:
        node = self.declared.nodes[read.node]
        place = tuple(int(each) for each in np.argwhere(bad)[0])
        index, length = (np.broadcast_to(each, bad.shape) for each in (index, length))
        point, element = dict(zip(dims, place)), place[len(dims) :]
        within, name = within_at(node.attributes, point, sizes), name_of_data(self.declared, node)
        return out_of_range(int(index[place]), int(length[place]), name, point, element, node.location, within)


def _along(axis: int, axes: int, values: Array) -> Array:
    """As the only axis of `axes` that has more than one element."""
    return values.reshape([-1 if each == axis else 1 for each in range(axes)])
