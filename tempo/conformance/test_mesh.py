"""Families 1 to 14 on many devices (`--tempo-mesh=N`): whatever is cut, a program means what it means on one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, assert_same
from tempo.runtime.executable import Executable

pytestmark = [pytest.mark.planned, pytest.mark.one_configuration]

AXIS = "data"
ROWS, STEPS = 8, 5

Function = Callable[[Any], Any]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float32)


def cut(
    many: Target, program: tp.Program, shard: Mapping[str, str] | None = None, place: Any = None, **options: Any
) -> Executable:
    """Along `b`, unless something else is said."""
    assert many.mesh is not None
    where = {"b": AXIS} if shard is None and place is None else shard
    run: Executable = tp.compile(
        program,
        many.backend,
        many.scheduler,
        mesh=tp.Mesh({AXIS: many.mesh}),
        shard=where,
        place=place,
        options=many.options(**options),
    )
    return run


def agrees(
    many: Target,
    program: tp.Program,
    tolerance: float = 1.0,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    **inputs: Any,
) -> None:
    """Cut along `b` it has the outputs, the state and the lengths of the reference evaluator."""
    found = cut(many, program)(sizes=sizes, seed=seed, **inputs)
    wanted = tp.compile(program, "reference")(sizes=sizes, seed=seed, **inputs)
    assert_same(many.arrays(found), dict(wanted), tolerance)
    assert_same(many.arrays(found.state), dict(wanted.state), tolerance)
    assert found.sizes == wanted.sizes
    assert_same(found.lengths, wanted.lengths)


def rows(function: Function, shape: tuple[int, ...] = (3,), dtype: str = "float32") -> tp.Program:
    """The function of all rows at once."""
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", shape, (b,), dtype)
        tp.output("y", function(x[0 : b.size]))
    return program


# -- draws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7])
def test_draws_are_those_of_one_device(many: Target, seed: int) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        tp.output("bits", tp.random.bits((3,), dims=(b, t)))
        tp.output("permutation", tp.random.permutation(6, dims=(b, t)))
        logits = tp.input("logits", (4,), (b, t))
        tp.output("categorical", tp.random.categorical(logits, dims=(b, t)))
        tp.output("uniform", tp.random.uniform((), dims=(b,)))
    agrees(many, program, logits=normal(ROWS, STEPS, 4), seed=seed)


def test_draws_without_the_dim_that_is_cut(many: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (8,), (b, t))
        tp.output("y", x + tp.random.uniform((8,), dims=(t,)))
        tp.output("order", x.spatial[tp.random.permutation(8, dims=())])
    agrees(many, program, x=normal(ROWS, STEPS, 8))


def test_draws_of_an_axis_that_is_cut(many: Target) -> None:
    with tp.Program() as program:
        x = tp.input("x", (8, 3), ())
        tp.output("y", x * tp.random.bits((8, 3), dims=()).astype("float32"))
        tp.output("bits", tp.random.bits((8, 3), dims=()))
    given = normal(8, 3)
    found = cut(many, program, place={"x": (AXIS, None)})(x=given, seed=3)
    assert_same(many.arrays(found), dict(tp.compile(program, "reference")(x=given, seed=3)))


def test_a_sampled_chain(many: Target) -> None:
    """What is drawn decides what comes next, row by row."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        table = tp.input("table", (4, 4))
        token = tp.recurrent("token", (), (b, t), "int32")
        token[b, 0] = 0
        token[b, t + 1] = tp.random.categorical(table.spatial[token], dims=(b, t))
        tp.output("token", token)
    agrees(many, program, table=2 * normal(4, 4), sizes={"b": ROWS, "t": STEPS})


# -- recurrences and gradients -----------------------------------------------------------------------------------------


def network(b: tp.Dim, t: tp.Dim) -> dict[str, tp.RecurrentTensor]:
    x, w, u = tp.input("x", (3,), (b, t)), tp.input("w", (3, 4)), tp.input("u", (4, 4))
    h = tp.recurrent("h", (4,), (b, t))
    h[b, 0] = tp.tanh(x[b, 0] @ w)
    h[b, t + 1] = tp.tanh(x[b, t + 1] @ w + h @ u)
    return {"x": x, "w": w, "u": u, "h": h}


def weights() -> dict[str, Any]:
    return {"w": normal(3, 4, seed=1), "u": normal(4, 4, seed=2)}


