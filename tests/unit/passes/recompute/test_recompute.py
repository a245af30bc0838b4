"""Strips that are computed again: what they mean at any length, what they keep, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import typical
from tempo.passes.recompute.recompute import Recompute
from tempo.sdg.graph import Graph
from tests.unit.passes.equivalence import check

LENGTHS = tuple({"t": length} for length in (1, 2, 3, 4, 5, 6, 7, 9, 12, 13))


def recurrence(t: tp.Dim) -> None:
    """A network and its gradient."""
    x, w = tp.input("x", (2, 3), (t,)), tp.input("w", (3, 3), ())
    h = tp.recurrent("h", (2, 3), (t,))
    h[0] = tp.tanh(x)
    h[t + 1] = tp.tanh(h @ w + x[t + 1])
    loss = (h[t.size - 1] ** 2).sum()
    tp.output("dw", tp.grad(loss, {"w": w})["w"])


def losses_at_every_point(t: tp.Dim) -> None:
    """States that are outputs, too, a loss at each, and the gradient of what is given."""
    x, w = tp.input("x", (3,), (t,)), tp.input("w", (3, 3), ())
    h = tp.recurrent("h", (3,), (t,))
    h[0] = x
    h[t + 1] = tp.sin(h @ w) + x
    losses = abs(h - x).sum()
    tp.output("h", h)
    tp.output("losses", losses)
    found = tp.grad(losses[0 : t.size].sum(), {"w": w, "x": x})
    tp.output("dw", found["w"])
    tp.output("dx", found["x"])


def long_memory(t: tp.Dim) -> None:
    """What lies two points back enters each strip, too."""
    x, w = tp.input("x", (2,), (t,)), tp.input("w", (2,), ())
    h = tp.recurrent("h", (2,), (t,))
    h[t] = tp.cases((t < 2, x), tp.tanh(h[t - 1] * w + h[t - 2] * x))
    tp.output("dw", tp.grad((h[0 : t.size] ** 2).sum(), {"w": w})["w"])


def both_directions(t: tp.Dim) -> None:
    """Four loops: two networks that read each other's states."""
    x, w = tp.input("x", (2,), (t,)), tp.input("w", (2, 2), ())
    h, g = tp.recurrent("h", (2,), (t,)), tp.recurrent("g", (2,), (t,))
    h[0] = x
    h[t + 1] = tp.tanh(h @ w + x)
    g[t.size - 1] = h
    g[t] = tp.tanh(g[t + 1] @ w) * h
    tp.output("y", g[0])
    tp.output("dw", tp.grad((g[0] * g[0]).sum(), {"w": w})["w"])


def a_statistic_first(t: tp.Dim) -> None:
    """The second loop waits for a sum over the first, and the third for the greatest of the second."""
    x = tp.input("x", (2,), (t,))
    h = tp.recurrent("h", (2,), (t,))
    h[0] = x
    h[t + 1] = tp.cos(h) + x
    centred = h - h[0 : t.size].sum(axis=0)
    s = tp.recurrent("s", (2,), (t,))
    s[0] = centred
    s[t + 1] = s * 0.5 + centred[t + 1]
    tp.output("y", abs(s[0 : t.size].max(axis=0) - s)[0 : t.size].sum())


def noisy(t: tp.Dim) -> None:
    """Draws are the same when they are made again."""
    w = tp.input("w", (3,), ())
    h = tp.recurrent("h", (3,), (t,))
    h[0] = w
    h[t + 1] = tp.sin(h * w) * tp.random.uniform((3,), dims=(t,))
    tp.output("dw", tp.grad((h[0 : t.size] ** 2).sum(), {"w": w})["w"])


def the_point_itself(t: tp.Dim) -> None:
    """Values of the dim, and conditions on it that no strip knows."""
    w = tp.input("w", (2,), ())
    h = tp.recurrent("h", (2,), (t,))
    h[0] = w
    h[t + 1] = tp.cases((t % 3 == 1, h + w), tp.tanh(h * w) + t)
    tp.output("dw", tp.grad((h[0 : t.size] * h[0 : t.size]).sum(), {"w": w})["w"])


