"""An emitter for backends whose generated source computes on NumPy's scalars: operators on them as Python's own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from tempo.loop_ir.codegen.python import Emitter
from tempo.loop_ir.codegen.scalar_forms import OPERATOR, TYPES, applied, uses
from tempo.loop_ir.codegen.syntax import assign, name
from tempo.loop_ir.ir import Buffer, Compute, PointIndex, Read, Statement


class ScalarEmitter(Emitter):
    """What emitters share that have forms of operators in their source."""

    _before: tuple[ast.stmt, ...] = ()
    """Block that the one being made needs before it."""

    def scalar(self, value: str) -> ast.expr:
        """A value without axes as one of NumPy's scalars: a hook."""
        return self.value(value)

    def on_scalars(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An operator's function, for NumPy's scalars: a hook."""
        return function

    def formed(self, compute: Compute, form: str) -> ast.expr:
        """The form of an operator with its operands."""
        counts = uses(form)
        operands = [self._operand(value, counts.get(place, 0)) for value, place in zip(compute.operands, "xyz")]
        names = {each: self._type(each) for each in counts if each in TYPES}
        if OPERATOR in counts:
            names[OPERATOR] = self.named(self.on_scalars(self.function_of(compute)), compute.op)
        return applied(form, operands, names)

    def _operand(self, value: str, uses: int) -> ast.expr:
        """An operand; what is read gets a name first where it is used more than once."""
        tree = self.scalar(value)
        if uses < 2 or isinstance(tree, ast.Name):
            return tree
        self._before = (*self._before, assign(name(value, ast.Store()), tree))
        return name(value)

    def _type(self, dtype: str) -> str:
        """The name of a type of scalars; all of them are TYPES' own objects."""
        return self.named(TYPES[dtype], dtype)

    def _statement(self, statement: Statement) -> list[ast.stmt]:
        trees = super()._statement(statement)
        before, self._before = self._before, ()
        return [*before, *trees]

    def element(self, compute: Compute, operands: Iterable[ast.expr], otherwise: ast.expr) -> ast.expr:
        """What a gather of one position reads; a position out of range is left to the operator."""
        (data, index), axis = operands, compute.attrs["axis"]
        size = self._resolve(compute.operand_types[0].shape[axis])
        place = self.names.fresh("place")
        known = ast.NamedExpr(name(place, ast.Store()), ast.Call(name("int"), [index], []))
        inside = ast.Compare(ast.Constant(0), [ast.LtE(), ast.Lt()], [known, ast.Constant(size)])
        return ast.IfExp(inside, along(data, axis, name(place)), otherwise)


def is_element(read: Read, buffer: Buffer) -> bool:
    """Whether one element of a buffer is read, of what has no axes of its own."""
    points = all(isinstance(entry, PointIndex) for entry in read.index)
    return bool(read.index) and points and not buffer.shape


def is_scalar_slot(buffer: Buffer) -> bool:
    return buffer.is_slot and not buffer.shape


def along(array: ast.expr, axis: int, place: ast.expr) -> ast.expr:
    """`array[:, :, place]`, with so many colons."""
    index = [*(ast.Slice() for _ in range(axis)), place]
    return ast.Subscript(array, place if not axis else ast.Tuple(index, ast.Load()), ast.Load())
