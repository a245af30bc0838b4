"""Lengths in buckets: the greatest value that an expression has over all of them, `1 <= t.length <= t.extent`."""

from __future__ import annotations

from tempo.symbolic.expr import Atom, Expr, FloorDiv, Mod, Symbol, const, of_atom, total, var


def over_lengths(expr: Expr) -> Expr:
    """What the expression is at most, with extents in place of lengths; attained where its terms do not share one."""
    return _bound(expr, 1) if any(symbol.kind == "length" for symbol in expr.symbols()) else expr


def _bound(expr: Expr, sign: int) -> Expr:
    """At most (`sign = 1`) or at least (-1) the expression, by interval arithmetic."""
    return total((const(expr.const), 1), *((_of_atom(atom, sign if c > 0 else -sign), c) for atom, c in expr.terms))


def _of_atom(atom: Atom, sign: int) -> Expr:
    if isinstance(atom, Symbol):
        if atom.kind != "length":
            return var(atom)
        return var(atom.of_kind("extent")) if sign > 0 else const(1)
    if not any(symbol.kind == "length" for symbol in atom.symbols()):
        return of_atom(atom)
    if isinstance(atom, Mod):
        return const(atom.divisor - 1 if sign > 0 else 0)
    if isinstance(atom, FloorDiv):
        return _bound(atom.expr, sign) // atom.divisor
    return atom.rebuild(_bound(arg, sign) for arg in atom.args)
