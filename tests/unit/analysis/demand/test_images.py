"""Covers of boxes: proven for many parts, in any order, and for no box with a gap."""

from __future__ import annotations

import itertools
import random

import pytest

from tempo.analysis.demand.images import covers
from tempo.symbolic import Box, Context, Expr, Symbol, const, size

X, Y = Symbol("x", "dim"), Symbol("y", "dim")
SIZES = Context.of(())


def box(*bounds: tuple[Expr | int, Expr | int]) -> Box:
    ends = ((lo if isinstance(lo, Expr) else const(lo), hi if isinstance(hi, Expr) else const(hi)) for lo, hi in bounds)
    return Box(tuple((symbol, lo, hi) for symbol, (lo, hi) in zip((X, Y), ends)))


@pytest.mark.parametrize("count", [2, 9, 30])
@pytest.mark.parametrize("seed", range(3))
def test_points_one_after_another(count: int, seed: int) -> None:
    points = [box((k, k + 1)) for k in range(count)]
    random.Random(seed).shuffle(points)
    assert covers(box((0, count)), points, SIZES)
    assert not covers(box((0, count)), [point for point in points if point != box((1, 2))], SIZES)


def test_points_before_what_sizes_end() -> None:
    rest = box((10, size("x") + 10))
    assert covers(box((0, size("x") + 10)), [*(box((k, k + 1)) for k in range(10)), rest], SIZES)


def test_tiles_of_a_plane() -> None:
    tiles = [box((2 * i, 2 * i + 2), (3 * j, 3 * j + 3)) for i, j in itertools.product(range(4), range(5))]
    random.Random(0).shuffle(tiles)
    assert covers(box((0, 8), (0, 15)), tiles, SIZES)
    assert covers(box((0, 7), (1, 14)), [*tiles, box((1, 2), (1, 2))], SIZES)
    for tile in (tiles[0], tiles[7]):
        assert not covers(box((0, 8), (0, 15)), [other for other in tiles if other != tile], SIZES)
