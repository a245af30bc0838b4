"""How the NumPy backend reads windows of buffers and stores what host calls return."""

from __future__ import annotations

import numpy as np
import pytest

from tempo.backends.numpy.backend import clamped, host_write, wrapped

ROWS = np.arange(12).reshape(3, 4)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("extent", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("start", [-3, -1, 0, 1, 3, 6])
def test_windows(axis: int, extent: int, start: int) -> None:
    positions = np.arange(start, start + extent)
    size = ROWS.shape[axis]
    np.testing.assert_array_equal(wrapped(ROWS, axis, start, extent), ROWS.take(positions % size, axis))
    np.testing.assert_array_equal(clamped(ROWS, axis, start, extent), ROWS.take(positions.clip(0, size - 1), axis))


def test_a_window_inside_is_a_view() -> None:
    assert np.shares_memory(clamped(ROWS, 1, 1, 2), ROWS)
    assert np.shares_memory(wrapped(ROWS, 1, 5, 2), ROWS)


def test_a_slot_is_replaced_and_an_array_written_in_place() -> None:
    slot, value = np.zeros(2), np.ones(2)
    assert host_write(slot, (), value) is value
    rows = np.zeros((2, 2))
    assert host_write(rows, (1,), value) is rows
    assert rows.tolist() == [[0, 0], [1, 1]]
