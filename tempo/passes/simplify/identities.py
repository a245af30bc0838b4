"""Identities of single operators that hold bit for bit, NaN, infinities and signed zeros included."""

from __future__ import annotations

from tempo import dtypes
from tempo.passes.rewrite.driver import Term
from tempo.passes.rewrite.patterns import Match, Rule, When
from tempo.sdg.exact import same
from tempo.symbolic import as_expr

# Conditions ----------------------------------------------------------------------------------------------------------


def _same_type(match: Match) -> bool:
    return match.type == match.type_of("x")


def _is_integer(match: Match) -> bool:
    return dtypes.is_integer(match.type.dtype)


def _compares_integers(match: Match) -> bool:
    """Comparisons of floats are false where an operand is NaN, and so are their opposites."""
    return not dtypes.is_float(match.type_of("x").dtype)


def _is_full_slice(match: Match) -> bool:
    starts, steps = match.root.attr("starts"), match.root.attr("steps")
    return _same_type(match) and all(as_expr(start) == as_expr(0) for start in starts) and all(s == 1 for s in steps)


def _pads_nothing(match: Match) -> bool:
    return all(as_expr(n) == as_expr(0) for n in (*match.root.attr("low"), *match.root.attr("high")))


def _pads_alike(match: Match) -> bool:
    return same(match.attr("p", "value"), match.attr("q", "value"))


def _is_lossless(match: Match) -> bool:
    """The inner cast of x keeps every value."""
    source, between = match.type_of("x").dtype, match.nodes["p"].type.dtype
    return (
        dtypes.kind(source) == dtypes.kind(between) and dtypes.promote((source, False), (between, False))[0] == between
    )


def _drops(*variables: str) -> When:
    """What the right side no longer reads is needed for nothing that a user sees."""
    return lambda match: all(match.may_drop(variable) for variable in variables)


def _both(*conditions: When) -> When:
    return lambda match: all(condition(match) for condition in conditions)


# Right sides ---------------------------------------------------------------------------------------------------------


def _reshaped(match: Match) -> Term:
    return match.term("reshape", "x", shape=match.attr("q", "shape"))


def _flipped(match: Match) -> Term:
    inner, outer = set(match.attr("p", "axes")), set(match.attr("q", "axes"))
    return match.term("flip", "x", axes=tuple(sorted(inner ^ outer)))


def _padded(match: Match) -> Term:
    low, high = (
        tuple(as_expr(a) + b for a, b in zip(match.attr("p", side), match.attr("q", side))) for side in ("low", "high")
    )
    return match.term("pad", "x", low=low, high=high, value=match.attr("q", "value"))


def _sliced(match: Match) -> Term:
    """Position i of the outer is position `start + step * i` of the inner."""
    steps = tuple(a * b for a, b in zip(match.attr("p", "steps"), match.attr("q", "steps")))
    places = zip(match.attr("p", "starts"), match.attr("p", "steps"), match.attr("q", "starts"))
    starts = tuple(as_expr(first) + as_expr(start) * step for first, step, start in places)
    return match.term("slice", "x", starts=starts, lengths=match.attr("q", "lengths"), steps=steps)


def _cast(match: Match) -> Term:
    return match.term("cast", "x", dtype=match.type.dtype)


MOVEMENT: tuple[Rule, ...] = (
    Rule("cast(x) = x", _same_type),
    Rule("reshape(x) = x", _same_type),
    Rule("broadcast(x) = x", _same_type),
    Rule("slice(x) = x", _is_full_slice),
    Rule("pad(x) = x", _pads_nothing),
    Rule("flip(x) = x", lambda match: not match.root.attr("axes")),
    Rule("concat(x) = x"),
    # reshape(reshape(x, s), r) = reshape(x, r)
    Rule("q:reshape(p:reshape(x))", replace=_reshaped),
    # flip(flip(x, p), q) = flip(x, p xor q)
    Rule("q:flip(p:flip(x))", replace=_flipped),
    # slice(slice(x, a), b) = slice(x, b after a)
    Rule("q:slice(p:slice(x))", replace=_sliced),
    # pad(pad(x, a), b) = pad(x, a + b)
    Rule("q:pad(p:pad(x))", _pads_alike, _padded),
    # cast(cast(x, wider), d) = cast(x, d)
    Rule("cast(p:cast(x))", _is_lossless, _cast),
)

