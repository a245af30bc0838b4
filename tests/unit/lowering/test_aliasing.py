"""A value that lives on is no view of memory that is written again."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp

SIZES = {"i": 4, "t": 6}


def carried(flipped: bool) -> tp.Program:
    """`x` keeps its steps for one `i` at a time; step 2 is still read while the next `i` writes over it."""
    with tp.Program("carried") as program:
        i, t = tp.dims("i t")
        x = tp.recurrent("x", shape=(3,), dims=(i, t))
        kept = tp.recurrent("kept", shape=(3,), dims=(i,))
        kept[0] = tp.ones((3,))
        kept[i + 1] = tp.flip(x[i, 2], axis=0) if flipped else x[i, 2]
        x[i, 0] = kept + tp.arange(3)
        x[i, t + 1] = x + kept
        tp.output("sums", x[i, 0 : t.size].sum(axis=0))
    return program


@pytest.mark.parametrize("flipped", [False, True])
def test_a_value_kept_beside_a_buffer_without_its_outer_dim_is_copied(flipped: bool) -> None:
    run = tp.compile(carried(flipped), backend="numpy", sizes=SIZES)
    assert {buffer.name: buffer.storage for buffer in run.memory.buffers}["x"] == "full"
    assert next(buffer.shape for buffer in run.memory.buffers if buffer.name == "x") == (6, 3)
    expected = tp.compile(carried(flipped), backend="reference", sizes=SIZES)()["sums"]
    np.testing.assert_allclose(run()["sums"], expected)
