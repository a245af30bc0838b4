"""Of combinations of parameters so few stay that each value is there."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tempo.conformance.parameters import covering, each_value


def taken(combinations: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return covering({each: frozenset(enumerate(each)) for each in combinations})


class Item(SimpleNamespace):
    """What is asked of a test: `axes` are the names of each `parametrize`, `params` what this one has."""

    __hash__ = object.__hash__

    def iter_markers(self, name: str) -> list[Any]:
        return [getattr(pytest.mark, name)(names, ()).mark for names in self.axes]


def item(test: str, axes: list[str], **params: object) -> Item:
    return Item(parent=None, name=test, originalname=test, axes=axes, callspec=SimpleNamespace(params=params))


def test_combinations_are_as_many_as_the_longest_axis_has_values() -> None:
    found = taken(list(product("abc", "xy", "12")))
    assert len(found) == 3
    assert [set(axis) for axis in zip(*found)] == [set("abc"), set("xy"), set("12")]


def test_values_of_one_axis_all_stay() -> None:
    assert taken(list(product("abc"))) == [("a",), ("b",), ("c",)]


def test_one_without_parameters_stays() -> None:
    assert taken([()]) == [()]


def test_values_that_are_given_together_are_one() -> None:
    pairs = [item("pairs", ["x, y"], x=x, y=y) for x, y in product("ab", "cd")]
    crossed = [item("crossed", ["x", "y"], x=x, y=y) for x, y in product("ab", "cd")]
    kept: Any = each_value([*pairs, *crossed])  # type: ignore[list-item]
    assert kept == {*pairs, crossed[0], crossed[3]}


def test_values_that_no_mark_names_are_axes_too() -> None:
    items = [item("edges", ["way"], way=way, edge=edge) for way, edge in product("ab", range(3))]
    assert len(each_value(items)) == 3  # type: ignore[arg-type]
