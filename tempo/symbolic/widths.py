"""In how many bits an index expression is computed exactly: interval arithmetic over all that is computed on the way.

Of dims and sizes it is known that no size is greater than `LARGEST_SIZE`, or, when sizes are known, between which
numbers each symbol lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tempo.symbolic.condition import And, Comparison, Condition, Eq, Or
from tempo.symbolic.domain import LARGEST_SIZE
from tempo.symbolic.expr import Atom, Expr, FloorDiv, Max, Min, Mod, Symbol, of_atom


class IntegerRange(NamedTuple):
    """The integers from `lo` to `hi`, both included."""

    lo: int
    hi: int

    def __add__(self, other: object) -> IntegerRange:
        assert isinstance(other, IntegerRange)
        return IntegerRange(self.lo + other.lo, self.hi + other.hi)

    def __mul__(self, factor: object) -> IntegerRange:
        assert isinstance(factor, int)
        ends = (self.lo * factor, self.hi * factor)
        return IntegerRange(min(ends), max(ends))

    def hull(self, other: IntegerRange) -> IntegerRange:
        return IntegerRange(min(self.lo, other.lo), max(self.hi, other.hi))

    def fits(self, bits: int) -> bool:
        """Whether signed integers of so many bits hold them all."""
        return -(1 << (bits - 1)) <= self.lo and self.hi < 1 << (bits - 1)


Ranges = Mapping[Symbol, IntegerRange]


def exactly(value: int) -> IntegerRange:
    return IntegerRange(value, value)


def bounds(expr: Expr, ranges: Ranges) -> IntegerRange:
    """Between which numbers the value lies."""
    return _steps(expr, ranges)[-1]


def reach(value: Expr | Condition, ranges: Ranges) -> IntegerRange:
    """Between which numbers all lies that is computed on the way to the value: sums are made term by term, in order.

    What is made of numbers alone is a number before anything is computed.
    """
    found = exactly(0)
    for expr in expressions_of(value):
        for step in _steps(expr, ranges):
            found = found.hull(step)
    return found


def decided(condition: Condition, ranges: Ranges) -> bool | None:
    """Whether the condition holds, where that is the same throughout."""
    if isinstance(condition, And | Or):
        found = {decided(arg, ranges) for arg in condition.args}
        absorbing = isinstance(condition, Or)
        return absorbing if absorbing in found else None if None in found else not absorbing
    if not isinstance(condition, Comparison):
        return bool(condition.evaluate({}))
    lo, hi = bounds(condition.expr, ranges)
    if isinstance(condition, Eq):
        return False if lo > 0 or hi < 0 else True if lo == hi == 0 else None
    return True if lo >= 0 else False if hi < 0 else None


def expressions_of(value: Expr | Condition) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, Comparison):
        yield value.expr
    elif isinstance(value, And | Or):
        for arg in value.args:
            yield from expressions_of(arg)


def _steps(expr: Expr, ranges: Ranges) -> list[IntegerRange]:
    """The ranges of everything on the way, the value last."""
    if all(ranges[symbol].lo == ranges[symbol].hi for symbol in expr.symbols()):
        return [exactly(int(expr.evaluate({symbol: ranges[symbol].lo for symbol in expr.symbols()})))]
    total = exactly(expr.const)
    steps = [total]
    for atom, factor in expr.terms:
        inner = _atom_steps(atom, ranges)
        product = inner[-1] * factor
        total = total + product
        steps += [*inner, exactly(factor), product, total]
    return steps


def _atom_steps(atom: Atom, ranges: Ranges) -> list[IntegerRange]:
    match atom:
        case Symbol():
            return [ranges[atom]]
        case FloorDiv(expr, divisor):
            steps = _steps(expr, ranges)
            return [*steps, exactly(divisor), IntegerRange(steps[-1].lo // divisor, steps[-1].hi // divisor)]
        case Mod(expr, divisor):
            steps = _steps(expr, ranges)
            lo, hi = steps[-1]
            same = lo // divisor == hi // divisor
            return [
                *steps,
                exactly(divisor),
                IntegerRange(lo % divisor, hi % divisor) if same else IntegerRange(0, divisor - 1),
            ]
        case Min(args) | Max(args):
            best = min if isinstance(atom, Min) else max
            found = [_steps(arg, ranges) for arg in args]
            ends = [steps[-1] for steps in found]
            value = IntegerRange(best(end.lo for end in ends), best(end.hi for end in ends))
            return [*(step for steps in found for step in steps), value]


# For dims of every size that is allowed. Sums and products wrap around, so they are exact modulo 2**32 and right where
# the result fits. Divisions, remainders, extrema and comparisons need operands that fit themselves.


def fits_as_result(expr: Expr) -> bool:
    """Whether the value in 32 bits is right wherever it fits."""
    numbers = (expr.const, *(factor for _, factor in expr.terms))
    return all(abs(number) <= LARGEST_SIZE for number in numbers) and all(
        fits_as_operand(of_atom(atom)) for atom, _ in expr.terms
    )


def fits_as_operand(expr: Expr) -> bool:
    """Whether the value fits at all points, at all sizes, as do its negation and all on the way to it."""
    way = reach(expr, dict.fromkeys(expr.symbols(), IntegerRange(0, LARGEST_SIZE)))
    return way.hull(way * -1).fits(32)


def fits_in_64(value: Expr | Condition) -> bool:
    """Whether 64 bits hold all that is computed on the way, at all points and sizes, in whatever order."""
    return all(expr.magnitude(2 * LARGEST_SIZE) < 1 << 62 for expr in expressions_of(value))
