"""What lives when, over the moments of a run without contents (`tempo.loop_ir.analysis.heap`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import zip_longest

from tempo.loop_ir.analysis.heap import Heap, Piece
from tempo.runtime.report.contents import NOWHERE, Band, Lifetimes, Track
from tempo.runtime.report.sources import Sources

_Place = tuple[str, ...]


def lifetimes_of(heap: Heap, estimated: bool, sources: Sources) -> Lifetimes:
    lives = list(_lives(heap))
    groups: dict[Hashable, list[tuple[Piece, int, int]]] = {}
    for piece, start, stop in lives:
        groups.setdefault(_thing(heap, piece), []).append((piece, start, stop))
    numbers = {thing: number for number, thing in enumerate(groups)}
    at_peak = Counter[int]()
    for piece in heap.at_peak:
        if piece.bytes:
            at_peak[numbers[_thing(heap, piece)]] += piece.bytes
    live = tuple(moment.bytes for moment in heap.moments)
    return Lifetimes(
        live,
        tuple(_bands(heap)),
        tuple(_track(heap, group, sources) for group in groups.values()),
        max(range(len(live)), key=live.__getitem__, default=NOWHERE),
        tuple(at_peak.most_common()),
        estimated,
    )


def _lives(heap: Heap) -> Iterator[tuple[Piece, int, int]]:
    """Every piece, with the moments at which it is made and let go of; at the end all that is left goes."""
    since: dict[Piece, int] = {}
    ended: list[tuple[int, Piece, int]] = []
    for number, moment in enumerate(heap.moments):
        if moment.made:
            since[moment.piece] = number
        else:
            ended.append((since.pop(moment.piece), moment.piece, number))
    ended += [(start, piece, len(heap.moments)) for piece, start in since.items()]
    for start, piece, stop in sorted(ended, key=lambda each: each[0]):
        yield piece, start, stop


def _buffer(heap: Heap, piece: Piece) -> int | None:
    return heap.stored.get(piece) if piece.buffer is None else piece.buffer


def _thing(heap: Heap, piece: Piece) -> Hashable:
    """What is one thing to the user: a buffer, or values of one name, line and shape."""
    buffer = _buffer(heap, piece)
    return (piece.name, piece.location, piece.shape, piece.dtype, piece.role) if buffer is None else buffer


def _track(heap: Heap, group: list[tuple[Piece, int, int]], sources: Sources) -> Track:
    first = group[0][0]
    buffer = _buffer(heap, first)
    return Track(
        first.name or "a value",
        NOWHERE if buffer is None else buffer,
        sources.place(first.location),
        first.shape,
        first.dtype,
        first.role,
        _most([(start, stop, piece.bytes) for piece, start, stop in group]),
        len(group),
        tuple(_merged([(start, stop) for _, start, stop in group])),
    )


def _most(lives: list[tuple[int, int, int]]) -> int:
    """The most bytes that live at once."""
    changes = sorted([(start, bytes) for start, _, bytes in lives] + [(stop, -bytes) for _, stop, bytes in lives])
    live = most = 0
    for _, change in changes:
        live += change
        most = max(most, live)
    return most


def _merged(spans: list[tuple[int, int]]) -> Iterator[int]:
    """The union of spans in the order of their starts, as numbers in a row."""
    start, stop = spans[0]
    for after, until in spans[1:]:
        if after > stop:
            yield from (start, stop)
            start = after
        stop = max(stop, until)
    yield from (start, stop)


def _bands(heap: Heap) -> Iterator[Band]:
    """The stretches that segments and loops are, outer ones first."""
    open_bands: list[tuple[str, int]] = []
    closed: list[tuple[_Place, int, int]] = []

    def close(depth: int, at: int) -> None:
        while len(open_bands) > depth:
            place = tuple(text for text, _ in open_bands)
            closed.append((place, open_bands.pop()[1], at))

    for number, moment in enumerate(heap.moments):
        same = 0
        for now, before in zip_longest(moment.place, (text for text, _ in open_bands)):
            if now != before:
                break
            same += 1
        close(same, number)
        open_bands += [(text, number) for text in moment.place[same:]]
    close(0, len(heap.moments))
    for place, start, stop in sorted(closed, key=lambda each: (len(each[0]), each[1])):
        host = place[-1].startswith("for ") and not any(each.startswith("segment_") for each in place)
        marks = ((each.moment, each.at) for each in heap.begins if each.place == place)
        begins = tuple((at, value) for at, value in marks if start <= at < stop)
        yield Band(place[-1], len(place) - 1, host, start, stop, begins)