def empty(t: tp.Dim) -> None:
    """States without elements."""
    x = tp.input("x", (0, 2), (t,))
    h = tp.recurrent("h", (0, 2), (t,))
    h[0] = x
    h[t + 1] = tp.sin(h) + x
    tp.output("dx", tp.grad((h[0 : t.size] ** 2).sum(), {"x": x})["x"])


def a_mean_of_all(t: tp.Dim) -> None:
    """A loss of all points at once, whose gradient at each is of that point."""
    w = tp.input("w", (3, 3), ())
    h = tp.recurrent("h", (3,), (t,))
    h[0] = w.spatial[0]
    h[t + 1] = tp.tanh(h @ w)
    tp.output("dw", tp.grad((tp.sin(h[0 : t.size]) ** 2).mean() + (h[0 : t.size] ** 2).sum(), {"w": w})["w"])


def ahead(t: tp.Dim) -> None:
    """What is given is read a point ahead, which there is not at the last."""
    x, w = tp.input("x", (2,), (t,)), tp.input("w", (2, 2), ())
    h = tp.recurrent("h", (2,), (t,))
    h[0] = x
    h[t + 1] = tp.tanh(h @ w + x[t + 1])
    tp.output("dw", tp.grad((h[0 : t.size] ** 2).sum(), {"w": w})["w"])


def guarded(t: tp.Dim) -> None:
    """What the last point does not read is not there."""
    x = tp.input("x", (), (t,))
    h = tp.recurrent("h", (), (t,))
    h[0] = x
    h[t] = tp.cases((t < t.size - 1, tp.sin(h[t - 1] * x[t + 1])), h[t - 1])
    tp.output("dx", tp.grad((h[0 : t.size] ** 2).sum(), {"x": x})["x"])


PROGRAMS: dict[str, Callable[[tp.Dim], None]] = {
    each.__name__: each
    for each in (
        recurrence,
        losses_at_every_point,
        long_memory,
        both_directions,
        a_statistic_first,
        noisy,
        the_point_itself,
        empty,
        a_mean_of_all,
        ahead,
        guarded,
    )
}


def graph_of(make: Callable[[tp.Dim], None], size: int | None = None) -> Graph:
    with tp.Program(make.__name__) as program:
        make(tp.dim("t", size))
    return program.graph()


@pytest.mark.parametrize("size", typical([2, 3, 5], [3]))
@pytest.mark.parametrize("name", PROGRAMS)
def test_strips_mean_the_same(name: str, size: int) -> None:
    graph = graph_of(PROGRAMS[name])
    after = check(Recompute({"t": (size,)}), graph, *LENGTHS)
    assert len(after.dims) == len(graph.dims) + 2


@pytest.mark.parametrize("name", typical(PROGRAMS, ["recurrence", "ahead"]))
def test_strips_of_strips_mean_the_same(name: str) -> None:
    check(Recompute({"t": (6, 2)}), graph_of(PROGRAMS[name]), *LENGTHS)


@pytest.mark.parametrize("strips", [3, *typical([(4, 2)], ()), *typical([2, (6, 3)], (), pytest.mark.sweep)])
@pytest.mark.parametrize("name", typical(PROGRAMS, ["recurrence", "losses_at_every_point", "both_directions", "ahead"]))
def test_what_runs_reads_nothing_that_is_not_there(name: str, strips: int | tuple[int, ...]) -> None:
    """Generated code on buffers full of NaN, at lengths that strips divide and do not."""
    with tp.Program(name) as program:
        PROGRAMS[name](tp.dim("t"))
    run = tp.compile(program, "numpy", options=tp.Options(recompute={"t": strips}, poison=True))
    reference = tp.compile(program, "reference")
    for length in (1, 3, 5, 8):
        given = inputs_of(program, length)
        # Of the one that is guarded greedy finds no order at some lengths.
        refused = tp.UnsupportedError if name == "guarded" else ()
        found = outputs_of(run, given, length, refused)
        for output, wanted in reference(sizes={"t": length}, **given).items():
            if found is not None:
                np.testing.assert_allclose(found[output], wanted, rtol=1e-4, atol=1e-5, err_msg=f"{output} at {length}")


