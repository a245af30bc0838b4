"""Family 8, streamed inputs: taken one by one, in order, none that nothing needs, and kept only while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers


class Given:
    """An iterator that counts what was taken of it, and overwrites what it gave before."""

    def __init__(self, data: Array) -> None:
        self.data, self.taken = data, 0
        self.memory: Array = np.empty_like(data[0])

    def __iter__(self) -> Iterator[Array]:
        return self

    def __next__(self) -> Array:
        if self.taken == len(self.data):
            raise StopIteration
        self.memory[:] = self.data[self.taken]
        self.taken += 1
        return self.memory


def running(dtype: str = "float32") -> tp.Program:
    """The last two of what came, and a sum that goes on."""
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (3,), (i,), dtype)
        total = tp.recurrent("total", (3,), (i,), dtype)
        total[0] = x
        total[i + 1] = total + x[i + 1]
        tp.output("total", total)
        tp.output("pair", x[tp.max(i - 1, 0) : i + 1].sum(axis=0))
    return program


@pytest.mark.parametrize("size", [1, 8, 70])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_arrays_come_in_order_and_are_the_runs_own(target: Target, size: int, dtype: str) -> None:
    x_data = numbers((size, 3), dtype)
    given = Given(x_data)
    out = target.arrays(target.compile(running(dtype))(x=given, sizes={"i": size}))
    np.testing.assert_array_equal(out["total"], x_data.cumsum(0))
    np.testing.assert_array_equal(out["pair"], [x_data[max(at - 1, 0) : at + 1].sum(0) for at in range(size)])
    assert given.taken == size


def test_other_dims_come_in_front(target: Target) -> None:
    x_data, w_data = numbers((4, 2, 5, 3)), numbers((2,), seed=1)
    with tp.Program() as program:
        i, b, t = tp.dims("i b t")
        x, w = tp.stream_input("x", (3,), (i, b, t)), tp.input("w", (), (b,))
        h = tp.recurrent("h", (3,), (i, b, t))
        h[i, b, 0] = x
        h[i, b, t + 1] = h * w / 4 + x[i, b, t + 1]
        tp.output("h", h)
        tp.output("mean", x[i, 0 : b.size, 0 : t.size].mean(axis=(0, 1)))
    h_ = [x_data[:, :, 0]]
    for at in range(1, 5):
        h_.append(h_[-1] * w_data[:, None] / 4 + x_data[:, :, at])
    out = target.arrays(target.compile(program)(x=iter(x_data), w=w_data, sizes={"i": 4, "t": 5}))
    np.testing.assert_allclose(out["h"], np.stack(h_, axis=2), rtol=1e-5)
    np.testing.assert_allclose(out["mean"], x_data.mean((1, 2)), rtol=1e-4, atol=1e-6)


def test_what_has_a_length_gives_the_size(target: Target) -> None:
    x_data = numbers((5, 3))
    run = target.compile(running())
    for given in (x_data, list(x_data)):
        out = run(x=given)
        assert out.sizes["i"] == 5
        np.testing.assert_array_equal(target.to_numpy(out["total"]), x_data.cumsum(0))
    with pytest.raises(tp.SizeError, match=r"4 by sizes= .*5 by the length of the stream 'x'"):
        run(x=x_data, sizes={"i": 4})


def test_none_is_taken_that_nothing_needs(target: Target) -> None:
    """A stream is taken without holes up to the last point that is needed; a call may go on with what is left."""
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (3,), (i,))
        tp.output("third", x[2])
    run, given = target.compile(program), Given(numbers((9, 3)))
    np.testing.assert_array_equal(target.to_numpy(run(x=given, sizes={"i": 6})["third"]), given.data[2])
    assert given.taken == 3
    np.testing.assert_array_equal(target.to_numpy(run(x=given, sizes={"i": 6})["third"]), given.data[5])


def test_steps_take_their_points_only(target: Target) -> None:
    if target.interprets:
        pytest.skip("an evaluator has no order to step through")
    given = Given(numbers((6, 3)))
    for step in target.compile(running()).stream("i", x=given, sizes={"i": 6}):
        assert step.stop <= given.taken <= step.stop + 1  # the sum reads ahead
        np.testing.assert_array_equal(target.to_numpy(step["total"]), given.data[: step.stop].sum(0))
    assert given.taken == 6


def test_only_what_is_read_later_is_kept(target: Target) -> None:
    if target.interprets or target.configuration.name != "all":
        pytest.skip("nothing is planned, or not in full")
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (1000,), (i,))
        w = tp.parameter("w", (1000,), np.zeros(1000, np.float32), dims=(i,))
        w[i + 1] = 0.5 * w + x
        tp.output("change", (x - tp.cases((i > 0, x[i - 1]), 0.0)).sum())
    run = target.compile(program, sizes={"i": 5000})
    assert run.memory["x"].storage == "window(2)"
    assert run.memory.peak_bytes < 200_000  # 20 MB have come


@pytest.mark.parametrize("size", [5])
def test_what_does_not_fit_is_told_with_the_point(target: Target, size: int) -> None:
    x_data = numbers((size, 3))

    def failing() -> Iterator[Array]:
        yield from x_data[:2]
        raise OSError("the disk went away")

    cases: list[tuple[Any, type[Exception], str]] = [
        (iter(x_data[:3]), tp.InputError, "at i = 3 has ended: it gave 3 arrays, and the size of i is 5"),
        (iter([x_data[0], x_data[1, :2]]), tp.InputError, r"at i = 1 has shape \(2,\), declared is \(3,\)"),
        (iter([x_data[0] > 0]), tp.DTypeError, "at i = 0 has dtype bool, which is of another kind than float32"),
        (iter([x_data[0], object()]), tp.InputError, "at i = 1 is no array"),
        (failing(), tp.HostCallError, "at i = 2 failed: OSError: the disk went away"),
        (7, tp.InputError, "is a int, which gives no arrays"),
    ]
    run = target.compile(running())
    for given, kind, said in cases:
        with pytest.raises(kind, match=said) as caught:
            run(x=given, sizes={"i": size})
        assert "tp.stream_input" in str(caught.value)
    with pytest.raises(tp.InputError, match="the input 'x' is missing"):
        run(sizes={"i": size})
    np.testing.assert_array_equal(target.to_numpy(run(x=x_data)["total"]), x_data.cumsum(0))  # it stays usable


def test_training_data_is_a_constant_to_gradients(target: Target) -> None:
    x_data = numbers((20, 4)) / 8
    with tp.Program() as program:
        i = tp.dim("i")
        x = tp.stream_input("x", (4,), (i,))
        w = tp.parameter("w", (4,), np.zeros(4, np.float32), dims=(i,))
        error = (w * x).sum() - x.sum()
        w[i + 1] = w - 0.1 * tp.grad(error * error, w)
        tp.output("error", error)
    wanted, errors = np.zeros(4), []
    for row in x_data.astype(np.float64):
        errors.append((wanted * row).sum() - row.sum())
        wanted = wanted - 0.2 * errors[-1] * row
    out = target.compile(program)(x=iter(x_data), sizes={"i": 20})
    np.testing.assert_allclose(target.to_numpy(out["error"]), errors, rtol=1e-3, atol=1e-4)


def test_two_runs_at_once_have_streams_of_their_own(target: Target) -> None:
    if target.interprets:
        pytest.skip("an evaluator has no order to step through")
    data = [numbers((4, 3), seed=seed) for seed in range(2)]
    run = target.compile(running())
    streams = [run.stream("i", x=iter(each), sizes={"i": 4}) for each in data]
    for at in range(4):
        for stream, each in zip(streams, data, strict=True):
            np.testing.assert_array_equal(target.to_numpy(next(stream)["total"]), each[: at + 1].sum(0))
