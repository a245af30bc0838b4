"""Family 21, lengths that the program computes: `tp.dim("i", lengths=width)`, structure that a run makes.

Trees grow level by level, all nodes of a level at once. They are what recursion in Python makes of them, tree by tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.rows_of_lengths import LENGTHS, STATEMENTS, Statement, check
from tempo.conformance.target import Array, Target, numbers, typical

HERE = Path(__file__).name
WIDTH, LABELS, LEVELS, ROOM = 2, 5, 5, 8
CHILDREN = {
    "some": [2, 1, 0, 2, 1],
    "chains": [1] * 5,
    "none": [0] * 5,
    "few": [0, 0, 1, 2, 0],
    "twins": [2, 0, 0, 2, 2],
}
"""How many children a node has, by its label."""
Tensor = tp.RecurrentTensor


def child_label(label: Any, which: Any) -> Any:
    return (label * 2 + which + 1) % LABELS


class Trees:
    """Trees that grow: `h` and `label` of node i of level l. `rows`: whether there is a dim of them."""

    def __init__(self, rows: bool = True, stops: bool = True) -> None:
        self.b = tp.dim("b") if rows else None
        self.at: tuple[tp.Dim, ...] = () if self.b is None else (self.b,)
        self.l = l = tp.dim("l")
        at, below = (*self.at, l), (*self.at, l - 1)
        self.width = tp.recurrent("width", (), at, tp.int32)
        self.i = i = tp.dim("i", lengths=self.width)
        self.w, self.root = tp.input("w", (WIDTH, WIDTH)), tp.input("root", (WIDTH,), self.at)
        children = tp.input("children", (LABELS,), dtype=tp.int32)
        self.h = h = tp.recurrent("h", (WIDTH,), (*at, i))
        self.label = label = tp.recurrent("label", (), (*at, i), tp.int32)
        count = children.spatial[label]
        every, before = count[(*below, slice(None))], count[(*at, slice(0, i))].sum(axis=0)
        self.origin = (tp.cumsum(every, axis=0) <= tp.as_tensor(i)).sum(axis=0)
        which = tp.as_tensor(i) - self.of_parent(before)
        self.width[(*self.at, 0)] = tp.input("roots", (), self.at, tp.int32)
        self.width[at] = every.sum(axis=0)
        label[(*self.at, 0, i)] = tp.as_tensor(i) % LABELS
        label[(*at, i)] = child_label(self.of_parent(label), which)
        h[(*self.at, 0, i)] = self.root + tp.as_tensor(i)
        h[(*at, i)] = tp.tanh(self.of_parent(h) @ self.w + which)
        if stops:
            tp.stop_when(l, self.width == 0, each=self.at)

    def of_parent(self, x: Tensor) -> Tensor:
        return x[(*self.at, self.l - 1)].gather(self.i, self.origin)


@dataclass
class Node:
    """The peer: a node that has grown, by recursion."""

    label: int
    h: Array
    children: list[Node] = field(default_factory=list)

    def grow(self, children: Array, w: Array, levels: int) -> Node:
        if levels > 1:
            for which in range(children[self.label]):
                child = Node(child_label(self.label, which), np.tanh(self.h @ w + which))
                self.children.append(child.grow(children, w, levels - 1))
        return self

    def levels(self, level: int = 0) -> dict[int, list[Node]]:
        found: dict[int, list[Node]] = {level: [self]}
        for child in self.children:
            for depth, nodes in child.levels(level + 1).items():
                found.setdefault(depth, []).extend(nodes)
        return found

    def back(self, w: Array, dw: Array) -> Array:
        """The gradient of the sum of h**2 of all nodes, with respect to the own h; what w gets is added to `dw`."""
        given: Array = 2 * self.h
        for child in self.children:
            inner = child.back(w, dw) * (1 - child.h**2)
            dw += np.outer(self.h, inner)
            given = given + w @ inner
        return given


def inputs_of(roots: Sequence[int], name: str, rows: bool = True) -> dict[str, Any]:
    root = numbers((len(roots), WIDTH))
    counts = np.array(roots, np.int32)
    return {
        "w": numbers((WIDTH, WIDTH), seed=1) / 4,
        "root": root if rows else root[0],
        "children": np.array(CHILDREN[name], np.int32),
        "roots": counts if rows else counts[0],
    }


def grown(given: Mapping[str, Array], levels: int = LEVELS) -> list[list[Node]]:
    """The trees of each row."""
    found = []
    for root, count in zip(np.atleast_2d(given["root"]), np.atleast_1d(given["roots"])):
        nodes = [Node(place % LABELS, root.astype(np.float64) + place) for place in range(count)]
        found.append([node.grow(given["children"], given["w"].astype(np.float64), levels) for node in nodes])
    return found


def expected_of(forest: Sequence[Sequence[Node]], levels: int, room: int = ROOM) -> dict[str, Array]:
    """Widths, and h and labels of all nodes, level by level."""
    width = np.zeros((len(forest), levels), np.int32)
    h, label = np.zeros((len(forest), levels, room, WIDTH)), np.zeros((len(forest), levels, room), np.int32)
    for row, trees in enumerate(forest):
        for tree in trees:
            for level, nodes in tree.levels().items():
                for node in nodes:
                    h[row, level, width[row, level]], label[row, level, width[row, level]] = node.h, node.label
                    width[row, level] += 1
    return {"width": width, "h": h, "label": label}


def show(trees: Trees) -> None:
    for name, value in {"width": trees.width, "h": trees.h, "label": trees.label}.items():
        tp.output(name, value)


@pytest.mark.parametrize("name", CHILDREN)
@pytest.mark.parametrize("roots", [[1, 1, 1], [2, 0, 1]], ids=str)
def test_trees_grow(target: Target, name: str, roots: list[int]) -> None:
    with tp.Program("trees") as program:
        trees = Trees()
        show(trees)
        tp.output("sums", trees.h[trees.b, trees.l, :].sum(axis=0))
    given = inputs_of(roots, name)
    expected = expected_of(grown(given), LEVELS)
    ends = np.where(expected["width"] == 0, np.arange(LEVELS), LEVELS - 1).min(axis=1) + 1
    kept = int(ends.max())
    expected["sums"] = expected["h"].sum(axis=2)
    cut = {key: value[:, :kept] for key, value in expected.items()}
    outputs = target.agrees(program, cut, sizes={"l": LEVELS, "i": ROOM}, **given)
    np.testing.assert_array_equal(outputs.lengths["l"], ends)
    np.testing.assert_array_equal(outputs.lengths["i"], cut["width"])


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_one_forest_has_no_rows(target: Target, levels: int) -> None:
    with tp.Program("forest") as program:
        show(Trees(rows=False, stops=False))
    given = inputs_of([2], "some", rows=False)
    expected = {key: value[0] for key, value in expected_of(grown(given, levels), levels).items()}
    outputs = target.agrees(program, expected, sizes={"l": levels, "i": ROOM}, **given)
    np.testing.assert_array_equal(outputs.lengths["i"], expected["width"])


@pytest.mark.parametrize("name", typical(CHILDREN, ["some"]))
def test_gradients_through_trees(target: Target, name: str) -> None:
    with tp.Program("gradients") as program:
        trees = Trees(stops=False)
        losses = (trees.h * trees.h)[trees.b, trees.l, :].sum()[trees.b, :].sum()
        dw, droot = tp.grad(losses[:].sum(), [trees.w, trees.root])
        for key, value in {"losses": losses, "dw": dw, "droot": droot}.items():
            tp.output(key, value)
    given = inputs_of([1, 2, 0], name)
    forest, w = grown(given), given["w"].astype(np.float64)
    dw_ = np.zeros_like(w)
    droot_ = np.array([sum((tree.back(w, dw_) for tree in each), np.zeros(WIDTH)) for each in forest])
    losses_ = (expected_of(forest, LEVELS)["h"] ** 2).sum(axis=(1, 2, 3))
    expected = {"losses": losses_, "dw": dw_, "droot": droot_}
    target.agrees(program, expected, sizes={"l": LEVELS, "i": ROOM}, tolerance=4, **given)


def test_packed_outputs_are_of_the_nodes_that_there_are(target: Target) -> None:
    with tp.Program("packed") as program:
        trees = Trees()
        tp.output("h", trees.h, packed=True)
        tp.output("count", (trees.label == trees.label)[trees.b, trees.l, :].sum(axis=0))
    given = inputs_of([1, 0, 2], "some")
    expected = expected_of(grown(given), LEVELS)
    values, offsets = target.compile(program)(sizes={"l": LEVELS, "i": ROOM}, **given)["h"]
    inside = np.arange(ROOM) < expected["width"][..., None]
    np.testing.assert_allclose(target.to_numpy(values), expected["h"][inside], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(offsets, np.concatenate([[0], np.cumsum(expected["width"])]))


def over(
    make: Callable[[tp.Dim, tp.Dim, Tensor, Tensor], Any], lengths: Callable[[Tensor, tp.Dim], Tensor] | None = None
) -> tp.Program:
    """A tensor x over (b, l, i), of which `n[b] + l` points exist, or what `lengths` makes of n and l."""
    with tp.Program() as program:
        b, l = tp.dim("b"), tp.dim("l")
        n = tp.input("n", (), (b,), "int32")
        width = n + tp.as_tensor(l) if lengths is None else lengths(n, l)
        i = tp.dim("i", lengths=width)
        x = tp.input("x", (), (b, l, i))
        tp.output("y", make(l, i, x, n))
    return program


def given_over(n: Sequence[int], levels: int = 3, room: int = 6) -> dict[str, Any]:
    counts = np.array(n, np.int32)
    there = np.arange(room) < np.minimum(counts[:, None] + np.arange(levels), room)[..., None]
    return {"n": counts, "x": np.where(there, numbers((len(n), levels, room)), np.nan).astype(np.float32)}


ROWS: dict[str, tuple[Callable[[tp.Dim, tp.Dim, Tensor, Tensor], Any], Callable[[Array], Any]]] = {
    "a sum": (lambda l, i, x, n: x.at(i=slice(None)).sum(), lambda row: row.sum()),
    "a mean": (lambda l, i, x, n: x.at(i=slice(None)).mean(), lambda row: row.mean()),
    "a maximum": (lambda l, i, x, n: x.at(i=slice(None)).max(), lambda row: row.max()),
    "the last": (lambda l, i, x, n: x.at(i=i.last), lambda row: row[-1]),
    "how many": (lambda l, i, x, n: tp.as_tensor(i.last) + 1, lambda row: len(row)),
    "a softmax": (
        lambda l, i, x, n: (tp.softmax(x.at(i=slice(None))) * x.at(i=slice(None))).sum(),
        lambda row: (np.exp(row) / np.exp(row).sum() * row).sum(),
    ),
    "backwards": (lambda l, i, x, n: x.at(i=i.last - i), lambda row: row[::-1]),
    "from the end": (
        lambda l, i, x, n: tp.cases((i < i.last, x.at(i=i + 1)), -1.0),
        lambda row: np.append(row[1:], -1),
    ),
    "picked": (
        lambda l, i, x, n: x.gather(i, tp.as_tensor(i.last) - tp.as_tensor(i) // 2),
        lambda row: row[-1 - np.arange(len(row)) // 2],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_computed_lengths_mean_what_each_means_alone(target: Target, name: str) -> None:
    make, alone = ROWS[name]
    given = given_over([2, 1, 4])
    rows = [[x[: n + level] for level, x in enumerate(each)] for n, each in zip(given["n"], given["x"])]
    values = [[np.asarray(alone(row)) for row in each] for each in rows]
    if values[0][0].ndim:
        values = [[np.pad(row, (0, 6 - len(row))) for row in each] for each in values]
    outputs = target.agrees(over(make), {"y": np.array(values)}, **given)
    np.testing.assert_array_equal(outputs.lengths["i"], given["n"][:, None] + np.arange(3))


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.__name__)
def test_each_row_is_as_alone(target: Target, statement: Statement) -> None:
    check(target, [(statement, 0)], LENGTHS["an empty row"], computed=True)


@pytest.mark.parametrize("size", [4, 7])
def test_lengths_of_the_run_may_be_of_any_dtype_and_made_of_inputs_alone(target: Target, size: int) -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        n = tp.input("n", (), (b,), "uint8")
        i = tp.dim("i", size, lengths=tp.minimum(n[0] + n, 4))
        j = tp.dim("j", lengths=n[b.size - 1] * 2)  # of no row
        x = tp.input("x", (), (j,))
        y = tp.recurrent("y", (), (b, i))
        y[b, i.last] = 1.0
        y[b, i] = y[b, i + 1] * 2
        tp.output("y", y)
        tp.output("sum", x[:].sum())
    n_ = np.array([1, 0, 2], np.uint8)
    counts = np.minimum(n_ + 1, 4)
    y_ = np.array([np.pad(2.0 ** np.arange(count)[::-1], (0, size - count)) for count in counts])
    outputs = target.agrees(program, {"y": y_, "sum": 10}, n=n_, x=np.array([1, 2, 3, 4, np.nan], np.float32))
    assert outputs.lengths["i"].dtype == outputs.lengths["j"].dtype == np.int32
    assert (outputs.lengths["i"].tolist(), outputs.lengths["j"].tolist()) == (counts.tolist(), 4)


def test_rows_that_are_points_of_other_rows(target: Target) -> None:
    """Of rows that are not there lengths are anything, and nobody looks at what they are made of."""
    with tp.Program() as program:
        b = tp.dim("b")
        s = tp.dim("s", lengths=tp.input("n", (), (b,), "int32") - 1)
        table, at = tp.input("table", (4,), dtype="int32"), tp.input("at", (), (b, s), "int32")
        t = tp.dim("t", lengths=table.spatial[at])
        x = tp.input("x", (), (b, s, t))
        sums = x[b, s, :].sum()
        tp.output("sums", sums)
        tp.output("of all", x[b, :, :].sum())
        tp.output("of sums", sums[b, :].max(axis=0))
        tp.output("x", x * 2)
    n, at_ = np.array([3, 2], np.int32), np.array([[1, 3], [0, 99]], np.int32)
    x_ = numbers((2, 2, 3))
    m = np.array([[2, 3], [1, 0]])
    inside = np.arange(3) < m[..., None]
    there = np.where(inside, x_, 0)
    sums = there.sum(axis=2)
    expected = {"sums": sums, "of all": sums.sum(1), "of sums": [sums[0].max(), sums[1, 0]], "x": there * 2}
    given: dict[str, Any] = {
        "n": n,
        "table": np.array([1, 2, -7, 3], np.int32),
        "at": at_,
        "x": np.where(inside, x_, np.nan),
    }
    outputs = target.agrees(program, expected, **given)
    np.testing.assert_array_equal(outputs.lengths["s"], [2, 1])
    np.testing.assert_array_equal(outputs.lengths["t"], m)


@pytest.mark.one_device
@pytest.mark.parametrize("lanes", [None, 2])
def test_frontiers_of_points_of_rows_that_are_run_in_tiles(target: Target, lanes: int | None) -> None:
    """A step of a row reads all nodes of the one before. Of steps that are not there, no tile has the width."""
    with tp.Program() as program:
        b = tp.dim("b")
        s = tp.dim("s", lengths=tp.input("n", (), (b,), "int32"))
        width = tp.recurrent("width", (), (b, s), tp.int32)
        i = tp.dim("i", 5, lengths=width)
        x = tp.input("x", (), (b, s))
        h, g = tp.recurrent("h", (), (b, s, i)), tp.recurrent("g", (), (b, s))
        width[b, 0] = 2
        width[b, s] = (width[b, s - 1] * 2 + (h[b, s - 1, :] > 0).sum(axis=0)) % 6
        h[b, s, i] = x + tp.as_tensor(i)
        g[b, 0] = x
        g[b, s] = g[b, s - 1] / 2 + h[b, s - 1, :].sum()
        tp.output("h", h)
        tp.output("g", g)
    n, x_ = np.array([3, 0, 1, 4], np.int32), numbers((4, 4))
    widths, h_, g_ = np.zeros((4, 4), np.int32), np.zeros((4, 4, 5)), np.zeros((4, 4))
    for row, count in enumerate(n):
        for step in range(count):
            before = h_[row, step - 1]
            widths[row, step] = (widths[row, step - 1] * 2 + (before > 0).sum()) % 6 if step else 2
            g_[row, step] = g_[row, step - 1] / 2 + before.sum() if step else x_[row, step]
            h_[row, step, : widths[row, step]] = x_[row, step] + np.arange(widths[row, step])
    options = {} if lanes is None else {"mapping": {"s": lanes}}
    outputs = target.agrees(program, {"h": h_, "g": g_}, options=options, n=n, x=x_)
    np.testing.assert_array_equal(outputs.lengths["i"], widths)


def test_nodes_of_a_frontier_have_rows_themselves(target: Target) -> None:
    with tp.Program() as program:
        trees = Trees()
        b, l, i = trees.b, trees.l, trees.i
        k = tp.dim("k", LABELS, lengths=trees.label + 1)
        y = tp.recurrent("y", (), (b, l, i, k))
        y[b, l, i, 0] = 1.0
        y[b, l, i, k] = y[b, l, i, k - 1] * 2
        tp.output("sums", y[b, l, i, :].sum())
        tp.output("of all", y[b, l, :, :].sum())
    given = inputs_of([1, 2], "some")
    expected = expected_of(grown(given), LEVELS)
    there = np.arange(ROOM) < expected["width"][..., None]
    sums = np.where(there, 2.0 ** (expected["label"] + 1) - 1, 0)
    outputs = target.agrees(program, {"sums": sums, "of all": sums.sum(2)}, sizes={"l": LEVELS, "i": ROOM}, **given)
    np.testing.assert_array_equal(outputs.lengths["k"], np.where(there, expected["label"] + 1, 0))


def test_lengths_may_come_from_outside_while_it_runs(target: Target) -> None:
    def less(n: Array) -> Array:
        return n - 1

    with tp.Program() as program:
        t = tp.dim("t")
        (n,) = tp.host_call(less, tp.stream_input("n", (), (t,), "int32"), out=[((), "int32")])
        i = tp.dim("i", 3, lengths=n)
        x = tp.input("x", (), (t, i))
        tp.output("sum", x[t, :].sum())
        tp.output("so far", x[0 : t + 1, :].sum())
    x_ = np.where(np.arange(3) < np.array([[2], [0], [3]]), numbers((3, 3)), np.nan).astype(np.float32)
    sums = np.nansum(x_, axis=1)
    run = target.compile(program)
    outputs = run(n=iter(np.array([3, 1, 4], np.int32)), x=x_)
    np.testing.assert_allclose(target.to_numpy(outputs["sum"]), sums)
    np.testing.assert_allclose(target.to_numpy(outputs["so far"]), np.cumsum(sums))
    assert outputs.lengths["i"].tolist() == [2, 0, 3]
    with pytest.raises(tp.SizeError, match=r"less\[t = 2\] is 4, and a row has 0 to 3 points along i"):
        run(n=iter(np.array([3, 1, 5], np.int32)), x=x_)
    if not target.interprets:
        steps = run.stream("t", n=iter(np.array([3, 5, 4], np.int32)), x=x_)
        assert next(steps).lengths["i"] == 2
        with pytest.raises(tp.SizeError, match=r"less\[t = 1\] is 4, and a row has 0 to 3 points along i"):
            next(steps)


@pytest.mark.planned
@pytest.mark.one_device
def test_trees_are_streamed_level_by_level(target: Target) -> None:
    with tp.Program("trees") as program:
        show(Trees())
    given = inputs_of([1, 2], "few")
    whole = target.compile(program)(sizes={"l": LEVELS, "i": ROOM}, **given)
    stream = target.compile(program).stream("l", sizes={"l": LEVELS, "i": ROOM}, **given)
    steps = list(stream)
    widths = np.stack([step.lengths["i"] for step in steps], axis=1)
    np.testing.assert_array_equal(widths, whole.lengths["i"])
    assert stream.result is not None
    np.testing.assert_array_equal(stream.result.lengths["i"], whole.lengths["i"])
    found = np.stack([target.to_numpy(step["h"]) for step in steps], axis=1)
    np.testing.assert_array_equal(found, target.to_numpy(whole["h"]))


@pytest.mark.planned
@pytest.mark.one_device
def test_rows_that_go_on_are_moved_together(target: Target) -> None:
    with tp.Program("trees") as program:
        show(Trees())
    given = inputs_of([1, 2, 0, 1, 0, 3, 0, 0], "few")
    target.agrees(program, sizes={"l": 7, "i": ROOM}, options={"mapping": {"l": 2}}, **given)


def growing(more: Callable[[Tensor], Any], read: Callable[..., Any] | None = None, first: int = 1) -> tp.Program:
    with tp.Program() as program:
        b, l = tp.dim("b"), tp.dim("l", 4)
        width = tp.recurrent("width", (), (b, l), tp.int32)
        i = tp.dim("i", 6, lengths=width)
        x, h = tp.input("x", (), (b,)), tp.recurrent("h", (), (b, l, i))
        h[b, l, i] = x
        width[b, 0] = first
        width[b, l + 1] = more(width)
        tp.output("y", h if read is None else read(b, l, i, h))
    return program


WRONG: dict[str, tuple[Callable[[], tp.Program], type[tp.TempoError], str]] = {
    "too many": (lambda: growing(lambda n: n * 3), tp.SizeError, r"width\[b = 0, l = 2\] is 9, and a row has 0 to 6"),
    "less than none": (
        lambda: growing(lambda n: n - 2),
        tp.SizeError,
        r"width\[b = 0, l = 1\] is -1, and a row has 0 to 6 points along i",
    ),
    "the first of none": (
        lambda: growing(lambda n: n - 1, lambda b, l, i, h: h[b, l, 0], first=3),
        tp.DomainError,
        r"h\[b = 0, l = 3, i = 0\] is read.*and the row b = 0, l = 3 has 0 points along i",
    ),
    "behind the row before": (
        lambda: growing(lambda n: n + 1, lambda b, l, i, h: tp.cases((l > 0, h[b, l - 1, i]), 0.0)),
        tp.DomainError,
        r"h\[b = 0, l = 0, i = 1\] is read.*and the row b = 0, l = 0 has 1 points",
    ),
    "a maximum of none": (
        lambda: growing(lambda n: tp.maximum(n - 1, 0), lambda b, l, i, h: h[b, l, :].max()),
        tp.ShapeError,
        "max over an empty slice at b = 0, l = 1",
    ),
    "what depends on itself": (
        lambda: growing(lambda n: n, lambda b, l, i, h: counted(b, l, i, h)),
        tp.CycleError,
        "needed to compute itself",
    ),
    "unfolded": (
        lambda: growing(lambda n: n, lambda b, l, i, h: tp.take(h[b, l, :], tp.as_tensor(i), axis=0)),
        tp.UnsupportedError,
        "depends on where a row ends",
    ),
}


def counted(b: tp.Dim, l: tp.Dim, i: tp.Dim, h: Tensor) -> Tensor:
    """Rows j, of which there are as many as there are of them."""
    size = tp.recurrent("size", (), (b, l), tp.int32)
    j = tp.dim("j", 6, lengths=size)
    k = tp.recurrent("k", (), (b, l, j))
    k[b, l, j] = 1.0
    size[b, l] = (k[b, l, :] > 0).sum(axis=0)
    return k


@pytest.mark.one_configuration
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(target: Target, name: str) -> None:
    make, error, message = WRONG[name]
    with pytest.raises(error, match=message) as caught:
        target.compile(make())(x=numbers((2,)))
    assert caught.value.location is not None
    assert Path(caught.value.location.path).name == HERE


@pytest.mark.one_configuration
def test_what_nobody_reads_is_not_wrong(target: Target) -> None:
    """Behind a stop there is nothing, and so no length; the read of a first point is guarded, or before the stop."""
    with tp.Program() as program:
        b, l = tp.dim("b"), tp.dim("l", 9)
        width = tp.recurrent("width", (), (b, l), tp.int32)
        i = tp.dim("i", 4, lengths=width)
        x, h = tp.input("x", (), (b,)), tp.recurrent("h", (), (b, l, i))
        first = h[b, l, 0] * 2
        h[b, 0, i] = x
        h[b, l + 1, i] = first + tp.as_tensor(i)
        width[b, 0] = 3
        width[b, l + 1] = width - 1
        tp.stop_when(l, width <= tp.as_tensor(b), each=b)
        tp.output("h", h)
        tp.output("first", tp.cases((i.last >= 0, h[b, l, 0]), -1.0))
    outputs = target.agrees(program, x=np.array([1, 2, 3], np.float32))
    assert outputs.lengths["l"].tolist() == [4, 3, 2]


@pytest.mark.one_configuration
def test_lengths_of_another_kind(target: Target) -> None:
    with tp.Program():
        b = tp.dim("b")
        with pytest.raises(tp.DTypeError, match="the lengths of the dim 't' are float32"):
            tp.dim("t", lengths=tp.input("x", (), (b,)) * 2)
        with pytest.raises(tp.ShapeError, match=r"have the shape \(2,\)"):
            tp.dim("t", lengths=tp.input("y", (2,), (b,), "int32") + 1)
        with pytest.raises(tp.IndexExpressionError, match="the lengths of the dim 't' are the int 3"):
            tp.dim("t", lengths=3)  # type: ignore[arg-type]


@pytest.mark.one_configuration
def test_lengths_without_a_name_are_named_by_their_row(target: Target) -> None:
    run = target.compile(over(lambda l, i, x, n: x, lambda n, l: n * 4))
    with pytest.raises(tp.SizeError, match=r"the length of the row b = 1 is 8, and a row has 0 to 6 points along i"):
        run(n=np.array([1, 2], np.int32), x=numbers((2, 3, 6)))
