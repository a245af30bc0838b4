"""How the arrays of a segment lie: in pieces, and no longer than they are needed so far.

XLA copies a slice of a larger array before it contracts it. So a buffer that is only ever read and written at points of
short loops is kept as an array per point, which the iterations of these loops, traced one by one, name; and a buffer of
which a loop reads a prefix, and touches no more, has no more in that loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tempo import dtypes
from tempo.backends import POINTS, RUNS, Costs
from tempo.backends.loop_ir import Block, Buffer, Loop, PointIndex, Read, Statement, WindowIndex, Write, nested, walk
from tempo.backends.loops import Reaches, iterations, reaches
from tempo.symbolic import Expr, Symbol, const
from tempo_jax.operators.values import HALF
from tempo_jax.pieces import Order, apart, grown, together
from tempo_jax.work import operators, work

_MOST = 64
"""A loop of more iterations is never traced one by one."""
_LEAST_ELEMENTS = 1 << 14
"""A smaller piece is copied in no time. One of halves that are only read is taken where the loop is traced one by one
anyway: XLA slices halves as float32, within the kernel that needs them, so that each iteration has a large kernel of
its own, which takes longer to compile than all else that it adds (16 layers with two scales of norms: 0.5 s)."""

Array = Any
Buffers = Mapping[int, Buffer]
Sizes = Mapping[Symbol, int]
Points = tuple[Expr | None, ...]
"""For each axis the point that is read or written; None where there are several."""


@dataclass(frozen=True)
class ArrayPlan:
    """`pieces`: the axis along which a buffer is in pieces. `loops`: variables of loops traced one by one. `growing`:
    the axes, by buffer, of which there is no more than is needed so far. `reaches`: what each statement of the function
    needs.
    """

    pieces: Mapping[int, int] = field(default_factory=dict)
    loops: frozenset[Symbol] = frozenset()
    growing: frozenset[tuple[int, int]] = frozenset()
    reaches: tuple[Reaches, ...] = ()
    orders: Mapping[int, Order] = field(default_factory=dict)

    @staticmethod
    def of(
        statements: Block,
        buffers: Buffers,
        sizes: Sizes,
        orders: Mapping[int, Order],
        costs: Costs,
        whole: Collection[int] = (),
    ) -> ArrayPlan:
        """`buffers` are those that statements touch, `whole` those of them that stay in one piece. A loop is short that
        lies in another one, has few iterations, and no such loop in it; it is traced one by one where XLA takes less to
        compile that than the copies would."""
        short = frozenset(each.var for each in _inner(statements)) - _long(statements, sizes)
        uses = {id: found for id, found in _uses(statements, buffers).items() if id not in whole}
        pieces = _pieces(uses, buffers, short, sizes)
        saved = _copying(statements, pieces, buffers, sizes, costs)
        short = frozenset(each for each in short if saved[each] > _compiling(statements, each, sizes, costs))
        pieces = _pieces(uses, buffers, short, sizes)
        loops = frozenset(symbol for id, axis in pieces.items() for symbol in _along(uses[id], axis) & short)
        written = {each.buffer for each in walk(statements) if isinstance(each, Write)}
        halves = {id: found for id, found in uses.items() if id not in written and buffers[id].dtype in HALF}
        pieces = {**_pieces(halves, buffers, loops, sizes, least=1), **pieces}
        touched = tuple(reaches(each, buffers, sizes) for each in statements)
        growing = frozenset(
            key for each, reach in zip(statements, touched) for key in _prefixes(each, reach, buffers, sizes)
        )
        return ArrayPlan(pieces, loops, growing, touched, orders)

    def short(self, id: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that a new array of the buffer has before anything needs it."""
        return tuple(0 if (id, axis) in self.growing else extent for axis, extent in enumerate(shape))

    def opened(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        """The arrays as the statements have them, from those of whole buffers."""
        return {
            id: apart(array, self.pieces[id], self.orders.get(id)) if id in self.pieces else array
            for id, array in arrays.items()
        }

    def fitted(self, arrays: Mapping[int, Array], statement: int) -> dict[int, Array]:
        """The arrays as long as the statement needs them."""
        found = dict(arrays)
        for (id, axis), extent in self.reaches[statement].items():
            if (id, axis) in self.growing and id in found:
                found[id] = grown(found[id], axis, extent, self.orders.get(id))
        return found

    def closed(self, id: int, array: Array, shape: tuple[int, ...]) -> Array:
        """An array of the whole buffer, whose logical shape is `shape`."""
        for axis in (axis for each, axis in self.growing if each == id):
            array = grown(array, axis, shape[axis], self.orders.get(id))
        return together(array, self.orders.get(id))


# -- pieces --------------------------------------------------------------------------------------------------------


def _inner(statements: Block) -> Iterator[Loop]:
    for loop in walk(statements):
        if isinstance(loop, Loop):
            yield from (each for each in walk(loop.body) if isinstance(each, Loop))


def _is_short(loop: Loop, sizes: Sizes) -> bool:
    known = _is_known((loop.lo, loop.hi), sizes)
    inner = (each for each in walk(loop.body) if isinstance(each, Loop))
    return known and iterations(loop, sizes) <= _MOST and not any(_is_short(each, sizes) for each in inner)


def _long(statements: Block, sizes: Sizes) -> frozenset[Symbol]:
    """The variables of loops, some of which are not short."""
    loops = (each for each in walk(statements) if isinstance(each, Loop))
    return frozenset(each.var for each in loops if not _is_short(each, sizes))


def _often(loop: Loop, sizes: Sizes) -> int:
    return iterations(loop, sizes) if _is_known((loop.lo, loop.hi), sizes) else POINTS


def _compiling(statements: Block, symbol: Symbol, sizes: Sizes, costs: Costs) -> float:
    """Seconds that iterations one by one take to compile, beyond a loop."""
    loops = (each for each in walk(statements) if isinstance(each, Loop) and each.var == symbol)
    return sum((iterations(each, sizes) - 1) * operators(each.body) for each in loops) * costs.compiling


def _copying(
    statements: Block, pieces: Mapping[int, int], buffers: Buffers, sizes: Sizes, costs: Costs
) -> Mapping[Symbol, float]:
    """By the variable of a loop, the seconds that copies of what would be in pieces take, in all runs."""
    found: dict[Symbol, float] = defaultdict(float)
    second = (costs.part - 1) * costs.byte * RUNS

    def look(block: Block, times: float) -> None:
        for statement in block:
            if isinstance(statement, Read) and statement.buffer in pieces:
                entry, buffer = statement.index[pieces[statement.buffer]], buffers[statement.buffer]
                assert isinstance(entry, PointIndex)
                moved = work((statement,), buffers, sizes) * dtypes.itemsize(buffer.dtype)
                for symbol in entry.index.symbols():
                    found[symbol] += times * moved * second
            inside = times * _often(statement, sizes) if isinstance(statement, Loop) else times
            for each in nested(statement):
                look(each, inside)

    look(statements, 1)
    return found


def _uses(statements: Block, buffers: Buffers) -> Mapping[int, list[Points]]:
    found: dict[int, list[Points]] = defaultdict(list)
    for statement in walk(statements):
        if isinstance(statement, Read | Write) and statement.buffer in buffers:
            found[statement.buffer].append(_points(statement, buffers[statement.buffer]))
    return found


def _points(statement: Read | Write, buffer: Buffer) -> Points:
    if isinstance(statement, Read):
        return tuple(each.index if isinstance(each, PointIndex) else None for each in statement.index)
    if not statement.index:  # all of the buffer
        return (None,) * len(buffer.axes)
    return tuple(point if far is None else None for point, far in zip(statement.index, statement.extents, strict=True))


def _along(uses: Iterable[Points], axis: int) -> frozenset[Symbol]:
    points = (each[axis] for each in uses)
    return frozenset(symbol for point in points if point is not None for symbol in point.symbols())


def _pieces(
    uses: Mapping[int, list[Points]], buffers: Buffers, short: frozenset[Symbol], sizes: Sizes, least: int | None = None
) -> Mapping[int, int]:
    least = _LEAST_ELEMENTS if least is None else least
    found = {id: _axis(buffers[id], indices, short, sizes, least) for id, indices in uses.items()}
    return {id: axis for id, axis in found.items() if axis is not None}


def _axis(buffer: Buffer, uses: list[Points], short: frozenset[Symbol], sizes: Sizes, least: int) -> int | None:
    """The first axis of a few pieces, `least` elements or more, that is read and written at points of short loops
    alone."""
    if not _is_known(buffer.logical_shape, sizes):
        return None
    shape = buffer.extents(sizes)
    for axis, described in enumerate(buffer.axes):
        is_few = 1 < shape[axis] <= _MOST and prod(shape) >= least * shape[axis]
        if described.kind != "full" or not is_few or any(points[axis] is None for points in uses):
            continue
        along = _along(uses, axis)
        if along & short and along <= short | sizes.keys():
            return axis
    return None


def _is_known(exprs: Iterable[Expr], sizes: Sizes) -> bool:
    return all(expr.symbols() <= sizes.keys() for expr in exprs)


# -- what grows ----------------------------------------------------------------------------------------------------


def _prefixes(statement: Statement, reach: Reaches, buffers: Buffers, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """The axes of which a read sees all that the statement touches, and that is not all there is. A buffer that
    iterations make anew for themselves is made whole: no statement that it could grow in front of is within them."""
    for read in walk((statement,)):
        if not isinstance(read, Read) or buffers[read.buffer].role != "internal" or buffers[read.buffer].local:
            continue
        for axis, (entry, of_buffer) in enumerate(zip(read.index, buffers[read.buffer].axes)):
            touched = reach.get((read.buffer, axis))
            if touched is None or touched == int(of_buffer.extent.evaluate(sizes)):
                continue
            if not isinstance(entry, WindowIndex) or not entry.exact or entry.start != const(0):
                continue
            if _is_known((entry.extent,), sizes) and int(entry.extent.evaluate(sizes)) == touched:
                yield read.buffer, axis
