"""Families 4 and 9, reads that move with a lifted dim: prefixes, suffixes and windows of all points at once."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers, typical

Bounds = Callable[[tp.Dim], tuple[object, object]]
WINDOWS: dict[str, Bounds] = {
    "prefix": lambda t: (0, t + 1),
    "strict prefix": lambda t: (0, t),
    "suffix": lambda t: (t, t.size),
    "window": lambda t: (tp.max(t - 2, 0), t + 1),
    "both sides": lambda t: (tp.max(t - 1, 0), tp.min(t + 2, t.size)),
}
FEW = ("strict prefix", "both sides")
windows = pytest.mark.parametrize("name", typical(WINDOWS, FEW))


def attention(window: Bounds, width: int, *, gradient: bool = True) -> tp.Program:
    """Softmax attention of every point to the points of its window, and the gradient with respect to all weights."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (width,), (t,))
        names = ("query", "key", "value")
        weights = {name: tp.parameter(name, (width, width), numbers((width, width))) for name in names}
        query, key, value = (tp.tanh(x @ weights[name] / width) for name in names)
        start, stop = window(t)
        scores = tp.exp(key[start:stop] @ query)
        y = (scores / (scores.sum() + 1)) @ value[start:stop]
        tp.output("y", y)
        if gradient:
            loss = (y * y)[0 : t.size].sum()
            for name in names:
                tp.output(f"{name} gradient", tp.grad(loss, weights[name]))
    return program


@windows
def test_all_points_at_once_see_their_own_windows(target: Target, name: str) -> None:
    for size in (1, 2, 6):
        target.agrees(attention(WINDOWS[name], 3), x=numbers((size, 3)), options={"mapping": "full"}, tolerance=10)


@pytest.mark.parametrize("block", [2, pytest.param(3, marks=pytest.mark.slow)])
@windows
def test_blocks_of_points_see_their_own_windows(target: Target, name: str, block: int) -> None:
    """The last block overlaps the one before; of fewer points than a block there is one block."""
    for size in (1, 4, 6):
        target.agrees(attention(WINDOWS[name], 3), x=numbers((size, 3)), options={"mapping": block}, tolerance=10)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", WINDOWS)
def test_what_is_not_finite_reaches_no_other_window(target: Target, name: str, value: float) -> None:
    """`a` and `b` are contracted as they are, infinities included."""
    with tp.Program() as program:
        t = tp.dim("t")
        a, b = tp.input("a", (3,), (t,)), tp.input("b", (), (t,))
        start, stop = WINDOWS[name](t)
        tp.output("scaled", (b[start:stop] * b) @ a[start:stop])
        tp.output("sum", a[start:stop].sum(axis=0))
    a_data, b_data = numbers((6, 3)), numbers((6,))
    a_data[3, 1] = value
    target.agrees(program, a=a_data, b=b_data, options={"mapping": "full"}, tolerance=10)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow), 6])
@windows
def test_gradients_of_gradients(target: Target, name: str, size: int) -> None:
    """As the search maps them; at one point a strict prefix is of a dim of which nothing is read."""
    with tp.Program() as program:
        t = tp.dim("t", size)
        x = tp.input("x", (2,), (t,))
        start, stop = WINDOWS[name](t)
        total = (x[start:stop] ** 2).sum(axis=0)
        largest = tp.concatenate([total.reshape(1, 2), (x * x)[start:stop]]).max(axis=0)
        first = tp.grad((total * x + largest * largest).sum(), x)
        tp.output("first", first)
        tp.output("second", tp.grad((first * first).sum(), x))
    target.agrees(program, x=numbers((size, 2)), tolerance=20)


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("name", ["prefix", "suffix"])
def test_no_tensor_of_all_pairs_times_what_a_point_holds(target: Target, name: str) -> None:
    """Forward and backward, as predicted and, where the backend says it, as measured."""
    size = width = 256
    program = attention(WINDOWS[name], width)
    pairs = size * size * width * 4
    run = target.compile(program, {"t": size}, mapping="full", poison=False)
    assert "over (t)" not in run.explain("all").split("# graph")[1].split("#")[0]
    assert max(buffer.bytes for buffer in run.memory.buffers) <= (size + 1) * width * 4
    assert run.memory.peak_bytes < pairs
    if not hasattr(target.backend, "measured_peak"):
        return
    x = numbers((size, width))
    run(x=x)
    gc.collect()
    assert 0 < target.backend.measured_peak(lambda: run(x=x)) < pairs


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.one_device
def test_reads_of_all_pairs_are_lifted_where_they_are_small(target: Target) -> None:
    program = attention(WINDOWS["prefix"], 4, gradient=False)
    graphs = [target.compile(program, {"t": size}, mapping=None).explain("all") for size in (32, 8192)]
    assert "all points at once" not in graphs[0]
    assert "all points at once would hold 256 MiB" in graphs[1]


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.one_device
def test_blocks_hold_a_part_of_all_pairs(target: Target) -> None:
    """How large a part depends on the cache of the device."""
    size, program = 4096, attention(WINDOWS["prefix"], 16, gradient=False)
    run = target.compile(program, {"t": size}, mapping=None, poison=False)
    whole = target.compile(program, {"t": size}, mapping={"t": "full"}, poison=False)
    assert "t: blocks of" in run.explain("all")
    assert run.memory.peak_bytes < whole.memory.peak_bytes / 4
    if "t: blocks of 64 " in run.explain("all"):
        assert run.memory.peak_bytes < size * size
