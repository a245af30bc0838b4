"""Family 21, ragged dims: rows with lengths of their own, `tp.dim("t", lengths=n)`.

What such a program means is what it means for each row alone, as a dense program of the row's length.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.rows_of_lengths import (
    LENGTHS,
    SIZE,
    STATEMENTS,
    WIDTH,
    Statement,
    attention,
    backwards,
    check,
    over_rows,
    program_of,
    rows_of,
)
from tempo.conformance.target import Target, numbers, typical


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.__name__)
def test_each_row_is_as_alone(target: Target, statement: Statement) -> None:
    check(target, [(statement, 0)], LENGTHS["an empty row"])


@pytest.mark.parametrize("seed", typical(range(40), range(3)))
def test_random_programs(target: Target, seed: int) -> None:
    random = Random(seed)
    statements = [(random.choice(STATEMENTS), random.randint(0, 3)) for _ in range(random.randint(2, 4))]
    check(target, statements, [random.randint(0, SIZE) for _ in range(random.randint(1, 4))])


def test_folds_of_rows_count_points(target: Target) -> None:
    inputs, inside = rows_of()
    x = np.where(inside, inputs["x"], 0)

    def folds(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        every = x[:, :]
        tp.output("mean", every.mean())
        tp.output("variance", every.var(ddof=1))
        tp.output("by step", x[:, t].sum(axis=0))
        tp.output("of rows", every.sum(axis=0))
        tp.output("largest", every.max())
        tp.output("where", tp.cases((t.last >= 0, tp.argmax(x[b, :])), -1))
        return every.sum(axis=1)

    expected = {
        "y": x.sum(1),
        "mean": x[inside].mean(),
        "variance": x[inside].var(ddof=1),
        "by step": x.sum(0),
        "of rows": x.sum(0),
        "largest": x[inside].max(),
        "where": [int(row[:count].argmax()) if count else -1 for row, count in zip(x, inputs["n"])],
    }
    target.agrees(over_rows(folds), expected, tolerance=5, **inputs)


def test_rows_of_several_dims_and_a_row_of_none(target: Target) -> None:
    with tp.Program("nested") as program:
        b, s = tp.dims("b s")
        t = tp.dim("t", lengths=tp.input("n", (), (b, s), "uint8"))
        u = tp.dim("u", lengths=tp.input("m", (), (), "int64"))
        cells, more = tp.input("x", (), (b, s, t)), tp.input("y", (), (u,))
        tp.output("sum", cells[b, s, :].sum())
        tp.output("largest", cells[b, :, :].max())
        tp.output("columns", cells[b, :, t].sum())
        tp.output("last", cells[b, s, t.last])
        tp.output("product", (cells * more[0])[b, s, :].sum() + more[u.last])
        tp.output("outer", (cells * more)[:, :, :, :].sum())
    n, given, row = np.array([[2, 1], [3, 1]], np.uint8), numbers((2, 2, 3)), numbers((4,))
    inside = np.arange(3) < n[..., None]
    sums = (given * inside).sum(2)
    expected = {
        "sum": sums,
        "largest": np.where(inside, given, -np.inf).max((1, 2)),
        "columns": (given * inside).sum(1),
        "last": np.take_along_axis(given, n[..., None].astype(np.int64) - 1, 2)[..., 0],
        "product": sums * row[0] + row[2],
        "outer": sums.sum() * row[:3].sum(),
    }
    x = np.where(inside, given, np.nan).astype(np.float32)
    y = np.where(np.arange(4) < 3, row, np.nan).astype(np.float32)
    outputs = target.agrees(program, expected, n=n, m=np.int64(3), x=x, y=y)
    assert outputs.lengths["t"].tolist() == n.tolist()
    assert outputs.lengths["u"] == 3


def test_outputs_of_points_of_two_kinds_of_rows(target: Target) -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        u = tp.dim("u", lengths=tp.input("m", (), (b,), "int32"))
        x, y = tp.input("x", (), (b, t)), tp.input("y", (), (b, u))
        tp.output("first of x", x[b, 0])
        tp.output("last of y", y[b, u.last])
        tp.output("first of y", y[b, 0])
        tp.output("sums", x[b, :].sum(axis=0))
    n, m, given, other = np.array([2, 1]), np.array([1, 3]), numbers((2, 2)), numbers((2, 3), seed=1)
    expected = {
        "first of x": given[:, 0],
        "last of y": other[[0, 1], m - 1],
        "first of y": other[:, 0],
        "sums": np.where(np.arange(2) < n[:, None], given, 0).sum(1),
    }
    target.agrees(program, expected, n=n.astype(np.int32), m=m.astype(np.int32), x=given, y=other)


def test_indices_behind_a_row_are_nobodys(target: Target) -> None:
    """Padding of any value, -100 as in PyTorch's losses, is read by none."""

    def embedded(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        table = tp.input("table", (6, 2))
        h, seen = tp.recurrent("h", (2,), (b, t)), tp.take(table, tp.input("ids", (), (b, t), "int32"), axis=0)
        h[b, 0] = seen * x
        h[b, t + 1] = tp.tanh(h + seen[b, t + 1])
        tp.output("table gradient", tp.grad((h * h)[:, :].sum(), table))
        return h

    inputs, inside = rows_of()
    ids = np.where(inside, np.arange(16).reshape(4, 4) % 6, -100).astype(np.int32)
    target.agrees(over_rows(embedded), ids=ids, table=numbers((6, 2)), **inputs)


@pytest.mark.planned
def test_in_buckets(target: Target) -> None:
    program = program_of([(backwards, 0), (attention, 0)], ragged=True)
    run = target.compile(program, buckets={"t": [8], "b": [4, 8]})
    w = numbers((WIDTH, WIDTH)) * 0.5
    for size, lengths in ((5, (3, 1, 5)), (6, (2, 0, 5, 1)), (3, (1,))):
        inputs: dict[str, Any] = {"n": np.array(lengths, np.int32), "x": numbers((len(lengths), size, WIDTH)), "w": w}
        expected = tp.compile(program, backend="reference")(**inputs)
        for name, array in target.arrays(run(**inputs)).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-4, err_msg=name)
    assert run.executables <= 2


