"""Expressions and conditions from text: the inverse of `str`. The syntax is Python's, read with its own parser.

Python takes names for their normal form (NFKC) and some words for its own. So names beyond ASCII, and those behind a
`$`, are encoded before it reads the text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

from tempo.symbolic.condition import FALSE, TRUE, Condition, conjunction, disjunction, nonnegative, zero
from tempo.symbolic.expr import Expr, Symbol, const, dim, maximum, minimum, total, var
from tempo.symbolic.text import syntax_tree

_COMPARISONS: dict[type[ast.cmpop], Callable[[Expr, Expr], Condition]] = {
    ast.GtE: lambda a, b: nonnegative(total((a, 1), (b, -1))),
    ast.Gt: lambda a, b: nonnegative(total((a, 1), (b, -1), (const(1), -1))),
    ast.LtE: lambda a, b: nonnegative(total((b, 1), (a, -1))),
    ast.Lt: lambda a, b: nonnegative(total((b, 1), (a, -1), (const(1), -1))),
    ast.Eq: lambda a, b: zero(total((a, 1), (b, -1))),
    ast.NotEq: lambda a, b: ~zero(total((a, 1), (b, -1))),
}


@lru_cache(1 << 12)  # a text has the same few again and again
def parse_expr(text: str) -> Expr:
    """`2*t + t.size - 1`, `min(t + 4, t.size)`, `(t + 1)//2`, `t % 3`; `ValueError` for what is no index expression."""
    return _expr(_parsed(text), text)


@lru_cache(1 << 12)
def parse_condition(text: str) -> Condition:
    """Comparisons with `and`, `or`, `not` and parentheses; `True` and `False`; `ValueError` for anything else."""
    return _condition(_parsed(text), text)


_NAME = re.compile(r"\$?[^\s\d()+\-*/%,.<>=!$][^\s()+\-*/%,.<>=!$]*")
_ENCODED = "_utf8_"


def _parsed(text: str) -> ast.expr:
    try:
        return syntax_tree(_NAME.sub(_encoded, text).strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two of too many brackets
        raise ValueError(f"cannot read {text!r}: {error}") from None


def _encoded(found: re.Match[str]) -> str:
    word = found[0]
    if word.isascii() and not word.startswith(("$", _ENCODED)):
        return word
    return _ENCODED + word.removeprefix("$").encode().hex()


def _name(word: str) -> str:
    return bytes.fromhex(word.removeprefix(_ENCODED)).decode() if word.startswith(_ENCODED) else word


def _expr(node: ast.expr, text: str) -> Expr:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return const(value)
        case ast.Name(id=name):
            return dim(_name(name))
        case ast.Attribute(value=ast.Name(id=name), attr=("size" | "length" | "extent") as kind):
            return var(Symbol(_name(name), kind))
        case ast.Attribute(value=ast.Name(id=name), attr=rest):  # a dim of the compiler's own
            return dim(f"{_name(name)}.{rest}")
        case ast.Call(func=ast.Name(id=("min" | "max") as name), args=[_, *_] as args, keywords=[]):
            return (minimum if name == "min" else maximum)(*(_expr(arg, text) for arg in args))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _expr(left, text) * _expr(right, text)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return _expr(left, text) // _expr(right, text)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return _expr(left, text) % _expr(right, text)
        case ast.BinOp(op=ast.Add() | ast.Sub()) | ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            # a whole sum at once: step by step, a min within it would absorb only what stands before it
            return total(*_addends(node, 1, text))
    raise ValueError(f"no index expression: {ast.unparse(node)!r} in {text!r}")


def _addends(node: ast.expr, sign: int, text: str) -> list[tuple[Expr, int]]:
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            right_sign = sign if isinstance(op, ast.Add) else -sign
            return _addends(left, sign, text) + _addends(right, right_sign, text)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _addends(operand, -sign, text)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _addends(operand, sign, text)
        case ast.BinOp(left=ast.Constant(value=int(factor)), op=ast.Mult(), right=right):
            return [(_expr(right, text), sign * factor)]
    return [(_expr(node, text), sign)]


def _condition(node: ast.expr, text: str) -> Condition:
    match node:
        case ast.Constant(value=bool(value)):
            return TRUE if value else FALSE
        case ast.BoolOp(op=op, values=values):
            join = conjunction if isinstance(op, ast.And) else disjunction
            return join(_condition(value, text) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_condition(operand, text)
        case ast.Compare(left=first, ops=ops, comparators=rest) if all(type(op) in _COMPARISONS for op in ops):
            operands = [_expr(operand, text) for operand in (first, *rest)]
            return conjunction(_COMPARISONS[type(op)](a, b) for op, (a, b) in zip(ops, pairwise(operands), strict=True))
    raise ValueError(f"no condition: {ast.unparse(node)!r} in {text!r}")