ARITHMETIC: tuple[Rule, ...] = (
    Rule("mul(x, 1) = x"),
    Rule("mul(1, x) = x"),
    Rule("mul(x, 0) = 0", _both(_is_integer, _drops("x"))),
    Rule("mul(0, x) = 0", _both(_is_integer, _drops("x"))),
    Rule("mul(neg(x), neg(y)) = mul(x, y)"),
    Rule("div(neg(x), neg(y)) = div(x, y)"),
    Rule("div(x, 1) = x"),
    Rule("pow(x, 1) = x"),
    Rule("pow(x, 2) = mul(x, x)"),
    Rule("sub(x, 0) = x"),  # -0.0 - 0.0 is -0.0
    Rule("sub(x, x) = 0", _both(_is_integer, _drops("x"))),
    Rule("add(x, 0) = x", _is_integer),  # -0.0 + 0.0 is 0.0
    Rule("add(0, x) = x", _is_integer),
    Rule("neg(neg(x)) = x"),
    Rule("add(x, neg(y)) = sub(x, y)"),
    Rule("add(neg(x), y) = sub(y, x)"),
    Rule("sub(x, neg(y)) = add(x, y)"),
    Rule("abs(neg(x)) = abs(x)"),
    Rule("abs(abs(x)) = abs(x)"),
    Rule("floor(floor(x)) = floor(x)"),
    Rule("ceil(ceil(x)) = ceil(x)"),
    Rule("round(round(x)) = round(x)"),
    Rule("maximum(x, x) = x"),
    Rule("minimum(x, x) = x"),
)

LOGIC: tuple[Rule, ...] = (
    Rule("where(m, x, x) = x", _drops("m")),
    Rule("where(1, x, y) = x", _drops("y")),
    Rule("where(0, x, y) = y", _drops("x")),
    Rule("where(logical_not(m), x, y) = where(m, y, x)", lambda match: match.type_of("m").dtype == "bool"),
    Rule("where(m, where(m, x, y), z) = where(m, x, z)", _drops("y")),
    Rule("where(m, x, where(m, y, z)) = where(m, x, z)", _drops("y")),
    Rule("logical_not(logical_not(x)) = x", lambda match: match.type_of("x").dtype == "bool"),
    Rule("logical_not(lt(x, y)) = ge(x, y)", _compares_integers),
    Rule("logical_not(le(x, y)) = gt(x, y)", _compares_integers),
    Rule("logical_not(gt(x, y)) = le(x, y)", _compares_integers),
    Rule("logical_not(ge(x, y)) = lt(x, y)", _compares_integers),
    Rule("logical_not(eq(x, y)) = ne(x, y)"),
    Rule("logical_not(ne(x, y)) = eq(x, y)"),
    Rule("logical_and(x, x) = x", _same_type),
    Rule("logical_or(x, x) = x", _same_type),
    Rule("logical_and(x, 1) = x", _same_type),
    Rule("logical_and(1, x) = x", _same_type),
    Rule("logical_and(x, 0) = 0", _drops("x")),
    Rule("logical_and(0, x) = 0", _drops("x")),
    Rule("logical_or(x, 0) = x", _same_type),
    Rule("logical_or(0, x) = x", _same_type),
    Rule("logical_or(x, 1) = 1", _drops("x")),
    Rule("logical_or(1, x) = 1", _drops("x")),
    Rule("bitwise_not(bitwise_not(x)) = x"),
    Rule("bitwise_and(x, x) = x"),
    Rule("bitwise_or(x, x) = x"),
)

IDENTITIES: tuple[Rule, ...] = MOVEMENT + ARITHMETIC + LOGIC