def test_a_recurrent_network_and_its_gradients(many: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        of = network(b, t)
        error = (of["h"][0 : b.size, t.size - 1] ** 2).mean()
        tp.output("h", of["h"])
        tp.output("error", error)
        for name, gradient in tp.grad(error, {name: of[name] for name in ("x", "w", "u")}).items():
            tp.output(f"of_{name}", gradient)
    agrees(many, program, 20, x=normal(ROWS, STEPS, 3), **weights())


def test_descent(many: Target) -> None:
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x, y = tp.input("x", (3,), (b,)), tp.input("y", (), (b,))
        w = tp.parameter("w", (3,), init=np.zeros(3, np.float32), dims=(i,))
        error = ((x @ w - y) ** 2)[i, 0 : b.size].mean()
        w[i + 1] = w - 0.1 * tp.grad(error, w)
        tp.output("error", error)
    agrees(many, program, 20, x=normal(ROWS, 3), y=normal(ROWS, seed=1), sizes={"i": 6})


@pytest.mark.parametrize("offset", [1, 2, -1, -3])
def test_neighbours_along_the_dim_that_is_cut(many: Target, offset: int) -> None:
    """They are read, not carried: what is on another device is fetched."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (2,), (b, t))
        y = tp.recurrent("y", (2,), (b, t))
        outside = (b + offset >= b.size) | (b + offset < 0)
        y[outside] = -x
        y[b, t] = x[b + offset, t] - 0.5 * x
        tp.output("y", y)
        tp.output("gradient", tp.grad((y**2)[0 : b.size, 0 : t.size].sum(), x))
    agrees(many, program, 20, x=normal(ROWS, STEPS, 2))


def test_a_stencil_in_time(many: Target) -> None:
    with tp.Program() as program:
        t, b = tp.dims("t b")
        start = tp.input("start", (), (b,))
        u = tp.recurrent("u", (), (t, b))
        u[0, b] = start
        u[t + 1, 0] = 0.0
        u[t + 1, b.size - 1] = 0.0
        u[t + 1, b] = 0.25 * u[t, b - 1] + 0.5 * u[t, b] + 0.25 * u[t, b + 1]
        tp.output("u", u)
    agrees(many, program, 4, start=normal(ROWS), sizes={"t": STEPS})


# -- folds and scans ---------------------------------------------------------------------------------------------------

NAN = np.float32("nan")
FOLDS: dict[str, Function] = {
    "sum": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(axis=0),
    "prod": lambda x: x.prod(axis=0),
    "max": lambda x: x.max(axis=0),
    "min": lambda x: x.min(axis=0),
    "all axes": lambda x: x.max(axis=(0, 1)),
    "std": lambda x: x.std(axis=0),
    "softmax": lambda x: tp.softmax(x, axis=0),
    "logsumexp": lambda x: tp.logsumexp(x, axis=0),
}
ORDERED: dict[str, Function] = {
    "argmax": lambda x: x.argmax(axis=0),
    "argmin": lambda x: x.argmin(axis=0),
    "cumsum": lambda x: tp.cumsum(x, axis=0),
    "cumprod": lambda x: tp.cumprod(x, axis=0),
    "sort": lambda x: tp.sort(x, axis=0),
    "argsort": lambda x: tp.argsort(x, axis=0),
    "flip": lambda x: tp.flip(x, (0,)),
    "roll": lambda x: tp.concatenate([x.spatial[3:], x.spatial[:3]], axis=0),
    "reshape": lambda x: x.reshape((-1,)),
}


@pytest.mark.parametrize("name", FOLDS)
def test_folds(many: Target, name: str) -> None:
    agrees(many, rows(FOLDS[name]), 8, x=normal(ROWS, 3))


@pytest.mark.parametrize("name", ["max", "min", "sum", "prod"])
@pytest.mark.parametrize("at", [0, ROWS // 2, ROWS - 1])
def test_folds_of_what_is_no_number(many: Target, name: str, at: int) -> None:
    x = normal(ROWS, 3)
    x[at, 1] = NAN
    agrees(many, rows(FOLDS[name]), 8, x=x)


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("at", [None, 0, ROWS - 1])
def test_folds_of_bools(many: Target, name: str, at: int | None) -> None:
    x = np.zeros((ROWS, 3), bool) if name == "any" else np.ones((ROWS, 3), bool)
    if at is not None:
        x[at, 1] = not x[at, 1]
    agrees(many, rows(lambda x: getattr(x, name)(axis=0), dtype="bool"), x=x)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_folds_of_whole_numbers(many: Target, name: str, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 9, (ROWS, 3)).astype(dtype)
    agrees(many, rows(FOLDS[name], dtype=dtype), x=x)


@pytest.mark.parametrize("name", ORDERED)
def test_what_goes_through_positions_in_order(many: Target, name: str) -> None:
    x = normal(ROWS, 3)
    x[1] = x[5]  # the first of two that are equal
    agrees(many, rows(ORDERED[name]), 8, x=x)


def test_a_fold_in_every_iteration(many: Target) -> None:
    """Carried is what all rows have given."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b, t))
        s = tp.recurrent("s", (), (t,))
        s[0] = 0.0
        s[t + 1] = 0.5 * s + (x[0 : b.size, t] - s).mean() + x[0 : b.size, t].max(axis=0)
        tp.output("s", s)
    agrees(many, program, 8, x=normal(ROWS, STEPS))


@pytest.mark.parametrize("at", [0, 3, -1])
def test_one_row(many: Target, at: int) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (2,), (b, t))
        tp.output("y", x[at if at >= 0 else b.size + at, t] * 2.0)
        tp.output("z", x - x[at if at >= 0 else b.size + at, t])
    agrees(many, program, x=normal(ROWS, STEPS, 2))