def test_packed_outputs(target: Target) -> None:
    inputs, inside = rows_of()

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        tp.output("packed", x * tp.constant([1.0, 2.0]), packed=True)
        return x

    outputs = target.compile(over_rows(make))(**inputs)
    values, offsets = outputs["packed"]
    np.testing.assert_array_equal(target.to_numpy(values), inputs["x"][inside][:, None] * np.array([1, 2], np.float32))
    assert offsets.tolist() == [0, 3, 4, 4, 6]
    assert "packed: packed (6, 2)" in repr(outputs)
    with pytest.raises(tp.ProgramError, match="is packed, and varies along"):
        over_rows(lambda b, t, x: tp.output("sums", x[b, :].sum(), packed=True))


def test_what_is_drawn_is_drawn_in_rows(target: Target) -> None:
    inputs, inside = rows_of()
    program = over_rows(lambda b, t, x: x * 0 + tp.random.normal((), dims=(b, t)))
    outputs = target.agrees(program, **inputs)
    assert np.array_equal(target.arrays(outputs)["y"] != 0, inside)


def test_reads_of_other_dims_beside_the_last_point(target: Target) -> None:
    with tp.Program("tables") as program:
        b, s = tp.dim("b"), tp.dim("s")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x = tp.input("x", (), (b, s, t))
        tp.output("shifted", tp.cases((s + 1 < s.size, x[b, s + 1, t.last - s]), 0))
        tp.output("of the first", x[0, s, t.last])
        tp.output("all", x[b, :, t.last])
        with pytest.raises(tp.IndexExpressionError, match="b is read at another point"):
            x[b - 1, s, t.last - b]
    given = numbers((2, 2, 3))
    expected = {
        "shifted": np.stack([given[[0, 1], 1, [2, 1]], [0, 0]], axis=1),
        "of the first": given[0, :, 2],
        "all": np.stack([given[0, :, 2], given[1, :, 1]]),
    }
    target.agrees(program, expected, n=np.array([3, 2], np.int32), x=given)


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("way", ["forwards", "backwards"])
def test_gradients_of_two_recurrences_that_read_one_another(target: Target, way: str, least: int) -> None:
    """What the first point of one gives to the other is of that point, and of no other of its row."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h, g = tp.recurrent("h", (), (b, t)), tp.recurrent("g", (), (b, t))
        if way == "forwards":
            h[b, 0] = x
            g[b, 0] = h + least
            h[b, t + 1] = tp.tanh(g + x[b, t + 1])
            g[b, t + 1] = tp.sin(h + h[b, t + 1])
        else:
            h[b, t.last] = x
            g[b, t.last] = h + least
            h[b, t] = tp.tanh(g[b, t + 1] + x)
            g[b, t] = tp.sin(h[b, t + 1] + h)
        tp.output("of g", tp.grad(tp.sin(g)[:, :].sum(), x))
        tp.output("of h", tp.grad(tp.sin(h)[:, :].sum(), x))
        return h

    inputs, _ = rows_of()
    target.agrees(over_rows(make), tolerance=5, **inputs)


def test_cases_of_which_some_are_of_short_rows_alone(target: Target) -> None:
    """A case is reached where none before it takes a point, at some sizes."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        tp.output("of long rows at the end", tp.cases((t < t.last, x * 2), (t.last >= 1, x[b, t - 1]), x))
        h = tp.recurrent("h", (), (b, t))
        h[t + 1 == t.last] = x * 3
        h[t.last < 2] = x - 1
        h[b, t] = x * 0.5
        return h

    inputs, inside = rows_of()
    at, last, x = np.arange(4), inputs["n"][:, None] - 1, np.where(inside, inputs["x"], 0)
    before = np.pad(x, ((0, 0), (1, 0)))[:, :-1]
    expected = {
        "y": np.where(at + 1 == last, x * 3, np.where(last < 2, x - 1, x * 0.5)),
        "of long rows at the end": np.where(at < last, x * 2, np.where(last >= 1, before, x)),
    }
    target.agrees(over_rows(make), {name: np.where(inside, y, 0) for name, y in expected.items()}, **inputs)


