"""The greatest element of many boxes of one array, against a plain loop."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tempo.schedule.verify import box_maxima


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_maxima_of_random_boxes(axes: list[tuple[int, bool]], seed: int) -> None:
    """Along some axes all boxes are alike."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 50, [extent for extent, _ in axes])
    lows, highs = (
        [np.resize(random.integers(0, extent + 1, 1 if alike else 12), 12) for extent, alike in axes] for _ in range(2)
    )
    found = box_maxima(values, lows, highs, -1)
    for at in range(12):
        box = values[tuple(slice(lo[at], max(lo[at], hi[at])) for lo, hi in zip(lows, highs))]
        assert found[at] == (box.max() if box.size else -1)


def test_no_boxes_at_all() -> None:
    nothing = np.zeros(0, np.int64)
    assert box_maxima(np.arange(4), [nothing], [nothing], -1).shape == (0,)
