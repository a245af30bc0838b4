"""Structure that data gives: points that read others at indices, and what these get in return."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo import dtypes
from tempo.conformance.gradient_programs import differences
from tempo.conformance.target import Array, Target, assert_same

WIDTH, CHILDREN = 3, 2


def tree(size: int, backward: bool = False, seed: int = 0) -> Array:
    """For each point children that come before it, or behind it; the point where it begins has none that count."""
    random = np.random.default_rng(seed)
    before = np.array([random.integers(0, max(n, 1), CHILDREN) for n in range(size)], np.int32)
    return size - 1 - before[::-1] if backward else before


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def cell(x: tp.RecurrentTensor, below: tp.RecurrentTensor, w: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return tp.tanh(x + below.sum(axis=0) @ w)


def by_hand(x: Array, child: Array, w: Array, backward: bool = False) -> dict[str, Array]:
    """Values, point by point, and the gradients of the sum of (n + 1) h[n], the other way round."""
    order = range(len(x))[:: -1 if backward else 1]
    first, h = order[0], np.zeros_like(x)
    for n in order:
        h[n] = np.tanh(x[n] if n == first else x[n] + h[child[n]].sum(0) @ w)
    dh, dx, dw = np.arange(1.0, len(x) + 1)[:, None] * np.ones_like(x), np.zeros_like(x), np.zeros_like(w)
    for n in order[::-1]:
        dx[n] = dh[n] * (1 - h[n] ** 2)
        for at in child[n] if n != first else ():
            dh[at] += dx[n] @ w.T
            dw += np.outer(h[at], dx[n])
    return {"h": h, "dx": dx, "dw": dw}


def program(backward: bool = False, batched: bool = False) -> tp.Program:
    with tp.Program() as program:
        dims = tuple(tp.dims("b n")) if batched else (tp.dim("n"),)
        n = dims[-1]
        x = tp.input("x", (WIDTH,), dims, "float64")
        child = tp.input("child", (CHILDREN,), dims, "int32")
        w = tp.input("w", (WIDTH, WIDTH), dtype="float64")
        h = tp.recurrent("h", (WIDTH,), dims, "float64")
        first, within = (n.size - 1, slice(n + 1, n.size)) if backward else (0, slice(0, n))
        h[*dims[:-1], first] = tp.tanh(x)
        h[dims] = cell(x, h.gather(n, child, within=within), w)
        weighted = (h * tp.as_tensor(n + 1, dtype="float64")).sum()
        loss = weighted[(slice(None),) * len(dims)].sum()
        dx, dw = tp.grad(loss, [x, w])
        for name, value in {"h": h, "dx": dx, "dw": dw}.items():
            tp.output(name, value)
    return program


@pytest.mark.parametrize("backward", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_points_that_read_others_at_indices(target: Target, size: int, backward: bool) -> None:
    x, w, child = numbers(size, WIDTH), numbers(WIDTH, WIDTH, seed=1), tree(size, backward)
    target.agrees(program(backward), by_hand(x, child, w, backward), x=x, w=w, child=child)


def test_trees_of_all_sizes_in_buckets(target: Target) -> None:
    run, w = target.compile(program(), buckets={"n": "pow2"}), numbers(WIDTH, WIDTH, seed=1)
    for size in (5, 1, 6, 2, 8):
        x, child = numbers(size, WIDTH, seed=size), tree(size, seed=size)
        assert_same(target.arrays(run(x=x, w=w, child=child)), by_hand(x, child, w))


@pytest.mark.parametrize("how", ["a root", "a root and others", "at odd points"])
def test_reads_that_are_summed_as_they_are(target: Target, how: str) -> None:
    """A sum over all that read would wait for itself, or would count who does not read."""
    x, child, zero = numbers(7, WIDTH), tree(7), np.zeros((7, CHILDREN), np.int32)
    with tp.Program() as program:
        n = tp.dim("n")
        x_in = tp.input("x", (WIDTH,), (n,), "float64")
        index, root = (tp.input(name, (CHILDREN,), (n,), "int32") for name in ("child", "root"))
        h = tp.recurrent("h", (WIDTH,), (n,), "float64")
        below = h.gather(n, root, within=slice(0, 1)).sum(axis=0)
        if how != "a root":
            below = below + h.gather(n, index, within=slice(0, n)).sum(axis=0)
        where = (n >= 3) & (n % 2 == 1) if how == "at odd points" else n >= 1
        h[n] = tp.cases((where, tp.tanh(x_in + below)), tp.sin(x_in))
        loss = (h * tp.as_tensor(n + 1, dtype="float64")).sum()[0 : n.size].sum()
        tp.output("loss", loss)
        tp.output("dx", tp.grad(loss, x_in))
    run = tp.compile(program, "reference")
    found = target.agrees(program, tolerance=4, x=x, child=child, root=zero)
    given = {"x": x, "child": child, "root": zero}
    expected = differences(lambda **given: float(run(**given)["loss"]), given, "x")
    np.testing.assert_allclose(target.to_numpy(found["dx"]), expected, rtol=1e-5, atol=1e-6)


OTHERS = ["nothing else", "a later part", "a read at the same point", "a step before", "two reads", "another row"]
OTHERS += ["the first half alone"]


def read_otherwise(how: str) -> tp.Program:
    """What else a point gets its gradient from than those that read it at indices."""
    with tp.Program() as program:
        b, n = tp.dim("b", 3), tp.dim("n")
        x, child = tp.input("x", (WIDTH,), (b, n), "float64"), tp.input("child", (CHILDREN,), (n,), "int32")
        h = tp.recurrent("h", (WIDTH,), (b, n), "float64")
        within = slice(0, n)
        h[b, 0] = tp.tanh(x)
        if how == "two reads":
            left, right = (h.gather(n, child.spatial[side], within=within) for side in range(CHILDREN))
            h[b, n] = tp.tanh(x + left + 2 * right)
        elif how == "another row":
            below = h[tp.max(b - 1, 0), n].gather(n, child, within=within).sum(axis=0)
            h[b, n] = tp.tanh(x + below)
        else:
            is_half = how == "the first half alone"
            at, within = (child // 2, slice(0, (n + 1) // 2)) if is_half else (child, within)
            below = h.gather(n, at, within=within).sum(axis=0)
            h[b, n] = tp.tanh(x + below + (h[b, n - 1] if how == "a step before" else 0))
        own = h * h if how == "a read at the same point" else h
        weighted = (own * tp.as_tensor(n + 2 * b + 1, dtype="float64")).sum()
        first = {"nothing else": n.size - 1, "a later part": 3}.get(how, 0)
        loss = weighted[0:3, first : n.size].sum()
        tp.output("loss", loss)
        tp.output("dx", tp.grad(loss, x))
    return program


@pytest.mark.parametrize("how", OTHERS)
def test_what_is_read_at_indices_and_otherwise(target: Target, how: str) -> None:
    x, child, run = numbers(3, 7, WIDTH), tree(7), tp.compile(read_otherwise(how), "reference")
    found = target.agrees(read_otherwise(how), tolerance=4, x=x, child=child)
    expected = differences(lambda **given: float(run(**given)["loss"]), {"x": x, "child": child}, "x")
    np.testing.assert_allclose(target.to_numpy(found["dx"]), expected, rtol=1e-5, atol=1e-6)


def test_a_batch_of_trees(target: Target) -> None:
    x, w = numbers(3, 6, WIDTH), numbers(WIDTH, WIDTH, seed=1)
    child = np.stack([tree(6, seed=each) for each in range(3)])
    rows = [by_hand(*each, w) for each in zip(x, child)]
    expected = {name: np.stack([row[name] for row in rows]) for name in ("h", "dx")}
    expected["dw"] = np.sum([row["dw"] for row in rows], axis=0)
    target.agrees(program(batched=True), expected, x=x, w=w, child=child)


def test_trees_while_learning(target: Target) -> None:
    """What is added up in one step of training is not there in the next."""
    steps, size = 3, 5
    x, start, child = numbers(size, WIDTH), numbers(WIDTH, WIDTH, seed=1), tree(size)
    with tp.Program() as program:
        i, n = tp.dims("i n")
        x_in, child_in = tp.input("x", (WIDTH,), (n,), "float64"), tp.input("child", (CHILDREN,), (n,), "int32")
        w = tp.parameter("w", (WIDTH, WIDTH), start, (i,), "float64")
        h = tp.recurrent("h", (WIDTH,), (i, n), "float64")
        h[i, 0] = tp.tanh(x_in)
        h[i, n] = cell(x_in, h.gather(n, child_in, within=slice(0, n)), w)
        loss = (h * tp.as_tensor(n + 1, dtype="float64")).sum()[i, 0 : n.size].sum()
        w[i + 1] = w - 0.1 * tp.grad(loss, w)
        tp.output("w", w)
    expected = [start]
    for _ in range(steps - 1):
        expected.append(expected[-1] - 0.1 * by_hand(x, child, expected[-1])["dw"])
    target.agrees(program, {"w": np.stack(expected)}, sizes={"i": steps}, x=x, child=child)


def leaves_first() -> tp.Program:
    with tp.Program() as program:
        leaf, inner = tp.dim("leaf"), tp.dim("inner")
        n = tp.dim("n", leaf.size + inner.size)
        x = tp.input("x", (WIDTH,), (n,), "float64")
        child = tp.input("child", (CHILDREN,), (n,), "int32")
        h = tp.recurrent("h", (WIDTH,), (n,), "float64")
        h[n] = tp.cases((n < leaf.size, tp.sin(x)), tp.tanh(x + h.gather(n, child, within=slice(0, n)).sum(axis=0)))
        loss = (h * tp.as_tensor(n + 1, dtype="float64")).sum()[0 : n.size].sum()
        tp.output("loss", loss)
        tp.output("dx", tp.grad(loss, x))
    return program


@pytest.mark.parametrize("leaves", [1, 4])
def test_a_forest_whose_leaves_come_first(target: Target, leaves: int) -> None:
    x, child, sizes = numbers(8, WIDTH), tree(8), {"leaf": leaves, "inner": 8 - leaves}
    run = tp.compile(leaves_first(), "reference", sizes=sizes)
    found = target.agrees(leaves_first(), sizes=sizes, tolerance=4, x=x, child=child)
    expected = differences(lambda **given: float(run(**given)["loss"]), {"x": x, "child": child}, "x")
    np.testing.assert_allclose(target.to_numpy(found["dx"]), expected, rtol=1e-5, atol=1e-6)


TILE = 3


def in_tiles(how: str) -> tp.Program:
    """Points of two dims are read as rows of one axis, or by pairs of indices, of the tiles before."""
    with tp.Program() as program:
        n, lane = tp.dim("n"), tp.dim("lane", TILE)
        x = tp.input("x", (WIDTH,), (n, lane), "float64")
        child = tp.input("child", (CHILDREN,), (n, lane), "int32")
        w = tp.input("w", (WIDTH, WIDTH), dtype="float64")
        h = tp.recurrent("h", (WIDTH,), (n, lane), "float64")
        h[n <= FIRST[how]] = tp.tanh(x)
        before = h[FIRST[how] : n, 0:TILE]
        if how == "by pairs":
            below = before.spatial[child // TILE, child % TILE]
        else:
            below = tp.take(before.reshape((-1, WIDTH)), child, axis=0)
        h[n, lane] = cell(x, below, w)
        loss = (h * tp.as_tensor(n + 1, dtype="float64")).sum()[0 : n.size, 0:TILE].sum()
        tp.output("loss", loss)
        for name, value in zip(("dx", "dw"), tp.grad(loss, [x, w])):
            tp.output(name, value)
    return program


FIRST = {"as rows": 0, "by pairs": 0, "of all but the first tile": 1}


@pytest.mark.parametrize("how", FIRST)
def test_points_of_two_dims_as_rows(target: Target, how: str) -> None:
    x, w, random = numbers(4, TILE, WIDTH), numbers(WIDTH, WIDTH, seed=1), np.random.default_rng(0)
    rows = [max(TILE * (n - FIRST[how]), 1) for n in range(4)]
    child = np.stack([random.integers(0, each, (TILE, CHILDREN), "int32") for each in rows])
    given = {"x": x, "w": w, "child": child}
    run = tp.compile(in_tiles(how), "reference")
    found = target.agrees(in_tiles(how), tolerance=4, x=x, w=w, child=child)
    for name in ("x", "w"):
        expected = differences(lambda **given: float(run(**given)["loss"]), given, name)
        np.testing.assert_allclose(target.to_numpy(found[f"d{name}"]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.planned
@pytest.mark.parametrize("how", ["leaves first", *FIRST])
def test_what_points_add_to_is_one_array(target: Target, how: str) -> None:
    """Twice the points take twice the memory."""

    def peak(size: int) -> int:
        program, sizes = (leaves_first(), {"leaf": size, "inner": size})
        if how != "leaves first":
            program, sizes = in_tiles(how), {"n": size}
        return target.compile(program, sizes, checks=False).memory.peak_bytes

    assert peak(256) < 2.2 * peak(128)


def reading(how: str) -> tp.Program:
    """Reads of what depends on no index, and reads that are of no tree."""
    with tp.Program() as program:
        n = tp.dim("n")
        x = tp.input("x", (WIDTH,), (n,), "float64")
        child = tp.input("child", (CHILDREN,), (n,), "int32")
        leaf, one = tp.tanh(x), tp.sin(x)

        def earlier(first: int, index: tp.RecurrentTensor, within: slice) -> tp.RecurrentTensor:
            return tp.cases((n >= first, leaf.gather(n, index, within=within).sum(axis=0)), one)

        read = {
            "before": lambda: earlier(1, child, slice(0, n)),
            "from one on": lambda: earlier(2, tp.maximum(child, 1), slice(1, n)),
            "a window": lambda: earlier(1, tp.maximum(child, n - 2), slice(tp.max(n - 2, 0), n)),
            "any": lambda: leaf.gather(n, child).sum(axis=0) * one,
            "of one type": lambda: leaf.gather(n, child.astype("uint8")).sum(axis=0),
            "squares of one": lambda: leaf.gather(n, child.spatial[0]) ** 2,
        }[how]()
        loss = (read * tp.as_tensor(n + 1, dtype="float64")).sum()[0 : n.size].sum()
        tp.output("loss", loss)
        tp.output("dx", tp.grad(loss, x))
    return program


@pytest.mark.parametrize("how", ["before", "from one on", "a window", "any", "of one type", "squares of one"])
def test_gradients_of_reads_at_indices(target: Target, how: str) -> None:
    x, child, run = numbers(7, WIDTH), tree(7), tp.compile(reading(how), "reference")
    found = target.agrees(reading(how), tolerance=4, x=x, child=child)
    expected = differences(lambda **given: float(run(**given)["loss"]), {"x": x, "child": child}, "x")
    np.testing.assert_allclose(target.to_numpy(found["dx"]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_added_up_in_float32(target: Target, dtype: str) -> None:
    """A star: from 256 on (2,048 in float16) a half and one more is the same half."""
    size = 400 if dtype == "bfloat16" else 2100
    with tp.Program() as program:
        n = tp.dim("n")
        x, centre = tp.input("x", (), (n,), dtype), tp.input("centre", (1,), (n,), "int32")
        h = tp.recurrent("h", (), (n,), dtype)
        h[0] = x
        h[n] = x + h.gather(n, centre, within=slice(0, n)).sum()
        tp.output("dx", tp.grad(h[0 : n.size].astype("float32").sum(), x)[0])
    found = target.compile(program)(x=np.zeros(size), centre=np.zeros((size, 1), np.int32))
    assert float(target.arrays(found)["dx"]) == np.asarray(size, dtypes.to_numpy(dtype))


def test_what_is_clamped_gets_its_gradient(target: Target) -> None:
    """Without checks an index out of range reads, and adds to, the last that may be read."""
    x, w, child = numbers(6, WIDTH), numbers(WIDTH, WIDTH, seed=1), tree(6)
    wild = child.copy()
    wild[3], wild[5] = (7, 3), (-2, 9)
    clamped = np.stack([np.clip(each, 0, max(n - 1, 0)) for n, each in enumerate(wild)])
    target.agrees(program(), by_hand(x, clamped, w), x=x, w=w, child=wild, options={"checks": False})


@pytest.mark.one_process
def test_an_index_beyond_what_may_be_read_is_named(target: Target) -> None:
    x, w, child = numbers(6, WIDTH), numbers(WIDTH, WIDTH, seed=1), tree(6)
    child[4, 1] = 4
    with pytest.raises(tp.IndexOutOfRangeError, match=r"index 4 is out of range for within=slice\(0, 4\) .* at n = 4"):
        target.compile(program(), checks=True)(x=x, w=w, child=child)


def test_gradients_at_pairs_of_indices_add_into_one_array(target: Target) -> None:
    """Whatever the sizes of both axes."""
    with tp.Program("pairs") as program:
        b, t, q = tp.dims("b t q")
        x, weight = tp.input("x", (2,), (b, t)), tp.input("weight", (2,), (q,))
        i, j = (tp.input(name, (), (q,), "int32") for name in "ij")
        read = tp.sin(x)[:, :].spatial[i, j]
        tp.output("gradient", tp.grad((read * weight)[:].sum(), x))
    at = np.random.default_rng(0).integers(0, (3, 4), (20, 2), dtype=np.int32)
    given, weights = (
        np.random.default_rng(seed).normal(size=size).astype(np.float32)
        for seed, size in ((1, (3, 4, 2)), (2, (20, 2)))
    )
    expected = np.zeros_like(given)
    np.add.at(expected, tuple(at.T), np.cos(given)[tuple(at.T)] * weights)
    target.agrees(program, {"gradient": expected}, x=given, weight=weights, i=at[:, 0], j=at[:, 1])
