"""Of a test with several parameters, so many combinations that each value of each is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

import pytest

Value = tuple[Hashable, ...]
"""What one `parametrize` gives: its names, and which objects."""

Each = TypeVar("Each", bound=Hashable)


def each_value(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Those that stay; what is left out differs from them in nothing but how values are combined."""
    of_test: dict[tuple[Any, str], dict[pytest.Item, frozenset[Value]]] = defaultdict(dict)
    for item in items:
        of_test[item.parent, getattr(item, "originalname", item.name)][item] = _values(item)
    return {item for values in of_test.values() for item in covering(values)}


def covering(values: Mapping[Each, frozenset[Value]]) -> list[Each]:
    """So few, taken in turn by how much is new in them, that all values are there."""
    left, missing, taken = dict(values), frozenset[Value]().union(*values.values()), list[Each]()
    while left and (missing or not taken):
        most = max(left, key=lambda each: len(left[each] & missing))
        missing -= left.pop(most)
        taken.append(most)
    return taken


def _values(item: pytest.Item) -> frozenset[Value]:
    left = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    found = set[Value]()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        found.add(_value({name: left.pop(name) for name in map(str.strip, names)}))
    return frozenset(found | {_value({name: value}) for name, value in left.items()})


def _value(given: Mapping[str, object]) -> Value:
    """Objects are told apart by identity: each stands in many combinations, and may have no equality of its own."""
    return (*given, *map(id, given.values()))
