"""Other legal orders of a program: a scheduler that changes another's tree at random as far as dependences allow.

Loops are peeled, unrolled at their ends, shifted, reversed, cut into strips, skewed, distributed, fused and exchanged.
Each change is kept where `verify` finds the tree right at the sizes that the program will be run at.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tempo.errors import ScheduleError
from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, verify
from tempo.schedule import Sequence as Block
from tempo.schedule.tree import sequence
from tempo.symbolic import Condition, Expr, Symbol, maximum, minimum, var

Sizes = Mapping[Symbol, int]
Change = Callable[["_Draw", ScheduleTree], ScheduleTree | None]


@dataclass(frozen=True)
class Reordering:
    """A scheduler: that of `base`, changed `changes` times, the same for equal seeds."""

    base: Any
    sizes: Sequence[Sizes]
    seed: int
    changes: int = 6

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        tree: ScheduleTree = self.base.schedule(problem)
        draw = _Draw(random.Random(self.seed))
        for _ in range(self.changes):
            changed = _changed(draw, tree)
            if changed is not None and self._is_right(problem, changed):
                tree = changed
        return tree

    def _is_right(self, problem: SchedulingProblem, tree: ScheduleTree) -> bool:
        """At the sizes that the problem is of: a plan may be for some alone."""
        try:
            for sizes in filter(problem.facts.evaluate, self.sizes):
                verify(problem, tree, sizes)
        except ScheduleError:
            return False
        return True


@dataclass
class _Draw:
    random: random.Random
    names: int = 0

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def fresh(self) -> Symbol:
        """A variable that no dim and no other loop has."""
        self.names += 1
        return Symbol(f"c{self.names}", "dim")


def _changed(draw: _Draw, tree: ScheduleTree) -> ScheduleTree | None:
    """The tree with one change at a random place; None where that cannot be."""
    places = list(_paths(tree))
    path, node = places[draw.number(0, len(places) - 1)]
    changes = _OF_LOOPS if isinstance(node, For) else _OF_BLOCKS if isinstance(node, Block) else _OF_RUNS
    found = changes[draw.number(0, len(changes) - 1)](draw, node)
    return None if found is None else _with(tree, path, found)


Path = tuple[int, ...]


def _paths(tree: ScheduleTree, path: Path = ()) -> Iterator[tuple[Path, ScheduleTree]]:
    yield path, tree
    inner = tree.items if isinstance(tree, Block) else (tree.body,) if isinstance(tree, For | If) else ()
    for number, item in enumerate(inner):
        yield from _paths(item, (*path, number))


def _with(tree: ScheduleTree, path: Path, new: ScheduleTree) -> ScheduleTree:
    if not path:
        return new
    if isinstance(tree, Block):
        items = [_with(item, path[1:], new) if at == path[0] else item for at, item in enumerate(tree.items)]
        return sequence(items)
    assert isinstance(tree, For | If)
    body = _with(tree.body, path[1:], new)
    return If(tree.condition, body) if isinstance(tree, If) else For(tree.var, tree.lo, tree.hi, tree.direction, body)


def _replaced(tree: ScheduleTree, symbol: Symbol, value: Expr) -> ScheduleTree:
    """The tree with another expression in the place of a variable."""
    mapping = {symbol: value}
    match tree:
        case Run(statement, point):
            return Run(statement, tuple(index.substitute(mapping) for index in point))
        case If(condition, body):
            return If(condition.substitute(mapping), _replaced(body, symbol, value))
        case For(own, lo, hi, direction, body):
            inner = body if own == symbol else _replaced(body, symbol, value)
            return For(own, lo.substitute(mapping), hi.substitute(mapping), direction, inner)
        case Block(items):
            return Block(tuple(_replaced(item, symbol, value) for item in items))


# -- loops -------------------------------------------------------------------------------------------------------------


def _pieces(loop: ScheduleTree, middle: Expr) -> ScheduleTree:
    """The loop as two, before and from `middle` on, which lies within its bounds or at them."""
    assert isinstance(loop, For)
    two = (
        For(loop.var, loop.lo, middle, loop.direction, loop.body),
        For(loop.var, middle, loop.hi, loop.direction, loop.body),
    )
    return sequence(two if loop.direction == "forward" else two[::-1])


def _peel(draw: _Draw, loop: ScheduleTree) -> ScheduleTree:
    assert isinstance(loop, For)
    count = draw.number(0, 3)
    at_end = draw.number(0, 1)
    middle = maximum(loop.lo, loop.hi - count) if at_end else minimum(loop.lo + count, loop.hi)
    return _pieces(loop, middle)


def _peel_as_isl(draw: _Draw, loop: ScheduleTree) -> ScheduleTree:
    """With bounds that do not know of an empty piece: `for t in lo..min(lo + k, hi)`, `for t in lo + k..hi`."""
    assert isinstance(loop, For)
    count = draw.number(0, 3)
    two = (
        For(loop.var, loop.lo, minimum(loop.lo + count, loop.hi), loop.direction, loop.body),
        For(loop.var, loop.lo + count, loop.hi, loop.direction, loop.body),
    )
    return sequence(two if loop.direction == "forward" else two[::-1])


def _unroll(draw: _Draw, loop: ScheduleTree) -> ScheduleTree:
    """The first or the last iteration outside of the loop."""
    assert isinstance(loop, For)
    one_more = loop.lo.lt(loop.hi)
    if draw.number(0, 1):
        alone = If(one_more, _replaced(loop.body, loop.var, loop.lo))
        rest, alone_first = For(loop.var, loop.lo + 1, loop.hi, loop.direction, loop.body), loop.direction == "forward"
    else:
        alone = If(one_more, _replaced(loop.body, loop.var, loop.hi - 1))
        rest, alone_first = For(loop.var, loop.lo, loop.hi - 1, loop.direction, loop.body), loop.direction != "forward"
    return sequence((alone, rest) if alone_first else (rest, alone))


def _shift(draw: _Draw, loop: ScheduleTree) -> ScheduleTree:
    assert isinstance(loop, For)
    symbol, by = draw.fresh(), draw.number(-3, 3)
    return For(symbol, loop.lo + by, loop.hi + by, loop.direction, _replaced(loop.body, loop.var, var(symbol) - by))


def _negate(draw: _Draw, loop: ScheduleTree) -> ScheduleTree:
    """The same order with a variable that runs the other way."""
    assert isinstance(loop, For)
    symbol = draw.fresh()
    direction = _opposite(loop)
    return For(symbol, 1 - loop.hi, 1 - loop.lo, direction, _replaced(loop.body, loop.var, -var(symbol)))


def _opposite(loop: For) -> Any:
    return "backward" if loop.direction == "forward" else "forward"


def _reverse(draw: _Draw, loop: ScheduleTree) -> ScheduleTree:
    del draw
    assert isinstance(loop, For)
    return For(loop.var, loop.lo, loop.hi, _opposite(loop), loop.body)


def _strips(draw: _Draw, loop: ScheduleTree) -> ScheduleTree:
    assert isinstance(loop, For)
    length, symbol = draw.number(1, 3), draw.fresh()
    first = loop.lo + length * var(symbol)
    inner = For(loop.var, first, minimum(loop.hi, first + length), loop.direction, loop.body)
    return For(symbol, 0 * loop.lo, (loop.hi - loop.lo + length - 1) // length, loop.direction, inner)


def _distribute(draw: _Draw, loop: ScheduleTree) -> ScheduleTree | None:
    assert isinstance(loop, For)
    if not isinstance(loop.body, Block) or len(loop.body.items) < 2:
        return None
    at = draw.number(1, len(loop.body.items) - 1)
    halves = (loop.body.items[:at], loop.body.items[at:])
    return sequence(For(loop.var, loop.lo, loop.hi, loop.direction, sequence(half)) for half in halves)


def _nest(loop: ScheduleTree) -> tuple[For, For] | None:
    """Two loops, one directly in the other, with bounds that do not depend on the outer one."""
    assert isinstance(loop, For)
    inner = loop.body
    if not isinstance(inner, For) or loop.var in {*inner.lo.symbols(), *inner.hi.symbols(), inner.var}:
        return None
    return loop, inner


def _exchange(draw: _Draw, loop: ScheduleTree) -> ScheduleTree | None:
    del draw
    nest = _nest(loop)
    if nest is None:
        return None
    outer, inner = nest
    turned = For(outer.var, outer.lo, outer.hi, outer.direction, inner.body)
    return For(inner.var, inner.lo, inner.hi, inner.direction, turned)


def _skew(draw: _Draw, loop: ScheduleTree) -> ScheduleTree | None:
    """`c = outer + f * inner` outside, one of the two inside."""
    nest = _nest(loop)
    if nest is None or nest[0].direction == "backward":
        return None
    outer, inner = nest
    factor, skewed, kept = draw.number(1, 2), draw.fresh(), draw.fresh()
    lo, hi = outer.lo + factor * inner.lo, outer.hi + factor * (inner.hi - 1)
    if draw.number(0, 1):
        found = {outer.var: var(skewed) - factor * var(kept), inner.var: var(kept)}
        bounds, guard = (inner.lo, inner.hi), _between(found[outer.var], outer)
    else:
        factor = 1
        lo, hi = outer.lo + inner.lo, outer.hi + inner.hi - 1
        found = {outer.var: var(kept), inner.var: var(skewed) - var(kept)}
        bounds, guard = (outer.lo, outer.hi), _between(found[inner.var], inner)
    body = inner.body
    for symbol, value in found.items():
        body = _replaced(body, symbol, value)
    return For(skewed, lo, hi, "forward", For(kept, *bounds, inner.direction, If(guard, body)))


def _between(value: Expr, loop: For) -> Condition:
    return value.ge(loop.lo) & value.lt(loop.hi)


# -- blocks and runs ---------------------------------------------------------------------------------------------------


def _swap(draw: _Draw, block: ScheduleTree) -> ScheduleTree | None:
    assert isinstance(block, Block)
    if len(block.items) < 2:
        return None
    items = list(block.items)
    at = draw.number(0, len(items) - 2)
    items[at : at + 2] = items[at : at + 2][::-1]
    return Block(tuple(items))


def _fuse(draw: _Draw, block: ScheduleTree) -> ScheduleTree | None:
    """Two loops beside each other as one, the second some iterations behind."""
    assert isinstance(block, Block)
    pairs = [
        at
        for at in range(len(block.items) - 1)
        if isinstance(block.items[at], For) and isinstance(block.items[at + 1], For)
    ]
    if not pairs:
        return None
    at = pairs[draw.number(0, len(pairs) - 1)]
    first, second = block.items[at : at + 2]
    assert isinstance(first, For)
    assert isinstance(second, For)
    symbol, behind = draw.fresh(), draw.number(0, 3)
    here, there = var(symbol), var(symbol) - behind
    both = (
        If(_between(here, first), _replaced(first.body, first.var, here)),
        If(_between(there, second), _replaced(second.body, second.var, there)),
    )
    lo, hi = minimum(first.lo, second.lo + behind), maximum(first.hi, second.hi + behind)
    fused = For(symbol, lo, hi, first.direction, sequence(both))
    return sequence((*block.items[:at], fused, *block.items[at + 2 :]))


def _cut(draw: _Draw, tree: ScheduleTree) -> ScheduleTree | None:
    """A part twice, under opposite conditions over the variables that it uses."""
    used = sorted(symbol for run in _runs(tree) for index in run.point for symbol in index.dims())
    inner = {loop.var for _, loop in _paths(tree) if isinstance(loop, For)}
    free = [symbol for symbol in used if symbol not in inner]
    if not free:
        return None
    condition = var(free[0]).ge(draw.number(0, 3))
    return sequence((If(condition, tree), If(~condition, tree)))


def _runs(tree: ScheduleTree) -> Iterator[Run]:
    return (node for _, node in _paths(tree) if isinstance(node, Run))


def _wrap(draw: _Draw, tree: ScheduleTree) -> ScheduleTree:
    """A part as the only iteration of a loop."""
    at = draw.number(0, 2) + 0 * var(Symbol("t", "size"))
    return For(draw.fresh(), at, at + 1, "forward", tree)


_OF_LOOPS: tuple[Change, ...] = (
    _peel,
    _peel_as_isl,
    _unroll,
    _unroll,
    _shift,
    _negate,
    _reverse,
    _strips,
    _distribute,
    _exchange,
    _skew,
    _skew,
)
_OF_BLOCKS: tuple[Change, ...] = (_swap, _fuse, _fuse, _cut)
_OF_RUNS: tuple[Change, ...] = (_cut, _wrap)
