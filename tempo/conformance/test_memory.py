"""Family 9, memory: windows and points keep what they should, and nothing that was never written is read."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers, typical


def window_program(width: int) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        b = tp.recurrent("b", (3,), (t,))
        b[t < width] = x
        b[t + width] = 0.5 * b + tp.tanh(b[t + width - 1]) + x[t + width]
        tp.output("last", b[-1])
        window = b[tp.max(t - width + 1, 0) : t + 1]
        ages = tp.flip(tp.cumsum(tp.ones_like(window), axis=0), axis=0)
        tp.output("weighted", (window * ages).sum(axis=0)[t.size - 1])
    return program


@pytest.mark.parametrize("width", [1, 2, 5])
def test_windows_wrap(target: Target, width: int) -> None:
    """Runs that end at every position of a circular buffer."""
    for size in (width, width + 1, 2 * width, 2 * width + 1, 4 * width + 3):
        x = numbers((size, 3))
        b = x.astype(np.float64)
        for at in range(width, size):
            b[at] = 0.5 * b[at - width] + np.tanh(b[at - 1]) + x[at]
        ages = np.arange(width, 0, -1)[:, None]
        expected = {"last": b[-1], "weighted": (b[-width:] * ages).sum(0)}
        target.agrees(window_program(width), expected, x=x, tolerance=4)


@pytest.mark.planned
def test_a_recurrence_keeps_as_many_points_as_it_reads(target: Target) -> None:
    """`b` of 5,000 points of 16 floats, of which 8 are needed at a time; and one of which a single point is."""
    with tp.Program() as program:
        t = tp.dim("t")
        a = tp.tanh(t * tp.ones((16,)))
        b = tp.recurrent("b", (16,), (t,))
        b[t < 8] = a
        b[t + 8] = 0.5 * b + a
        s = tp.recurrent("s", (16,), (t,))
        s[0] = a
        s[t + 1] = 0.5 * s + a
        tp.output("recent", b[tp.max(t - 7, 0) : t + 1].max(axis=0)[t.size - 1])
        tp.output("s", s[-1])
    kept = target.compile(program, {"t": 5_000}, lift=False, disable=("lift",)).memory
    assert kept["b"].storage == "window(8)"
    assert kept["b"].bytes == 8 * 16 * 4
    assert kept.peak_bytes < 20_000
    assert kept["b"].bytes + kept["s"].bytes < kept.peak_bytes


@pytest.mark.planned
def test_memory_grows_only_with_what_is_kept(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        s = tp.recurrent("s", (16,), (t,))
        s[0] = tp.ones((16,))
        s[t + 1] = tp.tanh(s * 0.5 + t)
        tp.output("s", s)
    short, long = (target.compile(program, {"t": size}).memory.peak_bytes for size in (10, 1010))
    assert long - short == 1000 * 16 * 4


@pytest.mark.parametrize("size", [2, 5, 6])
def test_what_is_overwritten_has_been_read(target: Target, size: int) -> None:
    """Tensors that exchange places, that are read by two, and that are read once more a step later."""
    x_data = numbers((size, 2))
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        a, b, c = (tp.recurrent(name, (2,), (t,)) for name in "abc")
        a[0], b[0], c[0] = x, -x, x * 2
        a[t + 1] = b
        b[t + 1] = a
        c[t + 1] = tp.flip(c) + tp.cases((t >= 1, c[t - 1]), 0.0)
        tp.output("swapped", a[-1] * 3 + b[-1])
        tp.output("history", tp.cases((t >= 2, c - c[t - 2]), c))
        tp.output("c", c)
        tp.output("c_squared", c * c)
    c_ = [x_data[0] * 2.0]
    for at in range(1, size):
        c_.append(c_[-1][::-1] + (c_[-2] if at >= 2 else 0))
    ends = (1.0 if size % 2 else -1.0) * x_data[0]
    target.agrees(program, {"swapped": 3 * ends - ends, "c": c_}, x=x_data)


@pytest.mark.parametrize("wrong", [np.nan, np.inf], ids=["nan", "inf"])
def test_padding_is_never_looked_at(target: Target, wrong: float) -> None:
    """The element after a slice of varying length is NaN: what was computed of the slice does not show it."""
    size = 6
    x_data = np.abs(numbers((size, 2))) + 1
    x_data[-1] = wrong  # in no slice before the last point
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        past = x[0:t]
        tp.output("sum", past.sum(axis=0))
        tp.output("product", past.prod(axis=0))
        tp.output("dot", (past.T @ past).sum())
        tp.output("softmax", tp.softmax(x[0 : t + 1], axis=0).sum(axis=0)[: t.size - 1])
        tp.output("largest", x[0 : t + 1].max(axis=0)[: t.size - 1])
        tp.output("first", x[0 : t + 1].argmin(axis=0)[: t.size - 1])
        tp.output("any", (past > 1e9).any(axis=0))
        tp.output("window", x[tp.max(t - 2, 0) : t + 1].mean(axis=0)[: t.size - 1])
        tp.output("guarded", tp.cases((t < t.size - 1, x * 2), 0.0))
    out = target.agrees(program, x=x_data, tolerance=8)
    assert all(np.isfinite(target.to_numpy(array)).all() for array in out.values())


def test_results_belong_to_the_caller(target: Target) -> None:
    """A later run changes nothing of what an earlier one returned, nor does either change what was given."""
    x_data = numbers((4, 2))
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        s = tp.recurrent("s", (2,), (t,))
        s[0] = x
        s[t + 1] = s + x[t + 1]
        tp.output("s", s)
        tp.output("x", x)
        tp.output("first", x[0])
        tp.output("fixed", tp.constant([1.0, 2.0]))
    run = target.compile(program)
    first = run(x=x_data)
    kept = {name: array.copy() for name, array in target.arrays(first).items()}
    run(x=x_data * 5)
    for name, array in target.arrays(first).items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
    for array in target.arrays(first).values():
        if array.flags.writeable:
            array[...] = -1
    np.testing.assert_array_equal(x_data, numbers((4, 2)))
    for name, array in target.arrays(run(x=x_data)).items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)


# -- a true plan -------------------------------------------------------------------------------------------------------

Case = tuple[tp.Program, Mapping[str, int], Mapping[str, Any]]


def recurrence_and_gradient() -> Case:
    with tp.Program() as program:
        t = tp.dim("t")
        w = tp.input("w", (128, 128), ())
        h = tp.recurrent("h", (64, 128), (t,))
        h[0] = tp.ones((64, 128)) * 0.1
        h[t + 1] = tp.tanh(h @ w)
        tp.output("gradient", tp.grad((h[-1] ** 2).sum(), {"w": w})["w"])
    return program, {"t": 200}, {"w": numbers((128, 128)) * 0.1}


def batch_and_gradient() -> Case:
    """Every point at once: large values, chains of elementwise operators, results that take operands' memory."""
    with tp.Program() as program:
        n = tp.dim("n")
        x, y = tp.input("x", (256,), (n,)), tp.input("y", (64,), (n,))
        w = {"a": tp.input("a", (256, 256), ()), "b": tp.input("b", (256, 64), ())}
        error = ((tp.tanh(tp.relu(x @ w["a"]) * 0.5 + 0.1) @ w["b"] - y) ** 2).mean()
        tp.output("loss", error[0 : n.size].mean())
        for name, gradient in tp.grad(error[0 : n.size].mean(), w).items():
            tp.output(f"d{name}", gradient)
    given = {"x": (8192, 256), "y": (8192, 64), "a": (256, 256), "b": (256, 64)}
    return program, {}, {name: numbers(shape) * 0.1 for name, shape in given.items()}