# -- indices -----------------------------------------------------------------------------------------------------------


def gathered() -> tp.Program:
    with tp.Program() as program:
        b = tp.dim("b")
        x, table = tp.input("x", (2,), (b,)), tp.input("table", (5, 2))
        n, k = tp.input("n", (), (b,), "int32"), tp.input("k", (), (b,), "int32")
        tp.output("row", x.gather(b, n) + 0.0)
        tp.output("entry", table.spatial[k])
    return program


def test_rows_at_indices(many: Target) -> None:
    n = np.array([7, 0, 3, 3, 1, 6, 2, 5], np.int32)
    agrees(many, gathered(), x=normal(ROWS, 2), table=normal(5, 2, seed=1), n=n, k=n % 5)


@pytest.mark.parametrize(("name", "wrong"), [("n", 8), ("n", -9), ("k", 5)])
@pytest.mark.parametrize("at", [0, ROWS - 1])
@pytest.mark.one_process
def test_indices_are_checked(many: Target, name: str, wrong: int, at: int) -> None:
    inputs: dict[str, Any] = {"x": normal(ROWS, 2), "table": normal(5, 2, seed=1)}
    inputs |= {"n": np.arange(ROWS, dtype=np.int32), "k": np.zeros(ROWS, np.int32)}
    inputs[name][at] = wrong
    run = cut(many, gathered(), checks=True)
    with pytest.raises(tp.IndexOutOfRangeError) as caught:
        many.arrays(run(**inputs))
    assert caught.value.location is not None
    assert caught.value.location.path == __file__


# -- the host ----------------------------------------------------------------------------------------------------------


def test_a_call_of_all_rows_at_once(many: Target) -> None:
    seen = list[tuple[int, ...]]()

    def doubled(x: np.ndarray) -> tuple[np.ndarray]:
        seen.append(x.shape)
        return (2 * x + np.arange(len(x), dtype=np.float32)[:, None],)

    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (3,), (b, t))
        h = tp.recurrent("h", (3,), (b, t))
        (y,) = tp.host_call(doubled, h, out=[((3,), tp.float32)], ordered_by=(t,), batched=(b,))
        h[b, 0] = x
        h[b, t + 1] = 0.25 * y + x[b, t + 1]
        tp.output("h", h)
        tp.output("y", y)
    given = normal(ROWS, STEPS, 3)
    found = cut(many, program)(x=given)
    assert seen == [(ROWS, 3)] * STEPS
    assert_same(many.arrays(found), dict(tp.compile(program, "reference")(x=given)), 4)


# -- runs --------------------------------------------------------------------------------------------------------------


def accumulated() -> tp.Program:
    with tp.Program() as program:
        t, b = tp.dims("t b")
        x = tp.input("x", (2,), (t, b))
        h = tp.recurrent("h", (2,), (t, b))
        h[0, b] = x
        h[t + 1, b] = 0.5 * h + x[t + 1, b]
        tp.output("h", h)
        tp.output("total", h[t, 0 : b.size].sum(axis=0))
    return program


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("keep", [False, True])
def test_a_stream_over_time(many: Target, chunk: int | None, keep: bool) -> None:
    program, x = accumulated(), normal(STEPS, ROWS, 2)
    wanted = tp.compile(program, "reference")(x=x)
    ways: dict[str, Any] = {} if chunk is None else {"chunk": chunk}
    join = np.stack if chunk is None else np.concatenate
    steps = [many.arrays(step) for step in cut(many, program).stream("t", keep=keep, **ways, x=x)]
    assert_same({name: join([step[name] for step in steps]) for name in wanted}, dict(wanted), 4)