def test_reads_from_the_last_point_under_a_case_of_long_rows(target: Target) -> None:
    """The case is of rows, and what it selects varies along them."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        tp.output("both", tp.cases((t.last >= 2, x[b, t.last - 2]), (t.last >= 1, x[b, t.last - 1] * 2), x * 3))
        return tp.cases((t.last >= 1, x[b, t.last - 1] + x), 0)

    inputs, inside = rows_of()
    n, x = inputs["n"], np.where(inside, inputs["x"], 0)
    first, second = ((n >= count)[:, None] & inside for count in (3, 2))
    before, further = (x[np.arange(4), np.maximum(n - back, 0)][:, None] for back in (2, 3))
    expected = {
        "y": np.where(second, before + x, 0),
        "both": np.where(inside, np.where(first, further, np.where(second, before * 2, x * 3)), 0),
    }
    target.agrees(over_rows(make), expected, **inputs)


def but_at_the_end(b: tp.Dim, t: tp.Dim, value: tp.RecurrentTensor) -> tp.RecurrentTensor:
    h = tp.recurrent("h", (), (b, t))
    h[t + 1 < t.size] = value
    h[b, t] = 0.0
    return h


def test_folds_ask_for_the_points_that_they_fold(target: Target) -> None:
    """`q` has no number at the last point of a row, which none of these folds."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        q = tp.recurrent("q", (), (b, t))
        q[b, t] = x[b, t + 1]
        tp.output("up to the next", tp.cases((t < t.last, q[b, 0 : t + 1].sum()), 0.0))
        tp.output("the next", tp.cases((t < t.last, q[b, t : t + 1].sum()), 0.0))
        return tp.cases((t >= 1, q[b, 0:t].sum()), 0.0)

    inputs, inside = rows_of()
    x = np.where(inside, inputs["x"], 0)
    following = np.pad(x, ((0, 0), (0, 1)))[:, 1:]
    behind = np.cumsum(following, axis=1)
    there = np.arange(4) + 1 < inputs["n"][:, None]
    expected = {
        "y": np.where(inside, np.pad(behind, ((0, 0), (1, 0)))[:, :-1], 0),
        "up to the next": np.where(there, behind, 0),
        "the next": following,
    }
    target.agrees(over_rows(make), expected, **inputs)


