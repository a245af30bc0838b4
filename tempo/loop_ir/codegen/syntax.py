"""Small pieces of Python syntax, for what emits source."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def name(text: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(text, context or ast.Load())


def context(stores: bool) -> ast.expr_context:
    return ast.Store() if stores else ast.Load()


def assign(target: ast.expr, value: ast.expr) -> ast.stmt:
    return ast.Assign([target], value, lineno=0)


def call(named: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(name(named), arguments, [])


def subscript(array: ast.expr, index: list[ast.expr], context: ast.expr_context | None = None) -> ast.expr:
    inner = index[0] if len(index) == 1 else ast.Tuple(index, ast.Load())
    return ast.Subscript(array, inner, context or ast.Load())


def listed(items: str, at: int, context: ast.expr_context | None = None) -> ast.expr:
    return subscript(name(items), [ast.Constant(at)], context)


def deleted(names: Iterable[str]) -> list[ast.stmt]:
    """A statement that lets go of the names, where there are any."""
    targets: list[ast.expr] = [name(each, ast.Del()) for each in names]
    return [ast.Delete(targets)] if targets else []


def minus_one(tree: ast.expr) -> ast.expr:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return ast.Constant(tree.value - 1) if tree.value else ast.UnaryOp(ast.USub(), ast.Constant(1))
    return ast.BinOp(tree, ast.Sub(), ast.Constant(1))


def function(named: str, parameters: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments([], [ast.arg(each) for each in parameters], None, [], [], None, [])
    return ast.FunctionDef(named, arguments, body, [], lineno=0)


def source(of: ast.FunctionDef) -> str:
    return ast.unparse(ast.fix_missing_locations(ast.Module([of], [])))
