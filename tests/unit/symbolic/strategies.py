"""Random expressions and conditions as plain trees, with two meanings: the obvious one on numbers, and Tempo's.

A tree is an int, a name (lower case: a dim, upper case: the size of it) or a tuple `(operator, ...)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from tempo.symbolic import FALSE, TRUE, Condition, Dim, Expr, Symbol, as_expr, dim, maximum, minimum, size

Tree = Any
Point = dict[str, int]

T, S = Symbol("t", "dim"), Symbol("s", "dim")
DIMS = (Dim(T, size("t")), Dim(S, size("s")))
SYMBOLS = {"t": T, "s": S, "T": Symbol("t", "size"), "S": Symbol("s", "size")}


def expr_of(tree: Tree) -> Expr:
    if isinstance(tree, int):
        return as_expr(tree)
    if isinstance(tree, str):
        return dim(tree) if tree.islower() else size(tree.lower())
    operator, *operands = tree
    if operator in ("//", "%", "*"):
        inner = expr_of(operands[0])
        return {"//": inner.__floordiv__, "%": inner.__mod__, "*": inner.__mul__}[operator](operands[1])
    values = [expr_of(operand) for operand in operands]
    return {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "min": minimum, "max": maximum}[operator](*values)


def value_of(tree: Tree, point: Point) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return point[tree]
    operator, *operands = tree
    a, b = (value_of(operand, point) for operand in operands)
    by_operator: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "//": lambda a, b: a // b,
        "%": lambda a, b: a % b,
        "min": min,
        "max": max,
    }
    return by_operator[operator](a, b)


def condition_of(tree: Tree) -> Condition:
    if isinstance(tree, bool):
        return TRUE if tree else FALSE
    operator, *operands = tree
    if operator == "not":
        return ~condition_of(operands[0])
    if operator in ("and", "or"):
        a, b = map(condition_of, operands)
        return a & b if operator == "and" else a | b
    left, right = map(expr_of, operands)
    compare = {"<": left.lt, "<=": left.le, ">": left.gt, ">=": left.ge, "==": left.eq, "!=": left.ne}
    return compare[operator](right)


def truth_of(tree: Tree, point: Point) -> bool:
    if isinstance(tree, bool):
        return tree
    operator, *operands = tree
    if operator == "not":
        return not truth_of(operands[0], point)
    if operator in ("and", "or"):
        a, b = (truth_of(operand, point) for operand in operands)
        return (a and b) if operator == "and" else (a or b)
    a, b = (value_of(operand, point) for operand in operands)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[operator]


def points(largest: int) -> Iterator[Point]:
    """Every point of every pair of sizes up to `largest`."""
    for sizes in itertools.product(range(1, largest + 1), repeat=2):
        for t, s in itertools.product(*map(range, sizes)):
            yield {"t": t, "s": s, "T": sizes[0], "S": sizes[1]}


def env_of(point: Point) -> dict[Symbol, int]:
    return {SYMBOLS[name]: value for name, value in point.items()}


small = st.integers(-4, 4)
leaves = st.one_of(st.sampled_from(["t", "s", "T", "S"]), small)


def _larger(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "min", "max"]), inner, inner),
        st.tuples(st.just("*"), inner, st.integers(-3, 3)),
        st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(1, 4)),
    )


trees = st.recursive(leaves, _larger, max_leaves=6)
affine_trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-"]), inner, inner), st.tuples(st.just("*"), inner, st.integers(-2, 2))
    ),
    max_leaves=4,
)
comparisons = st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), trees, trees)
condition_trees = st.recursive(
    comparisons,
    lambda inner: st.one_of(st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)),
    max_leaves=3,
)

# Differences of two symbols against a number are decided exactly. A model exists if one of sizes up to 9 does: with the
# five nodes 0, t, s, T, S a shortest path has four edges, each of a weight of at most 2.
difference_trees = st.tuples(
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.sampled_from(["t", "s"]),
    st.one_of(st.integers(0, 1), st.tuples(st.just("+"), st.sampled_from(["t", "s", "T", "S"]), st.integers(-1, 1))),
)
difference_conditions = st.recursive(
    difference_trees, lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner), max_leaves=3
)
