"""Rewrite rules as data: an equation between terms, a condition, and for attributes a function.

    Rule("neg(neg(x)) = x")
    Rule("mul(x, 1) = x")
    Rule("q:transpose(p:transpose(x))", replace=lambda m: m.term("transpose", "x", axes=...))

The left side is a pattern. A lower-case name is a variable: any read; twice the same name, the same read. A number is
a constant that has this value in every element. `p:op(...)` names a node, so that its attributes can be asked for.
A right side that is a variable of another shape is broadcast to the shape of the result. A number on the right side
is a constant of the dtype of the result; as the whole right side it is broadcast, too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tempo import dtypes
from tempo.passes.rewrite.driver import Sweep, Term
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge, Node, TensorType
from tempo.symbolic import syntax_tree

Pattern: TypeAlias = "Apply | str | float"
_ROOT = "root"


@dataclass(frozen=True)
class Apply:
    """`name:op(operands)`."""

    op: str
    operands: tuple[Pattern, ...]
    name: str = ""


@dataclass(frozen=True)
class Match:
    """What a pattern's variables stand for (reads), and its named nodes. `root` is the node that matched."""

    sweep: Sweep
    reads: dict[str, Edge]
    nodes: dict[str, Node]

    @property
    def root(self) -> Node:
        return self.nodes[_ROOT]

    @property
    def type(self) -> TensorType:
        """The type of the whole."""
        return self.root.type

    def type_of(self, variable: str) -> TensorType:
        return self.sweep.seen_type(self.reads[variable])

    def attr(self, node: str, name: str) -> Any:
        return self.nodes[node].attr(name)

    def may_drop(self, variable: str) -> bool:
        """Whether nobody sees it when what the variable stands for is no longer read."""
        return self.sweep.may_be_dropped(self.reads[variable])

    def term(self, op: str, *variables: str, **attrs: Any) -> Term:
        return Term(op, tuple(self.reads[variable] for variable in variables), attrs)


When: TypeAlias = Callable[[Match], bool]
"""The condition of a rule."""


@dataclass(frozen=True)
class Rule:
    """`equation` is "left = right", or "left" alone where `replace` makes the right side. `when` is the condition."""

    equation: str
    when: When = lambda match: True
    replace: Callable[[Match], Term | Edge | None] | None = None

    @cached_property
    def sides(self) -> tuple[Apply, Pattern | None]:
        left, right = _parse(self.equation)
        if not isinstance(left, Apply):
            raise ValueError(f"the left side of {self.equation!r} matches everything")
        if (right is None) == (self.replace is None):
            raise ValueError(f"{self.equation!r} needs one right side")
        return left, right

    def apply(self, node: Node, sweep: Sweep) -> Term | Edge | None:
        """What the node becomes, or None where the rule does not apply."""
        match = Match(sweep, {}, {_ROOT: node})
        if not _match_node(self.sides[0], node, match) or not self.when(match):
            return None
        right = self.sides[1]
        if right is None:
            return self.replace(match) if self.replace else None
        found = _instance(right, match)
        if isinstance(right, float) and match.type.shape:
            return Term("broadcast", (found,), {"shape": match.type.shape})
        return _fitted(found, match)


@dataclass(frozen=True)
class RuleTable:
    """Rules by the operator that they start with; the first that applies is taken."""

    rules: tuple[Rule, ...]
    _by_op: dict[str, list[Rule]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for rule in self.rules:
            self._by_op.setdefault(rule.sides[0].op, []).append(rule)

    def __call__(self, node: Node, sweep: Sweep) -> Term | Edge | None:
        candidates: Iterable[Rule] = self._by_op.get(node.op, ())
        return next((found for rule in candidates if (found := rule.apply(node, sweep)) is not None), None)


# Matching ------------------------------------------------------------------------------------------------------------


def _match_node(pattern: Apply, node: Node, match: Match) -> bool:
    if node.op != pattern.op or len(node.operands) != len(pattern.operands):
        return False
    if pattern.name:
        match.nodes[pattern.name] = node
    return all(_match_read(part, edge, match) for part, edge in zip(pattern.operands, node.operands))


def _match_read(pattern: Pattern, edge: Edge, match: Match) -> bool:
    if isinstance(pattern, str):
        return match.reads.setdefault(pattern, edge) == edge
    if isinstance(pattern, Apply):
        node = match.sweep.view(edge)
        return node is not None and _match_node(pattern, node, match)
    value = constant_value(edge, match.sweep)
    return value is not None and bool(np.all(value == pattern)) and not np.any(np.signbit(value) != (pattern < 0))


def constant_value(edge: Edge, sweep: Sweep) -> np.ndarray[Any, Any] | None:
    """The elements of a constant, where an edge reads one, also through a broadcast; of any shape."""
    node = sweep.view(edge)
    while node is not None and node.op == "broadcast":
        node = sweep.view(node.operands[0])
    if node is None or node.op != "constant":
        return None
    value = node.attr("value")
    return value.array if isinstance(value, ArrayValue) else None


def _instance(pattern: Pattern, match: Match) -> Term | Edge:
    if isinstance(pattern, str):
        return match.reads[pattern]
    if isinstance(pattern, Apply):
        return Term(pattern.op, tuple(_instance(part, match) for part in pattern.operands))
    return Term("constant", attrs={"value": ArrayValue(np.asarray(pattern, dtypes.to_numpy(match.type.dtype)))})


def _fitted(found: Term | Edge, match: Match) -> Term | Edge | None:
    """A read of another shape is broadcast; one of another dtype is no replacement."""
    if isinstance(found, Term):
        return found
    seen = match.sweep.seen_type(found)
    if seen.dtype != match.type.dtype:
        return None
    return found if seen.shape == match.type.shape else Term("broadcast", (found,), {"shape": match.type.shape})


# The syntax of equations ---------------------------------------------------------------------------------------------


def _parse(equation: str) -> tuple[Pattern, Pattern | None]:
    """As Python reads it, where `name:op(...)` is `name @ op(...)`."""
    try:
        left, *right = [_pattern(syntax_tree(side.strip())) for side in equation.replace(":", "@").split("=", 1)]
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"cannot read {equation!r}: {error.args[0]}") from error
    return left, right[0] if right else None


def _pattern(side: ast.expr) -> Pattern:
    match side:
        case ast.Name(name):
            return name
        case ast.Call(ast.Name(op), operands, []):
            return Apply(op, tuple(map(_pattern, operands)))
        case ast.BinOp(ast.Name(name), ast.MatMult(), ast.Call(ast.Name(op), operands, [])):
            return Apply(op, tuple(map(_pattern, operands)), name)
        case ast.Constant(int() | float() as value):
            return float(value)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -float(value)
    raise ValueError(f"{ast.unparse(side).replace(' @ ', ':')!r} is no variable, number or operator of these")
