"""Recurrences along rows with lengths of their own, in tiles: the points that there are, of all rows together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.rows_of_lengths import (
    LENGTHS,
    PACKED,
    SIZE,
    STATEMENTS,
    Statement,
    backwards,
    biased,
    check,
    forwards,
    over_rows,
    rows_of,
)
from tempo.conformance.target import Target, numbers, typical


@pytest.mark.planned
@pytest.mark.parametrize("name", typical(LENGTHS, ["some", "an empty row", "none"]))
def test_both_ways_packed(target: Target, name: str) -> None:
    check(target, [(forwards, 0), (backwards, 1), (biased, 0)], LENGTHS[name], PACKED)


@pytest.mark.planned
@pytest.mark.parametrize("seed", typical(range(60), range(2)))
def test_random_programs_packed(target: Target, seed: int) -> None:
    random = Random(seed)
    ways: Sequence[Statement] = (forwards, backwards)
    found = [(random.choice(ways), random.randint(0, 3))]
    found += [(random.choice(STATEMENTS), random.randint(0, 3)) for _ in range(random.randint(1, 3))]
    random.shuffle(found)
    check(target, found, [random.randint(0, SIZE) for _ in range(random.randint(1, 4))], PACKED)


@pytest.mark.planned
def test_points_of_another_row_are_not_packed_as_the_own(target: Target) -> None:
    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = x
        h[b, t] = h[tp.max(b - 1, 0), t - 1] * 0.5 + x
        return h

    target.agrees(over_rows(make), options=PACKED, n=np.array([4, 2, 1], np.int32), x=numbers((3, 4)))


@pytest.mark.planned
def test_what_lies_between_two_ways_is_packed_once(target: Target) -> None:
    """It is made of one recurrence for the other one, which belongs to both."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h, k = tp.recurrent("h", (), (b, t)), tp.recurrent("k", (), (b, t))
        h[b, 0] = x
        h[b, t] = tp.sin(h[b, t - 1]) + x
        between = tp.tanh(h * 2)
        k[b, t.last] = between
        k[b, t] = tp.sin(k[b, t + 1]) + between + 2
        return k

    def other(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h, k = tp.recurrent("h", (), (b, t)), tp.recurrent("k", (), (b, t))
        k[b, t.last] = x
        k[b, t] = tp.sin(k[b, t + 1]) + x
        between = tp.exp(-k)
        h[b, 0] = between
        h[b, t] = tp.sin(h[b, t - 1]) + tp.cos(between) + 2
        return h

    for made, options in product((make, other), (PACKED, {})):
        target.agrees(over_rows(made), options=options, n=np.array([4, 2, 1], np.int32), x=numbers((3, 4)))


@pytest.mark.planned
def test_what_is_made_of_points_is_read_where_it_is_asked_for(target: Target) -> None:
    """Two recurrences in one loop of tiles: the second reads, of what is made of the first, the point behind, too."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h, g = tp.recurrent("h", (), (b, t)), tp.recurrent("g", (), (b, t))
        h[b, 0] = x
        h[b, t] = tp.sin(h[b, t - 1]) + x
        made = tp.tanh(h)
        g[b, 0] = made
        g[b, t + 1] = g * 0.5 + made[b, t + 1] + made
        return g

    target.agrees(over_rows(make), options=PACKED, n=np.array([4, 2, 1], np.int32), x=numbers((3, 4)))


@pytest.mark.planned
@pytest.mark.parametrize("options", [{}, PACKED], ids=str)
def test_a_recurrence_that_sees_its_whole_row(target: Target, options: dict[str, Any]) -> None:
    """Where that ends is not known of the points of a tile."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h, keys = tp.recurrent("h", (), (b, t)), x[b, :]
        h[b, 0] = x
        h[b, t + 1] = tp.tanh(tp.softmax(keys * h) @ keys + x[b, t + 1])
        tp.output("gradient", tp.grad((h * h)[:, :].sum(), x))
        return h

    inputs, _ = rows_of()
    target.agrees(over_rows(make), options=options, tolerance=5, **inputs)


@pytest.mark.planned
@pytest.mark.parametrize("tiles", [{}, {"t": 2}, {"t": 2, "u": 3}], ids=str)
@pytest.mark.parametrize("way", ["at a point", "of both", "whole"])
def test_a_recurrence_along_rows_that_sees_other_rows(target: Target, way: str, tiles: dict[str, int]) -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        u = tp.dim("u", lengths=tp.input("m", (), (b,), "int32"))
        x, y, w = tp.input("x", (), (b, t)), tp.input("y", (), (b, u)), tp.input("w", ())
        both = tp.input("both", (), (b, t, u))
        if way == "whole":
            h = tp.recurrent("h", (), (b, t))
            seen: dict[str, Any] = {"at": (y[b, :] * w).sum()}
        else:
            h = tp.recurrent("h", (), (b, t, u))
            seen = {"at": y * w if way == "at a point" else both * w}
        after = (b, t + 1, u) if way != "whole" else (b, t + 1)
        at = seen["at"][after] if way == "of both" else seen["at"]
        h[(b, 0, *after[2:])] = x + 0 * seen["at"]
        h[after] = tp.tanh(h * w + at + x[b, t + 1])
        tp.output("h", h)
        loss = (h * h)[(b, *[slice(None)] * (len(after) - 1))].sum()[:].sum()
        for name, gradient in zip(("dx", "dy", "dw"), tp.grad(loss, [x, y, w])):
            tp.output(name, gradient)
    n, m = np.array([3, 0, 1, 4], np.int32), np.array([2, 1, 0, 3], np.int32)
    inside, there = np.arange(4) < n[:, None], np.arange(3) < m[:, None]
    given = {"x": np.where(inside, numbers((4, 4)), np.nan), "y": np.where(there, numbers((4, 3), seed=1), np.nan)}
    given["both"] = np.where(inside[..., None] & there[:, None], numbers((4, 4, 3), seed=2), np.nan)
    arrays: dict[str, Any] = {name: array.astype(np.float32) for name, array in given.items()}
    options = {"mapping": tiles} if tiles else {}
    target.agrees(program, options=options, tolerance=20, n=n, m=m, w=np.float32(0.5), **arrays)


@pytest.mark.planned
@pytest.mark.parametrize("lanes", [2, 16])
@pytest.mark.parametrize("is_everywhere", [True, False])
def test_points_of_a_tile_that_nobody_asks_for_have_numbers(target: Target, lanes: int, is_everywhere: bool) -> None:
    """`g` is asked for behind the first points of rows, and a tile has some of these."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h, g = tp.recurrent("h", (), (b, t)), tp.recurrent("g", (), (b, t))
        h[b, t.last] = g[b, t.last] = x
        h[b, t] = tp.tanh(g[b, t + 1] + x)
        g[b, t] = tp.sin(h[b, t + 1] + (x if is_everywhere else 1 / x))
        tp.output("gradient", tp.grad(tp.sin(h)[:, :].sum(), x))
        return h

    n = np.array([4, 1, 0, 3], np.int32)
    x = np.where(np.arange(4) < n[:, None], np.abs(numbers((4, 4))) + 0.5, np.nan).astype(np.float32)
    target.agrees(over_rows(make), tolerance=5, n=n, x=x, options={"mapping": {"t": lanes}})
