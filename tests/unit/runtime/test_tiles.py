"""Points that read others by index, in tiles: each once, behind what it reads, and no more tiles than need be."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tempo as tp
from tempo.runtime.dynamic.inspector import Tiles, parallelism, row_parallelism, row_tiles, tiles

Array = np.ndarray[Any, Any]


def check(read: Array, first: int, lanes: int, found: Tiles) -> None:
    count = first + len(read)
    assert sorted(found.position) == sorted(set(found.position))
    assert len(found.position) == count
    assert found.order.shape[1] == lanes
    assert (found.order.ravel()[found.position] == np.arange(count)).all()
    tile = found.position // lanes
    assert (tile[:first] < found.base).all()
    assert (tile[first:] >= found.base).all()
    if len(read):
        assert (tile[read].max(axis=1) < tile[first:]).all()
    for at, points in enumerate(found.order):  # what is behind the last of a tile is that again
        own = set(np.flatnonzero(tile == at))
        assert set(points) == own
        assert len(set(points[: len(own)])) == len(own)


def depth(read: Array, first: int) -> int:
    level = [0] * first
    for row in read:
        level.append(1 + max(level[each] for each in row))
    return max(level)


@given(st.data(), st.integers(1, 9), st.integers(1, 30), st.integers(1, 3), st.integers(1, 6))
def test_each_point_lies_behind_what_it_reads(
    data: st.DataObject, first: int, count: int, reads: int, lanes: int
) -> None:
    rows = [[data.draw(st.integers(0, first + at - 1)) for _ in range(reads)] for at in range(count)]
    read = np.array(rows)
    found = tiles(read, first, lanes, np.inf)
    assert found is not None
    check(read, first, lanes, found)
    taken, fewest = len(found.order), found.base + max(depth(read, first), -(-count // lanes))
    assert fewest <= taken <= found.base + depth(read, first) + -(-count // lanes)
    again = tiles(read, first, lanes, taken)
    assert again is not None
    np.testing.assert_array_equal(again.order, found.order)
    assert tiles(read, first, lanes, taken - 1) is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 6), st.randoms())
def test_no_order_of_trees_has_fewer_tiles(leaves: list[int], lanes: int, draw: Any) -> None:
    """The bound of Hu's: for some number of points that wait for as many others, no schedule is shorter."""
    first, rows, parent = sum(leaves), list[tuple[int, int]](), dict[int, int]()
    roots = np.split(np.arange(first), np.cumsum(leaves)[:-1])
    for tree in map(list, roots):
        while len(tree) > 1:
            at = draw.randrange(len(tree) - 1)
            rows.append((tree[at], tree[at + 1]))
            parent.update(dict.fromkeys(rows[-1], first + len(rows) - 1))
            tree[at : at + 2] = [first + len(rows) - 1]
    if not rows:
        return
    found = tiles(np.array(rows), first, lanes, np.inf)
    assert found is not None
    check(np.array(rows), first, lanes, found)
    above = dict[int, int]()
    for point in range(first + len(rows) - 1, first - 1, -1):
        above[point] = 1 + (above[parent[point]] if point in parent else 0)
    heights = np.array(list(above.values()))
    bound = max(least - 1 + -(-int((heights >= least).sum()) // lanes) for least in range(1, int(heights.max()) + 1))
    assert len(found.order) - found.base == bound


@pytest.mark.parametrize("count", [1, 5, 300])
def test_a_chain_is_known(count: int) -> None:
    read = np.arange(count)[:, None]
    found = tiles(read, 1, 4, np.inf)
    assert found is not None
    assert len(found.order) == count + 1
    assert tiles(read, 1, 4, count) is None


def test_nothing_that_reads() -> None:
    found = tiles(np.zeros((0, 2), int), 5, 2, np.inf)
    assert found is not None
    assert found.order.tolist() == [[0, 1], [2, 3], [4, 4]]


@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_the_number_of_tiles_is_known_before(lanes: int) -> None:
    read = np.array([[0, 1], [2, 3], [4, 5], [6, 4], [7, 8]])
    found = tiles(read, 5, lanes, np.inf)
    assert found is not None
    assert len(found.order) == parallelism(read, 5).tiles(lanes)
    for backward in (False, True):
        lengths = np.array([3, 0, 5, 1, 5])
        rows = row_tiles(lengths, 5, lanes, backward)
        assert rows is not None
        assert len(rows.row) == row_parallelism(lengths, 5, backward).tiles(lanes)


def sums(**options: Any) -> tp.Executable:
    """Each point has the sum of what it reads, and of its own."""
    with tp.Program() as program:
        n = tp.dim("n")
        x, at = tp.input("x", (256,), (n,)), tp.input("at", (), (n,), "int32")
        h, w = tp.recurrent("h", (256,), (n,)), tp.input("w", (256, 256))
        h[n] = tp.cases((n < 64, x), w @ h.gather(n, at, within=slice(0, n)) + x)
        tp.output("h", h)
    return tp.compile(program, options=tp.Options(**options))


def arrays(reads: Array) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(reads), 256)).astype(np.float32)
    return {"x": x, "at": reads.astype(np.int32), "w": rng.normal(0, 0.05, (256, 256)).astype(np.float32)}


def lanes_of(run: tp.Executable) -> int:
    said = re.search(r"n: in tiles: \d+ and \d+ of (\d+) for", run.explain())
    assert said is not None
    return int(said[1])


def test_tiles_are_as_wide_as_points_lie_beside_one_another() -> None:
    wide, narrow = np.arange(1024) % 64, np.maximum(np.arange(1024) - 20, 0)
    run, other = sums(), sums()
    found = run(**arrays(wide))["h"]
    assert lanes_of(run) >= 64
    other(**arrays(narrow))
    assert lanes_of(other) <= 20
    np.testing.assert_allclose(other(**arrays(wide))["h"], found, rtol=1e-4, atol=1e-5)
    assert lanes_of(other) <= 20  # the first run of some sizes says
    other(**arrays(wide[:1000]))
    assert lanes_of(other) == lanes_of(run)


def test_tiles_of_buckets_and_those_that_are_forced_have_one_width() -> None:
    wide = arrays(np.arange(1024) % 64)
    for options, lanes in (({"buckets": {"n": "pow2"}}, 16), ({"mapping": {"n": 8}}, 8)):
        run = sums(**options)
        run(**wide)
        assert lanes_of(run) == lanes
