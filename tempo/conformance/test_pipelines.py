"""Pipelines on many devices (`--tempo-mesh=N`): layers that go through stages mean what they mean on one."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, assert_same
from tempo.runtime.executable import Executable

pytestmark = [
    pytest.mark.planned,
    pytest.mark.one_configuration,
]

AXIS = "stage"
ROWS, WIDTH, STEPS = 2, 3, 4

Body = Callable[[tp.Dim, tp.Dim], None]

EACH_SIZE = pytest.mark.parametrize(("run", "microbatches"), [(1, 1), (1, 4), (2, 1), (2, 3), (3, 5)])
"""How many layers a stage has, and microbatches."""


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float32)


def stages_of(many: Target) -> int:
    assert many.mesh is not None
    return many.mesh


def piped(many: Target, program: tp.Program, mesh: tp.Mesh | None = None, **given: Any) -> Executable:
    """On all devices, where no mesh is given."""
    run: Executable = tp.compile(
        program,
        many.backend,
        many.scheduler,
        mesh=mesh or tp.Mesh({AXIS: stages_of(many)}),
        pipeline=tp.Pipeline("l", over=AXIS, microbatches="m"),
        options=many.options(),
        **given,
    )
    return run


def same(
    many: Target,
    run: Executable,
    program: tp.Program,
    tolerance: float = 1.0,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    may_gather: bool = False,
    **inputs: Any,
) -> None:
    """It has the outputs, the state and the sizes of the reference evaluator; nothing is gathered, or that is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if may_gather else "error", tp.GatherWarning)
        found = run(sizes=sizes, seed=seed, **inputs)
    wanted = tp.compile(program, "reference")(sizes=sizes, seed=seed, **inputs)
    assert_same(many.arrays(found), dict(wanted), tolerance)
    assert_same(many.arrays(found.state), dict(wanted.state), tolerance)
    assert found.sizes == wanted.sizes


def agrees(many: Target, program: tp.Program, tolerance: float = 1.0, **given: Any) -> None:
    same(many, piped(many, program), program, tolerance, **given)


def written(body: Body, order: str = "m l") -> tp.Program:
    with tp.Program() as program:
        dims = dict(zip(order.split(), tp.dims(order), strict=True))
        body(dims["m"], dims["l"])
    return program


def network(m: tp.Dim, l: tp.Dim) -> dict[str, tp.RecurrentTensor]:
    w, c, x = tp.input("w", (WIDTH, WIDTH), (l,)), tp.input("c", (WIDTH,), (l,)), tp.input("x", (ROWS, WIDTH), (m,))
    into = tp.recurrent("into", (ROWS, WIDTH), (m, l))
    h = tp.tanh(into @ w + c)
    into[m, 0] = x
    into[m, l] = h[m, l - 1]
    return {"w": w, "c": c, "x": x, "h": h, "into": into}


def arrays_of(layers: int, microbatches: int) -> dict[str, Any]:
    return {
        "w": normal(layers, WIDTH, WIDTH, seed=1),
        "c": normal(layers, WIDTH, seed=2),
        "x": normal(microbatches, ROWS, WIDTH),
    }


# -- networks ----------------------------------------------------------------------------------------------------------


@EACH_SIZE
def test_a_network(many: Target, run: int, microbatches: int) -> None:
    program = written(lambda m, l: tp.output("y", network(m, l)["h"][m, -1]))
    agrees(many, program, 4, **arrays_of(run * stages_of(many), microbatches))


def trained(m: tp.Dim, l: tp.Dim) -> None:
    of = network(m, l)
    loss = (of["h"][0 : m.size, l.size - 1] ** 2).mean()
    tp.output("loss", loss)
    for name, gradient in tp.grad(loss, {name: of[name] for name in "wcx"}).items():
        tp.output(f"of_{name}", gradient)


@EACH_SIZE
def test_a_network_and_its_gradients(many: Target, run: int, microbatches: int) -> None:
    agrees(many, written(trained), 20, **arrays_of(run * stages_of(many), microbatches))


