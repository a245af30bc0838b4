"""Slices that are together all of a value, as views that are made at once: the gates of a cell, which are one product,
say. Each for itself they take twice as long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from tempo.backends.emission import blocks, cut_axes, starts
from tempo.backends.loop_ir import Compute, Segment, Statement, walk
from tempo.symbolic import const


@dataclass(frozen=True)
class Split:
    """`results`, of these lengths, lie one behind the other along `axis` of `operand`, and are all of it. `first` is
    wanted before the others."""

    operand: str
    axis: int
    results: tuple[str, ...]
    lengths: tuple[int, ...]
    first: str


def splits(segment: Segment, others: Container[str]) -> Mapping[str, Split]:
    """By the result of a slice, what it is a part of; none of `others`, nor of what several places make. All parts may
    be made where the first is: as long as a value is looked at, what it holds stays the same."""
    body = (segment.loop,) if segment.loop else segment.body
    places = Counter(each.result for each in walk(body) if isinstance(each, Compute))
    found = (split for block in blocks(body) for split in _in_block(block, others))
    alone = (split for split in found if all(places[result] == 1 for result in split.results))
    return {result: split for split in alone for result in split.results}


def _in_block(block: tuple[Statement, ...], others: Container[str]) -> Iterator[Split]:
    parts: dict[tuple[str, int], list[Compute]] = {}
    for each in block:
        if isinstance(each, Compute) and each.op == "slice" and each.result not in others:
            axes = cut_axes(each)
            if len(axes) == 1 and each.attrs["steps"][axes[0]] == 1:
                parts.setdefault((each.operands[0], axes[0]), []).append(each)
    for (operand, axis), cuts in parts.items():
        lengths = _lengths(cuts, axis)
        if len(lengths) > 1:
            yield Split(operand, axis, tuple(lengths), tuple(lengths.values()), cuts[0].result)


def _lengths(cuts: list[Compute], axis: int) -> Mapping[str, int]:
    """By result, in the order in which they lie; of none where they are not known to be together all of the axis."""
    bounds = [(starts(cut)[axis], cut.type.shape[axis]) for cut in cuts]
    if not all(start.is_const and length.is_const for start, length in bounds):
        return {}
    known = sorted((start.as_int(), length.as_int(), cut.result) for (start, length), cut in zip(bounds, cuts))
    ends = [start + length for start, length, _ in known]
    size = cuts[0].operand_types[0].shape[axis]
    is_all = [start for start, _, _ in known] == [0, *ends[:-1]] and size == const(ends[-1])
    return {result: length for _, length, result in known} if is_all else {}
