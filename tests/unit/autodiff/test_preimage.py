"""Preimages of index maps against brute force: every point p of the reader that reads q is in one part, once."""

from __future__ import annotations

import itertools

import pytest

from tempo.autodiff.preimage import GuardedBox, Preimage, preimages, primed
from tempo.sdg.graph import IndexMap, Point, Slice
from tempo.symbolic import TRUE, Box, Condition, Dim, Expr, Symbol, dim, maximum, minimum, parse_condition, size

S, T = Symbol("s", "dim"), Symbol("t", "dim")
DIMS = (Dim(S, size("s")), Dim(T, size("t")))
SIZES = {Symbol("s", "size"): 4, Symbol("t", "size"): 7}
s, t = dim("s"), dim("t")


def window(start: Expr, stop: Expr) -> Slice:
    return Slice(start, stop - start)


MAPS: dict[str, tuple[IndexMap, str]] = {
    "identity": ((Point(s), Point(t)), "True"),
    "shift": ((Point(s), Point(t - 2)), "t >= 2"),
    "constant": ((Point(s), Point(size("t") - 1)), "True"),
    "stride": ((Point(s), Point(2 * t + 1)), "t < 3"),
    "quotient": ((Point(s), Point((t + 1) // 2)), "True"),
    "blocks": ((Point(s), Point((t + 1) // 2 * 2)), "t != 4 and t < 6"),
    "remainder": ((Point(s), Point((t + s) % 3)), "True"),
    "clamp": ((Point(s), Point(minimum(t + 2, size("t") - 1))), "True"),
    "clamp from below": ((Point(s), Point(maximum(t - 2, 0))), "t != 1"),
    "diagonal": ((Point(s), Point(s)), "t >= s"),
    "sum": ((Point(s), Point(s + t)), "s + t < t.size"),
    "prefix": ((Point(s), window(dim("t") * 0, t + 1)), "True"),
    "window": ((Point(s), window(maximum(t - 2, 0), t + 1)), "t >= 1"),
    "both ways": ((Point(s), window(maximum(t - 1, 0), minimum(t + 3, size("t")))), "True"),
    "one point long": ((Point(s), window(maximum(t, 0), t + 1)), "True"),
    "corner": ((window(s * 0, s + 1), window(t, size("t"))), "s != 2"),
    "half": ((Point(s), window(s * 0, (t + 1) // 2)), "True"),
    "from half on": ((Point(s), window((2 * t + 1) // 3, size("t"))), "t != 3"),
    "either end": ((Point(s), Point(t)), "t == 0 or t >= 5"),
}


@pytest.mark.parametrize("name", MAPS)
def test_every_reader_is_found_once(name: str):
    map, text = MAPS[name]
    condition: Condition = parse_condition(text)
    full = Box.full(DIMS)
    found = preimages(GuardedBox(DIMS, full, condition), map, GuardedBox(DIMS, full))
    points = list(itertools.product(range(4), range(7)))
    for q in points:
        expected = [p for p in points if condition.evaluate(at(p)) and reads(map, p, q)]
        readers = [p for preimage in found for p in members(preimage, q, points)]
        assert sorted(readers) == expected


def at(point: tuple[int, int]) -> dict[Symbol, int]:
    return {**SIZES, **dict(zip((S, T), point))}


def reads(map: IndexMap, p: tuple[int, int], q: tuple[int, int]) -> bool:
    env = at(p)
    for index, place in zip(map, q):
        start = index.index if isinstance(index, Point) else index.start
        length = 1 if isinstance(index, Point) else index.length.evaluate(env)
        if not start.evaluate(env) <= place < start.evaluate(env) + length:
            return False
    return True


def members(preimage: Preimage, q: tuple[int, int], points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if not preimage.condition.evaluate(at(q)):
        return []
    bounds = {each.dim: (each.start.evaluate(at(q)), each.length.evaluate(at(q))) for each in preimage.ranges}
    found = []
    for p in points:
        place = dict(zip((S, T), p))
        solved = all(place[symbol] == value.evaluate(at(q)) for symbol, value in preimage.solved.items())
        inside = all(start <= place[symbol] < start + length for symbol, (start, length) in bounds.items())
        env = {**at(q), primed(S): p[0], primed(T): p[1]}
        if solved and inside and preimage.own.evaluate(at(p)) and preimage.mask.evaluate(env):
            found.append(p)
    return found


def test_a_shift_is_one_point_under_a_condition():
    full = Box.full(DIMS)
    (found,) = preimages(GuardedBox(DIMS, full), (Point(s), Point(t + 1)), GuardedBox(DIMS, full))
    assert (found.condition, dict(found.solved), found.ranges) == (t.ge(1), {S: s, T: t - 1}, ())


def test_a_prefix_is_read_by_everything_after():
    full = Box.full(DIMS)
    (found,) = preimages(GuardedBox(DIMS, full), (Point(s), window(t * 0, t + 1)), GuardedBox(DIMS, full))
    assert (found.condition, found.own, found.mask) == (TRUE, TRUE, TRUE)
    assert [(each.dim, each.start, each.length) for each in found.ranges] == [(T, t, size("t") - t)]


def test_a_prefix_of_half_is_read_from_twice_on():
    everywhere = GuardedBox(DIMS, Box.full(DIMS))
    (found,) = preimages(everywhere, (Point(s), window(t * 0, t // 2)), everywhere)
    (range,) = found.ranges
    assert (found.mask, range.start) == (TRUE, 2 * t + 2)