def test_layers_before_microbatches(many: Target) -> None:
    with tp.Program() as program:
        l, m = tp.dims("l m")
        w, x = tp.input("w", (WIDTH, WIDTH), (l,)), tp.input("x", (ROWS, WIDTH), (m,))
        h = tp.recurrent("h", (ROWS, WIDTH), (l, m))
        h[0, m] = x
        h[l, m] = tp.tanh(h[l - 1, m] @ w)
        tp.output("h", h)
        tp.output("of_w", tp.grad((h[l.size - 1, 0 : m.size] ** 2).mean(), w))
    layers = 2 * stages_of(many)
    agrees(many, program, 20, w=normal(layers, WIDTH, WIDTH, seed=1), x=normal(3, ROWS, WIDTH))


def test_one_executable_for_all_sizes(many: Target) -> None:
    program = written(trained)
    run = piped(many, program)
    for layers, microbatches in ((1, 2), (2, 2), (2, 3), (1, 2)):
        same(many, run, program, 20, **arrays_of(layers * stages_of(many), microbatches))


def test_all_that_layers_make(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        of = network(m, l)
        tp.output("h", of["h"])
        tp.output("into", of["into"])
        tp.output("of_each", of["h"][0 : m.size].sum(axis=0))
        tp.output("first", of["h"][m, 0])

    for run in (1, 2):
        agrees(many, written(body), 8, **arrays_of(run * stages_of(many), 3))


@pytest.mark.parametrize("run", [1, 2])
def test_recurrent_networks_in_layers(many: Target, run: int) -> None:
    with tp.Program() as program:
        m, l, t = tp.dim("m"), tp.dim("l"), tp.dim("t", STEPS)
        w, u = (tp.input(name, (WIDTH, WIDTH), (l,)) for name in "wu")
        x = tp.input("x", (ROWS, WIDTH), (m, t))
        h = tp.recurrent("h", (ROWS, WIDTH), (m, l, t))
        below, before = (tp.recurrent(name, (ROWS, WIDTH), (m, l, t)) for name in ("below", "before"))
        below[m, 0, t] = x
        below[m, l, t] = h[m, l - 1, t]
        before[m, l, 0] = 0.0
        before[m, l, t] = h[m, l, t - 1]
        h[m, l, t] = tp.tanh(below @ w + before @ u)
        loss = (h[0 : m.size, l.size - 1, 0 : t.size] ** 2).mean()
        tp.output("last", h[m, l.size - 1, t.size - 1])
        for name, gradient in tp.grad(loss, {"w": w, "u": u, "x": x}).items():
            tp.output(f"of_{name}", gradient)
    layers = run * stages_of(many)
    weights = {name: normal(layers, WIDTH, WIDTH, seed=seed) for seed, name in enumerate("wu", 1)}
    agrees(many, program, 40, x=normal(3, STEPS, ROWS, WIDTH), **weights)


def test_blocks_of_attention(many: Target) -> None:
    """Over positions that are an axis; each block adds to what goes through it."""

    def body(m: tp.Dim, l: tp.Dim) -> None:
        maps = {name: tp.input(name, (WIDTH, WIDTH), (l,)) for name in ("query", "key", "value", "up")}
        x, h = tp.input("x", (STEPS, WIDTH), (m,)), tp.recurrent("h", (STEPS, WIDTH), (m, l))
        before = tp.recurrent("before", (STEPS, WIDTH), (m, l))
        before[m, 0] = x
        before[m, l] = h[m, l - 1]
        seen = tp.layer_norm(before)
        query, key, value = (seen @ maps[name] for name in ("query", "key", "value"))
        attended = before + tp.softmax(query @ key.T / WIDTH**0.5) @ value
        h[m, l] = attended + tp.tanh(tp.layer_norm(attended) @ maps["up"])
        loss = (h[0 : m.size, l.size - 1] ** 2).mean()
        tp.output("y", h[m, l.size - 1])
        for name, gradient in tp.grad(loss, {**maps, "x": x}).items():
            tp.output(f"of_{name}", gradient)

    layers = 2 * stages_of(many)
    maps = {
        name: normal(layers, WIDTH, WIDTH, seed=seed) for seed, name in enumerate(("query", "key", "value", "up"), 1)
    }
    agrees(many, written(body), 100, x=normal(3, STEPS, WIDTH), **maps)


def test_layers_of_two_kinds(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        w, x = tp.input("w", (WIDTH, WIDTH), (l,)), tp.input("x", (ROWS, WIDTH), (m,))
        h = tp.recurrent("h", (ROWS, WIDTH), (m, l))
        before = h[m, l - 1]
        h[m, l] = tp.cases((l == 0, x), (l % 2 == 0, tp.sin(before @ w)), before + tp.tanh(before @ w))
        tp.output("h", h)
        tp.output("of_w", tp.grad((h[0 : m.size, l.size - 1] ** 2).mean(), w))

    layers = 3 * stages_of(many)
    agrees(many, written(body), 20, w=normal(layers, WIDTH, WIDTH, seed=1), x=normal(3, ROWS, WIDTH))


def test_a_shared_weight(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        w, x = tp.input("w", (WIDTH, WIDTH)), tp.input("x", (ROWS, WIDTH), (m,))
        h = tp.recurrent("h", (ROWS, WIDTH), (m, l))
        h[m, 0] = x @ w
        h[m, l] = tp.tanh(h[m, l - 1] @ w)
        tp.output("y", h[m, l.size - 1])
        tp.output("of_w", tp.grad((h[0 : m.size, -1] ** 2).mean(), w))

    given = {"w": normal(WIDTH, WIDTH, seed=1), "x": normal(3, ROWS, WIDTH)}
    agrees(many, written(body), 20, sizes={"l": 2 * stages_of(many)}, **given)


def test_two_layers_back(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        w, x = tp.input("w", (WIDTH,), (l,)), tp.input("x", (WIDTH,), (m,))
        h = tp.recurrent("h", (WIDTH,), (m, l))
        h[m, l] = tp.cases((l == 0, x), (l == 1, tp.sin(h[m, l - 1])), tp.tanh(h[m, l - 1] * w + h[m, l - 2]))
        tp.output("h", h)

    agrees(many, written(body), 8, w=normal(2 * stages_of(many), WIDTH, seed=1), x=normal(3, WIDTH))


def test_downwards(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        w, x = tp.input("w", (WIDTH,), (l,)), tp.input("x", (WIDTH,), (m,))
        g = tp.recurrent("g", (WIDTH,), (m, l))
        g[m, l.size - 1] = x * w
        g[m, l] = tp.sin(g[m, l + 1] + w)
        tp.output("g", g)
        tp.output("of_w", tp.grad((g[0 : m.size, 0] ** 2).sum(), w))

    for run in (1, 2):
        agrees(many, written(body), 20, w=normal(run * stages_of(many), WIDTH, seed=1), x=normal(3, WIDTH))


def test_what_is_carried_along_microbatches_too(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        w, x = tp.input("w", (WIDTH,), (l,)), tp.input("x", (WIDTH,), (m,))
        h = tp.recurrent("h", (WIDTH,), (m, l))
        before = tp.cases((m == 0, tp.zeros((WIDTH,))), h[m - 1, l])
        h[m, 0] = x + before
        h[m, l] = tp.tanh(h[m, l - 1] * w + before)
        tp.output("h", h)
        tp.output("of_w", tp.grad((h[0 : m.size, l.size - 1] ** 2).sum(), w))

    agrees(many, written(body), 20, w=normal(2 * stages_of(many), WIDTH, seed=1), x=normal(4, WIDTH))


def test_one_network_behind_the_other(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        of = network(m, l)
        c = tp.recurrent("second", (ROWS, WIDTH), (m, l))
        c[m, 0] = of["h"][m, l.size - 1]
        c[m, l] = tp.sin(c[m, l - 1] + of["h"][m, l.size - 1] * of["h"][m, l])
        loss = (c[0 : m.size, l.size - 1] ** 2).mean()
        tp.output("loss", loss)
        tp.output("of_w", tp.grad(loss, of["w"]))

    agrees(many, written(body), 20, **arrays_of(2 * stages_of(many), 3))


# -- dtypes and draws --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_whole_numbers(many: Target, dtype: str) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        k, x = tp.input("k", (WIDTH,), (l,), dtype), tp.input("x", (WIDTH,), (m,), dtype)
        n = tp.recurrent("n", (WIDTH,), (m, l), dtype)
        n[m, 0] = x
        n[m, l] = n[m, l - 1] + k
        tp.output("n", n)
        tp.output("last", n[m, l.size - 1])

    draw = np.random.default_rng(0)
    k, x = (draw.integers(0, 5, shape).astype(dtype) for shape in ((2 * stages_of(many), WIDTH), (3, WIDTH)))
    agrees(many, written(body), k=k, x=x)


def test_bools(many: Target) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        k, x = tp.input("k", (WIDTH,), (l,), "bool"), tp.input("x", (WIDTH,), (m,), "bool")
        h = tp.recurrent("h", (WIDTH,), (m, l), "bool")
        h[m, 0] = x
        h[m, l] = h[m, l - 1] ^ k
        tp.output("h", h)
        tp.output("last", h[m, l.size - 1])

    draw = np.random.default_rng(0)
    k, x = (draw.integers(0, 2, shape).astype(bool) for shape in ((2 * stages_of(many), WIDTH), (3, WIDTH)))
    agrees(many, written(body), k=k, x=x)


@pytest.mark.parametrize("seed", [0, 7])
def test_draws_are_those_of_one_device(many: Target, seed: int) -> None:
    def body(m: tp.Dim, l: tp.Dim) -> None:
        bits = tp.random.bits((WIDTH,), dims=(m, l))
        n = tp.recurrent("n", (WIDTH,), (m, l), "uint32")
        n[m, 0] = bits
        n[m, l] = n[m, l - 1] + bits
        tp.output("bits", bits)
        tp.output("n", n)
        tp.output("last", n[m, l.size - 1])

    agrees(many, written(body), sizes={"m": 3, "l": 2 * stages_of(many)}, seed=seed)


def test_dropout(many: Target) -> None:
    """What is dropped on the way forward is dropped on the way back."""

    def body(m: tp.Dim, l: tp.Dim) -> None:
        w, x = tp.input("w", (WIDTH, WIDTH), (l,)), tp.input("x", (ROWS, WIDTH), (m,))
        h = tp.recurrent("h", (ROWS, WIDTH), (m, l))
        kept = tp.where(tp.random.uniform((ROWS, WIDTH), dims=(m, l)) < 0.7, 1.0, 0.0)
        h[m, 0] = x
        h[m, l] = tp.tanh(h[m, l - 1] @ w) * kept
        tp.output("y", h[m, l.size - 1])
        tp.output("of_w", tp.grad((h[0 : m.size, l.size - 1] ** 2).mean(), w))

    given = {"w": normal(2 * stages_of(many), WIDTH, WIDTH, seed=1), "x": normal(3, ROWS, WIDTH)}
    agrees(many, written(body), 20, seed=5, **given)


# -- training ----------------------------------------------------------------------------------------------------------


def training(start: np.ndarray) -> tp.Program:
    """By gradient descent; the first layer's input and the last one's output have weights of their own."""
    with tp.Program() as program:
        i, m, l = tp.dims("i m l")
        x, y = tp.input("x", (ROWS, WIDTH), (m,)), tp.input("y", (ROWS,), (m,))
        w = tp.parameter("w", (WIDTH, WIDTH), init=tp.input("start", (WIDTH, WIDTH), (l,)), dims=(i, l))
        first = tp.parameter("first", (WIDTH, WIDTH), init=start, dims=(i,))
        last = tp.parameter("last", (WIDTH,), init=start[0], dims=(i,))
        h = tp.recurrent("h", (ROWS, WIDTH), (i, m, l))
        h[i, m, 0] = x @ first
        h[i, m, l] = tp.tanh(h[i, m, l - 1] @ w[i, l])
        loss = ((h[i, 0 : m.size, l.size - 1] @ last - y[0 : m.size]) ** 2).mean()
        gradients = tp.grad(loss, {"w": w, "first": first, "last": last})
        w[i + 1, l] = w - 0.1 * gradients["w"]
        first[i + 1] = first - 0.1 * gradients["first"]
        last[i + 1] = last - 0.1 * gradients["last"]
        tp.output("loss", loss)
    return program


def given_to(layers: int, microbatches: int) -> dict[str, Any]:
    return {
        "start": normal(layers, WIDTH, WIDTH, seed=1),
        "x": normal(microbatches, ROWS, WIDTH),
        "y": normal(microbatches, ROWS, seed=3),
    }


@pytest.mark.parametrize("run", [1, 2])
def test_training(many: Target, run: int) -> None:
    agrees(many, training(normal(WIDTH, WIDTH, seed=4)), 40, sizes={"i": 4}, **given_to(run * stages_of(many), 3))


def test_state_is_given_to_another_run(many: Target) -> None:
    program, given = training(normal(WIDTH, WIDTH, seed=4)), given_to(2 * stages_of(many), 3)
    run, meaning = piped(many, program), tp.compile(program, "reference")
    found, wanted = run(sizes={"i": 3}, **given), meaning(sizes={"i": 3}, **given)
    found = run(sizes={"i": 3}, state=found.state, **given)
    wanted = meaning(sizes={"i": 3}, state=wanted.state, **given)
    assert_same(many.arrays(found), dict(wanted), 40)
    assert_same(many.arrays(found.state), dict(wanted.state), 40)


def test_a_stream_over_iterations(many: Target) -> None:
    program, given = training(normal(WIDTH, WIDTH, seed=4)), given_to(2 * stages_of(many), 3)
    wanted = tp.compile(program, "reference")(sizes={"i": 4}, **given)
    steps = [many.to_numpy(step["loss"]) for step in piped(many, program).stream("i", sizes={"i": 4}, **given)]
    assert_same({"loss": np.stack(steps)}, {"loss": np.asarray(wanted["loss"])}, 40)


# -- meshes and sizes --------------------------------------------------------------------------------------------------


def test_one_stage_on_a_mesh_of_more(many: Target) -> None:
    """Rows on all devices, and a pipeline over an axis of one."""
    with tp.Program() as program:
        b, m, l = tp.dims("b m l")
        w, x = tp.input("w", (WIDTH, WIDTH), (l,)), tp.input("x", (WIDTH,), (b, m))
        h = tp.recurrent("h", (WIDTH,), (b, m, l))
        h[b, m, 0] = x
        h[b, m, l] = tp.tanh(h[b, m, l - 1] @ w)
        loss = (h[0 : b.size, 0 : m.size, l.size - 1] ** 2).mean()
        tp.output("y", h[b, m, l.size - 1])
        tp.output("of_w", tp.grad(loss, w))
    rows = 2 * stages_of(many)
    run = piped(many, program, tp.Mesh({"data": stages_of(many), AXIS: 1}), shard={"b": "data"})
    same(many, run, program, 20, w=normal(4, WIDTH, WIDTH, seed=1), x=normal(rows, 3, WIDTH))


@pytest.mark.parametrize("run", [1, 2])
def test_data_and_stages(many: Target, run: int) -> None:
    if stages_of(many) < 4:
        pytest.skip("needs --tempo-mesh=4")
    with tp.Program() as program:
        m, b, l = tp.dims("m b l")
        w, x = tp.input("w", (WIDTH, WIDTH), (l,)), tp.input("x", (WIDTH,), (m, b))
        h = tp.recurrent("h", (WIDTH,), (m, b, l))
        h[m, b, 0] = x
        h[m, b, l] = tp.tanh(h[m, b, l - 1] @ w)
        loss = (h[0 : m.size, 0 : b.size, l.size - 1] ** 2).mean()
        tp.output("y", h[m, b, l.size - 1])
        tp.output("loss", loss)
        tp.output("of_w", tp.grad(loss, w))
    meshed = piped(many, program, tp.Mesh({"data": stages_of(many) // 2, AXIS: 2}), shard={"b": "data"})
    same(many, meshed, program, 20, w=normal(2 * run, WIDTH, WIDTH, seed=1), x=normal(3, stages_of(many), WIDTH))


def test_layers_that_stages_do_not_divide(many: Target) -> None:
    program, count = written(trained), stages_of(many)
    told = f"l has {count + 1} points, which {count} devices along 'stage' do not divide"
    with pytest.raises(tp.SizeError, match=told):
        piped(many, program, sizes={"l": count + 1, "m": 2})
    with pytest.raises(tp.SizeError, match=told) as caught:
        piped(many, program)(**arrays_of(count + 1, 2))
    assert caught.value.location is not None
    assert caught.value.location.path == __file__


def test_the_bubble_is_told(many: Target) -> None:
    count = stages_of(many)
    run = piped(many, written(trained), sizes={"l": 2 * count, "m": 3})
    told = f"l: pipeline of {count} stages of 2; 3 points of m in {count + 2} waves, each way"
    assert f"{told}; bubble {count - 1}/{count + 2}" in run.explain("all")


def test_a_pickle_is_compiled_again(many: Target) -> None:
    count, program = stages_of(many), written(trained)
    run = pickle.loads(pickle.dumps(piped(many, program, sizes={"l": count, "m": 2})))
    same(many, run, program, 20, **arrays_of(count, 2))
