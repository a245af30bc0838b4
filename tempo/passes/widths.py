"""Which index expressions int32 arithmetic gives exactly, for dims of every size that is allowed.

Sums and products wrap around, so they are exact modulo 2**32 and right where the result fits. Divisions, remainders,
extrema and comparisons need operands that fit themselves.
"""

from __future__ import annotations

from tempo.symbolic import LARGEST_SIZE, Atom, Expr, FloorDiv, Max, Min, Mod, Symbol


def fits_as_result(expr: Expr) -> bool:
    """Whether the value is right wherever it fits."""
    numbers = (expr.const, *(factor for _, factor in expr.terms))
    return all(abs(number) <= LARGEST_SIZE for number in numbers) and all(_atom_fits(atom) for atom, _ in expr.terms)


def fits_as_operand(expr: Expr) -> bool:
    """Whether the value fits at all points, at all sizes: at most the difference of two atoms, and a small number."""
    positive = sum(factor for _, factor in expr.terms if factor > 0)
    negative = -sum(factor for _, factor in expr.terms if factor < 0)
    return positive <= 1 and negative <= 1 and fits_as_result(expr)


def _atom_fits(atom: Atom) -> bool:
    match atom:
        case Symbol():
            return True
        case FloorDiv(expr, divisor) | Mod(expr, divisor):
            return divisor <= LARGEST_SIZE and fits_as_operand(expr)
        case Min(args) | Max(args):
            return all(fits_as_operand(arg) for arg in args)