def states_beside_outputs() -> Case:
    """A large slot that every iteration replaces, perhaps in place."""
    with tp.Program() as program:
        t = tp.dim("t")
        s = tp.recurrent("s", (2100, 2100), (t,))
        s[0] = tp.ones((2100, 2100))
        s[t + 1] = tp.where(s > 0.5, s * 0.9, s + 0.3)
        tp.output("sums", s.sum(axis=1))
        tp.output("last", s[-1])
    return program, {"t": 12}, {}


def with_a_call_of_the_host() -> Case:
    with tp.Program() as program:
        t = tp.dim("t")
        s = tp.recurrent("s", (512, 512), (t,))
        s[0] = tp.ones((512, 512))
        s[t + 1] = tp.host_call(_halved, s, out=[((512, 512), tp.float32)])[0] + 1
        tp.output("s", s)
    return program, {"t": 24}, {}


def _halved(s: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (s / 2).astype(np.float32)


CASES = (recurrence_and_gradient, batch_and_gradient, states_beside_outputs, with_a_call_of_the_host)


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_true(target: Target, case: Callable[[], Case]) -> None:
    """By the backend's own measure of what a run takes beside what it is given: a tenth at most to either side."""
    if not hasattr(target.backend, "measured_peak"):
        pytest.skip("the backend does not say how much memory its arrays take")
    if target.mesh is not None and hasattr(target.backend, "launched"):
        pytest.skip("what an exchange between processes needs for itself is not known")
    program, sizes, inputs = case()
    run = target.compile(program, sizes, poison=False)
    run(sizes=sizes, **inputs)
    inputs = run.device_put(**inputs)  # a device may have memory of its own, in which they are given
    gc.collect()
    measured = target.backend.measured_peak(lambda: run(sizes=sizes, **inputs))
    memory = run.memory
    assert measured > 16 * 2**20 / (target.mesh or 1)
    assert 0.9 <= (memory.peak_bytes - memory.given_bytes) / measured <= 1.1, str(memory)
    assert memory.peak_bytes == memory.given_bytes + memory.returned_bytes + memory.working_bytes
    assert memory.peak_bytes == sum(piece.bytes for piece in memory.at_peak)


@pytest.mark.one_configuration
@pytest.mark.parametrize("size", typical([1, 5, 13, 16], [13]))
def test_what_a_later_loop_needs_is_computed_again(target: Target, size: int) -> None:
    """In strips of four points, and those in strips of two."""
    x_data, w_data = numbers((size, 2, 3)), numbers((3, 6), seed=1)
    for strips in (4, (4, 2)):
        target.agrees(gated(), options={"recompute": {"t": strips}}, tolerance=50, x=x_data, w=w_data)


def gated() -> tp.Program:
    """A network with gates, its losses and the gradients."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, w = tp.input("x", (2, 3), (t,)), tp.input("w", (3, 6), ())
        h, c = tp.recurrent("h", (2, 3), (t,)), tp.recurrent("c", (2, 3), (t,))
        h[0], c[0] = tp.zeros((2, 3)), x
        gates = (h + x) @ w
        c[t + 1] = tp.sigmoid(gates.spatial[:, :3]) * c + tp.tanh(gates.spatial[:, 3:])
        h[t + 1] = tp.tanh(c[t + 1]) * x
        losses = ((h - x) ** 2).sum()
        tp.output("losses", losses)
        found = tp.grad(losses[0 : t.size].sum(), {"w": w, "x": x})
        tp.output("w", found["w"])
        tp.output("x", found["x"])
    return program


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("size", typical([3, 40, 77], [40]))
def test_what_loops_keep_goes_to_a_pool_and_comes_back(target: Target, tmp_path: Path, size: int) -> None:
    """One in memory, and one in a folder, in which nothing is left."""
    x_data, w_data = numbers((size, 2, 3)) / 4, numbers((3, 6), seed=1) / 4
    for where in ("host", tmp_path) if size == 40 else ("host",):
        target.agrees(gated(), offload=where, tolerance=50, x=x_data, w=w_data)
    assert not list(tmp_path.iterdir())


@pytest.mark.planned
@pytest.mark.one_configuration
def test_with_a_pool_a_network_keeps_a_few_strips(target: Target) -> None:
    """A fifth of what is held otherwise, beside what is given; all of the pool is sent there, and comes back."""
    runs = [target.compile(network(256, 48), offload=where) for where in (None, "host")]
    held = [run.memory.peak_bytes - run.memory.given_bytes for run in runs]
    assert 5 * held[1] <= held[0]
    moved, pool = runs[1].memory.traffic, runs[1].memory.pool_bytes
    assert pool * 15 / 16 <= moved.evicted <= moved.fetched
    w_data = numbers((48, 48)) / 16
    found, wanted = (target.to_numpy(run(w=w_data)["w"]) for run in reversed(runs))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * float(np.abs(wanted).max()))


def network(steps: int, width: int) -> tp.Program:
    """A recurrence and its gradient: all states are kept, and all terms of derivatives."""
    with tp.Program() as program:
        t = tp.dim("t", steps)
        w = tp.input("w", (width, width), ())
        h = tp.recurrent("h", (width, width), (t,))
        h[0] = tp.ones((width, width)) * 0.1
        h[t + 1] = tp.tanh(h @ w)
        tp.output("w", tp.grad((h[t.size - 1] ** 2).sum(), w))
    return program


def of_rows(steps: int, width: int) -> tp.Program:
    """The same of rows of steps, which are given in another order than a loop over steps would have them."""
    with tp.Program() as program:
        b, t = tp.dim("b", width), tp.dim("t", steps)
        w, x = tp.input("w", (width, width), ()), tp.input("x", (width,), (b, t))
        h = tp.recurrent("h", (width,), (b, t))
        h[b, 0] = x
        h[b, t + 1] = tp.tanh(h @ w + x)
        losses = (h[b, t.size - 1] ** 2).sum()
        tp.output("w", tp.grad(losses[0 : b.size].sum(), w))
    return program


@pytest.mark.slow
@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("make", [network, of_rows])
def test_a_network_and_its_gradient_keep_the_root_of_the_steps(
    target: Target, make: Callable[[int, int], tp.Program]
) -> None:
    """At most 1.2 times twice the root of what is kept otherwise, of 1,024 points."""
    runs = [target.compile(make(1_024, 64), recompute=strips) for strips in (None, {"t": 32})]
    kept = [run.memory.working_bytes for run in runs]
    assert kept[1] <= kept[0] * 1.2 * 2 * 32 / 1_024


@pytest.mark.planned
@pytest.mark.one_configuration
def test_a_limit_is_kept_and_the_results_are_the_same(target: Target) -> None:
    """A fifth of what is held otherwise; in an eighth of a megabyte nothing fits, and nothing runs."""
    program, w_data = network(256, 48), numbers((48, 48)) / 16
    plain = target.compile(program)
    limit = plain.memory.peak_bytes // 5
    run = tp.compile(program, target.backend, target.scheduler, options=target.options(), memory_limit=limit)
    assert run.memory.peak_bytes <= limit
    assert run.memory.choices[-1].fits
    found, wanted = (target.to_numpy(each(w=w_data)["w"]) for each in (run, plain))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * float(np.abs(wanted).max()))
    with pytest.raises(tp.MemoryLimitError, match="the least holds"):
        tp.compile(program, target.backend, target.scheduler, options=target.options(), memory_limit="128KiB")
