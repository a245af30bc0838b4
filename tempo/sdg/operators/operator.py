"""What the operator table says about one operator."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.symbolic import Condition, Expr, as_expr

Attrs = Mapping[str, Any]
Function = Callable[..., Any]
Builder = Callable[[Call], Function]
Kind = Literal[
    "elementwise", "movement", "reduction", "scan", "contraction", "composite", "creation", "random", "indexing",
    "nominal",
]  # fmt: skip


class Role(enum.Enum):
    """What an operator does along one axis of one operand.

    PARALLEL   position i of the axis reaches only position i of an axis of the result
    REDUCING   the axis is folded; padding with the neutral element changes nothing
    SCANNING   position i reaches the positions from i on; padding at the end changes nothing before it
    MOVING     positions are moved, dropped, inserted or added to their neighbours, by an amount that attributes and
               the sizes of other operands say
    OPAQUE     none of these
    """

    PARALLEL = "parallel"
    REDUCING = "reducing"
    SCANNING = "scanning"
    MOVING = "moving"
    OPAQUE = "opaque"


Roles = tuple[tuple[Role, ...], ...]


@dataclass(frozen=True)
class Lifted:
    """How an operator is applied to operands with one more leading axis.

    `axis` is where that axis lies in the result, `at` where it must lie in the operands that have it. With `broadcast`,
    the others must be given it; those in `repeats` with a size of 1.
    """

    attrs: Attrs
    axis: int = 0
    broadcast: bool = False
    at: int = 0
    repeats: tuple[int, ...] = ()


LiftRule = Callable[[Attrs, tuple[bool, ...], tuple[int, ...], Expr], Lifted]


@dataclass(frozen=True)
class Operator:
    """Everything about one operator.

    infer         result type from attributes and operand types; raises `ShapeError`, `DTypeError`
    roles         per operand, per axis, from attributes and operand ranks
    decompose     what it is made of: of a composite for backends that do not take it whole, of others for OPAQUE axes
                  whose length varies
    typed_roles   the same from attributes and operand types, where the sizes tell more than the ranks; see `roles_for`
    cost          arithmetic operations of a call
    numpy         the meaning: a function of the arrays, then the run-time scalars
    lift          see `Lifted`; None where `lift_note` says why
    neutral       what a REDUCING axis is padded with, from the dtype
    scalar_attrs  the attributes whose expressions are passed at run time, in this order
    static_attrs  the attributes whose expressions must be numbers in a `Call`
    views         whether the result of the NumPy function may share memory with an operand
    gradient      the rule of reverse mode, see `tempo.sdg.operators.gradients`; None where `gradient_note` says why
    """

    name: str
    kind: Kind
    infer: Callable[[Attrs, tuple[TensorType, ...]], TensorType]
    roles: Callable[[Attrs, tuple[int, ...]], Roles]
    cost: Callable[[Call], float]
    numpy: Builder
    lift: LiftRule | None = None
    lift_note: str = ""
    neutral: Callable[[str], bool | int | float] | None = None
    scalar_attrs: tuple[str, ...] = ()
    static_attrs: tuple[str, ...] = ()
    views: bool = False
    gradient: Callable[..., Any] | None = None
    gradient_note: str = ""
    decompose: Callable[..., Any] | None = None
    typed_roles: Callable[[Attrs, tuple[TensorType, ...]], Roles] | None = None

    def roles_for(self, attrs: Attrs, operands: tuple[TensorType, ...]) -> Roles:
        """The most that is known of the roles: `typed_roles` where there is such a rule, else `roles`."""
        if self.typed_roles is not None:
            return self.typed_roles(attrs, operands)
        return self.roles(attrs, tuple(len(operand.shape) for operand in operands))

    def scalars(self, attrs: Attrs) -> tuple[Expr | Condition, ...]:
        """What is passed at run time, after the arrays, in order."""
        return tuple(e for key in self.scalar_attrs if key in attrs for e in _expressions(attrs[key]))

    def static(self, attrs: Attrs) -> tuple[Expr, ...]:
        """Expressions that must be numbers in a `Call`: lengths. Numbers among them are given as expressions."""
        values = (value for key in self.static_attrs if key in attrs for value in _items(attrs[key]))
        return tuple(as_expr(value) for value in values)

    def with_exprs(self, attrs: Attrs, rewrite: Callable[[Any], Any]) -> dict[str, Any]:
        """The attributes with every expression and condition replaced by `rewrite` of it.

        An expression that is passed at run time stays one: a number that `rewrite` gives for it becomes a constant.
        """
        replaced = dict(attrs)
        for key in self.scalar_attrs:
            if key in replaced:
                replaced[key] = _map(replaced[key], lambda e: _as_expression(rewrite(e)))
        for key in self.static_attrs:
            if key in replaced:
                replaced[key] = _map(replaced[key], rewrite)
        return replaced

    def resolve_static(self, attrs: Attrs, resolve: Callable[[Expr], int]) -> dict[str, Any]:
        """The attributes with every static expression replaced by its value; those passed at run time stay."""
        resolved = dict(attrs)
        for key in self.static_attrs:
            if key in resolved:
                resolved[key] = _map(resolved[key], lambda e: int(resolve(e)))
        return resolved


def _is_expression(value: Any) -> bool:
    return isinstance(value, (Expr, Condition))


def _as_expression(value: Any) -> Any:
    return value if _is_expression(value) else as_expr(value)


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _expressions(value: Any) -> tuple[Any, ...]:
    return tuple(item for item in _items(value) if _is_expression(item))


def _map(value: Any, rewrite: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(rewrite(item) if _is_expression(item) else item for item in value)
    return rewrite(value) if _is_expression(value) else value
