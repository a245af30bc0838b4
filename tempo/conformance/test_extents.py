"""Family 7, extents that vary: the same result whatever extents reads are run with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, assert_same, numbers, typical

LENGTH = 37
EXTENTS = "hull", "blocks", "specialise"
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"extent": "hull"},
    *({"extent": extent, "tile": tile} for extent in ("blocks", "specialise") for tile in (None, 1, 3, 16, 64)),
)
FEW: tuple[dict[str, Any], ...] = (
    {},
    {"extent": "blocks", "tile": 3},
    {"extent": "blocks", "tile": 16},
    {"extent": "specialise", "tile": 16},
)


def attention(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    """Over all of the past, of what a recurrence makes."""
    h = tp.recurrent("h", (2, 3), (t,))
    scores = tp.einsum("hd,shd->hs", h, h[0 : t + 1])
    mixed = tp.einsum("hs,shd->hd", tp.softmax(scores, axis=-1), h[0 : t + 1])
    h[0] = x[0]
    h[t + 1] = tp.tanh(mixed + x[t + 1])
    tp.output("h", h)


def grouped(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    """Axes are moved and joined on the way; a bias that falls with distance."""
    h = tp.recurrent("h", (2, 3), (t,))
    past = h[0 : t + 1].reshape(t + 1, 6).T
    distance = (tp.as_tensor(t) - tp.arange(t + 1)).astype(tp.float32)
    weights = tp.softmax(h.reshape(6) @ past - 0.1 * distance, axis=-1)
    h[0] = x[0]
    h[t + 1] = tp.tanh((past @ weights).reshape(2, 3) + x[t + 1])
    tp.output("h", h)


def statistics(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    past = x[0 : t + 1]
    tp.output("mean", past.mean(axis=0))
    tp.output("deviation", ((past - past.mean(axis=0)) ** 2).sum(axis=0))
    tp.output("span", past.max(axis=0) - past.min(axis=0))
    tp.output("where", past.argmax(axis=0))
    tp.output("any", (past > 1.5).any(axis=0))


def suffix(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("rest", (x[t : t.size] * x).sum(axis=0))
    tp.output("greatest", tp.exp(x[t : t.size]).max(axis=0))


def windows(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    window = x[tp.max(t - 20, 0) : t + 1]
    tp.output("sorted", tp.cumsum(tp.sort(window, axis=0), axis=0).max(axis=0))
    tp.output("least", tp.sort(window, axis=0).spatial[0])


def steps(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    """The length does not grow by one."""
    tp.output("half", x[t // 2 : t + 1].sum(axis=0))
    tp.output("empty", x[0 : t - t % 4].sum(axis=0))


def cases(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    """What is folded is a choice among reads of several lengths."""
    h = tp.recurrent("h", (2, 3), (t,))
    past = tp.cases((t % 3 == 0, h[0 : t + 1]), (t % 3 == 1, 0.5), 0.25 * tp.flip(h[0 : t + 1], axis=0))
    h[0] = x[0]
    h[t + 1] = tp.tanh(past.mean(axis=0) + tp.sort(past, axis=0).spatial[0] + x[t + 1])
    tp.output("h", h)


def convolutions(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    """Along the past and along windows, with filters that are as long as these, and with their gradients."""
    weights = tp.as_tensor(numbers((3, 6, 3), seed=1) / 8)
    start = tp.max(t - 20, 0)
    past, window = (x[at : t + 1].reshape(t + 1 - at, 6).T.reshape(1, 6, t + 1 - at) for at in (0, start))
    causal = tp.conv(past, weights, padding=((2, 0),))
    tp.output("features", tp.tanh(causal).max(axis=2))
    tp.output("here", causal.spatial[0, :, t])
    tp.output("pairs", tp.conv(past, weights.spatial[:, :, 0:2]).sum(axis=2))  # none at first
    tp.output("strided", tp.conv(past, weights, strides=2, padding=((4, 1),), dilation=2).sum(axis=2))
    tp.output("response", tp.conv(past, tp.flip(past, axis=2)))
    tp.output("lags", tp.conv(past, past, padding=1))
    tp.output("matched", tp.conv(tp.as_tensor(numbers((1, 6, LENGTH), seed=2)), past, padding=((0, 2),)).max(axis=2))
    energy = (tp.conv(window, weights, padding=1) ** 2).sum() / 8
    tp.output("gradient", tp.grad(energy[0 : t.size].sum(), [x])[0])


def remembered(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    """A recurrence with a filter over all of its past."""
    h = tp.recurrent("h", (2, 3), (t,))
    past = h[0 : t + 1].reshape(t + 1, 6).T.reshape(1, 6, t + 1)
    taps = tp.as_tensor(numbers((6, 6, LENGTH), seed=1) / 8).spatial[:, :, 0 : t + 1]
    seen = tp.conv(past, taps) + tp.conv(past, taps.spatial[:, :, 0:1], padding=((0, 1),)).max(axis=2, keepdims=True)
    h[0] = x[0]
    h[t + 1] = tp.tanh(seen.reshape(2, 3) + x[t + 1])
    tp.output("h", h)


@pytest.mark.one_configuration
@pytest.mark.parametrize(
    "program_of", [attention, grouped, statistics, suffix, windows, steps, cases, convolutions, remembered]
)
@pytest.mark.parametrize("way", typical(WAYS, FEW[:2]), ids=str)
def test_every_extent_gives_the_same(target: Target, program_of: Callable[..., None], way: dict[str, Any]) -> None:
    if not target.thorough and way not in FEW:
        pytest.skip("compiles for long")
    with tp.Program() as program:
        t = tp.dim("t")
        program_of(t, tp.input("x", (2, 3), (t,)))
    meaning = tp.compile(program, "reference")
    for mapping in (None, "sequential") if target.thorough else (None,):
        run = target.compile(program, mapping=mapping, **way)
        for length in (1, LENGTH) if target.thorough else (LENGTH,):
            x_data = numbers((length, 2, 3)) / 4
            assert_same(target.arrays(run(x=x_data)), dict(meaning(x=x_data)), tolerance=10)


@pytest.mark.one_configuration
@pytest.mark.planned
def test_one_executable_runs_all_lengths(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        attention(t, tp.input("x", (2, 3), (t,)))
    run = target.compile(program, tile=2)
    for _ in range(3):
        run(x=np.zeros((LENGTH, 2, 3), np.float32))
    assert run.executables == 1


@pytest.mark.one_configuration
def test_what_is_no_way_is_refused(target: Target) -> None:
    del target
    for wrong in ({"extent": "mask"}, {"tile": 0}, {"tile": True}, {"tile": 1.5}):
        with pytest.raises(tp.InputError):
            tp.Options(**wrong)
