"""Sets of points and of pairs of points, made from conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import islpy as isl

from tempo.symbolic import Condition, Expr, Symbol
from tempo.symbolic.condition import And, Constant, Eq, Ge, Or
from tempo.symbolic.expr import Atom, FloorDiv, Max, Min, Mod
from tempo_polyhedral.isl.errors import IslError, told

_IN, _OUT, _SET, _PARAM = isl.dim_type.in_, isl.dim_type.out, isl.dim_type.set, isl.dim_type.param


@dataclass(frozen=True)
class Domain:
    """Instances of one statement: `condition` over its dims and the parameters."""

    name: str
    dims: tuple[Symbol, ...]
    points: Any = field(repr=False)

    def __str__(self) -> str:
        return str(self.points)


@dataclass(frozen=True)
class Relation:
    """Pairs of instances of two statements."""

    source: str
    target: str
    pairs: Any = field(repr=False)

    def is_empty(self) -> bool:
        with told():
            return bool(self.pairs.is_empty())

    def union(self, other: Relation) -> Relation:
        with told():
            return Relation(self.source, self.target, self.pairs.union(other.pairs))

    def within(self, source: Domain, target: Domain) -> Relation:
        with told():
            pairs = self.pairs.intersect_domain(source.points).intersect_range(target.points)
            return Relation(self.source, self.target, pairs)

    def __str__(self) -> str:
        return str(self.pairs)


@dataclass(frozen=True)
class Parameters:
    """The sizes, in one order for all sets of a problem."""

    symbols: tuple[Symbol, ...]

    def context(self, condition: Condition) -> Any:
        """What is known of the parameters alone."""
        with told():
            return self._set((), condition).params()

    def domain(self, name: str, dims: Sequence[Symbol], condition: Condition) -> Domain:
        with told():
            return Domain(name, tuple(dims), self._set(dims, condition).set_tuple_name(name))

    def relation(
        self, source: tuple[str, Sequence[Symbol]], target: tuple[str, Sequence[Symbol]], condition: Condition
    ) -> Relation:
        """The pairs for which `condition`, over the dims of both (which differ) and the parameters, holds."""
        (first, before), (second, after) = source, target
        with told():
            pairs = isl.Map.from_range(self._set((*before, *after), condition))
            pairs = pairs.move_dims(_IN, 0, _OUT, 0, len(before))
            return Relation(first, second, pairs.set_tuple_name(_IN, first).set_tuple_name(_OUT, second))

    def _set(self, dims: Sequence[Symbol], condition: Condition) -> Any:
        space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, len(self.symbols), len(dims))
        for position, symbol in enumerate(self.symbols):
            space = space.set_dim_name(_PARAM, position, str(symbol))
        where = {symbol: (_PARAM, position) for position, symbol in enumerate(self.symbols)}
        where.update({symbol: (_SET, position) for position, symbol in enumerate(dims)})
        return _Sets(space, where).of(condition)


@dataclass(frozen=True)
class _Sets:
    """Conditions as sets of one space."""

    space: Any
    where: Mapping[Symbol, tuple[Any, int]]

    def of(self, condition: Condition) -> Any:
        match condition:
            case Constant(value=True):
                return isl.Set.universe(self.space)
            case Constant():
                return isl.Set.empty(self.space)
            case And(args=args):
                found = self.of(args[0])
                for arg in args[1:]:
                    found = found.intersect(self.of(arg))
                return found
            case Or(args=args):
                found = self.of(args[0])
                for arg in args[1:]:
                    found = found.union(self.of(arg))
                return found
            case Ge(expr=expr):
                value = self.value(expr)
                return value.ge_set(self._number(0)) if isinstance(value, isl.Aff) else value.nonneg_set()
            case Eq(expr=expr):
                value = self.value(expr)
                return value.eq_set(self._number(0)) if isinstance(value, isl.Aff) else value.zero_set()
        raise IslError(f"no set of the condition {condition}")

    def value(self, expr: Expr) -> Any:
        """An `isl.Aff`, or an `isl.PwAff` where there is a min or max."""
        total = self._number(expr.const)
        for atom, factor in expr.terms:
            if isinstance(atom, Symbol):
                kind, position = self.where[atom]
                kind = _IN if kind == _SET else kind  # an Aff has its set's dims as input
                total = total.add_coefficient_val(kind, position, factor) if isinstance(total, isl.Aff) else (
                    total.add(self._variable(atom).scale_val(factor))
                )  # fmt: skip
            else:
                total = _add(total, self._composite(atom).scale_val(isl.Val(factor)))
        return total

    def _composite(self, atom: Atom) -> Any:
        match atom:
            case FloorDiv(expr=expr, divisor=divisor):
                return self.value(expr).scale_down_val(isl.Val(divisor)).floor()
            case Mod(expr=expr, divisor=divisor):
                return self.value(expr).mod_val(isl.Val(divisor))
            case Min(args=args) | Max(args=args):
                values = [self.value(arg) for arg in args]
                pieces = [isl.PwAff.from_aff(value) if isinstance(value, isl.Aff) else value for value in values]
                found = pieces[0]
                for piece in pieces[1:]:
                    found = found.min(piece) if isinstance(atom, Min) else found.max(piece)
                return found
        raise IslError(f"no value of {atom}")

    def _number(self, number: int) -> Any:
        return isl.Aff.val_on_domain(isl.LocalSpace.from_space(self.space), isl.Val(number))

    def _variable(self, symbol: Symbol) -> Any:
        kind, position = self.where[symbol]
        return isl.Aff.var_on_domain(isl.LocalSpace.from_space(self.space), kind, position)


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, isl.Aff) and isinstance(b, isl.Aff):
        return a.add(b)
    a, b = (isl.PwAff.from_aff(each) if isinstance(each, isl.Aff) else each for each in (a, b))
    return a.add(b)