def test_definitions_read_rows_where_they_are_asked_for(target: Target) -> None:
    """What comes behind a point is no error at the last one, if nobody asks there."""

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        ahead, first, h = (tp.recurrent(name, (), dims) for name, dims in (("a", (b, t)), ("f", (b,)), ("h", (b, t))))
        ahead[b, t] = x[b, t + 1]
        first[b] = x[b, 0]
        h[b, 0] = first
        h[b, t + 1] = h + ahead
        tp.output("cases", tp.cases((t < t.last, ahead), 0))
        tp.output("first", tp.cases((t.last >= 0, first), 0))
        return h

    inputs, inside = rows_of()
    x = np.where(inside, inputs["x"], 0)
    expected = {
        "cases": np.where(inside[:, 1:], x[:, 1:], 0),
        "first": x[:, 0],
        "y": np.where(inside, np.cumsum(x, axis=1), 0),
    }
    expected["cases"] = np.pad(expected["cases"], ((0, 0), (0, 1)))
    target.agrees(over_rows(make), expected, **inputs)


@pytest.mark.parametrize("size", [1, 2])
def test_gradients_of_two_recurrences_over_rows_of_one_point(target: Target, size: int) -> None:
    with tp.Program("two") as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x, w = tp.input("x", (3,), (b, t)), tp.input("w", (3, 3))
        h, g = tp.recurrent("h", (3,), (b, t)), tp.recurrent("g", (3,), (b, t))
        h[b, 0], g[b, 0] = x, x * x
        h[b, t] = tp.tanh(g[b, t - 1] @ w + x)
        g[b, t] = tp.tanh(h[b, t - 1] @ w + x + h)
        loss = ((h @ w) ** 2)[b, 0 : t.size].sum()[0 : b.size].sum()
        tp.output("gradient", tp.grad(loss, w))
    target.agrees(program, n=np.full(2, size, np.int32), x=numbers((2, size, 3)), w=numbers((3, 3)))


def test_softmaxes_of_rows_that_are_not_empty(target: Target) -> None:
    inputs, inside = rows_of()

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        rest = tp.cases((t < t.last, tp.logsumexp(x[b, t + 1 :])), 0.0)
        tp.output("gradient", tp.grad(tp.sin(rest)[:, :].sum(), x))
        return tp.cases((t.last >= 0, (tp.softmax(x[b, :]) * x[b, :]).sum()), -1.0)

    x = np.where(inside, inputs["x"], -np.inf)
    weights = np.exp(x[[0, 1, 3]])
    found = (weights / weights.sum(1, keepdims=True) * np.where(inside, inputs["x"], 0)[[0, 1, 3]]).sum(1)
    target.agrees(over_rows(make), {"y": [*found[:2], -1, found[2]]}, tolerance=5, **inputs)


def test_sums_of_empty_rows_beside_means(target: Target) -> None:
    inputs, inside = rows_of()

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        tp.output("means", tp.cases((t.last >= 0, x[b, :].mean()), -1))
        return x[b, :].sum()

    x = np.where(inside, inputs["x"], 0)
    means = np.where(inputs["n"] > 0, x.sum(1) / np.maximum(inputs["n"], 1), -1)
    target.agrees(over_rows(make), {"y": x.sum(1), "means": means}, **inputs)


