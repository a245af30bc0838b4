"""What the search for a mapping counts with: operations, bytes and calls, at the sizes known or at a middling guess.

One point at a time costs a call of every operator per point, and a change between host and device where the loop does
host work; all at once leaves the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tempo import dtypes
from tempo.costs.model import Cost, Costs
from tempo.sdg.call import static_type
from tempo.sdg.graph import Graph, Node
from tempo.sdg.operators import OPERATORS, call_for
from tempo.symbolic import Expr, Symbol

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

    def bytes(self, node: Node) -> int:
        """The bytes of all results of a node at one point."""
        total = 0
        for type in node.results:
            elements = 1
            for size in type.shape:
                elements *= self.extent(size)
            total += elements * dtypes.itemsize(type.dtype)
        return total


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
    middle = {dim.symbol: sizes.extent(dim.size) // 2 for dim in graph.dims}

    def resolve(expr: Expr) -> int:
        return sizes.extent(expr.substitute(middle))

    operations = moved = 0.0
    launches = 0
    for id in group:
        node = graph.nodes[id]
        operator = OPERATORS[node.op]
        operands = [static_type(graph.seen_type(edge), resolve) for edge in node.operands]
        result = static_type(node.type, resolve)
        operations += operator.cost(call_for(node.op, node.attrs, operands, result, resolve))
        if operator.views:
            continue
        launches += 1
        moved += sum(type.elements * dtypes.itemsize(type.dtype) for type in (*operands, result))
    return GroupWork(points, operations, moved, held, launches, hosted)