def test_a_streamed_input(many: Target) -> None:
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x = tp.stream_input("x", (2,), (i, b))
        w = tp.parameter("w", (2,), init=np.zeros(2, np.float32), dims=(i,))
        w[i + 1] = 0.5 * w + x[i, 0 : b.size].mean(axis=0)
        tp.output("w", w)
    data, sizes = normal(STEPS, ROWS, 2), {"b": ROWS, "i": STEPS}
    wanted = tp.compile(program, "reference")(x=data, sizes=sizes)
    found = [many.to_numpy(step["w"]) for step in cut(many, program).stream("i", x=iter(data), sizes=sizes)]
    assert_same({"w": np.stack(found)}, {"w": np.asarray(wanted["w"])}, 4)


def counting() -> tp.Program:
    """A parameter of every row, and one of all."""
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x = tp.input("x", (2,), (b,))
        s = tp.parameter("s", (2,), init=np.zeros(2, np.float32), dims=(i, b))
        w = tp.parameter("w", (2,), init=np.zeros(2, np.float32), dims=(i,))
        s[i + 1, b] = 0.5 * s + x
        w[i + 1] = w + s[i, 0 : b.size].sum(axis=0)
        tp.output("s", s)
        tp.output("w", w)
    return program


@pytest.mark.parametrize("donate", [False, True])
def test_state_is_given_to_another_run(many: Target, donate: bool) -> None:
    program, x = counting(), normal(ROWS, 2)
    run, meaning = cut(many, program), tp.compile(program, "reference")
    found, wanted = run(x=x, sizes={"i": 3}), meaning(x=x, sizes={"i": 3})
    assert_same(many.arrays(found.state), dict(wanted.state), 4)
    found = run(x=x, sizes={"i": 3}, state=found.state, donate=donate)
    wanted = meaning(x=x, sizes={"i": 3}, state=wanted.state)
    assert_same(many.arrays(found), dict(wanted), 4)
    assert_same(many.arrays(found.state), dict(wanted.state), 4)


def test_state_of_one_device_is_given_to_many_and_back(many: Target) -> None:
    program, x = counting(), normal(ROWS, 2)
    one = tp.compile(program, "reference")
    first = one(x=x, sizes={"i": 3})
    second = cut(many, program)(x=x, sizes={"i": 3}, state=first.state)
    third = one(x=x, sizes={"i": 3}, state={name: many.to_numpy(each) for name, each in second.state.items()})
    wanted = one(x=x, sizes={"i": 7})  # the last point of each run is the first of the next
    assert_same(dict(third.state), dict(wanted.state), 8)


def test_what_is_given_away(many: Target) -> None:
    program, x = accumulated(), normal(STEPS, ROWS, 2)
    run, wanted = cut(many, program), dict(tp.compile(program, "reference")(x=x))
    for _ in range(2):
        assert_same(many.arrays(run(**run.device_put(x=x), donate=True)), wanted, 4)
    assert_same(many.arrays(run(x=x)), wanted, 4)


def drawing() -> tp.Program:
    """A parameter of every row, and what is drawn for each at each point."""
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x = tp.input("x", (2,), (i, b))
        s = tp.parameter("s", (2,), init=np.zeros(2, np.float32), dims=(i, b))
        s[i + 1, b] = 0.5 * s + x * tp.random.uniform((2,), dims=(i, b))
        tp.output("s", s)
        tp.output("mean", s[i, 0 : b.size].mean(axis=0))
    return program


def test_the_second_part_of_a_run(many: Target) -> None:
    x, sizes = normal(7, ROWS, 2), {"i": 7}
    wanted = tp.compile(drawing(), "reference")(x=x, seed=5)
    run = cut(many, drawing())
    first = run(x=x[:4], seed=5)
    rest = run(x=x, sizes=sizes, seed=5, state=first.state, from_point={"i": 3})
    assert_same(many.arrays(rest), {name: np.asarray(each)[3:] for name, each in wanted.items()}, 4)
    assert_same(many.arrays(rest.state), dict(wanted.state), 4)


@pytest.mark.one_process
def test_a_run_goes_on_at_a_checkpoint(many: Target, tmp_path: Path) -> None:
    x, run = normal(7, ROWS, 2), cut(many, drawing())
    wanted = many.arrays(run(x=x, seed=5, checkpoint=tp.Checkpoints(tmp_path, along="i", every=3, keep=None)))
    assert_same(wanted, dict(tp.compile(drawing(), "reference")(x=x, seed=5)), 4)
    latest = max(tmp_path.iterdir(), key=lambda each: each.name)
    shutil.rmtree(latest) if latest.is_dir() else latest.unlink()
    again = run(x=x, checkpoint=tp.Checkpoints(tmp_path, along="i", every=3, keep=None), resume=True)
    assert {name: each.tobytes() for name, each in many.arrays(again).items()} == {
        name: each.tobytes() for name, each in wanted.items()
    }


