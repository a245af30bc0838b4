"""What running things is expected to cost: one model, whose rates are those of a backend on a device.

First a cost, and the rates that make seconds of it: they decide between factors, not between percents. Then what the
search for a mapping counts with, at the sizes known or at a middling guess: one point at a time costs a call of every
operator per point, and a change between host and device where the loop does host work; all at once leaves the caches.
Last, what an extent that varies costs: the bytes that the reads of a region move, the operators that are launched, and
what compiling copies of the region takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tempo import dtypes
from tempo.sdg.call import StaticType, static_type
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS, call_for
from tempo.symbolic import Expr, Symbol

RUNS = 20
"""Of an executable, for which it is compiled."""
POINTS = 1000
"""How often a region or a loop runs where that is not known."""


@dataclass(frozen=True)
class Costs:
    """Of a backend on a device, in seconds: a byte that is read from memory, a launch (an operator or a turn of a loop,
    beside its arithmetic), a choice between copies of code, compiling an operator, an arithmetic operation, a byte of
    what fits into `cache` bytes, and a change from host to device and back. `copies`: whether a mask on what is read
    costs as much as reading it twice more, as it does where operators are not fused. `part`: what reading a part of an
    array costs, to reading all of one; XLA copies the part before a contraction on a CPU."""

    byte: float
    launch: float
    choice: float
    compiling: float
    copies: bool
    part: float = 1
    operation: float = 1 / 2e10
    cached_byte: float = 1 / 4e10
    cache: int = 1 << 20
    transition: float = 4e-5


EAGER = Costs(byte=1 / 8e9, launch=3e-6, choice=3e-7, compiling=1e-4, copies=True)
FUSED = Costs(byte=1 / 8e9, launch=1e-6, choice=5e-6, compiling=5e-3, copies=False, part=2)
# Measured on an H200: 3.5 to 3.8 TB/s; an operator 1.5 to 2 us in a CUDA graph (PyTorch, 9 one by one) and in a loop of
# XLA's.
EAGER_CUDA = Costs(1 / 3.5e12, 2e-6, 3e-7, 1e-4, copies=True, operation=1 / 2e13, cached_byte=1 / 7e12, cache=1 << 25)
FUSED_CUDA = Costs(1 / 3.5e12, 2e-6, 3e-5, 1e-2, copies=False, operation=1 / 2e13, cached_byte=1 / 7e12, cache=1 << 25)


@dataclass(frozen=True)
class Cost:
    """What one way to run something does. `compiled`: operators, shared among the runs of what is compiled; `cached`:
    whether what is moved stays in the cache."""

    rates: Costs
    operations: float = 0
    bytes: float = 0
    launches: float = 0
    transitions: float = 0
    choices: float = 0
    compiled: float = 0
    cached: bool = False

    @property
    def seconds(self) -> float:
        rates = self.rates
        moved = self.bytes * (rates.cached_byte if self.cached else rates.byte)
        once = self.choices * rates.choice + self.compiled * rates.compiling
        host = self.launches * rates.launch + self.transitions * rates.transition
        return self.operations * rates.operation + moved + host + once

    def __str__(self) -> str:
        parts = [f"{self.operations:.3g} operations", f"{self.bytes:.3g} bytes{'' if self.cached else ' uncached'}"]
        parts.append(f"{self.launches} launches")
        if self.transitions:
            parts.append(f"{self.transitions} host transitions")
        return f"{self.seconds * 1e3:.3g} ms ({', '.join(parts)})"


UNKNOWN = 32
"""What a size that is not known counts as."""
MOST_AT_ONCE = 8 << 20
"""No tensor of reads that move with a dim may be larger: of causal attention, the scores of all pairs of points. A
gradient holds some forty of that size; at twice the size, blocks took half the time on every backend (two cores)."""
MOST_BETWEEN = 256 << 20
"""No other tensor of all points may be larger that nothing but the same points of others reads."""
BLOCK = 64
"""How many points a block has where sizes are not known."""


@dataclass(frozen=True)
class LikelySizes:
    known: Mapping[Symbol, int]

    def extent(self, expr: Expr) -> int:
        """The value of an extent; a dim counts as half of an unknown size."""
        values = {symbol: self.known.get(symbol, UNKNOWN) for symbol in expr.symbols()}
        values.update(dict.fromkeys(expr.dims(), UNKNOWN // 2))
        return max(0, int(expr.evaluate(values)))

    def are_known(self, exprs: Iterable[Expr]) -> bool:
        """Whether every size in the expressions is."""
        return all(symbol in self.known for expr in exprs for symbol in expr.symbols())

    def points(self, graph: Graph, node: Node) -> int:
        """How many points its domain has."""
        return math.prod(self.extent(graph.dim(symbol).size) for symbol in node.domain)

    def bytes(self, node: Node) -> int:
        """The bytes of all results of a node at one point."""
        return sum(math.prod(map(self.extent, type.shape)) * dtypes.itemsize(type.dtype) for type in node.results)


@dataclass(frozen=True)
class GroupWork:
    """What a group of nodes does along a dim of `points` points: at one point, but for `launches` and `hosted`.

    `held` is the bytes of its largest tensor, `hosted` whether the loop that it is in while it
    is not lifted calls the host.
    """

    points: int
    operations: float
    bytes: float
    held: int
    launches: int
    hosted: bool

    def cost(self, at_once: int, rates: Costs) -> Cost:
        """Of so many points at once."""
        rounds = -(-self.points // max(at_once, 1))
        transitions = 0 if not self.hosted else self.points if at_once == 1 else 1
        cached = self.held * at_once <= rates.cache
        operations, moved = self.operations * self.points, self.bytes * self.points
        return Cost(rates, operations, moved, self.launches * rounds, transitions, cached=cached)

    def best_block(self, most: int, rates: Costs) -> int:
        """How many points a block has, a power of two, so that its largest tensor has at most so many bytes."""
        sizes = [1 << power for power in range(1, max(self.points - 1, 2).bit_length())]
        fitting = [size for size in sizes if size * self.held <= most] or sizes[:1]
        return min(fitting, key=lambda size: (self.cost(size, rates).seconds, -size))


def work(graph: Graph, group: Iterable[int], held: int, points: int, hosted: bool, sizes: LikelySizes) -> GroupWork:
    """What a group of nodes does, as they are before the dim is lifted."""
    operations = moved = 0.0
    launches = 0
    for node, arithmetic, operands, result in _applied(graph, group, sizes):
        operations += arithmetic
        if not OPERATORS[node.op].views:
            launches += 1
            moved += sum(type_bytes(type) for type in (*operands, result))
    return GroupWork(points, operations, moved, held, launches, hosted)


def cost_point_by_point(graph: Graph, rates: Costs, sizes: LikelySizes) -> Cost:
    """Of a graph, each node run once at each point of its domain that there may be."""
    operations = moved = 0.0
    launches = transitions = 0
    for id in sorted(graph.reachable()):
        node = graph.nodes[id]
        points = sizes.points(graph, node)
        transitions += points if node.is_call else 0
        if OPERATORS[node.op].kind == "nominal":
            continue
        found = work(graph, [id], 0, points, False, sizes)
        operations, moved = operations + points * found.operations, moved + points * found.bytes
        launches += points * found.launches
    return Cost(rates, operations, moved, launches, transitions)


@dataclass(frozen=True)
class PointWork:
    """What a recurrence does at a point: `bytes` of its own are moved, `shared` ones are what all points read, of which
    the largest tensor has `held`."""

    operations: float
    bytes: float
    shared: float
    held: int
    launches: int

    def cost(self, at_once: int, rates: Costs) -> Cost:
        """Of so many points at once."""
        cached = self.held <= rates.cache
        return Cost(rates, at_once * self.operations, at_once * self.bytes + self.shared, self.launches, cached=cached)


def work_at_points(graph: Graph, group: Iterable[int], dim: Symbol, sizes: LikelySizes) -> PointWork:
    """What a group of nodes does at each point of a dim. Of what is read at indices, only what is made of it counts."""
    operations = moved = shared = 0.0
    launches = held = 0
    for node, arithmetic, operands, result in _applied(graph, group, sizes):
        operations += arithmetic
        if OPERATORS[node.op].views:
            continue
        launches += 1
        moved += 2 * type_bytes(result) if OPERATORS[node.op].kind == "indexing" else type_bytes(result)
        for edge, type in zip(node.operands, operands, strict=True):
            if OPERATORS[node.op].kind == "indexing":
                continue
            if dim in edge.dims():
                moved += type_bytes(type)
            else:
                shared, held = shared + type_bytes(type), max(held, type_bytes(type))
    return PointWork(operations, moved, shared, held, launches)


def type_bytes(type: StaticType) -> int:
    """Of a value of this type."""
    return type.elements * dtypes.itemsize(type.dtype)


def _applied(
    graph: Graph, group: Iterable[int], sizes: LikelySizes
) -> Iterator[tuple[Node, float, list[StaticType], StaticType]]:
    """The nodes with their arithmetic operations, and the types of what they read and make."""
    middle = {dim.symbol: sizes.extent(dim.size) // 2 for dim in graph.dims}

    def resolve(expr: Expr) -> int:
        return sizes.extent(expr.substitute(middle))

    for id in group:
        node = graph.nodes[id]
        operands = [static_type(graph.seen_type(edge), resolve) for edge in node.operands]
        result = static_type(node.type, resolve)
        yield node, OPERATORS[node.op].cost(call_for(node.op, node.attrs, operands, result, resolve)), operands, result


Way = Literal["hull", "blocks", "specialise"]
_LEAST_TILE = 16
_SAMPLES = 64
_CLEAR = 0.9
"""What another execution than the hull may cost at most, of what the hull does."""


@dataclass(frozen=True)
class RegionWork:
    """What a region does: `bytes` read per position, its operators, the folds among them, and the stages that blocks
    need; 0 where they cannot be. `lengths`: at points of the loops around it; `points`: how many there are. `room`:
    as many positions may be read, though no more than `hull` mean anything. `whole`: at the hull whole arrays are read.
    `masked`: what is read is masked, and not only what is made of it.
    `around`: the operators of the outermost loop, where that may be compiled for one extent after the other, of arrays
    of that extent; 0 where the extent is chosen at every point."""

    hull: int
    room: int
    bytes: float
    operators: int
    folds: int
    stages: int
    lengths: np.ndarray
    points: int
    masked: bool = True
    whole: bool = False
    around: int = 0

    def hull_cost(self, rates: Costs) -> Cost:
        part = 1 if self.whole else rates.part
        return Cost(rates, bytes=part * self._read(rates) * self.hull, launches=self.operators)

    def blocks_cost(self, rates: Costs, tile: int) -> Cost:
        """Whole blocks have no masks; there is one block beside them that does."""
        operators = self.operators + 2 * self.folds
        blocks = float((-(-self.lengths // tile)).mean())
        launched = operators * blocks + 2 * self.stages * blocks + 3 * self.folds
        moved = rates.part * (self.bytes * blocks * tile + (self._read(rates) - self.bytes) * tile)
        compiled = 2 * (operators + self.stages) + 3 * self.folds - self.operators
        return Cost(rates, bytes=moved, launches=launched, compiled=compiled / (self.points * RUNS))

    def choices_cost(self, rates: Costs, extents: Sequence[int]) -> Cost:
        every = np.asarray([*extents, self.hull])
        extent = float(every[np.minimum(np.searchsorted(every, self.lengths), len(extents))].mean())
        part, choices = (1.0, 0) if self.around else (rates.part, min(len(extents), 2))
        compiled = len(extents) * (self.around or self.operators + 1) / (self.points * RUNS)
        moved = part * self._read(rates) * extent
        return Cost(rates, bytes=moved, launches=self.operators, choices=choices, compiled=compiled)

    def _read(self, rates: Costs) -> float:
        """Bytes per position, those of masks with them."""
        return self.bytes * (3 if rates.copies and self.masked else 1)


def doubles(least: int, hull: int) -> list[int]:
    """Extents below the hull."""
    return [extent for extent in (least << power for power in range(hull.bit_length())) if extent < hull]


def cheapest(work: RegionWork, rates: Costs, extent: Way | None, tile: int | None) -> tuple[Way, int]:
    """The execution, and its tile. `extent` and `tile`: what is forced."""
    found: list[tuple[float, Way, int]] = []
    if extent in (None, "hull") and not (extent is None and tile):
        found.append((_CLEAR * work.hull_cost(rates).seconds, "hull", work.hull))
    tiles = [tile] if tile else list(_tiles(work))
    if extent in (None, "blocks") and work.stages:
        found += [(work.blocks_cost(rates, each).seconds, "blocks", each) for each in tiles if each < work.hull]
    if extent in (None, "specialise") or (extent == "blocks" and not work.stages):
        found += [
            (work.choices_cost(rates, doubles(each, work.hull)).seconds, "specialise", each)
            for each in tiles
            if each < work.hull
        ]
    return min(found)[1:] if found else ("hull", work.hull)


def _tiles(work: RegionWork) -> Iterator[int]:
    """Near each power of two the length whose blocks stay within what may be read: others are read position by
    position."""
    tile = _LEAST_TILE
    while tile < work.hull:
        near = [each for each in range(tile * 3 // 4, tile * 3 // 2 + 1) if -(-work.hull // each) * each <= work.room]
        yield min(near, key=lambda each: abs(each - tile), default=tile)
        tile *= 2


def sampled(
    length: Expr, loops: Sequence[tuple[Symbol, Expr, Expr]], sizes: Mapping[Symbol, int], hull: int
) -> tuple[np.ndarray, int]:
    """The length at points of the loops around it, outer first, and how many points they have."""
    points, values = 1, dict(sizes)
    for variable, lo, hi in loops:
        if not (lo.symbols() | hi.symbols()) <= sizes.keys():
            return np.linspace(0, hull, _SAMPLES).astype(int), POINTS
        first, end = int(lo.evaluate(sizes)), int(hi.evaluate(sizes))
        points *= max(1, end - first)
        if variable in length.symbols():
            values[variable] = np.linspace(first, max(first, end - 1), _SAMPLES).astype(int)  # type: ignore[assignment]
    if not length.symbols() <= values.keys():
        return np.linspace(0, hull, _SAMPLES).astype(int), points
    return np.broadcast_to(np.clip(length.evaluate(values), 0, hull), (_SAMPLES,)), points
