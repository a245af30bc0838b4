"""In how many bits an index expression is computed exactly."""

from __future__ import annotations

import numpy as np
import pytest

from tempo.symbolic import LARGEST_SIZE, Symbol, const, dim, maximum, minimum, size
from tempo.symbolic.widths import IntegerRange, bounds, decided, exactly, fits_in_64, reach

T, N = Symbol("t", "dim"), Symbol("t", "size")
t, n = dim("t"), size("t")
RANGES = {T: IntegerRange(0, 4), N: exactly(5)}


@pytest.mark.parametrize(
    ("expr", "value", "way"),
    [
        (t, (0, 4), (0, 4)),
        (minimum(t * 1500000000, 4), (0, 4), (0, 6000000000)),
        ((t * 1000000007 + 1) // 10**10, (0, 0), (0, 10**10)),
        ((t * 3 + 2) % 4, (0, 3), (0, 14)),
        (maximum(3 - t, 0) * 2 + t, (0, 10), (-1, 10)),
        (n * 10**12, (5 * 10**12, 5 * 10**12), (0, 5 * 10**12)),
    ],
)
def test_the_value_and_all_on_the_way_to_it_are_bounded(expr, value, way):
    assert bounds(expr, RANGES) == value
    assert reach(expr, RANGES)[0] <= way[0]
    assert reach(expr, RANGES)[1] == way[1]


def test_the_ends_are_those_of_signed_integers():
    assert IntegerRange(-(2**31), 2**31 - 1).fits(32)
    assert not IntegerRange(0, 2**31).fits(32)
    assert not IntegerRange(-(2**31) - 1, 0).fits(32)


def test_a_condition_is_decided_where_its_ends_agree():
    assert decided(t.ge(0), RANGES) is True
    assert decided(t.gt(4), RANGES) is False
    assert decided(t.gt(3), RANGES) is None
    assert decided(t.eq(7) | t.ge(0), RANGES) is True
    assert decided(t.eq(7) & t.gt(3), RANGES) is False
    assert decided(t.gt(3) & t.ge(0), RANGES) is None


def test_what_needs_more_than_64_bits_at_the_largest_size():
    assert fits_in_64(minimum(t * 2**30, n))
    assert not fits_in_64(minimum(t * 2**62, 4))
    assert not fits_in_64((t * 2**40 + t % 3).ge(7))


@pytest.mark.parametrize("factor", [1, 10**9, 2**31, 2**62, 3**60])
def test_arrays_are_evaluated_exactly(factor):
    points = np.arange(5)
    expr = minimum(t * factor + 1, n * factor // 2)
    found = expr.evaluate({T: points, N: 5})
    assert [int(each) for each in found] == [min(point * factor + 1, 5 * factor // 2) for point in range(5)]
    small = minimum(t * factor, 4).evaluate({T: points, N: 5})
    assert small.dtype == np.int64
    assert small.tolist() == [min(point * factor, 4) for point in range(5)]
    holds = (t * factor + t % 3).ge(2 * factor).evaluate({T: points})
    assert holds.tolist() == [point * factor + point % 3 >= 2 * factor for point in range(5)]


def test_a_numpy_integer_is_no_worse_than_an_array():
    assert minimum(t * 2**62, 4).evaluate({T: np.int64(2)}) == 4
    assert const(2**70).evaluate({}) == 2**70
    assert LARGEST_SIZE == 2**30
