"""Points of rows in tiles: each once, behind what it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tempo.runtime.dynamic.inspector import row_tiles

Array = np.ndarray[Any, Any]


@given(st.data(), st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_each_point_lies_behind_what_it_reads(data: st.DataObject, size: int, lanes: int, backward: bool) -> None:
    lengths = np.array(data.draw(st.lists(st.integers(0, size), min_size=1, max_size=12)))
    found = row_tiles(lengths, size, lanes, backward)
    if found is None:
        assert lengths.max() < 2
        return
    rows, times, steps = (each.ravel() for each in (found.row, found.time, found.step))
    points = [(row, time) for row, length in enumerate(lengths) for time in range(length)]
    places = [found.position[point] for point in points]
    assert len(set(places)) == len(places)
    for (row, time), place in zip(points, places):
        assert (rows[place], times[place]) == (row, time)
        reads = time + 1 < size if backward else time > 0
        assert (place // lanes >= found.base) == reads
        before = time + 1 if backward else time - 1
        if 0 <= before < lengths[row]:
            assert steps[place] == found.position[row, before]
            assert steps[place] // lanes < place // lanes
    behind = slice(found.base * lanes, None)
    assert (times[behind] < lengths[rows[behind]]).all()


@pytest.mark.parametrize("backward", [False, True])
def test_rows_that_fill_tiles_leave_no_gap(backward: bool) -> None:
    lengths = np.full(8, 4)
    found = row_tiles(lengths, 4, 4, backward)
    assert found is not None
    assert len(found.row) == 8
