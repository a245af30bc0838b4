"""Conditions as linear constraints: what is taken apart, and what stays a number of which nothing is known."""

from __future__ import annotations

import pytest

from tempo.symbolic import TRUE, Context, Dim, Expr, Symbol, const, dim, maximum, minimum
from tempo.symbolic.proofs.linear import MOST_ALTERNATIVES, Clause, Variables

NAMES = [f"x{number}" for number in range(24)]


def sum_of_minima(count: int) -> Expr:
    """`2 ** count` alternatives."""
    total = const(0)
    for left, right in zip(NAMES[:count], NAMES[12:]):
        total = total + minimum(dim(left), dim(right))
    return total


def leaves(clause: Clause) -> int:
    found = len(clause.constraints)
    return found + sum(leaves(each) for choice in clause.choices for each in choice)


@pytest.mark.parametrize("count", [1, 6, 12])
def test_alternatives_are_counted_before_they_are_made(count: int) -> None:
    clause = Variables(lambda symbol: TRUE).clause((3 - sum_of_minima(count)).ge(0))
    assert clause is not None
    assert leaves(clause) == (2**count if 2**count <= MOST_ALTERNATIVES else 1)


def test_nested_alternatives_are_counted_too() -> None:
    nested = dim(NAMES[0])
    for number, name in enumerate(NAMES[1:12]):
        nested = (minimum if number % 2 else maximum)(nested - number, 2 * dim(name) + number)
    once = Variables(lambda symbol: TRUE).clause((nested + sum_of_minima(4)).ge(0))
    assert once is not None
    assert leaves(once) == 1


def test_what_is_not_taken_apart_is_not_proven() -> None:
    context = Context.of([Dim(Symbol(name, "dim"), const(5)) for name in NAMES])
    bound = sum((dim(name) for name in NAMES[:12]), const(0))
    assert not context.implies(sum_of_minima(12).le(bound))
    few = sum((dim(name) for name in NAMES[:4]), const(0))
    assert context.implies(sum_of_minima(4).le(few))
