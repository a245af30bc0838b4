"""Index expressions: integer affine expressions over symbols, with floor division, modulo, min and max.

An `Expr` is `const + sum(coefficient * atom)`. It is canonical: two expressions whose affine parts mean the same are
equal objects, so `==` and `hash` are structural and cheap, and a difference that cancels is a number at once.
Comparisons that make a `Condition` are methods (`a.ge(b)`); the comparison operators are not overloaded.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from operator import index as to_index
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from tempo.symbolic.structural import Structural, cached

if TYPE_CHECKING:
    from tempo.symbolic.condition import Condition

Value: TypeAlias = Any  # int or integer numpy.ndarray: what an expression evaluates to
Bindings: TypeAlias = Mapping["Symbol", Value]
Substitution: TypeAlias = Mapping["Symbol", "Expr | int"]

_NO_SYMBOLS: frozenset[Symbol] = frozenset()
_LARGEST_VALUE = 1 << 32  # of a symbol at which an expression is evaluated: a size, or a few of them
_WORDS = frozenset((*keyword.kwlist, "of"))
"""What means something else in the texts of conditions and graphs; a dim so named prints `$and`."""


SymbolKind = Literal["dim", "size", "length", "extent", "last"]
SIZES: tuple[SymbolKind, ...] = ("size", "length", "extent")


class NonAffineError(TypeError):
    """A product of two symbols, a division by one, or an operand that is no integer."""


@dataclass(frozen=True, eq=False, repr=False)
class Symbol(Structural):
    """A temporal dimension (prints `t`) or its size (prints `t.size`, always at least 1).

    Of a dim whose size shapes are not made for, but for a bucket that it falls into: the size as a number that is known
    when the program runs (`t.length`), and what the bucket holds (`t.extent`). `1 <= t.length <= t.extent`.

    Of a dim along which rows have lengths of their own, the last point of a row (`t.last`); -1 where it has none. It is
    known to who writes and checks a program alone, and none of the graph. So is the last point that is kept along a dim
    of which a condition says where it ends.
    """

    name: str
    kind: SymbolKind
    key: tuple[int, str] = cached((0, ""))
    expr: Expr | None = cached(None)  # noqa: RUF009 - an immutable default, as the others

    def __post_init__(self) -> None:
        more = "" if self.kind in ("dim", "size") else f"\0{self.kind}"  # no name has that character
        key = (0 if self.kind == "dim" else 1, self.name + more)  # atoms that are no symbols come behind
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_hash", hash(key))

    def __eq__(self, other: object) -> bool:  # as in Structural, for what every dictionary look-up needs
        return self is other or (type(other) is Symbol and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Symbol) -> bool:
        return self.key < other.key

    def __str__(self) -> str:
        name = f"${self.name}" if self.name in _WORDS else self.name
        return name if self.kind == "dim" else f"{name}.{self.kind}"

    def symbols(self) -> frozenset[Symbol]:
        return frozenset((self,))

    def of_kind(self, kind: SymbolKind) -> Symbol:
        """Of the same dim."""
        return Symbol(self.name, kind)

    def substitute(self, mapping: Substitution) -> Expr:
        found = mapping.get(self)
        return var(self) if found is None else as_expr(found)

    def value(self, env: Bindings) -> Value:
        return env[self]


@dataclass(frozen=True, eq=False, repr=False)
class _Composite(Structural):
    """What `FloorDiv`, `Mod`, `Min` and `Max` share; `key` orders atoms and is unique to the structure."""

    _rank: ClassVar[int] = 2

    @cached_property
    def key(self) -> tuple[int, str]:
        from tempo.symbolic.text import atom_text

        return self._rank, atom_text(self)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.key[1]


@dataclass(frozen=True, eq=False, repr=False)
class _Division(_Composite):
    """What `FloorDiv` and `Mod` share; `divisor > 1`."""

    expr: Expr
    divisor: int

    def symbols(self) -> frozenset[Symbol]:
        return self.expr.symbols()


class FloorDiv(_Division):
    """`expr // divisor`, rounded towards minus infinity."""

    def substitute(self, mapping: Substitution) -> Expr:
        return self.expr.substitute(mapping) // self.divisor

    def value(self, env: Bindings) -> Value:
        return self.expr.value(env) // self.divisor


class Mod(_Division):
    """`expr % divisor`, in `0 .. divisor - 1`."""

    def substitute(self, mapping: Substitution) -> Expr:
        return self.expr.substitute(mapping) % self.divisor

    def value(self, env: Bindings) -> Value:
        return self.expr.value(env) % self.divisor


@dataclass(frozen=True, eq=False, repr=False)
class _Extremum(_Composite):
    """What `Min` and `Max` share: at least two arguments, sorted, none a constant away from another."""

    _rank = 3
    args: tuple[Expr, ...]

    def symbols(self) -> frozenset[Symbol]:
        return _NO_SYMBOLS.union(*(arg.symbols() for arg in self.args))

    def rebuild(self, args: Iterable[Expr], sign: int = 1) -> Expr:
        """The same extremum of other arguments; the opposite one when they were negated (`sign < 0`)."""
        return minimum(*args) if isinstance(self, Min) == (sign > 0) else maximum(*args)

    def substitute(self, mapping: Substitution) -> Expr:
        return self.rebuild(arg.substitute(mapping) for arg in self.args)

    def value(self, env: Bindings) -> Value:
        is_least, values = isinstance(self, Min), [arg.value(env) for arg in self.args]
        arrays = [value for value in values if not isinstance(value, int | np.integer)]
        if not arrays:
            return (min if is_least else max)(values)
        functions = arrays[0].__array_namespace__() if hasattr(arrays[0], "__array_namespace__") else np
        return reduce(functions.minimum if is_least else functions.maximum, values)


class Min(_Extremum):
    """The smallest of `args`."""


class Max(_Extremum):
    """The largest of `args`."""


Atom: TypeAlias = Symbol | FloorDiv | Mod | Min | Max
Terms: TypeAlias = tuple[tuple[Atom, int], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Expr(Structural):
    """`const + sum(coefficient * atom for atom, coefficient in terms)`; make it with the functions of this module."""

    terms: Terms
    const: int
    _symbols: frozenset[Symbol] | None = cached(None)
    _dims: frozenset[Symbol] | None = cached(None)

    def __eq__(self, other: object) -> bool:  # as in Structural, without its tuples
        return self is other or (type(other) is Expr and self.const == other.const and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash == 0:
            object.__setattr__(self, "_hash", hash((self.terms, self.const)) or 1)
        return self._hash

    def __add__(self, other: Expr | int) -> Expr:
        if type(other) is int:
            return self if other == 0 else _with_const(self.terms, self.const + other)
        other = as_expr(other)
        if not other.terms:
            return self if other.const == 0 else _with_const(self.terms, self.const + other.const)
        if not self.terms:
            return other if self.const == 0 else _with_const(other.terms, self.const + other.const)
        return total((self, 1), (other, 1))

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return self * -1

    def __sub__(self, other: Expr | int) -> Expr:
        if type(other) is int:
            return self + -other
        other = as_expr(other)
        if not other.terms:
            return self if other.const == 0 else _with_const(self.terms, self.const - other.const)
        if self.terms == other.terms:
            return Expr((), self.const - other.const)
        return total((self, 1), (other, -1))

    def __rsub__(self, other: Expr | int) -> Expr:
        return total((as_expr(other), 1), (self, -1))

    def __mul__(self, other: Expr | int) -> Expr:
        other = as_expr(other)
        if other.terms and self.terms:
            raise NonAffineError(f"the product ({self}) * ({other}) is not affine: one factor must be a number")
        factor, scaled = (self.const, other) if other.terms else (other.const, self)
        if factor == 1:
            return scaled
        if factor == 0:
            return ZERO
        return _with_const(tuple((atom, c * factor) for atom, c in scaled.terms), scaled.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, other: Expr | int) -> Expr:
        from tempo.symbolic.division import floor_divide

        return floor_divide(self, _divisor(self, other, "//"))

    def __mod__(self, other: Expr | int) -> Expr:
        from tempo.symbolic.division import modulo

        return modulo(self, _divisor(self, other, "%"))

    def __str__(self) -> str:
        from tempo.symbolic.text import expr_text

        return expr_text(self)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def as_int(self) -> int:
        """The value of a constant expression; `ValueError` for any other."""
        if self.terms:
            raise ValueError(f"{self} is no number")
        return self.const

    @property
    def key(self) -> tuple[Any, ...]:
        """Orders expressions: numbers last, else by atoms, coefficients, constant."""
        return (not self.terms, tuple((atom.key, c) for atom, c in self.terms), self.const)

    def symbols(self) -> frozenset[Symbol]:
        if self._symbols is None:
            found = _NO_SYMBOLS.union(*(atom.symbols() for atom, _ in self.terms))
            object.__setattr__(self, "_symbols", found)
            return found
        return self._symbols

    def dims(self) -> frozenset[Symbol]:
        if self._dims is None:
            found = frozenset([symbol for symbol in self.symbols() if symbol.kind == "dim"])
            object.__setattr__(self, "_dims", found)
            return found
        return self._dims

    def sizes(self) -> frozenset[Symbol]:
        """All that is no dim."""
        return self.symbols() - self.dims()

    @property
    def varies(self) -> bool:
        """Whether shapes are made for no value of it: it varies with a dim, or from call to call."""
        return any(symbol.kind in ("dim", "length") for symbol in self.symbols())

    def coefficient(self, atom: Atom) -> int:
        return next((c for found, c in self.terms if found == atom), 0)

    def substitute(self, mapping: Substitution) -> Expr:
        """Replace symbols, all at once."""
        if self.symbols().isdisjoint(mapping):
            return self
        if len(self.terms) == 1:
            atom, c = self.terms[0]
            return atom.substitute(mapping) * c + self.const
        parts = [(atom.substitute(mapping), c) for atom, c in self.terms]
        return total((const(self.const), 1), *parts)

    def evaluate(self, env: Bindings) -> Value:
        """The value at `env`, elementwise where it holds arrays (or what a backend traces, which has their namespace);
        `KeyError` for a symbol that it does not hold.

        It is exact. Arrays hold values of less than 2**32; where 64 bits might not do on the way, Python's integers
        are computed with, and they are what the result holds if it needs them.
        """
        if self.is_long:
            return _shortened(self.value({symbol: _long(env[symbol]) for symbol in self.symbols()}))
        return self.value(env)

    def value(self, env: Bindings) -> Value:
        """The value in the integers of `env`."""
        parts = [atom.value(env) if c == 1 else c * atom.value(env) for atom, c in self.terms]
        if self.const or not parts:
            parts.append(self.const)
        return reduce(add, parts)

    @cached_property
    def is_long(self) -> bool:
        """Whether 64 bits may not hold all that is computed on the way to the value."""
        return self.magnitude(_LARGEST_VALUE) >= 1 << 63

    def magnitude(self, largest: int) -> int:
        """An upper bound of the absolute value, and of all on the way; `largest` is that of the symbols."""
        return abs(self.const) + sum(abs(factor) * _atom_magnitude(atom, largest) for atom, factor in self.terms)

    def ge(self, other: Expr | int) -> Condition:
        from tempo.symbolic.condition import nonnegative

        return nonnegative(self - other)

    def gt(self, other: Expr | int) -> Condition:
        return self.ge(as_expr(other) + 1)

    def le(self, other: Expr | int) -> Condition:
        return as_expr(other).ge(self)

    def lt(self, other: Expr | int) -> Condition:
        return as_expr(other).ge(self + 1)

    def eq(self, other: Expr | int) -> Condition:
        from tempo.symbolic.condition import zero

        return zero(self - other)

    def ne(self, other: Expr | int) -> Condition:
        return ~self.eq(other)


def _long(value: Value) -> Value:
    """The same integers as Python's; what is traced by a backend stays as it is."""
    if isinstance(value, np.ndarray):
        return value.astype(object)
    return int(value) if isinstance(value, int | np.integer) else value


