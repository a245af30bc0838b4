"""`tp.Options(check_finite=True)`: the first tensor of a run that is not finite, and the point."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tempo import dtypes
from tempo.analysis.demand.reads import RunSizes, reads_of_point
from tempo.analysis.reports import point_text, tensor_name
from tempo.analysis.rows import ends_of
from tempo.errors import NotFiniteError
from tempo.passes.instrument import INFINITE, NOT_A_NUMBER, UNKNOWN, Watch
from tempo.runtime.arguments.binding import called
from tempo.runtime.arguments.call import Arguments
from tempo.sdg.components import reached
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS

Array = np.ndarray[Any, Any]

MOST_STEPS = 1_000_000
"""How many instances are looked at on the way back from a point; the search ends there with what it has found."""


class _Hit(NamedTuple):
    """A point at which a watched tensor is not finite; the point is of the reader's domain."""

    watch: int
    point: tuple[int, ...]


@dataclass(frozen=True)
class FiniteCheck:
    """Looks at what a call gives to a program, and at the watches that a run returns. `on_host` makes NumPy's arrays of
    what is given."""

    graph: Graph
    watches: tuple[Watch, ...]
    on_host: Callable[[Any], Array]

    def given(self, arguments: Arguments) -> None:
        """Raises `NotFiniteError` where an input or a state holds a NaN. An infinity that is given is meant."""
        for node, array in self._inputs(arguments):
            found = np.argwhere(np.isnan(array))
            if len(found):
                layout = node.attr("layout") or (*node.domain, *range(len(node.shape)))
                point = tuple(int(found[0][layout.index(symbol)]) for symbol in node.domain)
                raise NotFiniteError(f"{called(node)} is NaN{_at(node, point)}", location=node.location)

    def made(self, arguments: Arguments, values: Mapping[str, Array], unfinished: bool = False) -> None:
        """Raises `NotFiniteError` for the first tensor that is not finite, by what the watches hold.

        Of a run that is `unfinished` only where nothing before it is still to come.
        """
        found = {at: array for at, watch in enumerate(self.watches) if (array := values.get(watch.name)) is not None}
        if not any((array >= INFINITE).any() for array in found.values()):
            return
        meant = self._may_be_infinite(arguments)
        least = {at: NOT_A_NUMBER if self.watches[at].edge.node in meant else INFINITE for at in found}
        points = {at: np.argwhere(array >= least[at]) for at, array in found.items()}
        hits = [_Hit(at, tuple(int(index) for index in each[0])) for at, each in points.items() if len(each)]
        if not hits:
            return
        sizes = RunSizes.of(self.graph, arguments.sizes)
        search = _Search(self, sizes, found, least, MOST_STEPS // 100 if unfinished else MOST_STEPS)
        first = search.first(min(hits, key=self._position))
        if search.is_certain or not unfinished:
            raise self._failure(first, values, sizes, search.is_certain)

    # -- what is infinite on purpose -------------------------------------------------------------------------------

    def _inputs(self, arguments: Arguments) -> Iterator[tuple[Node, Array]]:
        """The floating inputs and states, and their arrays as the caller gave them; 0 behind the ends of rows."""
        for node in self.graph.nodes.values():
            if node.is_input and dtypes.is_float(node.dtype) and node.port in arguments.arrays:
                given = self.on_host(arguments.arrays[node.port])
                array = np.asarray(given, dtypes.to_numpy(node.dtype))
                layout = list(node.attr("layout") or (*node.domain, *range(len(node.shape))))
                for end in ends_of(self.graph, node.domain):
                    if end.name not in arguments.lengths:  # made by the run: a NaN that is read is found where it is
                        array = np.where(np.isnan(array), np.zeros((), array.dtype), array)
                        continue
                    axes = [layout.index(symbol) for symbol in end.domain]
                    inside = np.arange(array.shape[axes[-1]]) < arguments.lengths[end.name][..., None]
                    array = np.where(_aligned(inside, axes, array.ndim), array, np.zeros((), array.dtype))
                yield node, array

    def _may_be_infinite(self, arguments: Arguments) -> set[int]:
        """The nodes that an infinity reaches which the program or its caller wrote down."""
        pending = [node.id for node in self.graph.nodes.values() if _writes_infinity(node)]
        pending += [node.id for node, array in self._inputs(arguments) if np.isinf(array).any()]
        return reached(pending, lambda id: [reader for reader, _ in self.graph.consumers[id] if self._carries(reader)])

    def _carries(self, id: int) -> bool:
        node = self.graph.nodes[id]
        return any(dtypes.is_float(type.dtype) for type in node.results) and not OPERATORS[node.op].bounded

    # -- which is first --------------------------------------------------------------------------------------------

    def _position(self, hit: _Hit) -> tuple[int, ...]:
        """Along the dims in canonical order; what does not vary along one comes first."""
        here = dict(zip(self.watches[hit.watch].reader.domain, hit.point))
        return tuple(here.get(dim.symbol, -1) for dim in self.graph.dims)

    def _failure(self, hit: _Hit, values: Mapping[str, Array], sizes: RunSizes, is_certain: bool) -> NotFiniteError:
        watch = self.watches[hit.watch]
        node = watch.reader
        what = "NaN" if values[watch.name][hit.point] >= NOT_A_NUMBER else "infinite"
        name = f"result {watch.edge.result} of {tensor_name(node)}" if len(node.results) > 1 else tensor_name(node)
        return NotFiniteError(
            f"{name} is {what}{_at(node, hit.point)}, the first {'' if is_certain else 'known '}that is not finite",
            location=node.location,
            hint=self._made_by(node, hit.point, sizes),
        )

    def _made_by(self, node: Node, point: tuple[int, ...], sizes: RunSizes) -> str | None:
        """The line of the case that holds there, where the tensor is declared on another."""
        env = {**sizes.symbols, **dict(zip(node.domain, point))}
        case = next((case for case in node.cases if case.condition.evaluate(env)), None)
        if case is None or case.location is None or case.location == node.location:
            return None
        return f"its value there is defined at {case.location}"


def _aligned(array: Array, axes: Sequence[int], count: int) -> Array:
    """With its axes at these places of `count`, and axes of size 1 at the others."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    others = [axis for axis in range(count) if axis not in axes]
    return np.expand_dims(array.transpose(order), others)


def _at(node: Node, point: tuple[int, ...]) -> str:
    return f" at {point_text(node.domain, point)}" if node.domain else ""


def _writes_infinity(node: Node) -> bool:
    if node.is_constant and dtypes.is_float(node.dtype):
        return bool(np.isinf(node.attr("value").array).any())
    return any(isinstance(value, float) and np.isinf(value) for value in node.attributes.values())


class _Search:
    """Goes back from a point that is not finite, through what it was made of, to one that is made of finite values."""

    def __init__(
        self, check: FiniteCheck, sizes: RunSizes, found: Mapping[int, Array], least: Mapping[int, int], steps: int
    ) -> None:
        self.check, self.sizes, self.found, self.least, self.steps = check, sizes, found, least, steps
        self.is_certain = True
        definitions = ((at, each.edge) for at, each in enumerate(check.watches) if each.reader.id >= 0)
        self.by_read = {(edge.node, edge.result): at for at, edge in definitions}  # at the points of its own

    def first(self, hit: _Hit) -> _Hit:
        while (before := self._before(hit)) is not None:
            hit = before
        return hit

    def _before(self, hit: _Hit) -> _Hit | None:
        """A point that is not finite among those that `hit` is made of, by operators alone."""
        pending = list(self._reads(self.check.watches[hit.watch].reader, hit.point))
        seen = set(pending)
        while pending and self.steps > 0:
            self.steps -= 1
            node, result, point = pending.pop()
            at = self.by_read.get((node, result), -1)
            held = self.found[at][point] if at in self.found else UNKNOWN
            if held != UNKNOWN and held >= self.least[at]:
                return _Hit(at, point)
            if held != UNKNOWN:
                continue
            self.is_certain = self.is_certain and at < 0
            fresh = [each for each in self._reads(self.check.graph.nodes[node], point) if each not in seen]
            seen.update(fresh)
            pending += fresh
        self.is_certain = self.is_certain and not pending
        return None

    def _reads(self, node: Node, point: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        for edge, ranges in reads_of_point(self.sizes, node, point):
            for read in itertools.product(*ranges):
                yield edge.node, edge.result, read
