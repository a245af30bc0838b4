"""An index expression as a tensor is a weak int32; where it does not fit at a needed point, it is an error."""

import numpy as np
import pytest

import tempo as tp


@pytest.mark.parametrize("backend", ["numpy", "reference"])
def test_a_value_beyond_32_bits(backend: str) -> None:
    """An expression used where a tensor is wanted is its value at the point, weak int32"""
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", tp.as_tensor(t * 10**9) - 1)
    run = tp.compile(program, backend=backend)
    np.testing.assert_array_equal(run(sizes={"t": 3})["y"], [-1, 10**9 - 1, 2 * 10**9 - 1])
    with pytest.raises(tp.DTypeError, match=r"1000000000\*t is 3000000000 at t = 3(.|\n)*test_index_values.py"):
        run(sizes={"t": 5})


@pytest.mark.parametrize("options", [tp.Options(), tp.Options(lift=False)])
def test_points_that_are_not_needed_may_exceed_it(options: tp.Options) -> None:
    with tp.Program() as program:
        t, s = tp.dims("t s")
        large = tp.as_tensor(t * 10**9 + s)
        tp.output("y", tp.cases((t < 2, large), -1))
        tp.output("z", large[1, s])
    out = tp.compile(program, options=options)(sizes={"t": 4, "s": 2})
    np.testing.assert_array_equal(out["y"], [[0, 1], [10**9, 10**9 + 1], [-1, -1], [-1, -1]])
    np.testing.assert_array_equal(out["z"], [10**9, 10**9 + 1])


def test_bounds_of_compound_expressions_are_no_false_alarm() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", tp.as_tensor((t * 10**9) // 10**9 + (t * 10**9) % 7 - tp.min(t * 10**9, 5)))
    expected = [t + (t * 10**9) % 7 - min(t * 10**9, 5) for t in range(6)]
    assert tp.compile(program)(sizes={"t": 6})["y"].tolist() == expected


@pytest.mark.parametrize("options", [tp.Options(), tp.Options(lift=False)])
def test_what_is_large_on_the_way_to_a_small_value(options: tp.Options) -> None:
    with tp.Program() as program:
        t, s = tp.dims("t s")
        tp.output("compared", t * 1000003 > s * 999999 + 7)
        tp.output("divided", tp.as_tensor((t * 1000003) // 1000000))
        tp.output("least", tp.as_tensor(tp.min(t * 1000003, 3 * 10**9) - tp.max(t * 1000003 - 5, 0)))
        tp.output("cancelled", tp.as_tensor(3 * 10**9 * t - 3 * 10**9 * s)[2, 2])
    t, s = np.arange(4000), np.arange(3)
    out = tp.compile(program, options=options)(sizes={"t": 4000, "s": 3})
    np.testing.assert_array_equal(out["compared"], t[:, None] * 1000003 > s * 999999 + 7)
    np.testing.assert_array_equal(out["divided"], t * 1000003 // 1000000)
    expected = np.minimum(t * 1000003, 3 * 10**9) - np.maximum(t * 1000003 - 5, 0)
    np.testing.assert_array_equal(out["least"], expected)
    assert out["cancelled"] == 0