# -- rows that end -----------------------------------------------------------------------------------------------------


def test_rows_that_end_each_by_itself(many: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b,))
        s = tp.recurrent("s", (), (b, t))
        s[b, 0] = x
        s[b, t + 1] = s + x
        tp.stop_when(t, s > 3.0, each=b)
        tp.output("s", s)
    agrees(many, program, x=np.array([1.5, 0.25, 4, 1, 0.5, 3, 2, 0.75], np.float32), sizes={"t": 9})


def test_a_run_that_ends_for_all_rows(many: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b,))
        s = tp.recurrent("s", (), (b, t))
        s[b, 0] = x
        s[b, t + 1] = s + x
        tp.stop_when(t, (s[0 : b.size, t] > 3.0).any())
        tp.output("s", s)
    agrees(many, program, x=np.linspace(0.125, 1.0, ROWS).astype(np.float32), sizes={"t": 9})


def test_rows_of_their_own_lengths(many: Target) -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x = tp.input("x", (2,), (b, t))
        h = tp.recurrent("h", (2,), (b, t))
        h[b, 0] = x
        h[b, t + 1] = 0.5 * h + x[b, t + 1]
        tp.output("h", h)
        tp.output("total", h[b, 0 : t.size].sum(axis=0))
        tp.output("greatest", x[b, 0 : t.size].max(axis=0))
    lengths = np.array([5, 1, 3, 2, 5, 4, 1, 2], np.int32)
    agrees(many, program, 4, x=normal(ROWS, STEPS, 2), n=lengths)


# -- what is not finite ------------------------------------------------------------------------------------------------


def risky() -> tp.Program:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b, t))
        y = tp.log(x)
        tp.output("y", y)
    return program


def test_what_is_finite_is_let_pass(many: Target) -> None:
    x = np.abs(normal(ROWS, STEPS)) + 1
    found = cut(many, risky(), check_finite=True)(x=x)
    assert_same(many.arrays(found), dict(tp.compile(risky(), "reference")(x=x)), 4)


@pytest.mark.parametrize("at", [(0, 0), (3, 2), (ROWS - 1, STEPS - 1)])
@pytest.mark.one_process
def test_what_is_not_finite_is_named(many: Target, at: tuple[int, int]) -> None:
    x = np.abs(normal(ROWS, STEPS)) + 1
    x[at] = -1.0
    run = cut(many, risky(), check_finite=True)
    meaning = tp.compile(risky(), "reference", options=tp.Options(check_finite=True))
    told = list[str]()
    for each in (run, meaning):
        with pytest.raises(tp.NotFiniteError) as caught:
            many.arrays(each(x=x))
        told.append(caught.value.message)
        assert caught.value.location is not None
        assert caught.value.location.path == __file__
    assert told[0] == told[1]


def test_draws_at_a_part_of_the_points(many: Target) -> None:
    """Of which there are not as many on each device."""
    with tp.Program() as program:
        b = tp.dim("b", ROWS)
        h = tp.recurrent("h", (4,), (b,))
        h[0] = 0.0
        h[b + 1] = tp.random.normal((4,), dims=(b,))
        tp.output("h", h)
    agrees(many, program, seed=3)


@pytest.mark.parametrize("mixed", [False, True], ids=["state", "cases"])
def test_axes_that_meet_the_other_way_round(many: Target, mixed: bool) -> None:
    """Of two inputs that are cut along one axis of the mesh each: a value is along it once."""
    with tp.Program() as program:
        t = tp.dim("t", STEPS)
        x, y = tp.input("x", (4, 4), (t,)), tp.input("y", (4, 4), (t,))
        h = tp.recurrent("h", (4, 4), (t,))
        h[0] = x[0]
        sum_of_all = x[t + 1] + y[t + 1].transpose() + 0.5 * h
        either = tp.cases((t % 2 == 0, x[t + 1] + 0.5 * h), y[t + 1].transpose() * h)
        h[t + 1] = either if mixed else sum_of_all
        tp.output("h", h)
    x_data, y_data = normal(STEPS, 4, 4), normal(STEPS, 4, 4, seed=1)
    found = cut(many, program, place={"x": (None, AXIS), "y": (None, AXIS)})(x=x_data, y=y_data)
    assert_same(many.arrays(found), dict(tp.compile(program, "reference")(x=x_data, y=y_data)), 4)
