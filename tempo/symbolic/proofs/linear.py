"""From conditions to linear constraints: `floordiv` becomes a variable, `mod`, `min` and `max` become case splits.

For a positive factor, `min(a, b) + r >= 0` holds where both `a + r >= 0` and `b + r >= 0` do, and `max(a, b) + r >= 0`
where one of them does; so extrema cost no variables, and only half of them cost a split.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tempo.symbolic.condition import And, Comparison, Condition, Constant, Eq, Or, conjunction, disjunction, nonnegative
from tempo.symbolic.expr import Atom, Expr, FloorDiv, Max, Min, Mod, Symbol, const, of_atom, total
from tempo.symbolic.proofs.elimination import Effort, Row, Rows, project
from tempo.symbolic.proofs.intervals import is_affine
from tempo.symbolic.structural import memoised


@dataclass(frozen=True)
class Clause:
    """All of `constraints` hold, and of each choice one clause does."""

    constraints: tuple[Row, ...] = ()
    choices: tuple[tuple[Clause, ...], ...] = ()
    variables: frozenset[int] = frozenset()


MOST_ALTERNATIVES = 64
"""Of an expression whose extrema are more alternatives than this, they are numbers of which nothing is known."""
ALWAYS = Clause()
NEVER = Clause((((), -1),))
Definition: TypeAlias = Callable[[Symbol], Condition]  # what holds of a symbol wherever it occurs


_NUMBERING = threading.Lock()


class Variables:
    """Numbers for symbols and floor divisions, with what holds of each by definition.

    Append-only, and shared by every context that is derived from one: numbers mean the same in all of them.
    """

    def __init__(self, definition: Definition) -> None:
        self.atoms: list[Atom] = []
        self._definition = definition
        self._numbers: dict[Atom, int] = {}

    def number(self, atom: Atom) -> int:
        found = self._numbers.get(atom)
        return self._numbered(atom) if found is None else found

    def _numbered(self, atom: Atom) -> int:
        """One thread at a time: two atoms of one number would make a wrong proof."""
        with _NUMBERING:
            if atom not in self._numbers:
                self.atoms.append(atom)
                self._numbers[atom] = len(self.atoms) - 1
            return self._numbers[atom]

    @memoised
    def definition(self, variable: int) -> Clause:
        atom = self.atoms[variable]
        if isinstance(atom, Symbol):
            clause = self.clause(self._definition(atom))
        elif isinstance(atom, Min | Max):
            clause = ALWAYS
        else:
            assert isinstance(atom, FloorDiv)  # k*q <= e <= k*q + k - 1
            remainder = total((atom.expr, 1), (of_atom(atom), -atom.divisor))
            clause = self.clause(nonnegative(remainder) & nonnegative(atom.divisor - 1 - remainder))
        return NEVER if clause is None else clause

    def clause(self, condition: Condition) -> Clause | None:
        """The condition as a clause; None where it never holds."""
        if isinstance(condition, Constant):
            return ALWAYS if condition.value else None
        if isinstance(condition, Comparison):
            return self._comparison(condition)
        if isinstance(condition, And):
            return _all(self.clause(arg) for arg in condition.args)
        assert isinstance(condition, Or)
        return _any(self.clause(arg) for arg in condition.args)

    def _comparison(self, comparison: Comparison) -> Clause | None:
        expr = self.lowered(comparison.expr)
        if isinstance(comparison, Eq):
            return self.clause(nonnegative(expr) & nonnegative(-expr))
        found = next((atom for atom, _ in reversed(expr.terms) if isinstance(atom, Min | Max)), None)
        if found is not None and self._alternatives(expr) <= MOST_ALTERNATIVES:
            every = isinstance(found, Min) == (expr.coefficient(found) > 0)
            parts = [nonnegative(_with_argument(expr, found, arg)) for arg in found.args]
            return self.clause(conjunction(parts) if every else disjunction(parts))
        terms = sorted((self.number(atom), c) for atom, c in expr.terms)
        # What is known of the symbols inside a floor division bears on it.
        variables = {variable for variable, _ in terms}.union(map(self.number, expr.symbols()))
        return Clause(((tuple(terms), expr.const),), (), frozenset(variables))

    @memoised
    def _alternatives(self, expr: Expr) -> int:
        """How many expressions without extrema this one is taken apart into."""
        extrema = (atom for atom, _ in expr.terms if isinstance(atom, Min | Max))
        return math.prod(sum(self._alternatives(arg) for arg in atom.args) for atom in extrema)

    @memoised
    def lowered(self, expr: Expr) -> Expr:
        """The same value over symbols, floor divisions of affine expressions, and extrema outside of those."""
        if is_affine(expr):
            return expr
        return total((const(expr.const), 1), *((self._lowered_atom(atom), c) for atom, c in expr.terms))

    def _lowered_atom(self, atom: Atom) -> Expr:
        if isinstance(atom, FloorDiv):
            return _floor(self.lowered(atom.expr), atom.divisor)
        if isinstance(atom, Mod):  # e % k = e - k * (e // k)
            inner = self.lowered(atom.expr)
            return total((inner, 1), (_floor(inner, atom.divisor), -atom.divisor))
        if isinstance(atom, Min | Max):
            return atom.rebuild(self.lowered(arg) for arg in atom.args)
        return of_atom(atom)


def _with_argument(expr: Expr, extremum: Min | Max, arg: Expr) -> Expr:
    """`expr` with one argument in the place of the extremum."""
    c = expr.coefficient(extremum)
    return total((expr, 1), (of_atom(extremum), -c), (arg, c))


def _floor(expr: Expr, k: int) -> Expr:
    """`expr // k`, moved inside extrema: floor division is monotone."""
    found = next(((atom, c) for atom, c in expr.terms if isinstance(atom, Min | Max)), None)
    if found is None:
        return expr // k
    extremum, c = found
    return extremum.rebuild((_floor(_with_argument(expr, extremum, arg), k) for arg in extremum.args), c)


def _all(parts: Iterable[Clause | None]) -> Clause | None:
    constraints: list[Row] = []
    choices: list[tuple[Clause, ...]] = []
    variables: set[int] = set()
    for part in parts:
        if part is None:
            return None
        constraints.extend(part.constraints)
        choices.extend(part.choices)
        variables |= part.variables
    return Clause(tuple(constraints), tuple(choices), frozenset(variables))


def _any(parts: Iterable[Clause | None]) -> Clause | None:
    possible = tuple(part for part in parts if part is not None)
    if len(possible) <= 1:
        return possible[0] if possible else None
    return Clause((), (possible,), frozenset[int]().union(*(part.variables for part in possible)))


Choices: TypeAlias = tuple[tuple[Clause, ...], ...]

# Case splits over Fourier-Motzkin: is a set of clauses without solution, and what do its solutions satisfy.

MOST_SPLITS = 200  # cases per refutation; beyond it the answer is "not proven"
MOST_LEAVES = 8  # cases per projection; beyond it the remaining choices are ignored, which only weakens the result


def refuted(constraints: tuple[Row, ...], choices: Choices) -> bool:
    """Whether no integer point satisfies everything. False also when the splits are used up."""
    return _refuted(constraints, choices, Effort(MOST_SPLITS))


def _refuted(constraints: tuple[Row, ...], choices: Choices, effort: Effort) -> bool:
    effort.splits -= 1
    if project(constraints, effort) is None:
        return True
    if not choices or effort.splits <= 0:
        return False
    choice, rest = _next_choice(choices)
    return all(_refuted(constraints + case.constraints, case.choices + rest, effort) for case in choice)


def _next_choice(choices: Choices) -> tuple[tuple[Clause, ...], Choices]:
    """The choice with the fewest cases, and the others."""
    at = min(range(len(choices)), key=lambda i: len(choices[i]))
    return choices[at], choices[:at] + choices[at + 1 :]


def projections(constraints: tuple[Row, ...], choices: Choices, keep: frozenset[int]) -> list[Rows]:
    """What is known of the variables of `keep`, for each case that has a solution: their union holds every solution."""
    return list(_projections(constraints, choices, keep, Effort(MOST_LEAVES)))


def _projections(
    constraints: tuple[Row, ...], choices: Choices, keep: frozenset[int], effort: Effort
) -> Iterator[Rows]:
    if choices and project(constraints, effort) is None:
        return
    if choices and effort.splits > 0:
        choice, rest = _next_choice(choices)
        for case in choice:
            yield from _projections(constraints + case.constraints, case.choices + rest, keep, effort)
        return
    effort.splits -= 1
    rows = project(constraints, effort, keep)
    if rows is not None:
        yield rows