def _shortened(value: Value) -> Value:
    """Integers in 64 bits where these hold them all."""
    if isinstance(value, np.ndarray) and value.size and (value.min() < -(1 << 63) or value.max() >= 1 << 63):
        return value
    return value.astype(np.int64) if isinstance(value, np.ndarray) else value


def const(value: int) -> Expr:
    return Expr((), value)


ZERO = const(0)


def var(symbol: Symbol) -> Expr:
    if symbol.expr is None:
        object.__setattr__(symbol, "expr", Expr(((symbol, 1),), 0))
    assert symbol.expr is not None
    return symbol.expr


def dim(name: str) -> Expr:
    return var(Symbol(name, "dim"))


def size(name: str) -> Expr:
    return var(Symbol(name, "size"))


def as_expr(value: Expr | Symbol | int) -> Expr:
    """An expression from an expression, a symbol or an integer (NumPy's too); `NonAffineError` for anything else."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Symbol):
        return var(value)
    try:
        return const(to_index(value))
    except TypeError:
        raise NonAffineError(f"{value!r} is no index expression: it must be made of integers and dims") from None


def of_atom(atom: Atom) -> Expr:
    return Expr(((atom, 1),), 0)


def minimum(*exprs: Expr | int) -> Expr:
    return _extremum(Min, min, exprs)


def maximum(*exprs: Expr | int) -> Expr:
    return _extremum(Max, max, exprs)


def _extremum(kind: type[Min] | type[Max], better: Callable[[int, int], int], exprs: Iterable[Expr | int]) -> Expr:
    """Flatten, and of arguments that differ by a constant keep the one that wins."""
    best: dict[Terms, int] = {}
    for expr in map(as_expr, exprs):
        lone = expr.terms[0][0] if len(expr.terms) == 1 and expr.terms[0][1] == 1 and expr.const == 0 else None
        for arg in lone.args if isinstance(lone, kind) else (expr,):
            best[arg.terms] = better(best[arg.terms], arg.const) if arg.terms in best else arg.const
    if not best:
        raise ValueError(f"{kind.__name__.lower()} of nothing")
    args = sorted((Expr(terms, constant) for terms, constant in best.items()), key=lambda arg: arg.key)
    return args[0] if len(args) == 1 else of_atom(kind(tuple(args)))


def total(*parts: tuple[Expr, int]) -> Expr:
    """The sum of `factor * expr` over all parts, made canonical once at the end."""
    coefficients: dict[Atom, int] = {}
    constant = 0
    for expr, factor in parts:
        constant += factor * expr.const
        for atom, c in expr.terms:
            coefficients[atom] = coefficients.get(atom, 0) + factor * c
    return from_terms(coefficients, constant)


def from_terms(coefficients: Mapping[Atom, int], constant: int) -> Expr:
    """The canonical expression with these coefficients (zeros allowed)."""
    terms = [term for term in coefficients.items() if term[1]]
    if len(terms) > 1:
        terms.sort(key=_term_key)
        if isinstance(terms[-2][0], _Extremum):  # extrema sort last
            from tempo.symbolic.extrema import resolved

            if (found := resolved(terms)) is not None:
                return total((Expr((), constant), 1), *found)
    return _with_const(tuple(terms), constant)


def _term_key(term: tuple[Atom, int]) -> tuple[int, str]:
    return term[0].key


def _with_const(terms: Terms, constant: int) -> Expr:
    """Sorted terms and a constant; moves the rest inside a lone min or max (extrema sort last)."""
    atom, c = terms[-1] if terms else (None, 0)
    if not isinstance(atom, _Extremum):
        return Expr(terms, constant)
    only_extremum = len(terms) == 1 or not isinstance(terms[-2][0], _Extremum)
    if not only_extremum or c not in (1, -1) or (len(terms) == 1 and constant == 0 and c == 1):
        return Expr(terms, constant)
    rest = Expr(terms[:-1], constant)
    return atom.rebuild((arg * c + rest for arg in atom.args), c)


def _divisor(expr: Expr, other: Expr | int, operator: str) -> int:
    divisor = as_expr(other)
    if not divisor.is_const or divisor.const <= 0:
        raise NonAffineError(f"({expr}) {operator} ({divisor}): the divisor must be a positive number")
    return divisor.const


def common_divisor(terms: Terms) -> int:
    return math.gcd(*(c for _, c in terms))


def _atom_magnitude(atom: Atom, largest: int) -> int:
    match atom:
        case Symbol():
            return largest
        case FloorDiv(expr, divisor) | Mod(expr, divisor):
            return max(expr.magnitude(largest), divisor)
        case Min(args) | Max(args):
            return max(arg.magnitude(largest) for arg in args)
