"""Loop splitting: where conditions in a loop's body change only at a few points, each stretch gets a loop of its own.

`for t in 0..T: if t == 0: a else: b` becomes `for t in 0..1: a` and `for t in 1..T: b`. For backends that compile
loops: a conditional in a compiled loop costs more than the code of another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tempo.loop_ir.ir import Block, Branch, Compute, Loop, Statement, nested, walk
from tempo.loop_ir.rewriter import BlockScope, rewritten
from tempo.symbolic import And, Condition, Context, Eq, Expr, Ge, Or, Symbol, maximum, minimum, var

_MOST_THRESHOLDS = 3


@dataclass(frozen=True)
class LoopStretch:
    """The points of a loop in `first <= var < end` (None: from where, to where the loop runs), as a loop."""

    first: Expr | None
    end: Expr | None
    loop: Loop

    def within(self, start: int, stop: int, sizes: Mapping[Symbol, int]) -> tuple[int, int]:
        """From where to where it is run for these bounds."""
        lo = start if self.first is None else int(self.first.evaluate(sizes))
        hi = stop if self.end is None else int(self.end.evaluate(sizes))
        return max(start, lo), min(stop, hi)


def split(
    loop: Loop,
    sizes: Mapping[Symbol, int],
    stays: Callable[[Branch], bool] = lambda branch: False,
    choices: bool = False,
) -> tuple[LoopStretch, ...]:
    """Stretches that together are the loop, in its direction; a single one where nothing is gained.

    Only conditions count that change at points known from `sizes` (those that are fixed), or known to lie within the
    loop and in one order at all other sizes. Beyond three such points, only those of branches that compute something,
    then only those outside of inner loops. `stays` says of which
    branches a conditional costs less than the code of another body. With `choices` all of these are made here, too.
    """
    ways = ((inner, computing) for inner in (True, False) for computing in (False, True))
    found = (_thresholds(loop, sizes, _counted(loop, stays, *way)) for way in ways)
    thresholds = next((each for each in found if len(each) <= _MOST_THRESHOLDS), set[Expr]())
    if choices:
        thresholds |= _thresholds(loop, sizes, (each for each in _branches(loop.body) if each.is_choice))
    edges = [None, *_in_order(thresholds), None]
    parts = tuple(_stretch(loop, first, end, sizes) for first, end in itertools.pairwise(edges))
    return parts if loop.direction == "forward" else parts[::-1]


def _in_order(thresholds: set[Expr]) -> list[Expr]:
    """The least first: all of them, or those alone that are numbers where they have no one order at all sizes."""
    context, found = Context.of(()), list[Expr]()
    for each in sorted(thresholds, key=str):
        at = next((at for at, other in enumerate(found) if context.implies(each.le(other))), len(found))
        if not all(context.implies(other.le(each)) for other in found[:at]):
            return sorted((each for each in thresholds if each.is_const), key=Expr.as_int)
        found.insert(at, each)
    return found


def _stretch(loop: Loop, first: Expr | None, end: Expr | None, sizes: Mapping[Symbol, int]) -> LoopStretch:
    """With its conditions decided, as far as the bounds say."""
    lo = loop.lo if first is None else maximum(loop.lo, first)
    hi = loop.hi if end is None else minimum(loop.hi, end)
    here = var(loop.var)
    facts = here.ge(lo.substitute(sizes)) & here.lt(hi.substitute(sizes))
    body = _decided(loop.body, Context.of((), facts), sizes)
    return LoopStretch(first, end, replace(loop, lo=lo, hi=hi, body=body))


def iterations(loop: Loop, sizes: Mapping[Symbol, int]) -> int:
    """How often the loop runs; 1 where `sizes` alone do not say."""
    length = loop.hi.substitute(sizes) - loop.lo.substitute(sizes)
    return max(length.as_int(), 0) if length.is_const else 1


def is_empty(loop: Loop, sizes: Mapping[Symbol, int]) -> bool:
    """Whether `sizes` alone say that the loop never runs."""
    return iterations(loop, sizes) == 0


# -- where conditions change ---------------------------------------------------------------------------------------


def _thresholds(loop: Loop, sizes: Mapping[Symbol, int], branches: Iterable[Branch]) -> set[Expr]:
    found = {at for branch in branches for at in changes(branch.condition, loop.var, sizes)}
    lo, hi, context = loop.lo.substitute(sizes), loop.hi.substitute(sizes), Context.of(())

    def is_inside(at: Expr) -> bool:
        if at.is_const:
            return not (lo.is_const and at.as_int() <= lo.as_int()) and not (hi.is_const and at.as_int() >= hi.as_int())
        return context.implies(at.ge(lo)) and context.implies(at.lt(hi)) and not context.implies(at.eq(lo))

    return set(filter(is_inside, found))


def _branches(body: Block, loops: bool = True) -> Iterator[Branch]:
    """The branches of the body; with `loops` those of the loops inside too, that may not depend on their variables."""
    for statement in body:
        if isinstance(statement, Branch):
            yield statement
        for block in () if isinstance(statement, Loop) and not loops else nested(statement):
            yield from _branches(block, loops)


def _counted(loop: Loop, stays: Callable[[Branch], bool], inner: bool, computing: bool) -> Iterator[Branch]:
    for each in _branches(loop.body, inner):
        if not stays(each) and not each.is_choice and (_computes(each) or not computing):
            yield each


def _computes(branch: Branch) -> bool:
    return any(isinstance(inner, Compute) for inner in walk((branch,)))


def changes(condition: Condition, symbol: Symbol, sizes: Mapping[Symbol, int]) -> Iterator[Expr]:
    """The values of `symbol` at which a comparison with what only sizes have a say in becomes true or false."""
    if isinstance(condition, And | Or):
        for arg in condition.args:
            yield from changes(arg, symbol, sizes)
    if not isinstance(condition, Ge | Eq):
        return
    expr = condition.expr.substitute(sizes)
    factor = expr.coefficient(symbol)
    rest = expr - factor * var(symbol)
    if abs(factor) != 1 or rest.dims():
        return
    zero = rest * -factor  # factor * symbol + rest == 0
    if isinstance(condition, Eq):
        yield from (zero, zero + 1)
    else:
        yield zero if factor > 0 else zero + 1


# -- deciding conditions -------------------------------------------------------------------------------------------


def _decided(body: Block, context: Context, sizes: Mapping[Symbol, int]) -> Block:
    def decide(statement: Statement, scope: BlockScope) -> Block | None:
        if not isinstance(statement, Branch):
            return None
        condition = statement.condition.substitute(sizes)
        if context.implies(condition):
            return _decided(statement.then, context, sizes)
        return _decided(statement.otherwise, context, sizes) if context.excludes(condition) else None

    return rewritten(body, decide)
