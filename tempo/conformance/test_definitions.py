"""Family 2, definitions by cases: recurrences in every direction, which case holds where, and what is not evaluated."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, numbers


@pytest.mark.parametrize("mapping", ["full", None])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 7, 5)], ids=str)
def test_a_stencil_with_an_edge(target: Target, sizes: tuple[int, int, int], mapping: str | None) -> None:
    """Each point from its neighbours a step before; the edge is a case, and at small sizes all there is."""
    t_size, y_size, x_size = sizes
    start_data, side_data = numbers((y_size, x_size)), numbers((t_size, 2), seed=1)
    with tp.Program() as program:
        t, y, x = tp.dims("t y x")
        start = tp.input("start", (), (y, x))
        side = tp.input("side", (2,), (t,))
        u = tp.recurrent("u", (), (t, y, x))
        u[x == x.size - 1] = side.spatial[0]
        u[(y == 0) | (y >= y.size - 2)] = tp.tanh(side.spatial[1])
        u[0] = start
        u[x == 0] = u[t - 1, y, x]
        u[True] = (u[t - 1, y - 1, x] + u[t - 1, y + 1, x] + u[t - 1, y, x - 1] + u[t - 1, y, x + 1]) / 4
        tp.output("u", u)
        tp.output("change", tp.cases((t >= 1, (u - u[t - 1]).at(y=slice(0, y.size)).sum(axis=0)), 0))
    u_data = np.zeros((t_size, y_size, x_size))
    for t_, y_, x_ in np.ndindex(t_size, y_size, x_size):
        if x_ == x_size - 1:
            value = side_data[t_, 0]
        elif y_ == 0 or y_ >= y_size - 2:
            value = np.tanh(side_data[t_, 1])
        elif t_ == 0:
            value = start_data[y_, x_]
        elif x_ == 0:
            value = u_data[t_ - 1, y_, x_]
        else:
            near = u_data[t_ - 1]
            value = (near[y_ - 1, x_] + near[y_ + 1, x_] + near[y_, x_ - 1] + near[y_, x_ + 1]) / 4
        u_data[t_, y_, x_] = value
    change = np.diff(u_data.sum(axis=1), axis=0, prepend=u_data[:1].sum(axis=1))
    expected = {"u": u_data, "change": change}
    target.agrees(program, expected, options={"mapping": mapping}, tolerance=4, start=start_data, side=side_data)


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_recurrences_that_read_at_remainders(target: Target, size: int) -> None:
    """Read is always something before: (t - 1) % 3 < t, and t % 3 < 3 <= t."""
    x_data = numbers((size,))
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        first = tp.recurrent("first", (), (t,))
        first[0] = x
        first[t + 1] = first[t % 3] + x[t + 1]
        second = tp.recurrent("second", (), (t,))
        second[t < 3] = x
        second[t] = second[t % 3] * 0.5 + second[t - 1]
        tp.output("first", first)
        tp.output("second", second)
    first_data, second_data = x_data.copy(), x_data.copy()
    for t_ in range(1, size):
        first_data[t_] += first_data[(t_ - 1) % 3]
    for t_ in range(3, size):
        second_data[t_] = second_data[t_ % 3] * 0.5 + second_data[t_ - 1]
    target.agrees(program, {"first": first_data, "second": second_data}, x=x_data)


@pytest.mark.parametrize("size", [1, 2, 13])
def test_recurrences_along_one_dim(target: Target, size: int) -> None:
    """Forward and backward, a shorter and a longer memory, and two that need each other."""
    x_data = numbers((size, 3)) / 4
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        forward = tp.recurrent("forward", (3,), (t,))
        forward[0] = x
        forward[t + 1] = tp.tanh(forward * 0.5 + x[t + 1])
        backward = tp.recurrent("backward", (3,), (t,))
        backward[t.size - 1] = x
        backward[t - 1] = x[t - 1] + 0.5 * backward
        second = tp.recurrent("second", (3,), (t,))
        second[t < 2] = x
        second[t + 2] = 0.5 * second[t + 1] - 0.25 * second[t]
        everything = tp.recurrent("everything", (3,), (t,))
        everything[0] = x
        everything[t >= 1] = x + everything[0:t].mean(axis=0)
        even = tp.recurrent("even", (3,), (t,))
        odd = tp.recurrent("odd", (3,), (t,))
        even[0] = x
        even[t + 1] = odd + 1
        odd[True] = even * 0.5 - x
        for tensor in (forward, backward, second, everything, even, odd):
            tp.output(tensor.name, tensor)
        tp.output("both_ways", forward * backward)
        tp.output("last", forward[-1])
    wanted = np.zeros((4, size, 3))
    for t_ in range(size):
        past = wanted[:, t_ - 1] if t_ else np.zeros((4, 3))
        wanted[0, t_] = np.tanh(past[0] * 0.5 + x_data[t_]) if t_ else x_data[t_]
        wanted[1, t_] = 0.5 * wanted[1, t_ - 1] - 0.25 * wanted[1, t_ - 2] if t_ >= 2 else x_data[t_]
        wanted[2, t_] = x_data[t_] + (wanted[2, :t_].mean(0) if t_ else 0)
        wanted[3, t_] = past[3] * 0.5 - x_data[t_ - 1] + 1 if t_ else x_data[t_]
    back = x_data.astype(np.float64)
    for t_ in reversed(range(size - 1)):
        back[t_] += 0.5 * back[t_ + 1]
    expected = {"forward": wanted[0], "backward": back, "second": wanted[1], "everything": wanted[2], "even": wanted[3]}
    target.agrees(program, expected, x=x_data, tolerance=4)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (5, 2)], ids=str)
def test_recurrences_along_two_dims(target: Target, sizes: tuple[int, int]) -> None:
    """A layer above a time, a grid that counts paths, and one that runs against both dims."""
    rows, columns = sizes
    x_data = numbers((columns, 2)) / 4
    with tp.Program() as program:
        i, t = tp.dims("i t")
        x = tp.input("x", (2,), (t,))
        h = tp.recurrent("h", (2,), (i, t))
        h[0, t] = x
        h[i + 1, t] = tp.tanh(h[i, t] + tp.cases((t >= 1, h[i + 1, t - 1]), 0.0) * 0.5)
        paths = tp.recurrent("paths", (), (i, t), dtype=tp.int32)
        paths[i, 0] = 1
        paths[0, t] = 1
        paths[i + 1, t + 1] = paths[i, t + 1] + paths[i + 1, t]
        against = tp.recurrent("against", (), (i, t))
        against[i.size - 1, t] = x.sum()
        against[i - 1, t] = 1.0 + against[i, tp.min(t + 1, t.size - 1)]
        for tensor in (h, paths, against):
            tp.output(tensor.name, tensor)
        tp.output("above", h[-1, 0 : t + 1].sum(axis=0))
    paths_ = np.ones(sizes, int)
    for i_ in range(1, rows):
        paths_[i_] = paths_[i_ - 1].cumsum()
    at = np.minimum(np.arange(columns) + np.arange(rows)[::-1, None], columns - 1)
    expected = {"paths": paths_, "against": np.arange(rows)[::-1, None] + x_data.sum(1)[at]}
    target.agrees(program, expected, x=x_data, sizes={"i": rows}, tolerance=4)


@pytest.mark.parametrize("size", [1, 6])
def test_the_first_case_that_holds_gives_the_value(target: Target, size: int) -> None:
    x_data = numbers((size,))
    at = np.arange(size)
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        ordered = tp.cases((t % 2 == 0, x), (t % 3 == 0, -x), (t < 100, x * 10), x * 100)
        parity = tp.recurrent("parity", (), (t,))
        parity[0] = x
        parity[t % 2 == 1] = parity[t - 1] + x
        parity[True] = parity[t - 1] * -1
        both = tp.recurrent("both", (), (t,))
        both[0] = 1.0
        both[t.size - 1] = 2.0  # at size 1 the first case holds
        both[True] = x
        nested = tp.cases((t < 4, tp.cases((t == 1, 5.0), x)), tp.cases(((t == 4) | (t == 5), x * 2), 7.0))
        for name, tensor in {"ordered": ordered, "parity": parity, "both": both, "nested": nested}.items():
            tp.output(name, tensor)
        tp.output("negated", tp.cases((~(t == 0) & (t + 1 < t.size), x), -3.0))
    parity_ = x_data.copy()
    for t_ in range(1, size):
        parity_[t_] = parity_[t_ - 1] + x_data[t_] if t_ % 2 else -parity_[t_ - 1]
    both_ = x_data.copy()
    both_[-1], both_[0] = 2, 1
    expected = {
        "ordered": np.where(at % 2 == 0, x_data, np.where(at % 3 == 0, -x_data, x_data * 10)),
        "parity": parity_,
        "both": both_,
        "nested": np.where(at == 1, 5, np.where(at < 4, x_data, x_data * 2)),
        "negated": np.where((at > 0) & (at < size - 1), x_data, -3),
    }
    target.agrees(program, expected, x=x_data)


def test_guarded_differences(target: Target) -> None:
    """What lies outside the domain is not read where a case keeps it from being needed."""
    x_data = numbers((7, 2))
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        tp.output("difference", tp.cases((t >= 1, x - x[t - 1]), 0.0))
        tp.output("second", tp.cases(((t >= 1) & (t < t.size - 1), x[t + 1] - 2 * x + x[t - 1]), 0.0))
        d = tp.recurrent("d", (2,), (t,))
        d[t.size - 1] = 0.0
        d[t - 1] = x - x[t - 1]
        tp.output("ahead", d)
    difference = np.zeros_like(x_data)
    difference[1:] = np.diff(x_data, axis=0)
    second = np.zeros_like(x_data)
    second[1:-1] = np.diff(x_data, n=2, axis=0)
    ahead = np.zeros_like(x_data)
    ahead[:-1] = np.diff(x_data, axis=0)
    target.agrees(program, {"difference": difference, "second": second, "ahead": ahead}, x=x_data)


def test_branches_that_are_not_taken_are_not_evaluated(target: Target) -> None:
    """A host function tells where it was needed; NaN and data out of range stay where no case takes them."""
    calls: list[int] = []

    def seen(at: Array) -> Array:
        calls.append(int(at))
        return np.array(at * 2, np.float32)

    with tp.Program() as program:
        t = tp.dim("t", 6)
        (slow,) = tp.host_call(seen, tp.as_tensor(t, dtype=tp.int32), out=[((), tp.float32)])
        y = tp.input("y", (), (t,))
        tp.output("guarded", tp.cases((t == 2, slow), y))
        tp.output("safe", tp.cases((t == 3, 0.0), 1.0 / y))
        tp.output("hidden", tp.cases((t == 0, y), tp.cases((t == 0, y * tp.nan), 1.0)))
    y_data = np.array([1, 2, 4, 0, 8, 16], np.float32)
    expected = {
        "guarded": [1, 2, 4, 0, 8, 16],
        "safe": [1, 0.5, 0.25, 0, 0.125, 0.0625],
        "hidden": [1, 1, 1, 1, 1, 1],
    }
    target.agrees(program, expected, y=y_data)
    # The reference and the backend have each run once.
    assert calls == [2, 2]


def test_values_are_broadcast_and_cast_as_in_numpy_assignment(target: Target) -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (3,), (t,))
        h = tp.recurrent("h", (2, 3), (b, t), dtype=tp.float64)
        h[b, 0] = x
        h[b, t + 1] = h + tp.as_tensor(b, dtype=tp.int32)
        k = tp.recurrent("k", (), (t,), dtype=tp.int8)
        k[True] = t
        tp.output("h", h)
        tp.output("k", k)
        g = tp.recurrent("g", (), (b,))
        g[0] = tp.as_tensor(5 * b)  # the number on the left is substituted on the right
        g[b + 1] = g + tp.as_tensor(b)  # and so is the shift
        tp.output("g", g)
    x_data = numbers((4, 3))
    steps = np.arange(3)[:, None, None, None] * np.arange(4)[:, None, None] + x_data[0]
    expected = {"h": np.broadcast_to(steps, (3, 4, 2, 3)), "k": np.arange(4), "g": [0, 0, 1]}
    target.agrees(program, expected, x=x_data, sizes={"b": 3})


def test_parameters_are_their_init_where_no_case_holds(target: Target) -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        g = tp.input("g", (2,), (i,))
        w = tp.parameter("w", (2,), np.array([1, -1], np.float32), dims=(i,))
        w[i + 1] = w - 0.5 * g
        tp.output("w", w)
    g_data = numbers((4, 2))
    moved = np.array([1, -1], np.float32) - 0.5 * g_data.cumsum(0)
    expected = {"w": np.concatenate([[[1, -1]], moved[:-1]])}
    out = target.agrees(program, expected, g=g_data)
    # A run continues from the state of another: at the last point the parameter is what it was there.
    again = target.compile(program)(g=g_data, state=out.state)
    np.testing.assert_allclose(target.to_numpy(again["w"])[0], target.to_numpy(out.state["w"]))


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_cases_that_sizes_exclude(target: Target, size: int, lift: bool) -> None:
    """What only some sizes reach has shapes that make no sense at the others: it is neither run nor compiled there."""
    x_data = numbers((size, 3)) / 4
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        window = x + x[t : tp.min(t + 2, t.size)]  # at the last but one: two rows, of which a single one may exist
        h = tp.recurrent("h", (2, 3), (t,))
        h[0] = tp.cases((t.size >= 2, window[t.size - 2]), 0.5)
        h[t] = tp.tanh(h[t - 1])
        total = tp.recurrent("total", (), (t,))
        prefix = x + x[0 : t + 1]
        total[0] = tp.cases((t.size >= 3, prefix[t.size - 3].sum()), 0.5)
        total[t] = tp.tanh(total[t - 1])
        tp.output("h", h)
        tp.output("total", total)
        before = x[0:t]
        tp.output("largest", tp.cases((t >= 1, before.max(axis=0)), x))
        tp.output("late", tp.cases((t >= 2, x.at(t=slice(0, t - 1)).argmax(axis=0)), 0))
    target.agrees(program, options={"lift": lift}, x=x_data)


def test_cases_that_sizes_exclude_inside_a_loop_of_the_host(target: Target) -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        seen = tp.host_call(lambda x: x, tp.as_tensor(i), out=[((), tp.int32)], ordered_by=(i,))[0]
        late = tp.arange(i + 1)[i - 2].argmin(axis=0)
        tp.output("y", seen + tp.cases((i >= 2, late), 1))
    for size in (1, 2, 4):
        target.agrees(program, sizes={"i": size}, options={"lift": False})


def test_a_case_that_needs_itself_is_right_at_sizes_at_which_no_point_takes_it(target: Target) -> None:
    """At 1 the scheduler was blamed, at 4 the program: one executable tells them apart, in any order."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        h = tp.recurrent("h", (), (t,))
        h[0] = x
        h[t] = h[t] + x
        tp.output("h", h)
    run = target.compile(program)
    for _ in range(2):
        assert target.to_numpy(run(x=np.array([3.0], np.float32))["h"]).tolist() == [3.0]
        with pytest.raises(tp.CycleError):
            run(x=np.ones(4, np.float32))
    target.agrees(program, {"h": np.array([2.0])}, x=np.array([2.0], np.float32))
    target.agrees(program, {"h": np.array([2.0])}, x=np.array([2.0], np.float32), options={"mapping": "sequential"})


def test_a_definition_in_pieces_of_which_no_point_is_demanded(target: Target) -> None:
    """It was to be an axis made of no pieces: a pass raised a ShapeError of nothing that the user wrote."""
    with tp.Program() as program:
        b = tp.dim("b")
        h = tp.recurrent("h", (), (b,))
        h[(b > 0) & (b < 4)] = 0.1
        h[b] = 0.2
        tp.output("y", h[b // 2 * 2 : b].sum(axis=0)[0])
    for size in (1, 3):
        target.agrees(program, {"y": np.array(0.0)}, sizes={"b": size})
