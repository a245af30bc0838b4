"""Family 15, buckets: what is compiled for a power of two means at each size what it means there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers

HERE = Path(__file__).name
POW2: dict[str, Any] = {"buckets": {"t": "pow2"}}
SIZES = (1, 2, 3, 5, 7, 8)  # in buckets of 1, 2, 4, 8, 8, 8


def of_all_points() -> tp.Program:
    """What sees all points of t at once: folds, scans, sorts, reversals, gathers, contractions, positions."""
    with tp.Program("all") as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        every = x[:]
        for name, made in {
            "sum": every.sum(axis=0),
            "mean": every.mean(),
            "max": every.max(axis=0),
            "argmin": every.argmin(axis=0),
            "any": (every > 1).any(axis=0),
            "softmax": tp.softmax(every, axis=0),
            "cumsum": tp.cumsum(every, axis=0),
            "sort": tp.sort(every, axis=0),
            "argsort": tp.argsort(every, axis=0),
            "flip": tp.flip(every, axis=0),
            "shifted": tp.concatenate([every, every * 2], axis=0),
            "gram": every @ every.transpose((1, 0)),
            "product": every.transpose((1, 0)) @ every,
            "flat": every.reshape((3 * t.size,)),
            "last": x[-1] + x[t.size // 2],
            "counted": tp.arange(t.size) * t.size,
            "backwards": x[t.size - 1 - t],
            "first half": x[0 : (t.size + 1) // 2].sum(axis=0),
            "picked": every.spatial[tp.minimum(tp.as_tensor(t) * 2, t.size - 1)],
        }.items():
            tp.output(name, made)
    return program


def of_each_point() -> tp.Program:
    """Recurrences in both directions, what is seen of the past, a state, draws, a condition on the size."""
    with tp.Program("each") as program:
        b, t = tp.dim("b", 2), tp.dim("t")
        x = tp.input("x", (3,), (t,))
        h, g = (tp.recurrent(name, (3,), (b, t)) for name in "hg")
        h[b, 0] = x * tp.as_tensor(b + 1)
        h[b, t + 1] = h * 0.5 + x[t + 1]
        g[b, t.size - 1] = h
        g[b, t] = g[b, t + 1] * 0.5 + x
        w = tp.parameter("w", (3,), 1.0, dims=(t,))
        w[t + 1] = w * 0.9 + x
        tp.output("h", h)
        tp.output("g", g)
        tp.output("past", x[0 : t + 1].mean(axis=0))
        tp.output("window", x[tp.max(t - 2, 0) : tp.min(t + 2, t.size)].sum(axis=0))
        tp.output("draw", tp.random.normal((2,), dims=(t,)))
        tp.output("half", tp.cases((2 * t < t.size, x), -x))
        loss = (g * tp.sin(h)).sum()
        tp.output("gradient", tp.grad(loss, x))
    return program


@pytest.mark.parametrize(
    "make",
    [of_all_points, pytest.param(of_each_point, marks=pytest.mark.slow)],
    ids=["all points", "each point"],
)
@pytest.mark.parametrize("mapping", [None, pytest.param("sequential", marks=pytest.mark.slow)])
def test_every_size_of_a_bucket_means_what_it_means_there(target: Target, make: Any, mapping: Any) -> None:
    program = make()
    meaning = tp.compile(program, "reference")
    run = target.compile(program, mapping=mapping, **POW2)
    for size in SIZES:
        x = numbers((size, 3), seed=size)
        found, wanted = run(x=x, seed=size), meaning(x=x, seed=size)
        for name, array in {**wanted, **wanted.state}.items():
            made = target.to_numpy(found[name] if name in found else found.state[name])
            np.testing.assert_allclose(made, array, rtol=1e-5, atol=1e-5, err_msg=f"{name} at {size}")
        assert found.sizes == wanted.sizes
    if not target.interprets:
        assert run.executables <= 4  # at 1, 2, 4 and 8


def test_a_list_of_sizes(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        tp.output("all", x[:].sum(axis=0) + x)
    run = target.compile(program, buckets={"t": [4, 6]})
    for size in (1, 4, 5, 6):
        given = numbers((size,))
        np.testing.assert_allclose(target.to_numpy(run(x=given)["all"]), given.sum() + given, rtol=1e-6)
    if target.interprets:
        return
    assert run.executables == 2
    with pytest.raises(tp.SizeError, match="t has the size 7, and the greatest of its buckets is 6"):
        run(x=numbers((7,)))


def test_sizes_made_of_sizes_in_buckets(target: Target) -> None:
    """A prompt, and as many points more."""
    with tp.Program() as program:
        p, new = tp.dims("p new")
        t = tp.dim("t", p.size + new.size)
        prompt = tp.input("prompt", (2,), (p,))
        x = tp.recurrent("x", (2,), (t,))
        x[t < p.size] = prompt[t]
        x[t + 1] = tp.softmax(x[0 : t + 1], axis=0).sum(axis=0) + x
        tp.output("x", x)
    meaning = tp.compile(program, "reference")
    run = target.compile(program, buckets={"p": "pow2", "new": "pow2"})
    for sizes in ((1, 1), (3, 2), (4, 2), (3, 7), (4, 8)):
        given: dict[str, Any] = {"prompt": numbers((sizes[0], 2)), "sizes": {"new": sizes[1]}}
        np.testing.assert_allclose(
            target.to_numpy(run(**given)["x"]), meaning(**given)["x"], rtol=1e-5, atol=1e-5, err_msg=str(sizes)
        )
    if not target.interprets:
        assert run.executables <= 3


def attends(window: int | None, causal: bool) -> tp.Program:
    with tp.Program("attends") as program:
        t = tp.dim("t")
        x = tp.input("x", (2, 4), (t,))
        start = 0 if window is None else tp.max(t - window + 1, 0)
        seen = x[start : t + 1] if causal else x[:]
        scores = tp.einsum("hd,shd->hs", x, seen) * 0.5
        tp.output("y", tp.einsum("hs,shd->hd", tp.softmax(scores, axis=-1), seen))
    return program


@pytest.mark.parametrize(("window", "causal"), [(None, True), (3, True), (None, False)])
@pytest.mark.parametrize("mapping", ["full", "sequential"])
def test_attention(target: Target, window: int | None, causal: bool, mapping: Any) -> None:
    program = attends(window, causal)
    meaning, run = tp.compile(program, "reference"), target.compile(program, mapping=mapping, **POW2)
    for size in (1, 3, 6, 8):
        x = numbers((size, 2, 4), seed=size)
        np.testing.assert_allclose(target.to_numpy(run(x=x)["y"]), meaning(x=x)["y"], rtol=1e-4, atol=1e-5)


def test_a_run_that_ends_early(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b, t))
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = x
        h[b, t + 1] = h + x[b, t + 1]
        tp.output("h", h)
        tp.output("all", h[:, t].sum(axis=0))
        tp.stop_when(t, h > 4, each=b)
    for rows, size in ((3, 5), (2, 8), (4, 7)):
        buckets = {"b": "pow2", "t": "pow2"}
        target.agrees(program, options={"buckets": buckets}, x=np.abs(numbers((rows, size), seed=rows)))


def test_streams(target: Target) -> None:
    if target.interprets:
        pytest.skip("the evaluator has no order to stream in")
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b, t))
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = x
        h[b, t + 1] = h * 0.5 + x[b, t + 1]
        tp.output("h", h)
        tp.output("sums", h[:, t].sum(axis=0))
    run = target.compile(program, buckets={"b": "pow2", "t": "pow2"})
    given = numbers((3, 5))
    whole = target.arrays(run(x=given))
    for keep, chunk in ((True, 2), (False, 2), (False, 3)):
        steps = [(each.start, target.arrays(each)) for each in run.stream("t", chunk=chunk, keep=keep, x=given)]
        assert [start for start, _ in steps] == [*range(0, 5, chunk)]
        for name, axis in (("h", 1), ("sums", 0)):
            np.testing.assert_array_equal(np.concatenate([each[name] for _, each in steps], axis), whole[name])


def test_inputs_that_the_backend_has_already(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x, w = tp.input("x", (2,), (t,)), tp.input("w", (2, 2), (t,))
        tp.output("y", (w @ x)[:].sum(axis=0))
    run = target.compile(program, **POW2)
    vectors, matrices = numbers((5, 2)), numbers((5, 2, 2), seed=1)
    wanted = np.einsum("tij,tj->i", matrices, vectors)
    held = [run.device_put(w=each)["w"] for each in (matrices, list(matrices))]
    for given in (matrices, list(matrices), *held):
        np.testing.assert_allclose(target.to_numpy(run(x=vectors, w=given)["y"]), wanted, rtol=1e-5)


def test_a_call_of_the_host_at_points_of_a_dim_in_a_bucket(target: Target) -> None:
    seen: list[tuple[int, ...]] = []
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))

        def double(past: Any) -> Any:
            seen.append(past.shape)
            return past[-1] * 2

        (y,) = tp.host_call(double, x[0 : t + 1], out=[((2,), tp.float32)], ordered_by=(t,))
        tp.output("y", y)
        tp.sink(lambda every: seen.append(every.shape), x[:])
    run = target.compile(program, **POW2)
    given = numbers((5, 2))
    np.testing.assert_array_equal(target.to_numpy(run(x=given)["y"]), given * 2)
    assert sorted(seen) == [(1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (5, 2)]  # valid positions alone


def test_a_program_without_outputs(target: Target) -> None:
    seen: list[Any] = []
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        tp.sink(lambda total: seen.append(total), x[:].sum(axis=0))
    given = numbers((5, 2))
    target.compile(program, **POW2)(x=given)
    np.testing.assert_allclose(seen, given.sum(axis=0)[None], rtol=1e-6)


def test_what_is_refused(target: Target) -> None:
    with tp.Program() as program:
        b, t, n = tp.dim("b"), tp.dim("t", 4), tp.dim("n")
        x = tp.input("x", (), (b, t))
        y = tp.host_call(lambda rows: rows, x, out=[((), tp.float32)], ordered_by=(t,), batched=(b,))
        tp.output("y", y[0])
        tp.output("n", tp.as_tensor(n))
    for buckets, wrong in (({"c": "pow2"}, "'c', which is no dim"), ({"t": "pow2"}, "'t', whose size is 4")):
        with pytest.raises(tp.InputError, match=wrong):
            target.compile(program, buckets=buckets)
    if target.interprets:
        return
    with pytest.raises(tp.UnsupportedError, match="a bucket") as refused:
        target.compile(program, buckets={"b": "pow2"})(x=numbers((2, 4)), sizes={"n": 1})
    assert HERE in str(refused.value)
