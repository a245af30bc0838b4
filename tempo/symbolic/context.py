"""What is known of dims and sizes, and what follows from it for every size.

Questions are answered by interval arithmetic where that decides, by a point where the answer is no, else by
Fourier-Motzkin elimination over the variables that are connected to the question. Answers are remembered per context.
"True" is a proof; "False" is "not proven".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from tempo.symbolic import simplification
from tempo.symbolic.condition import TRUE, And, Condition, Constant, Ge, Or, conjunction, nonnegative, zero
from tempo.symbolic.domain import Box, Dim
from tempo.symbolic.expr import Expr, FloorDiv, Max, Min, Mod, Symbol, const, from_terms, maximum, minimum, var
from tempo.symbolic.proofs.counterexamples import Drawn, Points
from tempo.symbolic.proofs.elimination import Row, Rows
from tempo.symbolic.proofs.intervals import Intervals, has_dims, is_affine
from tempo.symbolic.proofs.linear import ALWAYS, Choices, Clause, Variables, projections, refuted
from tempo.symbolic.structural import memoised

Bounds: TypeAlias = tuple[int | None, int | None]

MOST_BOUNDS = 6  # arguments of a min or max in a range; leaving some out only makes the range wider
MOST_STEPS = 16  # by which a bound of remainders is tightened
_RESULT = Symbol("", "dim")  # the variable that stands for the expression whose bounds are asked; no dim has this name


class Context:
    """Facts about dims and sizes. Immutable: `assume` makes another context.

    Every size is at least 1, every dim lies in its interval, and the facts hold.
    """

    def __init__(self, world: _World, facts: tuple[Condition, ...]) -> None:
        self._world = world
        self.facts = facts
        self._intervals = world.intervals.within(facts)

    @staticmethod
    def of(dims: Iterable[Dim], *facts: Condition, box: Box | None = None) -> Context:
        """`0 <= d < size` for every dim, or the bounds of `box` for those that it has, and the facts."""
        return Context(_World.of(tuple(dims), box), _flat(facts))

    def assume(self, *facts: Condition) -> Context:
        """This context with more facts."""
        new = tuple(fact for fact in _flat(facts) if fact not in self.facts)
        return Context(self._world, self.facts + new) if new else self

    @memoised
    def infeasible(self) -> bool:
        """Whether the facts contradict one another, or the intervals of the dims, at every size."""
        if (not self.facts and not self._world.intervals.touched) or self._points.exist():
            return False
        symbols = self._intervals.touched | self._world.dims
        if self._world.variables.clause(conjunction(self.facts)) is None:
            return True
        seeds = frozenset(self._world.variables.number(symbol) for symbol in symbols)
        return refuted(*self._connected(ALWAYS, seeds))

    @memoised
    def implies(self, condition: Condition) -> bool:
        """True: holds at every point for all sizes. False: not proven."""
        return self.excludes(~condition)

    @memoised
    def excludes(self, condition: Condition) -> bool:
        """True: holds at no point for any sizes. False: not proven."""
        if isinstance(condition, Constant):
            return not condition.value or self.infeasible()
        if isinstance(condition, Or):
            return all(self.excludes(arg) for arg in condition.args)
        if isinstance(condition, Ge) and is_affine(condition.expr):
            bound, exact = self._intervals.constant(condition.expr, -1)
            proven = bound is not None and bound < 0
            if exact or proven:
                return proven or self.infeasible()
        return not self._points.satisfy(condition) and self._refutes(condition)

    @memoised
    def constant_bounds(self, expr: Expr) -> Bounds:
        """The tightest integers with `lo <= expr <= hi` at every point for all sizes; None where there is none."""
        exact = self._interval_bounds(expr)
        if exact is not None:
            return exact
        return self._tightened(expr, self._least(expr)), _negated(self._tightened(-expr, self._least(-expr)))

    def constant(self, expr: Expr) -> int | None:
        """The number that the expression is everywhere, where that is proven."""
        if self._interval_bounds(expr) is None and self._points.distinguish(expr):
            return None
        low, high = self.constant_bounds(expr)
        return low if low == high else None

    @memoised
    def range_of(self, expr: Expr) -> tuple[Expr | None, Expr | None]:
        """Inclusive bounds of `expr` over the dims, in sizes only; None where there is none.

        They are attained for affine expressions, and for `min` and `max` of such; `//` and `%` may be wider, and so
        may sums of many `min` and `max`.
        """
        if not expr.dims():
            return self.simplify(expr), self.simplify(expr)
        return self._summed_bound(expr, 1), self._summed_bound(expr, -1)

    @memoised
    def simplify(self, expr: Expr) -> Expr:
        """An equal expression: `min` and `max` without arguments that never win, `//` and `%` folded where decided."""
        if is_affine(expr) and expr.symbols().isdisjoint(self._intervals.touched):
            return expr
        return simplification.simplify(self, expr)

    def simplify_condition(self, condition: Condition) -> Condition:
        """An equivalent condition without the parts that the context decides."""
        return simplification.simplify_condition(self, condition)

    def __str__(self) -> str:
        return " and ".join([str(self._world), *(f"({fact})" for fact in self.facts)])

    # How the questions are answered

    @cached_property
    def _points(self) -> Points:
        return self._world.drawn.points(self.facts)

    def _refutes(self, condition: Condition) -> bool:
        clause = self._world.variables.clause(condition)
        if clause is None:
            return True
        return refuted(*self._connected(clause, clause.variables)) or self.infeasible()

    def _interval_bounds(self, expr: Expr) -> Bounds | None:
        """The bounds by intervals alone, where none can be tighter."""
        if not is_affine(expr):
            return None
        low, low_exact = self._intervals.constant(expr, 1)
        high, high_exact = self._intervals.constant(expr, -1)
        return (low, high) if low_exact and high_exact else None

    def _tightened(self, expr: Expr, least: int | None) -> int | None:
        """The largest proven bound from `least` on; what remainders leave open there is less than their divisors."""
        steps = sum(abs(c) * (atom.divisor - 1) for atom, c in expr.terms if isinstance(atom, FloorDiv | Mod))
        for _ in range(min(steps, MOST_STEPS)):
            if least is None or not self.implies(expr.ge(least + 1)):
                break
            least += 1
        return least

    def _least(self, expr: Expr) -> int | None:
        """The largest number that is proven to be at most `expr`."""
        key = ((self._world.variables.number(_RESULT), 1),)
        least = [rows.get(key) for rows in self._projected(expr, in_sizes=False)]
        known = [-constant for constant in least if constant is not None]
        return min(known, default=None) if len(known) == len(least) else None

    def _summed_bound(self, expr: Expr, sign: int) -> Expr | None:
        """The bound; where it is not found for the whole, one made of those of the parts, which may be wider."""
        least = self._symbolic_least(expr * sign)
        if least is not None:
            return self.simplify(least * sign)
        if len(expr.terms) == 1:
            return self._bound_of_arguments(expr, sign)
        bounds = [self._summed_bound(from_terms({atom: factor}, 0), sign) for atom, factor in expr.terms]
        known = [each for each in bounds if each is not None]
        return self.simplify(sum(known, const(expr.const))) if len(known) == len(bounds) else None

    def _bound_of_arguments(self, expr: Expr, sign: int) -> Expr | None:
        """`max(x, y)` is at most the greater of what x and y are at most, and at least what either is at least."""
        ((atom, factor),) = expr.terms
        if not isinstance(atom, Min | Max):
            return None
        bounds = [self._summed_bound(factor * arg + expr.const, sign) for arg in atom.args]
        known = [each for each in bounds if each is not None]
        greater = isinstance(atom, Max) == (factor > 0)
        needs_all = greater == (sign < 0)
        if not known or (needs_all and len(known) < len(bounds)):
            return None
        return self.simplify(maximum(*known) if greater else minimum(*known))

    def _symbolic_least(self, expr: Expr) -> Expr | None:
        """The largest expression of sizes that is proven to be at most `expr`."""
        least = [self._lower_bound(rows) for rows in self._projected(expr, in_sizes=True)]
        known = [each for each in least if each is not None]
        return self._without_choices.simplify(minimum(*known)) if known and len(known) == len(least) else None

    @cached_property
    def _without_choices(self) -> Context:
        """This context without the facts that need case splits: good enough to tidy a range, at a bounded cost."""
        clauses = ((fact, self._world.variables.clause(fact)) for fact in self.facts)
        kept = tuple(fact for fact, clause in clauses if clause is not None and not clause.choices)
        return self if len(kept) == len(self.facts) else Context(self._world, kept)

    def _lower_bound(self, rows: Rows) -> Expr | None:
        """The best of the rows `a * result + rest >= 0`, which say `result >= -(rest // a)`."""
        atoms, found, result = self._world.variables.atoms, [], self._world.variables.number(_RESULT)
        for key, constant in rows.items():
            a = dict(key).get(result, 0)
            if a > 0:
                rest = from_terms({atoms[variable]: c for variable, c in key if variable != result}, constant)
                found.append(-(rest // a))
        simplest = sorted(found, key=lambda bound: (len(bound.terms), bound.key))[:MOST_BOUNDS]
        return self._without_choices.simplify(maximum(*simplest)) if found else None

    def _projected(self, expr: Expr, *, in_sizes: bool) -> list[Rows]:
        """What is known of numbers that are at least `expr`, with all that has no dims or without, in each case."""
        variables = self._world.variables
        clause = variables.clause(nonnegative(var(_RESULT) - expr))
        if clause is None:
            return []
        constraints, choices = self._connected(clause, clause.variables)
        sizes = (n for n, atom in enumerate(variables.atoms) if in_sizes and not has_dims(atom))
        return projections(constraints, choices, frozenset((variables.number(_RESULT), *sizes)))

    def _connected(self, clause: Clause, seeds: frozenset[int]) -> tuple[tuple[Row, ...], Choices]:
        """The clause with the definitions and facts of every variable that is connected to `seeds`."""
        facts, followers = self._compiled
        constraints, choices = list(clause.constraints), list(clause.choices)
        pending, seen = list(seeds), set(seeds)
        while pending:
            variable = pending.pop()
            touching = [fact for fact in facts if variable in fact.variables]
            if touching:
                facts = [fact for fact in facts if variable not in fact.variables]
            new = set(followers.get(variable, ()))
            for part in (self._world.variables.definition(variable), *touching):
                constraints.extend(part.constraints)
                choices.extend(part.choices)
                new |= part.variables
            pending.extend(new - seen)
            seen |= new
        return tuple(constraints), tuple(choices)

    @cached_property
    def _compiled(self) -> tuple[list[Clause], dict[int, list[int]]]:
        """The facts as clauses, and for each variable the dims about which something is known and that it bounds."""
        variables = self._world.variables
        clauses = [clause for clause in map(variables.clause, self.facts) if clause is not None]
        followers: dict[int, list[int]] = {}
        for symbol in self._intervals.touched & self._world.dims:
            number = variables.number(symbol)
            for bound in variables.definition(number).variables - {number}:
                followers.setdefault(bound, []).append(number)
        return clauses, followers


def _flat(facts: Iterable[Condition]) -> tuple[Condition, ...]:
    joined = conjunction(facts)
    if joined == TRUE:
        return ()
    return joined.args if isinstance(joined, And) else (joined,)


def _negated(value: int | None) -> int | None:
    return None if value is None else -value


class _World:
    """What holds of dims and sizes by definition: their intervals, and the sizes that are given.

    Shared by a context and all that are derived from it.
    """

    def __init__(self, box: Box, sizes: Mapping[Symbol, Expr]) -> None:
        self._box = box
        self._bounds = {symbol: (lo, hi) for symbol, lo, hi in box.bounds}
        self._sizes = sizes
        self.dims = frozenset(self._bounds)
        self.intervals = Intervals.of(box, sizes)
        self.variables = Variables(self._definition)

    @staticmethod
    def of(dims: tuple[Dim, ...], box: Box | None) -> _World:
        given = {} if box is None else {bound[0]: bound for bound in box.bounds}
        bounds = [given.pop(bound[0], bound) for bound in Box.full(dims).bounds]
        sizes = {Symbol(dim.symbol.name, "size"): dim.size for dim in dims}
        return _World(Box((*bounds, *given.values())), {s: size for s, size in sizes.items() if size != var(s)})

    @cached_property
    def drawn(self) -> Drawn:
        """Some of the points at which all this holds."""
        return Drawn(self._box, self._sizes)

    def _definition(self, symbol: Symbol) -> Condition:
        if symbol.kind != "dim":
            equal, positive = self._sizes.get(symbol), nonnegative(var(symbol) - 1)
            if symbol.kind == "length":
                return positive & nonnegative(var(symbol.of_kind("extent")) - var(symbol))
            return positive if equal is None else positive & zero(var(symbol) - equal)
        if symbol not in self._bounds:
            return TRUE
        lo, hi = self._bounds[symbol]
        size = self._sizes.get(Symbol(symbol.name, "size"))
        inside = var(symbol).ge(lo) & var(symbol).lt(hi)
        return inside if size is None or size.is_const else inside & size.ge(1)

    def __str__(self) -> str:
        return str(self._box)