@pytest.mark.one_configuration
@pytest.mark.one_process
def test_nothing_behind_a_row_is_not_finite(target: Target) -> None:
    inputs, _ = rows_of()

    def make(b: tp.Dim, t: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = x
        h[b, t + 1] = h + x[b, t + 1]
        return h

    target.compile(over_rows(make), check_finite=True)(**inputs)
    inputs["x"][1, 0] = 1e30
    with pytest.raises(tp.NotFiniteError, match="h is infinite at b = 1, t = 0"):
        target.compile(over_rows(lambda b, t, x: make(b, t, x * 1e30)), check_finite=True)(**inputs)


WRONG: dict[str, tuple[Callable[[tp.Dim, tp.Dim, tp.RecurrentTensor], Any], type[tp.TempoError], str]] = {
    "a point behind a row": (
        lambda b, t, x: x + x[b, 1],
        tp.DomainError,
        r"x\[b = 1, t = 1\] is read at .*and the row b = 1 has 1 points along t",
    ),
    "the first of none": (lambda b, t, x: x[b, 0], tp.DomainError, r"x\[b = 2, t = 0\].* has 0 points"),
    "the last of none": (lambda b, t, x: x[b, t.last], tp.DomainError, r"x\[b = 2, t = -1\].* has 0 points"),
    "a point behind a row, in a definition that is folded": (
        lambda b, t, x: tp.cases((t >= 1, but_at_the_end(b, t, x[b, t + 1])[b, 0 : t + 1].sum()), 0.0),
        tp.DomainError,
        r"x\[b = 0, t = 3\] is read by h at b = 0, t = 2",
    ),
    "a point behind a row, in a definition": (
        lambda b, t, x: but_at_the_end(b, t, x[b, t + 1]),
        tp.DomainError,
        r"x\[b = 0, t = 3\] is read by h at b = 0, t = 2, (?s:.*)h\[t \+ 1 < t.size\] = value",
    ),
    "another row": (lambda b, t, x: x[0, t], tp.DomainError, r"x\[b = 0, t = 3\].*the row b = 0 has 3 points"),
    "a maximum of none": (lambda b, t, x: x[b, :].max(), tp.ShapeError, "max over an empty slice at b = 2"),
    "a mean of none": (lambda b, t, x: x[b, :].mean(), tp.ShapeError, "mean over an empty slice at b = 2"),
    "a softmax of none": (
        lambda b, t, x: (tp.softmax(x[b, :]) * x[b, :]).sum(),
        tp.ShapeError,
        r"softmax over an empty slice at b = 2(?s:.*)tp.softmax\(x",
    ),
    "a logarithm of none": (
        lambda b, t, x: tp.grad(tp.logsumexp(x[b, :]), x),
        tp.ShapeError,
        "logsumexp over an empty slice at b = 2",
    ),
    "up to the last but one": (lambda b, t, x: x[b, :-1].sum(), tp.IndexExpressionError, "from the end of the arrays"),
    "the second half": (
        lambda b, t, x: x[b, t.size // 2 :].sum(),
        tp.IndexExpressionError,
        "from the end of the arrays",
    ),
    "unfolded": (lambda b, t, x: tp.flip(x[b, :], 0).sum(), tp.UnsupportedError, "depends on where a row ends"),
    "kept": (lambda b, t, x: x[b, :], tp.UnsupportedError, "depends on where a row ends"),
    "an index behind a row": (
        lambda b, t, x: tp.take(tp.constant(np.arange(6)), (x[b, 1] * 0).astype("int32")),
        tp.DomainError,
        r"x\[b = 1, t = 1\] is read",
    ),
    "several rows at the last": (
        lambda b, t, x: x[:, t].sum() + x[:, t][t.last],
        tp.TempoError,
        "depends on where a row ends",
    ),
    "a loss": (
        lambda b, t, x: tp.grad((x[b, 1] * x[b, 1])[:].sum(), x),
        tp.DomainError,
        r"x\[b = 1, t = 1\] is read",
    ),
    "the host": (
        lambda b, t, x: tp.host_call(lambda a: a, x, out=[((), "float32")])[0],
        tp.UnsupportedError,
        "calls the host at each point of b",
    ),
}


def at_indices(dtype: str, start: int = 0) -> tp.Program:
    """What is read of rows at indices that are given, and how often by its gradient."""
    with tp.Program() as program:
        b, s = tp.dim("b"), tp.dim("s")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x = tp.input("x", (), (b, t))
        within = slice(start, t.size) if start else None
        y = x.gather(t, tp.input("i", (2,), (b, s), dtype), within=within)
        tp.output("y", y)
        tp.output("often", tp.grad(y[:, :].sum(), x))
    return program


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
@pytest.mark.parametrize("start", [0, 1])
def test_rows_are_read_at_indices(target: Target, dtype: str, start: int) -> None:
    n, random = np.array([3, 2, 5, 2], np.int32), np.random.default_rng(0)
    i = np.stack([random.integers(start, count, (6, 2)) for count in n]).astype(dtype)
    x = np.where(np.arange(5) < n[:, None], numbers((4, 5)), np.nan).astype(np.float32)
    often = np.stack([np.bincount(each.ravel(), minlength=5) for each in i])
    expected = {"y": np.stack([row[at] for row, at in zip(x, i)]), "often": often}
    target.agrees(at_indices(dtype, start), expected, n=n, x=x, i=i)


@pytest.mark.few_configurations
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("wrong", [-1, 0, 2, 3, 4, 5, 9, 2**30 - 1])
def test_an_index_behind_a_row_is_an_error_at_its_point(target: Target, start: int, wrong: int) -> None:
    n, i = np.array([3, 2, 4], np.int32), np.full((3, 3, 2), 1, np.int32)
    x, i[1, 2, 1] = numbers((3, 4)) + 9, wrong
    program = at_indices("int32", start)
    clamped = target.compile(program, checks=False)(n=n, x=x, i=i)
    at = np.clip(i, start, n[:, None, None] - 1)
    wanted = np.take_along_axis(x, at.reshape(3, -1), 1).reshape(i.shape)
    np.testing.assert_array_equal(target.to_numpy(clamped["y"]), wanted)
    if start <= wrong < 2:
        target.agrees(program, n=n, x=x, i=i, options={"checks": True})
        return
    where = f"index {wrong} is out of range.*'x' at b = 1, s = 2, element 1"
    with pytest.raises(tp.IndexOutOfRangeError, match=where) as caught:
        target.compile(program, checks=True)(n=n, x=x, i=i)
    assert ("of its row" in str(caught.value)) == (wrong >= 2)
    assert caught.value.location is not None
    assert "x.gather(t" in caught.value.location.text


@pytest.mark.few_configurations
def test_an_empty_row_has_nothing_at_any_index(target: Target) -> None:
    n, i = np.array([2, 0], np.int32), np.zeros((2, 1, 2), np.int32)
    x = np.where(np.arange(3) < n[:, None], numbers((2, 3)) + 9, np.nan).astype(np.float32)
    found = target.compile(at_indices("int32"), checks=False)(n=n, x=x, i=i)
    np.testing.assert_array_equal(target.to_numpy(found["y"]), [[[x[0, 0]] * 2], [[0, 0]]])
    np.testing.assert_array_equal(target.to_numpy(found["often"]), [[2, 0, 0], [0, 0, 0]])
    with pytest.raises(tp.IndexOutOfRangeError, match="index 0 is out of range.* at b = 1, s = 0"):
        target.compile(at_indices("int32"), checks=True)(n=n, x=x, i=i)


@pytest.mark.few_configurations
def test_indices_behind_a_reader_of_no_point_are_nobodys_in_rows(target: Target) -> None:
    """What reads a row at an index may be of a row itself."""
    with tp.Program() as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        u = tp.dim("u", lengths=tp.input("m", (), (b,), "int32"))
        given, at = tp.input("x", (2,), (b, t)), tp.input("i", (), (b, u), "int32")
        taken = given.gather(t, at)
        tp.output("y", taken)
        tp.output("sums", (given.gather(t, at[b, :]) * 2).sum(axis=0))
        tp.output("gradient", tp.grad((taken * taken)[b, :].sum()[:].sum(), given))
    n, m = np.array([3, 0, 2], np.int32), np.array([2, 0, 3], np.int32)
    i = np.array([[2, 0, 99], [-5, 7, 7], [1, 1, 0]], np.int32)
    x = np.where(np.arange(4)[:, None] < n[:, None, None], numbers((3, 4, 2)), np.nan).astype(np.float32)
    y = np.zeros((3, 3, 2), np.float32)
    y[0, :2], y[2] = x[0, [2, 0]], x[2, [1, 1, 0]]
    gradient = np.zeros((3, 4, 2), np.float32)
    for row, point, place in ((0, 2, 0), (0, 0, 1), (2, 1, 0), (2, 1, 1), (2, 0, 2)):
        gradient[row, point] += 2 * y[row, place]
    expected = {"y": y, "sums": 2 * y.sum(1), "gradient": gradient}
    target.agrees(program, expected, n=n, m=m, x=x, i=i, options={"checks": True})


@pytest.mark.one_configuration
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(target: Target, name: str) -> None:
    make, error, message = WRONG[name]
    inputs, _ = rows_of()
    with pytest.raises(error, match=message):
        target.compile(over_rows(make))(**inputs)


@pytest.mark.one_configuration
@pytest.mark.parametrize(
    ("lengths", "message"), [([3, -1, 0, 2], r"n\[b = 1\] is -1"), ([3, 1, 5, 2], r"n\[b = 2\] is 5")]
)
def test_lengths_lie_in_the_arrays(target: Target, lengths: list[int], message: str) -> None:
    inputs, _ = rows_of()
    with pytest.raises(tp.SizeError, match=rf"{message}, and a row has 0 to 4 points along t"):
        target.compile(over_rows(lambda b, t, x: x))(**{**inputs, "n": np.array(lengths, np.int32)})
