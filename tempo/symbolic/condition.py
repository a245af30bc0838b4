"""Conditions over index expressions, in negation normal form: comparisons with zero under `and` and `or`.

`~` pushes the negation down at once, so there is no `Not`. A condition has no truth value of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from tempo.symbolic.division import interval
from tempo.symbolic.expr import (
    Bindings,
    Expr,
    Max,
    Min,
    Substitution,
    Symbol,
    Value,
    common_divisor,
    const,
    from_terms,
)
from tempo.symbolic.structural import Structural


class Condition(Structural):
    """A condition over dims and sizes: `TRUE`, `FALSE`, `Ge`, `Eq`, `And`, `Or`."""

    def symbols(self) -> frozenset[Symbol]:
        raise NotImplementedError

    def dims(self) -> frozenset[Symbol]:
        return frozenset(symbol for symbol in self.symbols() if symbol.kind == "dim")

    def sizes(self) -> frozenset[Symbol]:
        return self.symbols() - self.dims()

    def substitute(self, mapping: Substitution) -> Condition:
        return self.map_exprs(lambda expr: expr.substitute(mapping))

    def map_exprs(self, change: Callable[[Expr], Expr]) -> Condition:
        """The same condition over other expressions."""
        raise NotImplementedError

    def evaluate(self, env: Bindings) -> Value:
        """`bool`, or a bool array where `env` holds arrays."""
        raise NotImplementedError

    def __and__(self, other: Condition) -> Condition:
        return conjunction((self, other))

    def __or__(self, other: Condition) -> Condition:
        return disjunction((self, other))

    def __invert__(self) -> Condition:
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise TypeError(f"the condition `{self}` has no truth value: it depends on the point; combine with & | ~")

    def __str__(self) -> str:
        from tempo.symbolic.text import condition_text

        return condition_text(self)


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Condition):
    """`TRUE` or `FALSE`."""

    value: bool

    def symbols(self) -> frozenset[Symbol]:
        return frozenset()

    def map_exprs(self, change: Callable[[Expr], Expr]) -> Condition:
        return self

    def evaluate(self, env: Bindings) -> Value:
        return self.value

    def __invert__(self) -> Condition:
        return FALSE if self.value else TRUE

    def __bool__(self) -> bool:
        return self.value

    def __str__(self) -> str:
        return str(self.value)


TRUE = Constant(True)
FALSE = Constant(False)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Condition):
    """What `Ge` and `Eq` share."""

    expr: Expr

    def symbols(self) -> frozenset[Symbol]:
        return self.expr.symbols()

    def map_exprs(self, change: Callable[[Expr], Expr]) -> Condition:
        changed = change(self.expr)
        if changed is self.expr:
            return self
        return nonnegative(changed) if isinstance(self, Ge) else zero(changed)


class Ge(Comparison):
    """`expr >= 0`. `nonnegative(expr)` is the constructor that simplifies."""

    def evaluate(self, env: Bindings) -> Value:
        return self.expr.evaluate(env) >= 0

    def __invert__(self) -> Condition:
        return nonnegative(-1 - self.expr)


class Eq(Comparison):
    """`expr == 0`. `zero(expr)` is the constructor that simplifies."""

    def evaluate(self, env: Bindings) -> Value:
        return self.expr.evaluate(env) == 0

    def __invert__(self) -> Condition:
        return disjunction((nonnegative(self.expr - 1), nonnegative(-1 - self.expr)))


@dataclass(frozen=True, eq=False, repr=False)
class _Compound(Condition):
    """What `And` and `Or` share: at least two arguments, none of the same kind, in the order written."""

    args: tuple[Condition, ...]

    def symbols(self) -> frozenset[Symbol]:
        return frozenset[Symbol]().union(*(arg.symbols() for arg in self.args))

    def map_exprs(self, change: Callable[[Expr], Expr]) -> Condition:
        join = conjunction if isinstance(self, And) else disjunction
        return join(arg.map_exprs(change) for arg in self.args)

    def evaluate(self, env: Bindings) -> Value:
        return reduce(and_ if isinstance(self, And) else or_, (arg.evaluate(env) for arg in self.args))

    def __invert__(self) -> Condition:
        join = disjunction if isinstance(self, And) else conjunction
        return join(~arg for arg in self.args)


class And(_Compound):
    """All of `args` hold. `conjunction(args)` is the constructor that simplifies."""


class Or(_Compound):
    """One of `args` holds. `disjunction(args)` is the constructor that simplifies."""

    def as_unequal(self) -> Eq | None:
        """`e == 0` when this is `e >= 1 or e <= -1`, which prints as `e != 0`."""
        if len(self.args) != 2 or not all(isinstance(arg, Ge) for arg in self.args):
            return None
        first, second = self.args
        assert isinstance(first, Ge)
        assert isinstance(second, Ge)
        if (first.expr + second.expr) != const(-2):
            return None
        equal = zero(first.expr + 1)
        return equal if isinstance(equal, Eq) and ~equal == self else None


def nonnegative(expr: Expr) -> Condition:
    """`expr >= 0`, with the integer tightening `g*e + c >= 0  <=>  e + c // g >= 0`."""
    if not expr.terms:
        return TRUE if expr.const >= 0 else FALSE
    last, c = expr.terms[-1]
    if isinstance(last, Min | Max) and len(expr.terms) == 1 and c == 1 and expr.const == 0:
        parts = (nonnegative(arg) for arg in last.args)
        return conjunction(parts) if isinstance(last, Min) else disjunction(parts)
    if c not in (1, -1):
        g = common_divisor(expr.terms)
        if g > 1:
            return nonnegative(from_terms({atom: c // g for atom, c in expr.terms}, expr.const // g))
    if isinstance(last, Symbol):
        return Ge(expr)
    low, high = interval(expr)
    if low is not None and low >= 0:
        return TRUE
    if high is not None and high <= 0:
        return FALSE if high < 0 else zero(expr)
    return Ge(expr)


def zero(expr: Expr) -> Condition:
    """`expr == 0`; the first coefficient is made positive, and a common divisor must divide the constant."""
    if not expr.terms:
        return TRUE if expr.const == 0 else FALSE
    g = common_divisor(expr.terms)
    if expr.const % g:
        return FALSE
    low, high = interval(expr)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return FALSE
    g = g if expr.terms[0][1] > 0 else -g
    if g == 1:
        return Eq(expr)
    scaled = from_terms({atom: c // g for atom, c in expr.terms}, expr.const // g)
    return Eq(scaled) if scaled.terms[0][1] > 0 else Eq(expr)


def conjunction(args: Iterable[Condition]) -> Condition:
    """All hold: flat, without repetition, `FALSE` when two of the comparisons contradict one another."""
    return _joined(args, And, TRUE, FALSE)


def disjunction(args: Iterable[Condition]) -> Condition:
    """One holds: flat, without repetition, `TRUE` when two of the comparisons leave nothing out."""
    return _joined(args, Or, FALSE, TRUE)


def _joined(args: Iterable[Condition], kind: type[And] | type[Or], neutral: Constant, absorbing: Constant) -> Condition:
    parts = [part for arg in args for part in (arg.args if isinstance(arg, kind) else (arg,))]
    flat = dict.fromkeys([part for part in parts if not isinstance(part, Constant) or part.value is absorbing.value])
    kept = None if absorbing in flat else _merge(flat, min if kind is And else max)
    if kept is None:
        return absorbing
    return kind(tuple(kept)) if len(kept) > 1 else kept[0] if kept else neutral


def _merge(args: Iterable[Condition], choose: Callable[[int, int], int]) -> list[Condition] | None:
    """One `e + c >= 0` per `e`: the smallest `c` of a conjunction, the largest of a disjunction.

    None when a pair decides everything: `e >= -c` with `e <= d` is empty if `c + d < 0`, and all if `c + d >= -1`.
    """
    kept: dict[object, Condition] = {}
    for arg in args:
        if not isinstance(arg, Ge):
            kept[arg] = arg
            continue
        terms, c = arg.expr.terms, arg.expr.const
        known = kept.get(terms)
        if isinstance(known, Ge):
            c = choose(c, known.expr.const)
        kept[terms] = arg if c == arg.expr.const else known  # type: ignore[assignment]
        opposite = kept.get(tuple([(atom, -factor) for atom, factor in terms])) if len(kept) > 1 else None
        if not isinstance(opposite, Ge):
            continue
        gap = c + opposite.expr.const
        if gap < 0 if choose is min else gap >= -1:
            return None
    return list(kept.values())
