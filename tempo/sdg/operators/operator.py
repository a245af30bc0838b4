"""What the operator table says about one operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tempo.sdg.call import Call
from tempo.sdg.operators.axes import SIZE, Attrs, AxisRule, Fold, Infer, Shape, after_a_new_one
from tempo.symbolic import Condition, Expr, as_expr

T = TypeVar("T")
Function = Callable[..., Any]
Builder = Callable[[Call], Function]
Kind = Literal[
    "elementwise", "movement", "reduction", "scan", "contraction", "composite", "creation", "random", "indexing",
    "nominal",
]  # fmt: skip


@dataclass(frozen=True)
class Lifted:
    """How an operator is applied to operands with one more leading axis.

    `axis` is where that axis lies in the result, `at` where it must lie in the operands that have it. With `broadcast`,
    the others must be given it; those in `repeats` with a size of 1. It takes the operands in the `order` given.
    """

    attrs: Attrs
    axis: int = 0
    broadcast: bool = False
    at: int = 0
    repeats: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def ordered(self, operands: Sequence[T]) -> tuple[T, ...]:
        return tuple(operands[place] for place in self.order) if self.order else tuple(operands)


def _none_at_all(attrs: Attrs) -> int:
    return 0


LiftRule = Callable[[Attrs, tuple[bool, ...], tuple[int, ...], Expr], Lifted]


@dataclass(frozen=True)
class Operator:
    """Everything about one operator.

    infer         result type from attributes and operand types; raises `ShapeError`, `DTypeError`
    axes          how axes of operands reach the result, see `tempo.sdg.operators.axes`
    fold          of what REDUCING factors (and SCANNING ones) are made
    axis_attrs    the attributes that name axes, of operands or, those with an entry for each, of the result
    entries       the attributes with an entry for each axis, and that of an axis that is kept as it is: `SIZE`, or a
                  value
    decompose     what it is made of: of a composite for backends that do not take it whole (of none that passes make
                  only for those that do), of others for OPAQUE axes whose length varies
    cost          arithmetic operations of a call
    numpy         the meaning: a function of the arrays, then the run-time scalars
    least         how many elements along the axes that it folds or sorts it has no value without
    inserts       `lift` where it is more than a new axis in the attributes; none has it where `lift_note` says why
    scalar_attrs  the attributes whose expressions are passed at run time, in this order
    static_attrs  the attributes whose expressions must be numbers in a `Call`
    bounded       whether it gives something finite for what is infinite
    views         whether the result of the NumPy function may share memory with an operand
    gradient      the rule of reverse mode, see `tempo.sdg.operators.making`; None where `gradient_note` says why
    """

    name: str
    kind: Kind
    infer: Infer
    axes: AxisRule
    cost: Callable[[Call], float]
    numpy: Builder
    fold: Fold | None = None
    axis_attrs: tuple[str, ...] = ()
    entries: Mapping[str, Any] = field(default_factory=dict)
    inserts: LiftRule | None = None
    lift_note: str = ""
    least: Callable[[Attrs], int] = _none_at_all
    scalar_attrs: tuple[str, ...] = ()
    static_attrs: tuple[str, ...] = ()
    bounded: bool = False
    views: bool = False
    gradient: Callable[..., Any] | None = None
    gradient_note: str = ""
    decompose: Callable[..., Any] | None = None

    def lift(self, attrs: Attrs, lifted: tuple[bool, ...], ranks: tuple[int, ...], size: Expr) -> Lifted:
        """One more leading axis of `size`, kept, in the operands that are `lifted`; `ranks` are without it."""
        if self.inserts is not None:
            return self.inserts(attrs, lifted, ranks, size)
        changed = dict(attrs)
        for key in self.axis_attrs:
            changed[key] = after_a_new_one(changed[key])
        for key, entry in self.entries.items():
            changed[key] = (size if entry is SIZE else entry, *changed[key])
        return Lifted(changed, broadcast=self.kind != "elementwise")

    def resized(self, attrs: Attrs, shape: Shape) -> dict[str, Any]:
        """The attributes for a result of this shape."""
        return {**attrs, **{key: shape for key, entry in self.entries.items() if entry is SIZE}}

    @property
    def combine(self) -> str | None:
        """What makes the whole of what two parts of a folded axis gave; None where nothing does."""
        return None if self.fold is None else self.fold.combine

    @property
    def onto(self) -> int | None:
        """The operand that folded positions are added to."""
        return None if self.fold is None else self.fold.onto

    @property
    def adds_up(self) -> bool:
        """Whether the sum of what parts of a folded axis give is what all of it gives; `onto` counts once."""
        return self.combine == "add" or self.onto is not None

    def padding(self, dtype: str) -> bool | int | float | None:
        """What a folded or scanned axis is padded with, so that nothing changes; None where anything will do."""
        return None if self.fold is None or self.fold.neutral is None else self.fold.neutral(dtype)

    def scalars(self, attrs: Attrs) -> tuple[Expr | Condition, ...]:
        """What is passed at run time, after the arrays, in order."""
        values = (value for key in self.scalar_attrs if key in attrs for value in _items(attrs[key]))
        return tuple(value for value in values if _is_expression(value))

    def static(self, attrs: Attrs) -> tuple[Expr, ...]:
        """Expressions that must be numbers in a `Call`: lengths. Numbers among them are given as expressions."""
        values = (value for key in self.static_attrs if key in attrs for value in _items(attrs[key]))
        return tuple(as_expr(value) for value in values)

    def with_exprs(self, attrs: Attrs, rewrite: Callable[[Any], Any]) -> dict[str, Any]:
        """The attributes with every expression and condition replaced by `rewrite` of it.

        An expression that is passed at run time stays one: a number that `rewrite` gives for it becomes a constant.
        """
        attrs = _rewritten(attrs, self.scalar_attrs, lambda e: _as_expression(rewrite(e)))
        return _rewritten(attrs, self.static_attrs, rewrite)

    def resolve_static(self, attrs: Attrs, resolve: Callable[[Expr], int]) -> dict[str, Any]:
        """The attributes with every static expression replaced by its value; those passed at run time stay."""
        return _rewritten(attrs, self.static_attrs, lambda e: int(resolve(e)))


def _rewritten(attrs: Attrs, keys: tuple[str, ...], rewrite: Callable[[Any], Any]) -> dict[str, Any]:
    return {key: _map(value, rewrite) if key in keys else value for key, value in attrs.items()}


def _is_expression(value: Any) -> bool:
    return isinstance(value, (Expr, Condition))


def _as_expression(value: Any) -> Any:
    return value if _is_expression(value) else as_expr(value)


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _map(value: Any, rewrite: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(rewrite(item) if _is_expression(item) else item for item in value)
    return rewrite(value) if _is_expression(value) else value
