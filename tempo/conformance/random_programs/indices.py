"""Index expressions: what may stand for a dim when a tensor is read, and where that is in range."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tempo.conformance.random_programs.choices import Choices


@dataclass(frozen=True)
class Index:
    """Python source of a point or slice, with the conditions under which it is in range.

    `may_be_empty` says that a slice has no elements at some point.
    """

    source: str
    needs: tuple[str, ...] = ()
    slice: bool = False
    may_be_empty: bool = False


def substituted(source: str, dim: str, replacement: str) -> str:
    """`source` with `(replacement)` for the dim, and not for its size."""
    return re.sub(rf"\b{dim}\b(?!\.size)", f"({replacement})", source)


def points(dim: str, others: tuple[str, ...], choices: Choices) -> Index:
    """A point of `dim`, by expressions over it and the other dims of the program."""
    k = choices.number(1, 3)
    t, size = dim, f"{dim}.size"
    menu = [
        (6, Index(f"{t} - {k}", (f"{t} >= {k}",))),
        (4, Index(f"{t} + {k}", (f"{t} < {size} - {k}",))),
        (3, Index("0")),
        (2, Index(f"{size} - 1")),
        (1, Index("-1")),
        (1, Index(f"{k}", (f"{size} > {k}",))),
        (1, Index(f"{size} - {k}", (f"{size} >= {k}",))),
        (3, Index(f"{size} - 1 - {t}")),
        (3, Index(f"tp.max({t} - {k}, 0)")),
        (3, Index(f"tp.min({t} + {k}, {size} - 1)")),
        (2, Index(f"{t} % {k + 1}")),
        (2, Index(f"{t} // {k + 1}")),
        (1, Index(f"({t} // 2) * 2")),
        (2, Index(f"2 * {t}", (f"2 * {t} < {size}",))),
        (1, Index(f"2 * {t} + 1", (f"2 * {t} + 1 < {size}",))),
        (1, Index(f"({t} + {k}) % 2", (f"{size} > 1",))),
        (1, Index(f"tp.max(tp.min({t} + 1, {size} - {k}), 0)")),
    ]
    for s in others:
        menu += [
            (2, Index(f"tp.min({s}, {size} - 1)")),
            (1, Index(s, (f"{s} < {size}",))),
            (1, Index(f"{t} - {s}", (f"{t} >= {s}",))),
            (1, Index(f"{t} + {s}", (f"{t} + {s} < {size}",))),
        ]
    return choices.weighted(menu)


def slices(dim: str, others: tuple[str, ...], choices: Choices) -> Index:
    """A slice of `dim`."""
    k = choices.number(1, 3)
    t, size = dim, f"{dim}.size"
    block = f"({t} // {k + 1}) * {k + 1}"
    menu = [
        (5, Index(f"0:{t} + 1")),
        (4, Index("0:" + size)),
        (2, Index(":")),
        (3, Index(f"{t}:{size}")),
        (4, Index(f"tp.max({t} - {k}, 0):{t} + 1")),
        (4, Index(f"{t}:tp.min({t} + {k + 1}, {size})")),
        (2, Index(f"0:{t}", may_be_empty=True)),
        (2, Index(f"{t} + 1:{size}", may_be_empty=True)),
        (2, Index(f"{block}:tp.min({block} + {k + 1}, {size})")),
        (1, Index(f"{block}:{t} + 1")),
        (2, Index(f"{t} - {k}:{t} + 1", (f"{t} >= {k}",))),
        (1, Index(f"{t}:{t} + {k}", (f"{t} + {k} <= {size}",))),
        (1, Index(f"1:{size}", may_be_empty=True)),
        (1, Index(f"0:{size} - 1", may_be_empty=True)),
        (1, Index(f"0:{k}", (f"{size} >= {k}",))),
        (1, Index("0:1")),
        (1, Index(f"tp.max({t} - {k}, 0):tp.min({t} + {k}, {size})")),
        (1, Index(f"{size} - 1 - {t}:{size}")),
        (1, Index(f"0:{t} // 2 + 1")),
        (1, Index(f"tp.min({t} + {k}, {size}):{size}", may_be_empty=True)),
    ]
    for s in others:
        menu += [
            (1, Index(f"0:tp.min({s} + 1, {size})")),
            (1, Index(f"0:{s}", (f"{s} <= {size}",), may_be_empty=True)),
            (1, Index(f"tp.min({s}, {size} - 1):{size}")),
            (1, Index(f"tp.min({s}, {t}):{t} + 1")),
        ]
    return _as_slice(choices.weighted(menu))


def _as_slice(index: Index) -> Index:
    return Index(index.source, index.needs, True, index.may_be_empty)


def earlier_points(dim: str, lag: int, backward: bool, choices: Choices) -> Index:
    """A point strictly before the target `dim + lag` (after it, if backward), which is what a recurrence may read."""
    k = choices.number(1, 3)
    t, size = dim, f"{dim}.size"
    if backward:
        offset = k - lag
        menu = [
            (8, _shifted(t, offset, size)),
            (2, Index(f"tp.min({_plus(t, offset)}, {size} - 1)", (f"{t} < {size} - 1",))),
            (1, Index(f"{size} - 1", (f"{_plus(t, -lag)} < {size} - 1",))),
        ]
        return choices.weighted(menu)
    offset = lag - k
    target = _plus(t, lag)
    menu = [
        (8, _shifted(t, offset, size)),
        (3, Index(f"tp.max({_plus(t, offset)}, 0)", (f"{target} >= 1",))),
        (2, Index(f"({target}) // 2", (f"{target} >= 1",))),
        (1, Index("0", (f"{target} >= 1",))),
        (1, Index(f"(({target}) // {k + 1}) * {k + 1}", (f"({target}) % {k + 1} > 0",))),
    ]
    return choices.weighted(menu)


def earlier_slices(dim: str, lag: int, backward: bool, choices: Choices) -> Index:
    """A slice of points strictly before the target `dim + lag` (after it, if backward)."""
    k = choices.number(1, 3)
    t, size = dim, f"{dim}.size"
    if backward:
        after = _plus(t, 1 - lag)
        menu = [
            (3, Index(f"{after}:{size}", slice=True, may_be_empty=True)),
            (3, Index(f"{after}:{size}", (f"{t} < {size} - 1",), slice=True)),
            (3, Index(f"{after}:tp.min({_plus(t, k + 1 - lag)}, {size})", slice=True, may_be_empty=True)),
        ]
        return choices.weighted(menu)
    target = _plus(t, lag)
    menu = [
        (4, Index(f"0:{target}", slice=True, may_be_empty=True)),
        (4, Index(f"0:{target}", (f"{target} >= 1",), slice=True)),
        (4, Index(f"tp.max({target} - {k}, 0):{target}", slice=True, may_be_empty=True)),
        (2, Index(f"tp.max({target} - {k}, 0):{target}", (f"{target} >= 1",), slice=True)),
        (2, Index(f"{target} - {k}:{target}", (f"{target} >= {k}",), slice=True)),
    ]
    return choices.weighted(menu)


def _plus(t: str, offset: int) -> str:
    return t if offset == 0 else f"{t} {'+' if offset > 0 else '-'} {abs(offset)}"


def _shifted(t: str, offset: int, size: str) -> Index:
    if offset == 0:
        return Index(t)
    if offset > 0:
        return Index(_plus(t, offset), (f"{t} < {size} - {offset}",))
    return Index(_plus(t, offset), (f"{t} >= {-offset}",))
