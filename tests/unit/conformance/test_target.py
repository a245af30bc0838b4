"""How the suite compares."""

from __future__ import annotations

import numpy as np
import pytest

from tempo.conformance.target import assert_same, difference


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_equal_arrays_are_equal() -> None:
    assert difference(f32(1, np.nan, np.inf, -0.0), f32(1, np.nan, np.inf, 0.0)) is None
    assert difference(f32(1 + 1e-6), f32(1)) is None
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))) is None


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (f32(1.001), f32(1)),
        (f32(np.nan), f32(1)),
        (f32(1), f32(np.nan)),
        (f32(np.inf), f32(1e30)),
        (f32(np.inf), f32(-np.inf)),
        (f32(1), f32(np.inf)),
        (f32(1e-3), f32(0)),
        (f32(1), np.array([1.0])),
        (f32(1), f32(1, 2)),
        (np.array([1]), np.array([2])),
        (np.array(True), np.array(False)),
    ],
    ids=str,
)
def test_what_differs_is_told(found: np.ndarray, wanted: np.ndarray) -> None:
    assert difference(found, wanted) is not None
    with pytest.raises(AssertionError, match="y: "):
        assert_same({"y": found}, {"y": wanted})


def test_the_place_is_told() -> None:
    assert "first at [1, 2]" in str(difference(np.zeros((3, 3)), _one()))


def _one() -> np.ndarray:
    array = np.zeros((3, 3))
    array[1, 2] = 1
    return array


def test_missing_outputs_are_told() -> None:
    with pytest.raises(AssertionError):
        assert_same({}, {"y": f32(1)})
