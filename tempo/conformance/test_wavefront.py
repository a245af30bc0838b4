"""Recurrences that indices alone order: a tile of points at a time they are what they are point by point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, assert_same, typical

WIDTH, CHILDREN, TILE = 3, 2, 4


def chain(size: int, first: int, random: np.random.Generator) -> Array:
    return np.maximum(np.arange(size)[:, None] - 1, 0) * np.ones((1, CHILDREN), int)


def star(size: int, first: int, random: np.random.Generator) -> Array:
    return np.zeros((size, CHILDREN), int)


def forest(size: int, first: int, random: np.random.Generator) -> Array:
    """Each point has one reader at most, as far as there are enough."""
    child, roots = np.zeros((size, CHILDREN), int), list(range(first))
    for n in range(first, size):
        for place in range(CHILDREN):
            child[n, place] = roots.pop(int(random.integers(len(roots)))) if roots else n - 1
        roots.append(n)
    return child


def shared(size: int, first: int, random: np.random.Generator) -> Array:
    return np.stack([random.integers(0, max(n, 1), CHILDREN) for n in range(size)])


SHAPES: dict[str, Callable[[int, int, np.random.Generator], Array]] = {
    each.__name__: each for each in (chain, star, forest, shared)
}


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def given(shape: str, leaves: int, inner: int, seed: int = 0) -> dict[str, Any]:
    size = leaves + inner
    child = SHAPES[shape](size, leaves, np.random.default_rng(seed)).astype("int32")
    return {"x": numbers(size, WIDTH, seed=seed), "w": numbers(WIDTH, WIDTH, seed=seed + 1), "child": child}


def trees(how: str = "plain") -> tp.Program:
    """A forest and the gradients of a sum over it; `how` says what is special about it."""
    with tp.Program() as program:
        leaf, inner = tp.dim("leaf"), tp.dim("inner")
        n = tp.dim("n", leaf.size + inner.size)
        x, w = tp.input("x", (WIDTH,), (n,), "float64"), tp.input("w", (WIDTH, WIDTH), dtype="float64")
        child = tp.input("child", (CHILDREN,), (n,), "int32")
        h = tp.recurrent("h", (WIDTH,), (n,), "float64")
        before = slice(0, n)
        if how == "state and output":
            c = tp.recurrent("c", (WIDTH,), (n,), "float64")
            below = c.gather(n, child, within=before) * tp.sigmoid(h.gather(n, child, within=before) @ w)
            c[n] = tp.cases((n < leaf.size, x), below.sum(axis=0) + tp.tanh(x))
            h[n] = tp.tanh(c)
        elif how == "indices that are computed":
            index = tp.maximum(child.spatial[::-1] - 1, 0)
            h[n] = tp.cases((n < leaf.size, x), tp.tanh(x @ w + h.gather(n, index, within=before).sum(axis=0)))
        elif how == "points around":
            around = x[tp.max(n - 1, 0)] * 2 + x[tp.min(n + 1, n.size - 1)]
            h[n] = tp.cases(
                (n < leaf.size, around), tp.tanh(around @ w + h.gather(n, child, within=before).sum(axis=0))
            )
        elif how == "what is derived":
            below = tp.sin(h * 2).gather(n, child, within=before)
            h[n] = tp.cases((n < leaf.size, x @ w + n), tp.tanh(below.sum(axis=0) + x) * (1 / tp.as_tensor(n + 1)))
        elif how == "one child and two":
            one = h.gather(n, child.spatial[0], within=before)
            two = h.gather(n, child, within=before)
            h[n] = tp.cases((n < leaf.size, x), tp.tanh(one @ w + two.sum(axis=0) * x))
        elif how == "one that reads another":
            g = tp.recurrent("g", (WIDTH,), (n,), "float64")
            below = g.gather(n, child, within=before)
            g[n] = tp.cases((n < leaf.size, tp.tanh(x)), tp.tanh(below.sum(axis=0) + x))
            between, inner_sum = tp.sin(g), (below * h.gather(n, child, within=before)).sum(axis=0)
            h[n] = tp.cases((n < leaf.size, between), tp.tanh(between + inner_sum @ w))
            tp.output("g", g)
        elif how == "what is inside is read":
            twice = h * 2
            cell = tp.tanh(x + twice.gather(n, child, within=before).sum(axis=0) @ w)
            h[n] = tp.cases((n < leaf.size, tp.sin(x) * 2), cell + 1)
            tp.output("twice", twice)
        else:
            h[n] = tp.cases((n < leaf.size, tp.sin(x)), tp.tanh(x + h.gather(n, child, within=before).sum(axis=0) @ w))
        loss = (h * tp.as_tensor(n + 1, dtype="float64")).sum()[0 : n.size].sum()
        tp.output("h", h)
        tp.output("last", h[n.size - 1])
        tp.output("loss", loss)
        for name, value in zip(("dx", "dw"), tp.grad(loss, [x, w])):
            tp.output(name, value)
    return program


HOW = (
    "plain",
    "state and output",
    "indices that are computed",
    "points around",
    "what is derived",
    "one child and two",
    "one that reads another",
    "what is inside is read",
)


def is_in_tiles(target: Target, run: tp.Executable) -> bool:
    return (
        target.interprets
        or target.mesh is not None
        or "lift" in target.configuration.disable
        or "n: in tiles" in run.explain("all")
    )


@pytest.mark.parametrize("how", typical(HOW, HOW[1::2]))
def test_recurrences_that_indices_order(target: Target, how: str) -> None:
    arrays, sizes = given("shared", 4, 9), {"leaf": 4, "inner": 9}
    run, alone = target.compile(trees(how), mapping={"n": TILE}), tp.compile(trees(how), "reference")
    found, wanted = run(sizes=sizes, **arrays), alone(sizes=sizes, **arrays)
    assert_same(target.arrays(found), dict(wanted), tolerance=4)
    assert is_in_tiles(target, run) or "lift" in target.configuration.disable


@pytest.mark.parametrize("points", typical([(1, 1), (1, 7), (5, 3), (9, 12)], [(1, 7), (9, 12)]))
def test_structure_of_any_shape(target: Target, points: tuple[int, int]) -> None:
    """One executable for all forests of as many points, but for numbers of tiles."""
    leaves, inner = points
    run = target.compile(trees(), mapping={"n": TILE})
    alone = tp.compile(trees(), "reference")
    for seed, shape in enumerate((*SHAPES, "forest")):
        arrays, sizes = given(shape, leaves, inner, seed), {"leaf": leaves, "inner": inner}
        found, wanted = run(sizes=sizes, **arrays), alone(sizes=sizes, **arrays)
        assert_same(target.arrays(found), dict(wanted), tolerance=4)
    assert target.interprets or run.executables <= 3


def test_batches_of_trees_in_buckets(target: Target) -> None:
    options: dict[str, Any] = {"mapping": {"n": TILE}, "buckets": {"leaf": "pow2", "inner": "pow2"}}
    run, alone = target.compile(trees(), **options), tp.compile(trees(), "reference")
    for seed, (leaves, inner) in enumerate([(5, 6), (7, 5), (8, 8), (1, 1), (6, 7)]):
        arrays, sizes = given("forest", leaves, inner, seed), {"leaf": leaves, "inner": inner}
        assert_same(target.arrays(run(sizes=sizes, **arrays)), dict(alone(sizes=sizes, **arrays)), tolerance=4)


def test_trees_while_learning(target: Target) -> None:
    with tp.Program() as program:
        i, n = tp.dims("i n")
        x, child = tp.input("x", (WIDTH,), (n,), "float64"), tp.input("child", (CHILDREN,), (n,), "int32")
        w = tp.parameter("w", (WIDTH, WIDTH), numbers(WIDTH, WIDTH), (i,), "float64")
        h = tp.recurrent("h", (WIDTH,), (i, n), "float64")
        h[i, 0] = tp.tanh(x)
        h[i, n] = tp.tanh(x + h.gather(n, child, within=slice(0, n)).sum(axis=0) @ w)
        loss = (h * h).sum()[i, 0 : n.size].sum()
        w[i + 1] = w - 0.1 * tp.grad(loss, w)
        tp.output("loss", loss)
    arrays = given("shared", 1, 8)
    options = {"mapping": {"n": TILE}}
    target.agrees(program, sizes={"i": 3}, options=options, x=arrays["x"], child=arrays["child"], tolerance=4)


@pytest.mark.one_process
def test_from_the_roots_to_the_leaves(target: Target) -> None:
    """Points that read points behind them: up the trees, and then down."""
    with tp.Program() as program:
        leaf, inner = tp.dim("leaf"), tp.dim("inner")
        n = tp.dim("n", leaf.size + inner.size)
        x, child = tp.input("x", (WIDTH,), (n,), "float64"), tp.input("child", (CHILDREN,), (n,), "int32")
        parent = tp.input("parent", (), (n,), "int32")
        up, down = (tp.recurrent(name, (WIDTH,), (n,), "float64") for name in ("up", "down"))
        up[n] = tp.cases((n < leaf.size, x), tp.tanh(x + up.gather(n, child, within=slice(0, n)).sum(axis=0)))
        down[n.size - 1] = up
        down[n] = tp.tanh(up * 2 + down.gather(n, parent, within=slice(n + 1, n.size)))
        loss = (down * x).sum()[0 : n.size].sum()
        tp.output("down", down)
        tp.output("dx", tp.grad(loss, x))
    arrays, sizes = given("forest", 6, 8), {"leaf": 6, "inner": 8}
    parent_of = np.minimum(np.arange(14) + 1 + np.random.default_rng(0).integers(0, 5, 14), 13).astype("int32")
    run = target.compile(program, mapping={"n": TILE})
    alone = tp.compile(program, "reference")
    inputs = {"x": arrays["x"], "child": arrays["child"], "parent": parent_of}
    assert_same(target.arrays(run(sizes=sizes, **inputs)), dict(alone(sizes=sizes, **inputs)), tolerance=4)
    assert is_in_tiles(target, run)
    inputs["parent"][3] = 3
    with pytest.raises(tp.IndexOutOfRangeError, match=r"index 3 .*slice\(4, 14\) of 'down' at n = 3"):
        run(sizes=sizes, **inputs)


@pytest.mark.parametrize("backward", [False, True], ids=["before", "behind"])
def test_fewer_points_than_those_that_read_none(target: Target, backward: bool) -> None:
    with tp.Program() as program:
        n = tp.dim("n")
        x, other = tp.input("x", (), (n,), "float64"), tp.input("other", (), (n,), "int32")
        h = tp.recurrent("h", (), (n,), "float64")
        alone, within = (n >= n.size - 4, slice(n + 1, n.size)) if backward else (n < 4, slice(0, n))
        h[n] = tp.cases((alone, x), h.gather(n, other, within=within) + x)
        tp.output("h", h)
    run, meaning = target.compile(program), tp.compile(program, "reference")
    for size in (9, 4, 3, 1):
        arrays: dict[str, Any] = {"x": numbers(size), "other": np.full(size, size - 1 if backward else 0, "int32")}
        assert_same(target.arrays(run(**arrays)), dict(meaning(**arrays)))


def test_two_forests(target: Target) -> None:
    """Along two dims, of which the second reads the first."""
    with tp.Program() as program:
        m, n = tp.dims("m n")
        x, y = tp.input("x", (WIDTH,), (m,), "float64"), tp.input("y", (WIDTH,), (n,), "float64")
        child, other = tp.input("child", (CHILDREN,), (m,), "int32"), tp.input("other", (CHILDREN,), (n,), "int32")
        h, g = tp.recurrent("h", (WIDTH,), (m,), "float64"), tp.recurrent("g", (WIDTH,), (n,), "float64")
        h[0] = x
        h[m] = tp.tanh(x + h.gather(m, child, within=slice(0, m)).sum(axis=0))
        root = h[m.size - 1] * h[0 : m.size].sum(axis=0)
        g[0] = y
        g[n] = tp.tanh(y + g.gather(n, other, within=slice(0, n)).sum(axis=0)) + root
        loss = (g * g).sum()[0 : n.size].sum()
        tp.output("loss", loss)
        for name, value in zip(("dx", "dy"), tp.grad(loss, [x, y])):
            tp.output(name, value)
    one, two = given("shared", 1, 8), given("shared", 1, 5, seed=3)
    arrays = {"x": one["x"], "child": one["child"], "y": two["x"], "other": two["child"]}
    run = target.compile(program, mapping={"m": TILE, "n": TILE})
    assert_same(target.arrays(run(**arrays)), dict(tp.compile(program, "reference")(**arrays)), tolerance=4)
    assert is_in_tiles(target, run)


@pytest.mark.parametrize("way", ["sequential", TILE, None])
@pytest.mark.parametrize("checks", [None, True])
@pytest.mark.one_process
def test_a_broken_promise_names_the_point(target: Target, way: str | int | None, checks: bool | None) -> None:
    """Of what indices order the inspector looks at all of them, whatever runs then."""
    arrays = given("forest", 4, 5)
    arrays["child"][6, 1] = 6
    run = target.compile(trees(), checks=checks, mapping=None if way is None else {"n": way})
    with pytest.raises(tp.IndexOutOfRangeError, match=r"index 6 .*slice\(0, 6\) of 'h' at n = 6, element 1") as caught:
        run(sizes={"leaf": 4, "inner": 5}, **arrays)
    assert caught.value.location is not None


OTHERWISE = ("each row its own", "the point before, too", "a stream")
"""Recurrences whose points go one by one."""


@pytest.mark.parametrize("how", OTHERWISE)
@pytest.mark.one_process
def test_a_broken_promise_of_points_that_go_one_by_one(target: Target, how: str) -> None:
    """Indices that are known before the run are looked at, whatever becomes of the reads."""
    rows = how == OTHERWISE[0]
    with tp.Program() as program:
        *b, n = tp.dims("b n") if rows else [tp.dim("n")]
        over = (*b, n)
        x, other = tp.input("x", (), over, "float64"), tp.input("other", (2,), over, "int32")
        h = tp.recurrent("h", (), over, "float64")
        h[*b, 0] = x
        value = x + h.gather(n, other, within=slice(0, n)).sum(axis=0)
        h[*b, n] = tp.sin(value + h[n - 1] if how == OTHERWISE[1] else value)
        tp.output("h", h)
    indices = np.zeros((3, 7, 2) if rows else (7, 2), "int32")
    arrays: dict[str, Any] = {"x": numbers(*indices.shape[:-1]), "other": indices}
    run = target.compile(program)
    assert_same(target.arrays(run(**arrays)), dict(tp.compile(program, "reference")(**arrays)))
    indices[..., 0, :] = 50  # asked for by nobody
    assert_same(target.arrays(run(**arrays)), dict(tp.compile(program, "reference")(**arrays)))
    indices[(1, 4, 1) if rows else (4, 1)] = 4
    at = ".*b = 1, n = 4" if rows else ".*n = 4"
    stream = how == OTHERWISE[2] and not target.interprets
    with pytest.raises(tp.IndexOutOfRangeError, match=rf"index 4 .*slice\(0, 4\) of 'h' at {at}, element 1"):
        list(run.stream("n", **arrays) if stream else run(**arrays))


def test_only_a_gradient_is_asked_for(target: Target) -> None:
    """The loss reads more points than are demanded."""
    with tp.Program() as program:
        leaf, inner = tp.dim("leaf"), tp.dim("inner")
        n = tp.dim("n", leaf.size + inner.size)
        x, child = tp.input("x", (WIDTH,), (n,), "float64"), tp.input("child", (CHILDREN,), (n,), "int32")
        h = tp.recurrent("h", (WIDTH,), (n,), "float64")
        below = h.gather(n, child, within=slice(0, leaf.size)).sum(axis=0)
        h[n] = tp.cases((n < leaf.size, tp.sin(x)), tp.tanh(x + below))
        tp.output("dx", tp.grad((h * h).sum()[0 : n.size].sum(), x))
    arrays, sizes = given("star", 6, 8), {"leaf": 6, "inner": 8}
    options = {"mapping": {"n": TILE}}
    target.agrees(program, sizes=sizes, options=options, x=arrays["x"], child=arrays["child"], tolerance=4)


def test_without_checks_indices_are_clamped(target: Target) -> None:
    arrays = given("forest", 4, 5)
    arrays["child"][6] = 9, -3
    options = {"mapping": {"n": TILE}, "checks": False}
    target.agrees(trees(), sizes={"leaf": 4, "inner": 5}, options=options, tolerance=4, **arrays)


def test_a_chain_stays_a_loop(target: Target) -> None:
    run = target.compile(trees())
    run(sizes={"leaf": 1, "inner": 40}, **given("chain", 1, 40))
    assert target.interprets or "n: in tiles" not in run.explain("all")


@pytest.mark.one_device
def test_why_points_are_run_one_by_one(target: Target) -> None:
    if target.interprets or "lift" in target.configuration.disable:
        pytest.skip("nothing is chosen")
    with tp.Program() as program:
        b, n = tp.dims("b n")
        x, child = tp.input("x", (), (n,)), tp.input("child", (1,), (b, n), "int32")
        h = tp.recurrent("h", (), (b, n))
        h[b, 0] = x
        h[b, n] = x + h.gather(n, child, within=slice(0, n)).sum()
        g = tp.recurrent("g", (), (n,))
        g[0] = x
        g[n] = g[n - 1] + g.gather(n, child[0], within=slice(0, n)).sum()
        tp.output("h", h)
        tp.output("g", g)
    said = target.compile(program).explain("all")
    assert "n: point by point: the indices vary along b, too" in said
    assert "n: point by point: its points read others in other ways, too" in said
