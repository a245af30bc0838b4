"""An emitter for backends whose generated source computes on NumPy's scalars: operators on them as Python's own.

NumPy answers `x + y` of two scalars in a tenth of the time that `np.add(x, y)` takes, with the same bits. Only what has
the same bits whoever computes it has a form: sums, comparisons, choices, not sines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tempo import dtypes
from tempo.loop_ir.codegen.python import Emitter
from tempo.loop_ir.codegen.syntax import assign, name
from tempo.loop_ir.ir import Buffer, Compute, PointIndex, Read, Statement
from tempo.symbolic import syntax_tree

OPERATOR = "operator"
"""In a form: the function of the operator itself."""

_FORMS: Mapping[str, Mapping[str, str]] = {
    "lt": {"float int": "x < y"},
    "le": {"float int": "x <= y"},
    "gt": {"float int": "x > y"},
    "ge": {"float int": "x >= y"},
    "eq": {"float int": "x == y"},
    "ne": {"float int": "x != y", "bool": "x ^ y"},
    "isnan": {"float": "x != x"},
    "neg": {"float int": "-x"},
    "abs": {"float int": "abs(x)"},
    "add": {"float int": "x + y", "bool": "x | y"},
    "sub": {"float int": "x - y"},
    "mul": {"float int": "x * y", "bool": "x & y"},
    "div": {"float": "x / y"},
    "floordiv": {"int": "x // y"},
    "mod": {"int": "x % y"},
    # Of floats that are equal one may be -0.0, and what is neither less nor greater may be NaN.
    "maximum": {
        "float": f"x if x > y else y if y > x else {OPERATOR}(x, y)", "int": "x if x > y else y", "bool": "x | y",
    },
    "minimum": {
        "float": f"x if x < y else y if y < x else {OPERATOR}(x, y)", "int": "x if x < y else y", "bool": "x & y",
    },
    "bitwise_and": {"int bool": "x & y"},
    "bitwise_or": {"int bool": "x | y"},
    "bitwise_xor": {"int bool": "x ^ y"},
    "bitwise_not": {"int": "~x"},
    "shift_left": {"int": "x << y"},
    "shift_right": {"int": "x >> y"},
    "logical_and": {"bool": "x & y"},
    "logical_or": {"bool": "x | y"},
    "logical_xor": {"bool": "x ^ y"},
    "where": {"bool": "y if x else z"},
    "reshape": {"float int bool": "x"},
}  # fmt: skip
"""By operator, and by the kinds of the first operand."""


def form_of(compute: Compute) -> str | None:
    """A Python expression of the operands `x`, `y` and `z`, all of them scalars; None where there is none.

    The name `operator` is the operator's function there, and a dtype's name the type of its scalars.
    """
    if compute.type.shape or any(type.shape for type in compute.operand_types) or not compute.operand_types:
        return None
    found = [type.dtype for type in (*compute.operand_types, compute.type)]
    if not all(dtype in _NATIVE for dtype in found):
        return None
    if compute.op == "cast":
        return _cast(found[0], found[1])
    kind, forms = _kind(found[0]), _FORMS.get(compute.op, {})
    return next((form for kinds, form in forms.items() if kind in kinds.split()), None)


_NATIVE = frozenset(set(dtypes.DTYPES) - {"float16", "bfloat16"})
"""The dtypes whose scalars are NumPy's own and no halves."""


def has_scalars(dtype: str) -> bool:
    """Whether forms take values of the dtype."""
    return dtype in _NATIVE


def _kind(dtype: str) -> str:
    return "int" if dtypes.is_integer(dtype) else "float" if dtypes.is_float(dtype) else "bool"


def _cast(source: str, target: str) -> str | None:
    """Floats saturate where they become integers."""
    if source == target:
        return "x"
    return None if dtypes.is_float(source) and dtypes.is_integer(target) else f"{target}(x)"


TYPES: Mapping[str, Any] = {dtype: dtypes.to_numpy(dtype).type for dtype in sorted(_NATIVE)}
"""What a form's names of dtypes are."""


def applied(form: str, operands: Sequence[ast.expr], names: Mapping[str, str]) -> ast.expr:
    """The form with the operands in place, and other names as `names` has them."""
    given = dict(zip("xyz", operands))

    class Placed(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return given.get(node.id) or ast.Name(names.get(node.id, node.id), ast.Load())

    tree: ast.expr = Placed().visit(syntax_tree(form))
    return tree


def uses(form: str) -> Mapping[str, int]:
    """How often each name stands in a form."""
    names = [node.id for node in ast.walk(syntax_tree(form)) if isinstance(node, ast.Name)]
    return {name: names.count(name) for name in names}


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
        given = map(self._expr, compute.scalars)  # how many positions count
        size = next(given, ast.Constant(self._resolve(compute.operand_types[0].shape[axis])))
        place = self.names.fresh("place")
        known = ast.NamedExpr(name(place, ast.Store()), ast.Call(name("int"), [index], []))
        inside = ast.Compare(ast.Constant(0), [ast.LtE(), ast.Lt()], [known, size])
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
