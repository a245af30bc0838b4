"""Inputs given as lists, one array for each point: the same as one array, whatever reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers

LAYERS, TIMES, EXPERTS = 3, 5, 4


def layers() -> tp.Program:
    """Read at points alone, in two loops, the second backward."""
    with tp.Program() as program:
        n, t = tp.dim("n", LAYERS), tp.dim("t", TIMES)
        w, scale = tp.input("w", (2, 3), (n,)), tp.input("scale", (2,), (n,))
        x, h = tp.recurrent("x", (2,), (n, t)), tp.recurrent("h", (2,), (t,))
        x[0, t] = h
        x[n + 1, t] = tp.tanh(w @ (w.T @ x)) * scale
        h[0] = tp.ones(2)
        h[t + 1] = x[n.size - 1, t]
        tp.output("h", h)
        last = tp.recurrent("last", (3,), (n,))
        last[n.size - 1] = w[n.size - 1].sum(axis=0)
        last[True] = last[n + 1] + w[n].sum(axis=0) * scale.sum()
        tp.output("last", last)
    return program


def slices() -> tp.Program:
    """At points, at all of them at once, and over windows that move."""
    with tp.Program() as program:
        n = tp.dim("n", LAYERS)
        w, scale = tp.input("w", (2, 3), (n,)), tp.input("scale", (2,), (n,))
        tp.output("sum", w[0 : n + 1].sum(axis=0) * scale.sum())
        tp.output("mean", w[0 : n.size].mean(axis=0))
        tp.output("scale", scale[tp.max(n - 1, 0) : n + 1].max(axis=0))
    return program


def whole() -> tp.Program:
    """Given back as it is."""
    with tp.Program() as program:
        n = tp.dim("n", LAYERS)
        tp.output("w", tp.input("w", (2, 3), (n,)))
        tp.output("scale", tp.input("scale", (2,), (n,))[n.size - 1 - n])
    return program


@pytest.mark.parametrize("make", [layers, slices, whole])
def test_lists_of_arrays_are_as_one(target: Target, make: Callable[[], tp.Program]) -> None:
    w, scale = numbers((LAYERS, 2, 3)), numbers((LAYERS, 2), seed=1)
    wanted = tp.compile(make(), backend="reference")(w=w, scale=scale)
    target.agrees(make(), wanted, w=list(w), scale=tuple(scale), tolerance=10)
    target.agrees(make(), wanted, w=w, scale=[list(each) for each in scale], tolerance=10)  # numbers, as ever


def over_both() -> tp.Program:
    """Over the dim of a stream and one within it."""
    with tp.Program() as program:
        t, n = tp.dim("t", TIMES), tp.dim("n", LAYERS)
        w, shift = tp.input("w", (2, 2), (n,)), tp.input("shift", (2,), (t, n))
        h = tp.recurrent("h", (2,), (t, n))
        h[0, 0] = tp.ones(2)
        h[n == 0] = h[t - 1, n.size - 1]
        h[t, n + 1] = tp.tanh(w @ h + shift) + 0.5 * h
        tp.output("h", h)
    return program


@pytest.mark.parametrize("listed", ["", "w", "shift", "w shift"])
def test_streams_take_lists(target: Target, listed: str) -> None:
    given = {"w": numbers((LAYERS, 2, 2)), "shift": numbers((TIMES, LAYERS, 2), seed=1)}
    wanted = tp.compile(over_both(), backend="reference")(**given)["h"]
    lists: dict[str, Any] = {name: list(given[name]) if name in listed.split() else given[name] for name in given}
    run = target.compile(over_both())
    for chunk in (2, 3):
        steps = [target.to_numpy(each["h"]) for each in run.stream("t", chunk=chunk, **lists)]
        np.testing.assert_allclose(np.concatenate(steps), wanted, rtol=1e-5, atol=1e-6)


def experts(over: bool) -> tp.Program:
    """Over two dims; those of the inner are read at points, or chosen by an index."""
    with tp.Program() as program:
        n, e = tp.dim("n", LAYERS), tp.dim("e", EXPERTS)
        w, index = tp.input("w", (2, 2), (n, e)), tp.input("index", (2,), (n,), tp.int32)
        x = tp.recurrent("x", (2,), (n,))
        x[0] = tp.ones(2)
        chosen = w[n, 0 : e.size].sum(axis=0) if over else w.gather("e", index).sum(axis=0)
        x[n + 1] = tp.tanh(chosen @ x)
        tp.output("x", x)
    return program


@pytest.mark.parametrize("over", [True, False])
def test_lists_within_lists(target: Target, over: bool) -> None:
    w, index = numbers((LAYERS, EXPERTS, 2, 2)), np.array([[3, 0], [1, 2], [2, 2]], np.int32)
    wanted = tp.compile(experts(over), backend="reference")(w=w, index=index)
    for given in ([list(each) for each in w], list(w), w):
        target.agrees(experts(over), wanted, w=given, index=index, tolerance=10)


def test_what_is_put_on_the_device_serves_other_calls(target: Target) -> None:
    """Also those of other programs, that read it in another way."""
    w, scale = numbers((LAYERS, 2, 3)), numbers((LAYERS, 2), seed=1)
    run = target.compile(layers())
    held = run.device_put(w=list(w), scale=scale)
    wanted = tp.compile(layers(), backend="reference")(w=w, scale=scale)
    for _ in range(2):
        np.testing.assert_allclose(target.to_numpy(run(**held)["h"]), wanted["h"], rtol=1e-5)
    other = tp.compile(slices(), backend="reference")(w=w, scale=scale)
    np.testing.assert_allclose(target.to_numpy(target.compile(slices())(**held)["sum"]), other["sum"], rtol=1e-5)
    with pytest.raises(tp.InputError, match="the program has no input 'v'"):
        run.device_put(v=w)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            [np.ones((2, 3)), np.ones((2, 2)), np.ones((2, 3))],
            r"'w' at n = 1 has shape \(2, 2\), and at n = 0 \(2, 3\)",
        ),
        ([np.ones((2, 3))] * 4, "the size of the dim 'n' is 3 by the program, but 4 by the shape"),
        ([np.ones((2, 2))] * 3, r"has shape \(3, 2, 2\), expected is \(3, 2, 3\)"),
        ([np.ones(3)] * 3, r"has shape \(3, 3\), expected are 3 axes"),
        ([np.ones((2, 3)), np.ones((2, 3), complex), np.ones((2, 3))], "'w' at n = 1 has dtype complex128"),
        ([np.ones((2, 3)), "w", np.ones((2, 3))], "'w' at n = 1 is no array"),
    ],
)
def test_what_does_not_fit_is_named(target: Target, given: list[object], message: str) -> None:
    with pytest.raises((tp.InputError, tp.SizeError, tp.DTypeError), match=message):
        target.compile(whole())(w=given, scale=np.ones((3, 2), np.float32))