def outputs_of(run: Any, given: dict[str, np.ndarray], length: int, refused: Any) -> Any:
    try:
        return run(sizes={"t": length}, **given)
    except refused:
        return None


def inputs_of(program: tp.Program, length: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(length)
    nodes = [node for node in program.graph().nodes.values() if node.is_input and node.port.role == "input"]
    shapes = {node.port.name: [length for _ in node.domain] + [size.as_int() for size in node.shape] for node in nodes}
    return {name: (random.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}


# -- what is kept -----------------------------------------------------------------------------------------------------

POINT = 4 * 64 * 64  # bytes of a state


def wide(t: tp.Dim) -> None:
    w = tp.input("w", (64, 64), ())
    h = tp.recurrent("h", (64, 64), (t,))
    h[0] = tp.ones((64, 64)) * 0.1
    h[t + 1] = tp.tanh(h @ w)
    tp.output("dw", tp.grad((h[t.size - 1] ** 2).sum(), {"w": w})["w"])


def points_kept(steps: int, strip: int | tuple[int, ...] | None, **other: object) -> float:
    """How many states' bytes a run holds at most, beside what it is given and returns."""
    with tp.Program("wide") as program:
        wide(tp.dim("t", steps))
    options = tp.Options(recompute=None if strip is None else {"t": strip})
    return tp.compile(program, "numpy", options=options, **other).memory.working_bytes / POINT


@pytest.mark.parametrize("scheduler", ["greedy", "polyhedral"])
def test_no_more_is_kept_than_what_enters_strips_and_one_strip(scheduler: str) -> None:
    """Of a strip the states, what their step makes of them, and the gradients that are added up."""
    assert points_kept(1024, None, scheduler=scheduler) > 2 * 1024
    assert points_kept(1024, 32, scheduler=scheduler) < 4 * 32 + 32


def test_twice_cut_it_is_the_third_root() -> None:
    assert points_kept(4096, (256, 16)) < 120 < points_kept(4096, 64)


def test_the_result_is_the_same_bit_for_bit_where_nothing_is_added_in_another_order() -> None:
    with tp.Program("same") as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        h = tp.recurrent("h", (3,), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(h * 1.1) + x
        tp.output("dx", tp.grad((h[t.size - 1] ** 2).sum(), {"x": x})["x"])
    data = np.random.default_rng(0).standard_normal((37, 3)).astype(np.float32)
    kept, again = (
        np.asarray(tp.compile(program, "numpy", options=tp.Options(recompute=strips))(x=data)["dx"])
        for strips in (None, {"t": 5})
    )
    assert np.array_equal(kept, again)


# -- wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strips", [3, {"t": 1}, {"t": 0}, {"t": "long"}, {"t": True}, {"t": ()}, {"t": (4, 8)}, {3: 4}, {"t": 2.5}]
)
def test_what_is_no_strip_is_refused(strips: object) -> None:
    with pytest.raises(tp.InputError, match="recompute=|strips of t"):
        tp.Options(recompute=strips)


def test_a_name_that_no_dim_has_is_refused() -> None:
    with tp.Program("wide") as program:
        wide(tp.dim("t", 8))
    with pytest.raises(tp.InputError, match="'time', which is no dim"):
        tp.compile(program, "numpy", options=tp.Options(recompute={"time": 4}))


def test_what_calls_the_host_is_not_computed_again() -> None:
    with tp.Program("calls") as program:
        t = tp.dim("t", 8)
        h = tp.recurrent("h", (2,), (t,))
        h[0] = tp.ones((2,))
        noise = tp.host_call(lambda x: x, h, out=[((2,), tp.float32)], ordered_by=(t,))[0]
        h[t + 1] = tp.tanh(noise)
        centred = h - h[0 : t.size].sum(axis=0)
        tp.output("y", (centred[0 : t.size] ** 2).sum())
    with pytest.raises(tp.UnsupportedError, match="call of the host at each of its points") as caught:
        tp.compile(program, "numpy", options=tp.Options(recompute={"t": 4}))
    assert "test_recompute.py" in str(caught.value)


@pytest.mark.parametrize("of_rows", [False, True])
def test_a_loop_that_may_end_early_is_not_computed_again(of_rows: bool) -> None:
    with tp.Program("stopped") as program:
        b, t = tp.dims("b t")
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = tp.input("x", (), (b,))
        h[b, t + 1] = h * 0.5
        tp.stop_when(t, h < 0.1, each=b) if of_rows else tp.stop_when(t, h[:, t].max() < 0.1)
        tp.output("h", h)
    with pytest.raises(tp.UnsupportedError, match="names 't', along which the run may end early") as caught:
        tp.compile(program, "numpy", sizes={"b": 2, "t": 8}, options=tp.Options(recompute={"t": 4}))
    assert caught.value.location is not None
    assert "stop_when" in caught.value.location.text


def test_strips_are_no_shorter_than_what_enters_them() -> None:
    with tp.Program("far") as program:
        t = tp.dim("t", 12)
        x = tp.input("x", (2,), (t,))
        h = tp.recurrent("h", (2,), (t,))
        h[t] = tp.cases((t < 5, x), tp.sin(h[t - 5]))
        tp.output("dx", tp.grad((h[0 : t.size] ** 2).sum(), {"x": x})["x"])
    with pytest.raises(tp.UnsupportedError, match="5 points away"):
        tp.compile(program, "numpy", options=tp.Options(recompute={"t": 4}))
    assert tp.compile(program, "numpy", options=tp.Options(recompute={"t": 5})) is not None


def test_what_reads_all_that_was_is_not_cut() -> None:
    with tp.Program("all") as program:
        t = tp.dim("t", 12)
        h = tp.recurrent("h", (2,), (t,))
        h[0] = tp.ones((2,))
        h[t + 1] = tp.tanh(h[0 : t + 1].sum(axis=0) * h[t // 2])
        tp.output("y", (h - h[0 : t.size].sum(axis=0))[0 : t.size].sum())
    with pytest.raises(tp.UnsupportedError, match="more than a few points away"):
        tp.compile(program, "numpy", options=tp.Options(recompute={"t": 4}))


def test_where_no_later_loop_reads_nothing_is_computed_again() -> None:
    with tp.Program("forward") as program:
        t = tp.dim("t", 12)
        h = tp.recurrent("h", (2,), (t,))
        h[0] = tp.ones((2,))
        h[t + 1] = tp.tanh(h)
        tp.output("y", h[t.size - 1])
    run = tp.compile(program, "numpy", options=tp.Options(recompute={"t": 4}))
    assert "nothing is computed again" in run.explain("all")


def test_what_reads_both_ways_along_a_dim_stays_whole_beside_what_is_cut() -> None:
    """h goes along i, and is read a point before and a point behind along t: no loop over t may hold it."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        ever = tp.parameter("ever", (), init=True, dims=(i, t), dtype=tp.bool)
        before = ever[i, 0:t]
        ever[i, t] = tp.any(before, axis=0)
        count = tp.recurrent("count", (), (i, t), tp.int32)
        count[i, 0] = 1
        count[i, t] = tp.sum(before, axis=0).astype(tp.int32)
        h = tp.recurrent("h", (), (i, t))
        h[t == 0] = 0.5
        h[t == t.size - 1] = 0.5
        h[0, t] = 0.25
        h[True] = tp.tanh(h[i - 1, t - 1] + h[i - 1, t + 1])
        tp.output("h", h)
        tp.output("count", count)
    sizes = {"i": 2, "t": 3}
    run = tp.compile(program, "numpy", sizes=sizes, options=tp.Options(recompute={"t": 2}))
    found, wanted = run(), tp.compile(program, "reference", sizes=sizes)()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5)
