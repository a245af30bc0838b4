"""Family 11, early ends: what the rest of a program reads at the last point that a run, or each of its rows, keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.stopping_rows import LENGTHS, START, halves, halves_of_rows
from tempo.conformance.target import Target, numbers, typical

HERE = Path(__file__).name


def test_what_does_not_vary_along_the_dim_reads_the_last_point_of_a_row(target: Target) -> None:
    with tp.Program() as program:
        b, t, s = tp.dims("b t s")
        x, z = halves(b, t), tp.input("z", (3,), (t, s))
        tp.stop_when(t, x < 0.3, each=b)
        last, count = x[b, t.last], tp.as_tensor(t.last) + 1
        tp.output("last", last)
        tp.output("count", count)
        tp.output("wide", (z * x)[b, t.last, s])
        tp.output("of no row", z[t.last, s])
        tp.output("by name", (x * tp.as_tensor(t)).at(t=t.last))
        tp.output("of all rows", last[:].sum(axis=0))
        tp.output("neighbour", last[tp.max(b - 1, 0)])
        tp.output("selected", tp.where(tp.as_tensor(s) < tp.as_tensor(t.last), last, -1.0))
        y = tp.recurrent("y", (), (b, s))
        y[b, 0] = last
        y[b, s + 1] = y + last * count
        tp.output("y", y)
    z_ = numbers((9, 3, 3))
    x_ = START * 0.5 ** (LENGTHS - 1.0)
    at_last = z_[LENGTHS - 1]
    expected = {
        "last": x_,
        "count": LENGTHS,
        "wide": at_last * x_[:, None, None],
        "of no row": at_last,
        "by name": x_ * (LENGTHS - 1),
        "of all rows": x_.sum(),
        "neighbour": x_[[0, 0, 1, 2]],
        "selected": np.where(np.arange(3) < LENGTHS[:, None] - 1, x_[:, None], -1),
        "y": x_[:, None] * (1 + np.arange(3) * LENGTHS[:, None]),
    }
    out = target.agrees(program, expected, start=START, z=z_)
    assert out.sizes == {"b": 4, "t": 5, "s": 3}
    np.testing.assert_array_equal(out.lengths["t"], LENGTHS)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 6])
def test_rows_that_never_end_have_the_last_point_of_all(target: Target, size: int) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = halves(b, t)
        tp.stop_when(t, x < 0.3, each=b)
        tp.output("last", x[b, t.last])
        tp.output("at", tp.as_tensor(t.last))
    at = np.minimum(LENGTHS, size) - 1
    target.agrees(program, {"last": START * 0.5**at, "at": at}, start=START, sizes={"t": size})


@pytest.mark.parametrize("limit", [0.3, 0.0, 9.0])
def test_a_stop_of_the_whole_run_has_one_last_point(target: Target, limit: float) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x, given = halves(b, t), tp.input("given", (2,), (t,))
        tp.stop_when(t, x[:, t].max(axis=0) < limit)
        tp.output("last", x[b, t.last] * 2)
        tp.output("given", given[t.last])
        tp.output("at", tp.as_tensor(t.last // 2))
    at = {0.3: 4, 0.0: 7, 9.0: 0}[limit]
    given_ = numbers((8, 2))
    expected = {"last": START * 2 * 0.5**at, "given": given_[at], "at": at // 2}
    target.agrees(program, expected, start=START, given=given_)


@pytest.mark.parametrize("lengths", [[1, 3], [0, 2], [3, 3]])
def test_rows_that_are_not_there_have_no_last_point(target: Target, lengths: list[int]) -> None:
    """Points behind the end of other rows: nobody sees what would be read there."""
    with tp.Program() as program:
        b, t, s, h = halves_of_rows()
        tp.stop_when(t, h < 1, each=(b, s))
        last = h[b, t.last, s]
        tp.output("last", last)
        tp.output("at", tp.as_tensor(t.last))
        tp.output("sums", last[b, :].sum(axis=0))
    n, given = np.array(lengths, np.int32), np.array([[1.5, 9, 0], [0, 5, 99]], np.float32)
    inside = np.arange(3) < n[:, None]
    at = np.array([[1, 4, 0], [0, 3, 7]]) * inside
    expected = given * 0.5**at * inside
    outputs = {"last": expected, "at": at, "sums": expected.sum(1)}
    target.agrees(program, outputs, n=n, x=given, sizes={"t": 9})


def test_rows_go_on_from_their_points_at_the_last_of_a_loop(target: Target) -> None:
    """The point behind a row is not read: nobody asks for what would be made of it."""
    with tp.Program() as program:
        b, t, s, h = halves_of_rows()
        tp.stop_when(t, h < 1, each=(b, s))
        y = tp.recurrent("y", (), (b, s))
        y[b, 0] = h[b, t.last, 0]
        y[b, s + 1] = y + h[b, t.last, s + 1]
        tp.output("y", y)
    given = np.array([[1.5, 9, 0], [5, 3, 99]], np.float32)
    last = np.array([[0.75, 0.5625, 0], [0.625, 0.75, 0.7734375]])
    n = np.array([2, 3], np.int32)
    target.agrees(program, {"y": np.cumsum(last, axis=1) * [[1, 1, 0], [1, 1, 1]]}, n=n, x=given, sizes={"t": 9})


def test_one_loop_goes_on_from_where_another_has_ended(target: Target) -> None:
    with tp.Program() as program:
        b, t, u = tp.dims("b t u")
        x = halves(b, t)
        tp.stop_when(t, x < 0.3, each=b)
        y = tp.recurrent("y", (), (b, u))
        y[b, 0] = x[b, t.last]
        y[b, u + 1] = y * 2
        tp.stop_when(u, y > tp.as_tensor(t.last), each=b)
        tp.output("y", y[b, u.last])
        tp.output("steps", tp.as_tensor(u.last - t.last))
    x_ = START * 0.5 ** (LENGTHS - 1.0)
    steps = [next(k for k in range(9) if value * 2**k > count - 1) for value, count in zip(x_, LENGTHS)]
    expected = {"y": x_ * 2.0 ** np.array(steps), "steps": np.array(steps) - LENGTHS + 1}
    target.agrees(program, expected, start=START, sizes={"t": 9, "u": 9})


@pytest.mark.one_process
def test_calls_of_the_host_behind_the_loop_see_it(target: Target) -> None:
    seen: list[Any] = []
    with tp.Program() as program:
        b, t, s = tp.dim("b"), tp.dim("t"), tp.dim("s", 2)
        x = halves(b, t)
        tp.stop_when(t, x < 0.3, each=b)
        tp.sink(lambda last: seen.append(np.array(last)), x[b, t.last] * (1 + tp.as_tensor(s)), batched=(b,))
        (twice,) = tp.host_call(lambda last: last * 2, x[b, t.last], out=[((), "float32")])
        tp.output("twice", twice)
    x_ = START * np.float32(0.5) ** (LENGTHS - 1)
    out = target.compile(program)(start=START, sizes={"t": 9})
    np.testing.assert_allclose(target.to_numpy(out["twice"]), x_ * 2)
    np.testing.assert_allclose(seen, [x_, x_ * 2])


@pytest.mark.planned
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_a_stream_along_the_dim_gives_it_at_the_end(target: Target, chunk: int) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = halves(b, t)
        tp.stop_when(t, x < 0.3, each=b)
        tp.output("x", x)
        tp.output("last", x[b, t.last])
    stream = target.compile(program).stream("t", chunk=chunk, sizes={"t": 9}, start=START)
    assert sum(step.stop - step.start for step in stream) == 5
    assert stream.result is not None
    np.testing.assert_allclose(target.to_numpy(stream.result["last"]), START * 0.5 ** (LENGTHS - 1.0))
    np.testing.assert_array_equal(stream.result.lengths["t"], LENGTHS)


class Layers:
    """A program under construction: `inside` the loop over `t`, whose rows end by themselves, and behind it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        names = ["b", "c", "t", "s"]
        random.shuffle(names)
        dims = {name: tp.dim(name) for name in names}
        self.b, self.c, self.t, self.s = (dims[name] for name in ("b", "c", "t", "s"))
        self.each = random.choice([("b",), ("b",), ("c",), ("b", "c"), ("b", "c"), ()])
        self.order = [dims[name] for name in names]
        self.inside = [self.given("x", (3,), "bct"), self.given("y", (), "t"), self.given("z", (2, 3), "btc")]
        self.numbers = 0

    def dims(self, names: Any) -> tuple[tp.Dim, ...]:
        return tuple(dim for dim in self.order if dim.name in names)

    def given(self, name: str, shape: tuple[int, ...], dims: str) -> tp.RecurrentTensor:
        return tp.input(name, shape, self.dims(dims))

    def pick(self, found: list[tp.RecurrentTensor]) -> tp.RecurrentTensor:
        return self.random.choice(found)

    def state(self, value: tp.RecurrentTensor, dims: Any, along: tp.Dim) -> tp.RecurrentTensor:
        """A recurrence along a dim, of what varies along some of these."""
        self.numbers += 1
        domain = self.dims({*dims, along.name})
        h = tp.recurrent(f"h{self.numbers}", value.shape, domain)
        first = tuple(0 if dim is along else dim for dim in domain)
        after = tuple(dim + 1 if dim is along else dim for dim in domain)
        h[first] = value * 0.5
        h[after] = tp.tanh(h * 0.5 + value)
        return h

    def loop(self) -> None:
        """Some statements in the loop, and where it ends."""
        for _ in range(self.random.randint(1, 3)):
            kind, value = self.random.randrange(3), self.pick(self.inside)
            if kind == 0:
                self.inside.append(self.state(value, {dim.name for dim in value.domain}, self.t))
            elif kind == 1:
                self.inside.append(tp.sin(value) + tp.as_tensor(self.t) * 0.1)
            else:
                self.inside.append(value + self.pick(self.inside[:2]))
        limit = self.given("limit", (), "bc")
        sums = self.state(self.given("steps", (), "bct"), "bc", self.t)
        tp.stop_when(self.t, sums > limit, each=self.dims(self.each))

    def behind(self) -> None:
        """What is made of what the loop has at its last points."""
        made = [tp.as_tensor(self.t.last).astype("float32"), self.pick(self.inside).at(t=self.t.last)]
        for number in range(self.random.randint(2, 5)):
            kind, value = self.random.randrange(6), self.pick(made)
            if kind == 0:
                value = self.pick(self.inside).at(t=self.t.last)
            elif kind == 1:
                value = value * 0.5 + self.pick(made[:1])
            elif kind == 2:
                value = (
                    self.state(value, {dim.name for dim in value.domain} - {"s"}, self.s)
                    if not self.has(value, "s")
                    else value
                )
            elif kind == 3 and self.has(value, "b"):
                value = value.at(b=slice(None)).sum(axis=0)
            elif kind == 4 and self.has(value, "b"):
                value = value.at(b=tp.max(self.b - 1, 0))
            elif kind == 5 and self.has(value, "c"):
                value = value.at(c=slice(None)).max(axis=0) - value
            made.append(value)
            tp.output(f"o{number}", value)
        tp.output("at", tp.as_tensor(self.t.last))

    @staticmethod
    def has(value: tp.RecurrentTensor, name: str) -> bool:
        return name in {dim.name for dim in value.domain}


