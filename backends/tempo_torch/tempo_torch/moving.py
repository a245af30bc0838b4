"""Numbers that lie on the device: where a loop is, and what is computed of that."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

import torch

from tempo.symbolic import Condition, Expr, Symbol, as_expr, to_python

REACH = 128
"""How far from a position its neighbours are there without being computed."""


class Position:
    """Where a loop is: an integer on the device, with those around it, so that `t + 1` is a view."""

    def __init__(self, device: torch.device) -> None:
        self._distances = torch.arange(-REACH, REACH + 1, device=device)
        self._around = self._distances.clone()

    def set(self, value: int) -> None:
        self._around.copy_(self._distances + value)

    def advance(self, distance: int) -> None:
        self._around.add_(distance)

    def at(self, distance: int) -> torch.Tensor:
        """The integer so far from it, along an axis of size 1."""
        if abs(distance) > REACH:
            return self._around.narrow(0, REACH, 1) + distance
        return self._around.narrow(0, REACH + distance, 1)


@dataclass(frozen=True)
class Place:
    """So far from a position."""

    position: Position
    distance: int = 0

    def at(self, distance: int) -> torch.Tensor:
        return self.position.at(self.distance + distance)


@dataclass(eq=False)
class Moving:
    """A length on the device, a tensor without axes, and a number that it is at most."""

    length: torch.Tensor
    most: int
    _inside: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def inside(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Which of so many positions are before it, and which are not: made once for all that ask."""
        if count not in self._inside:
            before = torch.arange(count, device=self.length.device) < self.length
            self._inside[count] = before, before.logical_not()
        return self._inside[count]


Number = int | torch.Tensor
"""A tensor has one element, along an axis of size 1."""
Values = Mapping[Symbol, int | Place]
Points = Mapping[Symbol, int]


def number(expr: Expr, values: Values) -> Number:
    """The value of an expression."""
    moving = [symbol for symbol in expr.symbols() if isinstance(values[symbol], Place)]
    if len(moving) == 1:
        rest, place = expr - as_expr(moving[0]), values[moving[0]]
        if moving[0] not in rest.symbols() and isinstance(place, Place):
            return place.at(int(evaluated(rest, values)))
    known = {symbol: value.at(0) if isinstance(value := values[symbol], Place) else value for symbol in expr.symbols()}
    found: Number = evaluated(expr, known)
    return found


def evaluated(value: Expr | Condition, values: Mapping[Symbol, Any]) -> Any:
    """At integers, and tensors of them."""
    symbols, function = _compiled(value)
    return function(*(values[symbol] for symbol in symbols))


@lru_cache(1 << 14)
def _compiled(value: Expr | Condition) -> tuple[tuple[Symbol, ...], Callable[..., Any]]:
    symbols = tuple(sorted(value.symbols()))
    names = {symbol: f"v{at}" for at, symbol in enumerate(symbols)}
    parameters = ast.arguments([], [ast.arg(each) for each in names.values()], None, [], [], None, [])
    tree = ast.Expression(ast.Lambda(parameters, to_python(value, names.__getitem__)))
    code = compile(ast.fix_missing_locations(tree), "<expression>", "eval")
    function: Callable[..., Any] = eval(code, {"min": _least, "max": _greatest})  # noqa: S307 - our own text
    return symbols, function


def _least(*values: Number) -> Number:
    return reduce(_lesser, values)


def _greatest(*values: Number) -> Number:
    return -reduce(_lesser, (-value for value in values))


def _lesser(one: Number, other: Number) -> Number:
    if isinstance(one, torch.Tensor):
        return torch.minimum(one, other) if isinstance(other, torch.Tensor) else one.clamp(max=other)
    return _lesser(other, one) if isinstance(other, torch.Tensor) else min(one, other)


def bucket(length: int) -> int:
    """At least the length, one of four in each power of two, and no less than 64."""
    step = max(64, 1 << max(0, (length - 1).bit_length() - 3))
    return -(-length // step) * step
