"""Random chains of operators on values whose extents vary: static extents and lifting keep the meaning."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tempo as tp
from tests.unit.passes.equivalence import check
from tests.unit.passes.test_programs import Both

SIZES = tuple({"b": b, "t": t} for b, t in ((1, 1), (2, 2), (1, 5)))
WIDTH = 3
LONGEST = 100
"""No value of a chain is longer."""


def windows(x, b, t, size):
    """Reads of every shape, none of them empty; `x` has domain (b, t) and shape (WIDTH,)."""
    return [
        x[b, 0 : t + 1],
        x[b, t:size],
        x[b, tp.max(t - 1, 0) : t + 1],
        x[b, t // 2 : t + 1],
        x[0 : b.size, t],
        x[b, 0:size],
    ]


def convolved(value, kernel, **options):
    """Along the first axis, with the second for channels."""
    return tp.conv(value.T.spatial[None], kernel, **options).spatial[0].T


def same_rank(value):
    """From a value of two axes to one of two axes, the first of which varies or not."""
    rows, _ = value.shape
    return {
        "neg": lambda: -value,
        "tanh": lambda: tp.tanh(value),
        "scan": lambda: tp.cumsum(value, axis=0),
        "scan features": lambda: tp.cumsum(value, axis=1),
        "sort": lambda: tp.sort(value, axis=0),
        "sort features": lambda: tp.sort(value, axis=1),
        "flip": lambda: tp.flip(value, axis=0),
        "flip both": lambda: tp.flip(value, axis=(0, 1)),
        "softmax": lambda: tp.softmax(value, axis=0),
        "center": lambda: value - value.mean(axis=0),
        "scale": lambda: value * tp.arange(rows).astype(tp.float32).spatial[:, None],
        "gram": lambda: tp.einsum("sd,ud,ue->se", value, value, value),
        "twice": lambda: tp.concatenate([value, value], axis=0),
        "framed": lambda: tp.concatenate([value.spatial[0:1], value], axis=0),
        "pad": lambda: tp.pad(value, ((1, 2), (0, 0))),
        "tail": lambda: value.spatial[rows - 1 : rows],
        "odd": lambda: value.spatial[(rows - 1) // 2 : rows],
        "back": lambda: value.spatial[::-1],
        "reshape": lambda: value.reshape((WIDTH, rows)).reshape((rows * WIDTH,)).reshape((rows, WIDTH)),
        "transpose": lambda: value.T.reshape((rows * WIDTH,)).reshape((rows, WIDTH)),
        "order": lambda: tp.argsort(value, axis=0).astype(tp.float32),
        "convolve": lambda: convolved(value, tp.ones((WIDTH, WIDTH, 2)), padding=((1, 0),)),
        "convolve in steps": lambda: convolved(value, tp.ones((WIDTH, WIDTH, 2)), strides=2, padding=((2, 1),)),
        "repeat": lambda: tp.broadcast_to(value.spatial[None], (2, rows, WIDTH)).sum(axis=0),
    }


def combined(left, right, both_vary_alike):
    """From two values of two axes."""
    joined = {
        "concat": lambda: tp.concatenate([left, right], axis=0),
        "cross": lambda: tp.einsum("sd,ud->sd", left, right),
        "outer": lambda: tp.einsum("sd,ue->se", left, right),
        "filter": lambda: convolved(left, right.T.spatial[None], padding=((LONGEST, 0),)),
        "correlate": lambda: convolved(left, tp.flip(left, axis=0).T.spatial[None], padding=((1, 2),)),
        "taps": lambda: convolved(tp.ones((6, WIDTH)), right.T.spatial[None], padding=LONGEST),
    }
    return {**joined, "add": lambda: left + right} if both_vary_alike else joined


REDUCTIONS = {
    "sum": lambda v: v.sum(axis=0),
    "mean": lambda v: v.mean(axis=0),
    "max": lambda v: v.max(axis=0),
    "min": lambda v: v.min(axis=(0, 1)),
    "argmax": lambda v: v.argmax(axis=0),
    "argmin": lambda v: v.argmin(axis=0),
    "any": lambda v: (v > 1).any(axis=0),
    "all": lambda v: (v > -1).all(axis=0),
    "prod": lambda v: tp.tanh(v).prod(axis=0),
    "weighted": lambda v: tp.einsum("sd,s->d", v, tp.cos(tp.arange(v.shape[0]).astype(tp.float32))),
}


def test_a_product_of_a_window_with_itself_has_one_frame_for_both():
    with tp.Program("gram") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (WIDTH,), (b, t))
        value = same_rank(x[b, t // 2 : t + 1])["gram"]()
        tp.output("y", value.argmax(axis=0))
    check(Both(), program.graph(), *SIZES)


@settings(
    max_examples=settings.default.max_examples * 3 // 5, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.data())
def test_random_chains(data):
    with tp.Program("chain") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (WIDTH,), (b, t))
        values = [data.draw(st.sampled_from(windows(x, b, t, t.size))) for _ in range(2)]
        for _ in range(data.draw(st.integers(0, 4))):
            value = data.draw(st.sampled_from(values))
            steps = same_rank(value)
            values.append(steps[data.draw(st.sampled_from(sorted(steps)))]())
        left, right = (data.draw(st.sampled_from(values)) for _ in range(2))
        choices = combined(left, right, str(left.shape) == str(right.shape))
        values.append(choices[data.draw(st.sampled_from(sorted(choices)))]())
        for number, value in zip(itertools.count(), values[2:]):
            tp.output(f"y{number}", REDUCTIONS[data.draw(st.sampled_from(sorted(REDUCTIONS)))](value))
    check(Both(), program.graph(), *SIZES)