SIZES = {"b": 4, "c": 2, "t": 6, "s": 3}


def random_program(seed: int) -> tuple[tp.Program, dict[str, Any], Layers]:
    random = Random(seed)
    with tp.Program(f"random {seed}") as program:
        layers = Layers(random)
        layers.loop()
        layers.behind()
    draw = np.random.default_rng(seed)
    data: dict[str, Any] = {}
    for name, id in program.builder.inputs.items():
        node = program.builder.nodes[id]
        shape = (*(SIZES[symbol.name] for symbol in node.domain), *(size.as_int() for size in node.shape))
        data[name] = draw.uniform(-1, 1, shape).astype(np.float32)
    return program, data, layers


def options_of(random: Random, layers: Layers) -> dict[str, Any]:
    ways: dict[str, Any] = {name: "sequential" for name in ("b", "c", "s") if random.random() < 0.3}
    if len(layers.each) == 1 and random.random() < 0.5:
        ways["t"] = random.choice([1, 2])  # rows that go on are moved together
    return {"mapping": ways} if ways else {}


@pytest.mark.parametrize("seed", typical(range(60), range(3)))
def test_random_programs(target: Target, seed: int) -> None:
    program, data, layers = random_program(seed)
    target.agrees(program, sizes={"s": SIZES["s"]}, tolerance=10, options=options_of(Random(-seed), layers), **data)


