"""Slices that are together all of a value, as views that are made at once: the gates of a cell, which are one product,
say. Each for itself they take twice as long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tempo.backends.emission import blocks
from tempo.backends.loop_ir import Compute, Segment, Statement, walk
from tempo.symbolic import as_expr


@dataclass(frozen=True)
class Split:
    """`results`, of these lengths, lie one behind the other along `axis` of `operand`, and are all of it. `first` is
    wanted before the others."""

    operand: str
    axis: int
    results: tuple[str, ...]
    lengths: tuple[int, ...]
    first: str


class _Part(NamedTuple):
    """Positions of one axis, all of the others."""

    axis: int
    start: int
    stop: int
    result: str


def splits(segment: Segment, others: Container[str]) -> Mapping[str, Split]:
    """By the result of a slice, what it is a part of; none of `others`, nor of what several places make. All parts may
    be made where the first is: as long as a value is looked at, what it holds stays the same."""
    body = (segment.loop,) if segment.loop else segment.body
    places = Counter(each.result for each in walk(body) if isinstance(each, Compute))
    found = (split for block in blocks(body) for split in _in_block(block, others))
    alone = (split for split in found if all(places[result] == 1 for result in split.results))
    return {result: split for split in alone for result in split.results}


def _in_block(block: tuple[Statement, ...], others: Container[str]) -> Iterator[Split]:
    parts: dict[tuple[str, int, int], list[_Part]] = {}
    for statement in block:
        if not isinstance(statement, Compute) or statement.op != "slice" or statement.result in others:
            continue
        if (part := _part(statement)) is not None:
            size = statement.operand_types[0].shape[part.axis].as_int()
            parts.setdefault((statement.operands[0], part.axis, size), []).append(part)
    for (operand, axis, size), some in parts.items():
        first = some[0].result
        some.sort(key=lambda part: part.start)
        is_all = some[0].start == 0 and some[-1].stop == size
        if is_all and len(some) > 1 and all(one.stop == next.start for one, next in pairwise(some)):
            lengths = tuple(part.stop - part.start for part in some)
            yield Split(operand, axis, tuple(part.result for part in some), lengths, first)


def _part(cut: Compute) -> _Part | None:
    lengths, sizes = cut.type.shape, cut.operand_types[0].shape
    axes = enumerate(zip(map(as_expr, cut.attrs["starts"]), cut.attrs["steps"], lengths, sizes, strict=True))
    partial = [(axis, *each) for axis, each in axes if each != (as_expr(0), 1, each[3], each[3])]
    if len(partial) != 1:
        return None
    axis, start, step, length, size = partial[0]
    if step != 1 or not (start.is_const and length.is_const and size.is_const):
        return None
    return _Part(axis, start.as_int(), start.as_int() + length.as_int(), cut.result)
