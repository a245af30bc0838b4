import numpy as np
import pytest

from tempo.errors import ShapeError
from tempo.symbolic import size
from tests.unit.sdg.operators.apply import apply, infer

F32 = "float32"


def naive_conv(x, w, strides, padding, dilation):
    spatial = len(strides)
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    sizes = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilation, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    for place in np.ndindex(*sizes):
        for tap in np.ndindex(*w.shape[2:]):
            at = tuple(place[a] * strides[a] + tap[a] * dilation[a] for a in range(spatial))
            out[(..., *place)] += x[(..., *at)] @ w[(..., *tap)].T
    return out


@pytest.mark.parametrize(
    ("x", "w", "strides", "padding", "dilation"),
    [
        ((2, 3, 8), (4, 3, 3), (1,), ((0, 0),), (1,)),
        ((2, 3, 8), (4, 3, 2), (3,), ((2, 1),), (2,)),
        ((1, 2, 6, 5), (3, 2, 3, 2), (2, 1), ((1, 1), (0, 1)), (1, 2)),
        ((1, 1, 3, 4, 3), (2, 1, 2, 2, 1), (1, 2, 1), ((0, 0), (1, 0), (0, 0)), (1, 1, 1)),
    ],
)
def test_conv_is_the_sum_over_taps(x, w, strides, padding, dilation):
    random = np.random.default_rng(0)
    data, weights = (random.integers(-3, 4, shape).astype(np.float32) for shape in (x, w))
    options = {"strides": strides, "padding": padding, "dilation": dilation}
    np.testing.assert_array_equal(apply("conv", data, weights, **options), naive_conv(data, weights, **options))


def test_conv_checks_channels_and_extents():
    options = {"strides": (1,), "padding": ((0, 0),), "dilation": (1,)}
    assert infer("conv", ((2, 3, size("t")), F32), ((4, 3, 2), F32), **options).shape[2] == size("t") - 1
    for shape in [(2, 5, 8), (2, 3), (2, 3, 1), (2, 3, 8, 8)]:
        with pytest.raises(ShapeError, match="conv"):
            infer("conv", (shape, F32), ((4, 3, 2), F32), **options)