def in_the_loop(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x - x[b, t.last])


def on_the_way(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    last = tp.exp(x[b, t.last])
    tp.output("y", last[:].sum(axis=0) + tp.as_tensor(t))


def its_number(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x * tp.as_tensor(t.last))


def a_gradient(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    w = tp.input("w", ())
    tp.output("y", tp.grad((w * (x * w)[b, t.last])[:].sum(axis=0), w))


def before_the_last(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[b, t.last - 1])


def up_to_the_last(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[b, 0 : t.last + 1].sum(axis=0))


def a_case(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", tp.cases((s < t.last, x[b, t.last]), 0))


def a_definition(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    h = tp.recurrent("h", (), (b, t))
    h[b, t.last] = x


def a_condition(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    h = tp.recurrent("h", (), (b, s))
    h[s < t.last] = 1.0


def all_rows_kept(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", (x[:, t] * 2)[t.last])


def folded_behind_it(b: tp.Dim, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> None:
    u = tp.dim("u", lengths=tp.input("n", (), (b,), "int32"))
    tp.output("y", (x * tp.input("z", (), (b, u)))[b, t.last, :].sum())


REFUSED: dict[Callable[..., None], tuple[type[tp.TempoError], str]] = {
    in_the_loop: (tp.UnsupportedError, "is known when the loop over t has ended"),
    on_the_way: (tp.UnsupportedError, "is known when the loop over t has ended"),
    its_number: (tp.UnsupportedError, "is known when the loop over t has ended"),
    a_gradient: (tp.UnsupportedError, "the gradient goes through"),
    before_the_last: (tp.IndexExpressionError, "the last point alone is known"),
    up_to_the_last: (tp.IndexExpressionError, "differs from row to row"),
    a_case: (tp.IndexExpressionError, "is known when the loop over t has ended"),
    a_definition: (tp.IndexExpressionError, "is known when the loop over t has ended"),
    a_condition: (tp.IndexExpressionError, "is known when the loop over t has ended"),
    folded_behind_it: (tp.UnsupportedError, "fold them at each point of t, and read at t.last what that gives"),
    all_rows_kept: (tp.UnsupportedError, "is read at other points of b"),
}


def that_reads(reads: Callable[..., None]) -> tp.Program:
    with tp.Program() as program:
        b, t, s = tp.dim("b", 3), tp.dim("t", 6), tp.dim("s", 2)
        x = halves(b, t)
        tp.stop_when(t, x < 0.1, each=b)
        reads(b, t, s, x)
    return program


@pytest.mark.one_configuration
@pytest.mark.parametrize("reads", REFUSED, ids=lambda each: each.__name__)
def test_what_is_refused_is_refused_at_its_line(target: Target, reads: Callable[..., None]) -> None:
    error, message = REFUSED[reads]
    with pytest.raises(error, match=message) as caught:
        target.compile(that_reads(reads))
    assert caught.value.location is not None
    assert caught.value.location.path.endswith(HERE)
    first = reads.__code__.co_firstlineno
    assert first < caught.value.location.line <= first + 3


@pytest.mark.one_configuration
def test_rows_are_folded_before_the_last_point_is_read(target: Target) -> None:
    n, z = np.array([2, 0, 1, 3], np.int32), numbers((4, 3))
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = halves(b, t)
        tp.stop_when(t, x < 0.3, each=b)
        u = tp.dim("u", lengths=tp.input("n", (), (b,), "int32"))
        folded = (x * tp.input("z", (), (b, u)))[b, t, :].sum()
        tp.output("y", folded[b, t.last])
    sums = np.where(np.arange(3) < n[:, None], z, 0).sum(1)
    expected = {"y": START * 0.5 ** (LENGTHS - 1) * sums}
    target.agrees(program, expected, start=START, sizes={"t": 5}, n=n, z=z)


def test_before_the_stop_is_written_the_last_point_is_that_of_the_size(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dim("b", 3), tp.dim("t", 6)
        x = halves(b, t)
        tp.output("last", x[b, t.last])
        tp.stop_when(t, x < 0.1, each=b)
    with pytest.raises(tp.UnsupportedError, match="written after the stop"):
        target.compile(program)
