"""Family 11, early ends: rows that go on are moved together, and no more than they are computed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers, typical

ROWS, STEPS, WIDTH = 6, 9, 3


class Rows:
    """A program under construction, in which every tensor has a row for each `b` and a point for each `t`."""

    def __init__(self) -> None:
        self.b, self.t = tp.dim("b"), tp.dim("t")
        self.words = tp.dim("s", lengths=tp.input("n", (), (self.b,), "int32"))
        self.x = tp.input("x", (WIDTH,), (self.b, self.t))
        self.start = tp.input("start", (WIDTH,), (self.b,))
        self.w = tp.input("w", (WIDTH, WIDTH))
        self.limit = tp.input("limit", (), (self.b,))
        self.made = [self.x]

    def recurrent(self, step: Callable[[tp.RecurrentTensor], tp.RecurrentTensor]) -> tp.RecurrentTensor:
        h = tp.recurrent(f"h{len(self.made)}", (WIDTH,), (self.b, self.t))
        h[self.b, 0] = self.start
        h[self.b, self.t + 1] = step(h)
        return h


Statement = Callable[[Rows, tp.RecurrentTensor], tp.RecurrentTensor]


def cell(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return rows.recurrent(lambda h: tp.tanh(h @ rows.w + x))


def window(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return x[rows.b, tp.max(rows.t - 2, 0) : rows.t + 1].sum(axis=0) * 0.4


def further_back(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    b, t = rows.b, rows.t
    h = tp.recurrent(f"h{len(rows.made)}", (WIDTH,), (b, t))
    h[t < 2] = x[b, t]
    h[b, t] = h[b, t - 2] * 0.5 + x
    return h


def attention(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    h = rows.recurrent(lambda h: h * 0.5 + x)
    past = h[rows.b, 0 : rows.t + 1]
    return tp.softmax(past @ x, axis=0) @ past


def drawn(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return x + tp.random.uniform((WIDTH,), dims=(rows.b, rows.t))


def drawn_once(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return x * tp.random.normal((2, WIDTH), dims=(rows.b,)).sum(axis=0) + tp.random.uniform((), dims=(rows.t,))


def numbered(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return x * tp.as_tensor(2 * rows.b + 1) + tp.as_tensor(rows.t + rows.b)


def averaged(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """Over those that go on at the same point."""
    live = (x == x)[:, rows.t].astype("float32").sum(axis=0)
    return rows.recurrent(lambda h: h * 0.3 + x[:, rows.t].sum(axis=0) / live)


def learned(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    p = tp.parameter(f"p{len(rows.made)}", (WIDTH,), np.ones(WIDTH, np.float32), (rows.b, rows.t))
    p[rows.b, rows.t + 1] = p * 0.9 + x[rows.b, rows.t]
    return p + x


def scheduled(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """Beside what is of rows, what all of them share."""
    rate = tp.recurrent(f"rate{len(rows.made)}", (), (rows.t,))
    rate[0] = 1.0
    rate[rows.t + 1] = rate * 0.8
    return x * rate


def of_words(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """Of each row several, which have a state each."""
    b, t, s = rows.b, rows.t, rows.words
    h = tp.recurrent(f"h{len(rows.made)}", (WIDTH,), (b, t, s))
    h[b, 0, s] = rows.start + tp.as_tensor(s)
    h[b, t + 1, s] = tp.sin(h + x)
    return x + tp.softmax(h[b, t, :] @ rows.start, axis=0) @ h[b, t, :]


def looked_up(rows: Rows, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """At indices of rows, and of steps that all rows share."""
    of_row = rows.w.spatial[tp.abs(x).argmax(axis=0)]
    return x + of_row * rows.w.spatial[tp.as_tensor(rows.t) % WIDTH]


STATEMENTS: tuple[Statement, ...] = (
    cell, window, further_back, attention, drawn, drawn_once, numbered, averaged, learned, scheduled, of_words,
    looked_up,
)  # fmt: skip


def program_of(statements: list[Statement]) -> tp.Program:
    with tp.Program("rows") as program:
        rows = Rows()
        for number, statement in enumerate(statements):
            rows.made.append(statement(rows, rows.made[-1]))
            tp.output(f"y{number}", rows.made[-1])
        last = rows.made[-1]
        tp.stop_when(rows.t, tp.abs(last).sum(axis=0) > rows.limit, each=rows.b)
    return program


def check(target: Target, statements: list[Statement], together: int, seed: int = 0) -> None:
    """With steps of a multiple of `together` rows."""
    random = np.random.default_rng(seed)
    limit = random.choice([0.2, 1.0, 2.0, 3.0, 5.0, 1e9], ROWS).astype(np.float32)
    data: dict[str, Any] = {"x": numbers((ROWS, STEPS, WIDTH)), "start": numbers((ROWS, WIDTH), seed=2), "limit": limit}
    data |= {"w": numbers((WIDTH, WIDTH), seed=1), "n": np.array([1, 3, 2, 2, 3, 1], np.int32)}
    before = {name: array.copy() for name, array in data.items()}
    given: dict[str, Any] = {"options": {"mapping": {"t": together}}, "sizes": {"s": 3}, "seed": seed, "tolerance": 100}
    target.agrees(program_of(statements), **given, **data)
    for name, array in before.items():
        np.testing.assert_array_equal(data[name], array, "a run writes to what it is given")


@pytest.mark.parametrize("together", [1, 4, ROWS])
@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.__name__)
def test_what_is_made_of_a_row_does_not_depend_on_those_beside_it(
    target: Target, statement: Statement, together: int
) -> None:
    check(target, [statement], together)


@pytest.mark.parametrize("seed", typical(range(24), range(2)))
def test_random_programs(target: Target, seed: int) -> None:
    random = Random(seed)
    check(target, [random.choice(STATEMENTS) for _ in range(random.randint(2, 4))], random.randint(1, 3), seed)


@pytest.mark.parametrize("way", ["dim", "axis", "number"])
def test_as_many_positions_as_rows_are_no_rows(target: Target, way: str) -> None:
    with tp.Program() as program:
        b, t = tp.dim("b"), tp.dim("t")
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = tp.input("start", (), (b,))
        h[b, t + 1] = h * 0.5
        if way == "dim":
            c = tp.dim("c", b.size)
            other = tp.recurrent("other", (), (t, c))
            other[0, c] = tp.as_tensor(c) * 1.0
            other[t + 1, c] = other * 0.5
        elif way == "axis":
            other = tp.random.uniform((b.size,), dims=(t,))
        else:
            other = h * tp.as_tensor(b.size - b)
        tp.output("h", h)
        tp.output("other", other)
        tp.stop_when(t, h < 1, each=b)
    start = np.array([9, 1.5, 0.5, 33], np.float32)
    target.agrees(program, start=start, sizes={"t": 8}, options={"mapping": {"t": 1}})


@pytest.mark.planned
@pytest.mark.one_device
def test_few_rows_are_computed_by_few(target: Target) -> None:
    """With one executable for each number of rows that there was; `explain` says which there may be."""
    data: dict[str, Any] = {
        "x": numbers((ROWS, STEPS, WIDTH)),
        "start": numbers((ROWS, WIDTH)),
        "w": numbers((WIDTH, WIDTH)),
    }
    data |= {"n": np.ones(ROWS, np.int32), "limit": np.array([0, 1e9, 0, 0, 0, 0], np.float32)}
    run = target.compile(program_of([cell]), mapping={"t": 1})
    out = run(sizes={"s": 3}, **data)
    np.testing.assert_array_equal(out.lengths["t"], [1, STEPS, 1, 1, 1, 1])
    assert run.executables == 2
    assert "t: 6, 5, 4, 3, 2, 1 rows at a time" in run.explain("all")
    alone = target.compile(program_of([cell]), mapping={"t": "sequential"})
    alone(sizes={"s": 3}, **data)
    assert "t: all rows until the last has ended" in alone.explain("all")


@pytest.mark.one_process
def test_an_error_names_the_row_and_not_its_place(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dim("b"), tp.dim("t")
        table, index = tp.input("table", (4,)), tp.input("index", (), (b, t), tp.int32)
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = 0.0
        h[b, t + 1] = h + table.spatial[index[b, t + 1]]
        tp.output("h", h)
        tp.stop_when(t, tp.as_tensor(t) >= tp.input("last", (), (b,), tp.int32), each=b)
    given = np.zeros((4, 6), np.int32)
    given[2, 4] = 7
    data: dict[str, Any] = {"table": np.ones(4, np.float32), "last": np.array([0, 1, 5, 1], np.int32)}
    run = target.compile(program, checks=True, mapping={"t": 1})
    with pytest.raises(tp.IndexOutOfRangeError, match=r"index 7 .* at b = 2, t = 3"):
        run(index=given, **data)
    given[2, 4] = 3
    np.testing.assert_array_equal(run(index=given, **data).lengths["t"], [1, 2, 6, 2])


@pytest.mark.parametrize("order", ["b t", "t b"])
def test_rows_may_be_given_point_by_point(target: Target, order: str) -> None:
    with tp.Program() as program:
        outer, inner = tp.dims(order)
        b, t = (outer, inner) if order == "b t" else (inner, outer)
        x = tp.input("x", (WIDTH,), (outer, inner))
        h = tp.recurrent("h", (WIDTH,), (outer, inner))
        h[t < 1] = 1.0
        h[t >= 1] = (h[b, t - 1] if order == "b t" else h[t - 1, b]) * 0.5 + x
        tp.output("h", h)
        tp.stop_when(t, tp.as_tensor(t) >= tp.input("last", (), (b,), tp.int32), each=b)
    data = numbers((5, 7, WIDTH) if order == "b t" else (7, 5, WIDTH))
    last = np.array([0, 4, 6, 1, 1], np.int32)
    target.agrees(program, x=list(data), last=last, options={"mapping": {"t": 1}})
