"""Floor division and modulo by a positive constant, folded where the affine part decides them.

With `e = k*q + r` (exact multiples of `k` in `q`): `e // k = q + r // k` and `e % k = r % k`.
"""

from __future__ import annotations

import math

from tempo.symbolic.expr import ZERO, Expr, FloorDiv, Mod, Terms, common_divisor, const, from_terms, of_atom


def floor_divide(expr: Expr, k: int) -> Expr:
    if k == 1:
        return expr
    quotient, rest = _split(expr, k)
    return quotient + _floor_of_rest(rest, k)


def modulo(expr: Expr, k: int) -> Expr:
    if k == 1:
        return ZERO
    _, rest = _split(expr, k)
    low, high = interval(rest)
    if low is not None and high is not None and low // k == high // k:
        return rest - k * (low // k)
    # (g*e + g*c + d) % (g*m) = g * ((e + c) % m) + d, with 0 <= d < g
    g = math.gcd(k, common_divisor(rest.terms))
    if g > 1:
        return modulo(_over(rest, g), k // g) * g + rest.const % g
    if len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Mod) and atom.divisor % k == 0:
            return modulo(atom.expr + rest.const, k)
    return of_atom(Mod(rest, k))


def _floor_of_rest(rest: Expr, k: int) -> Expr:
    low, high = interval(rest)
    if low is not None and high is not None and low // k == high // k:
        return const(low // k)
    # (g*e + c) // (g*m) = (e + c // g) // m
    g = math.gcd(k, common_divisor(rest.terms))
    if g > 1:
        return floor_divide(_over(rest, g), k // g)
    if len(rest.terms) == 1 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, FloorDiv):  # (e // m + c) // k = (e + m*c) // (m*k)
            return floor_divide(atom.expr + atom.divisor * rest.const, atom.divisor * k)
    return of_atom(FloorDiv(rest, k))


def _split(expr: Expr, k: int) -> tuple[Expr, Expr]:
    """`expr = k * quotient + rest`: coefficients of the rest are smaller than k and keep their sign, 0 <= const < k."""
    quotients = {atom: (abs(c) // k) * (1 if c > 0 else -1) for atom, c in expr.terms}
    rests = {atom: c - k * quotients[atom] for atom, c in expr.terms}
    return from_terms(quotients, expr.const // k), from_terms(rests, expr.const % k)


def _over(expr: Expr, g: int) -> Expr:
    """`expr // g` where g divides every coefficient."""
    return from_terms({atom: c // g for atom, c in expr.terms}, expr.const // g)


def interval(expr: Expr) -> tuple[int | None, int | None]:
    """Bounds that hold without any context: only `e % k` has some."""
    return _bound(expr.terms, expr.const, 1), _bound(expr.terms, expr.const, -1)


def _bound(terms: Terms, constant: int, sign: int) -> int | None:
    """The lower bound (`sign = 1`) or the upper bound (`sign = -1`)."""
    total = constant
    for atom, c in terms:
        if not isinstance(atom, Mod):
            return None
        if c * sign < 0:
            total += c * (atom.divisor - 1)
    return total
