"""Family 1, domains and indexing: every form of an index, at size 1, at primes, with every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import dtypes
from tempo.conformance.target import Target, numbers

SIZES = [(1, 1), (5, 3), (2, 7)]


def test_the_table_of_indices(target: Target) -> None:
    """`x` has domain (a, b) and shape (2, 3); each row of the table in the language's description is an output."""
    x_data = numbers((6, 4, 2, 3))
    with tp.Program() as program:
        a, b = tp.dims("a b")
        s = tp.dim("s", 3)
        x = tp.input("x", (2, 3), (a, b))
        rows = {
            "itself": (x[a, b], x_data),
            "all": (x[...], x_data),
            "first": (x[0], x_data[0]),
            "last": (x[a.size - 1], x_data[-1]),
            "negative": (x[-1], x_data[-1]),
            "second_dim": (x[..., -2], x_data[:, -2]),
            "whole_axis": (x[0 : a.size, 1], x_data[:, 1]),
            "colon": (x[:, 1], x_data[:, 1]),
            "both": (x[:, :], x_data),
            "one_sliced": (x[:], x_data.transpose(1, 0, 2, 3)),
            "constant_slice": (x[2:5], x_data[2:5].transpose(1, 0, 2, 3)),
            "negative_slice": (x[-3:-1], x_data[-3:-1].transpose(1, 0, 2, 3)),
            "nothing": (x[3:3], np.zeros((4, 0, 2, 3))),
            "less_than_nothing": (x[5:2].sum(axis=0), np.zeros((4, 2, 3))),
            "other_dim": (x[s], x_data[:3].transpose(1, 0, 2, 3)),
            "strided": (x[2 * s], x_data[[0, 2, 4]].transpose(1, 0, 2, 3)),
            "second_other": (x[a, s], x_data[:, :3]),
            "reversed": (x[a.size - 1 - a], x_data[::-1]),
            "by_name": (x.at(b=0), x_data[:, 0]),
            "by_names": (x.at(b=s, a=0), x_data[0, :3]),
            "by_name_sliced": (x.at(b=slice(0, 2)), x_data[:, :2]),
            "slice_of_a_read": (x[:, b][1:3], x_data[:, 1:3].transpose(1, 0, 2, 3)),
        }
        for name, (tensor, _) in rows.items():
            tp.output(name, tensor)
    target.agrees(program, {name: value for name, (_, value) in rows.items()}, x=x_data)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_shifts_clamps_and_reversals(target: Target, sizes: tuple[int, int]) -> None:
    size, other = sizes
    x_data = numbers((size, other, 2))
    at = np.arange(size)
    with tp.Program() as program:
        t, s = tp.dims("t s")
        x = tp.input("x", (2,), (t, s))
        last = t.size - 1
        tp.output("past", tp.cases((t >= 1, x[t - 1]), -1.0))
        tp.output("future", tp.cases((t < last, x[t + 1]), -1.0))
        tp.output("far", tp.cases((t >= 3, x[t - 3, 0]), 0.5))
        tp.output("clamped_low", x[tp.max(t - 2, 0)])
        tp.output("clamped_high", x[tp.min(t + 2, last)])
        tp.output("reversed", x[last - t])
        tp.output("reversed_both", x[last - t, s.size - 1 - s])
        tp.output("half", x[t // 2])
        tp.output("remainder", x[tp.min(t % 3, last)])
        tp.output("even", x[(t // 2) * 2])
        tp.output("shifted_twice", tp.cases((t >= 2, (x * 2)[t - 1][t - 1]), 0.0))
        tp.output("point", x[last // 2])
        tp.output("index", tp.as_tensor(2 * t - s, dtype=tp.int32))
        tp.output("condition", tp.as_tensor((t % 2 == 1) | (s > t)))
        tp.output("weak", x * t + s)
    s_at = np.arange(other)
    expected = {
        "past": np.concatenate([np.full_like(x_data[:1], -1), x_data[:-1]]),
        "future": np.concatenate([x_data[1:], np.full_like(x_data[:1], -1)]),
        "clamped_low": x_data[np.maximum(at - 2, 0)],
        "clamped_high": x_data[np.minimum(at + 2, size - 1)],
        "reversed": x_data[::-1],
        "reversed_both": x_data[::-1, ::-1],
        "half": x_data[at // 2],
        "remainder": x_data[np.minimum(at % 3, size - 1)],
        "even": x_data[at // 2 * 2],
        "point": x_data[(size - 1) // 2],
        "index": 2 * at[:, None] - s_at,
        "condition": (at % 2 == 1)[:, None] | (s_at > at[:, None]),
        "weak": x_data * at[:, None, None] + s_at[:, None],
    }
    target.agrees(program, expected, x=x_data)


@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.slow), 11])
def test_triangles_and_windows(target: Target, size: int) -> None:
    """Slices of varying length: the past, the future, windows into both, blocks, and ones that are empty somewhere."""
    x_data = numbers((size, 2))
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        n = t.size
        slices = {
            "past": (x[0 : t + 1], lambda at: (0, at + 1)),
            "strict_past": (x[0:t], lambda at: (0, at)),
            "future": (x[t:n], lambda at: (at, size)),
            "strict_future": (x[t + 1 : n], lambda at: (at + 1, size)),
            "window": (x[tp.max(t - 2, 0) : t + 1], lambda at: (max(at - 2, 0), at + 1)),
            "window_ahead": (x[t : tp.min(t + 4, n)], lambda at: (at, min(at + 4, size))),
            "both_sides": (x[tp.max(t - 1, 0) : tp.min(t + 2, n)], lambda at: (max(at - 1, 0), min(at + 2, size))),
            "block": (
                x[3 * (t // 3) : tp.min(3 * (t // 3) + 3, n)],
                lambda at: (at // 3 * 3, min(at // 3 * 3 + 3, size)),
            ),
            "before_block": (x[0 : 2 * (t // 2)], lambda at: (0, at // 2 * 2)),
            "mirrored": (x[n - 1 - t : n], lambda at: (size - 1 - at, size)),
        }
        for name, (tensor, _) in slices.items():
            tp.output(name, tensor.sum(axis=0))
        tp.output("largest", x[0 : t + 1].max(axis=0))
        tp.output("mean", x[tp.max(t - 2, 0) : t + 1].mean(axis=0))
        tp.output("which", x[t:n].argmax(axis=0))
        tp.output("softmax", tp.softmax(x[0 : t + 1], axis=0).sum())
        tp.output("running", tp.cumsum(x[0 : t + 1], axis=0).sum(axis=0))
        tp.output("lengths", tp.ones_like(x[0:t]).sum())
        tp.output("weighted", (x[0 : t + 1] * tp.arange(t + 1).reshape((t + 1, 1))).sum(axis=0))
        tp.output("diagonal_sum", (x[0 : t + 1] @ x).sum())

    def summed(bounds: Callable[[int], tuple[int, int]]) -> np.ndarray[Any, Any]:
        return np.array([x_data[slice(*bounds(at))].sum(0) for at in range(size)])

    expected = {name: summed(bounds) for name, (_, bounds) in slices.items()}
    expected["largest"] = np.maximum.accumulate(x_data)
    expected["softmax"] = np.full(size, 2.0)
    expected["lengths"] = 2.0 * np.arange(size)
    target.agrees(program, expected, x=x_data, tolerance=4)


@pytest.mark.parametrize("size", [1, 5])
def test_diagonals_and_swapped_dims(target: Target, size: int) -> None:
    x_data = numbers((size, size, 2))
    with tp.Program() as program:
        a = tp.dim("a")
        b = tp.dim("b", a.size)
        x = tp.input("x", (2,), (a, b))
        tp.output("diagonal", x[a, a])
        tp.output("swapped", x.at(a=b, b=a))
        tp.output("symmetric", x + x.at(a=b, b=a))
        tp.output("anti", x.at(b=a.size - 1 - a))
        tp.output("lower", x[a, 0 : a + 1].sum(axis=0))
        tp.output("lower_block", x[0 : a + 1, 0 : a + 1].sum(axis=(0, 1)))
        tp.output("column", x[0 : b + 1, b].sum(axis=0))
        tp.output("outer", (x[a, a] * x[b, b]).sum())
    diagonal = x_data[np.arange(size), np.arange(size)]
    expected = {
        "diagonal": diagonal,
        "swapped": x_data.swapaxes(0, 1),
        "symmetric": x_data + x_data.swapaxes(0, 1),
        "anti": x_data[np.arange(size), np.arange(size)[::-1]],
        "lower": np.array([x_data[at, : at + 1].sum(0) for at in range(size)]),
        "lower_block": np.array([x_data[: at + 1, : at + 1].sum((0, 1)) for at in range(size)]),
        "column": np.array([x_data[: at + 1, at].sum(0) for at in range(size)]),
        "outer": diagonal @ diagonal.T,
    }
    target.agrees(program, expected, x=x_data)


def test_blocks_of_another_dim(target: Target) -> None:
    """`x[2*i:2*i + 2]`: a dim of blocks over a dim of points, and the size of one that is made of another's."""
    x_data = numbers((10, 3))
    with tp.Program() as program:
        i = tp.dim("i")
        t = tp.dim("t", 2 * i.size)
        x = tp.input("x", (3,), (t,))
        tp.output("blocks", x[2 * i : 2 * i + 2])
        tp.output("odd", x[2 * i + 1])
        tp.output("of_its_block", x - x[2 * (t // 2) : 2 * (t // 2) + 2].mean(axis=0))
        tp.output("until", x[0 : 2 * i + 2].sum(axis=0))
    blocks = x_data.reshape(5, 2, 3)
    expected = {
        "blocks": blocks,
        "odd": blocks[:, 1],
        "of_its_block": (blocks - blocks.mean(1, keepdims=True)).reshape(10, 3),
        "until": blocks.sum(1).cumsum(0),
    }
    target.agrees(program, expected, sizes={"i": 5}, x=x_data)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_points_and_windows_that_small_sizes_do_not_have(target: Target, size: int) -> None:
    """What is read `n` points before the end, or in windows of `n`, where a condition on the size allows it."""
    x_data = numbers((size, 2))
    with tp.Program() as program:
        t = tp.dim("t")
        n = t.size
        x = tp.input("x", (2,), (t,))
        ahead = x + x[t : tp.min(t + 2, n)]  # of shape (2, 2), but for the last
        past = x + x[0 : t + 1]
        tp.output("second_last", tp.cases((n >= 2, ahead[n - 2]), 0.5))
        tp.output("third_last", tp.cases((n >= 3, past[n - 3].sum(axis=0)), 0.5))
        tp.output("spread", tp.cases((n >= 3, tp.broadcast_to(x[0], (n - 2, 2)).sum()), 0.5))
        both = tp.concatenate([x[0 : n - 2] * 2, x[0 : n - 2]], axis=0).reshape((2, n - 2, 2))
        tp.output("both", tp.cases((n >= 3, both.sum()), 0.5))
        h = tp.recurrent("h", (2,), (t,))
        h[0] = tp.cases((n >= 3, past[n - 3].max(axis=0)), -1.0)
        h[t] = h[t - 1] * 0.5 + tp.cases((n >= 4, x[n - 4 : n].sum(axis=0)), 0.0)
        tp.output("h", h)
    end = x_data[-2:] + x_data[-2] if size >= 2 else np.full((2, 2), 0.5)
    expected = {"second_last": end if size >= 2 else np.full_like(end, 0.5)}
    if size >= 3:
        expected["third_last"] = x_data[: size - 2].sum(0) + (size - 2) * x_data[size - 3]
    target.agrees(program, expected, x=x_data)


@pytest.mark.parametrize("size", [1, 7])
def test_spatial_indexing_at_index_expressions(target: Target, size: int) -> None:
    v_data, index = numbers((size, 3)), (numbers((size, 2), "int32") % size).astype(np.int32)
    with tp.Program() as program:
        t = tp.dim("t")
        v = tp.input("v", (t.size, 3))
        picked = tp.input("picked", (2,), (t,), dtype=tp.int32)
        tp.output("at_t", v.spatial[t])
        tp.output("from_the_end", v.spatial[t.size - 1 - t, 1:])
        tp.output("past", v.spatial[0 : t + 1].sum(axis=0))
        tp.output("backward", v.spatial[::-1, ::2])
        tp.output("new_axis", v.spatial[t, None, :])
        tp.output("gathered", v.spatial[picked])
        tp.output("pairs", v.spatial[picked, tp.minimum(picked, 2)])
    at = np.arange(size)
    expected = {
        "at_t": v_data,
        "from_the_end": v_data[::-1, 1:],
        "past": v_data.cumsum(0),
        "backward": v_data[::-1, ::2],
        "new_axis": v_data[at, None, :],
        "gathered": v_data[index],
        "pairs": v_data[index, np.minimum(index, 2)],
    }
    target.agrees(program, expected, v=v_data, picked=index)


def test_gathering_along_a_dim(target: Target) -> None:
    """`x.gather(n, index)`: the domain of the index with x's other dims, the shapes one after the other."""
    x_data = numbers((7, 3, 2))
    index = np.random.default_rng(1).integers(0, 7, (5, 4)).astype(np.int32)
    past = np.array([[np.random.default_rng(t).integers(0, t + 1)] for t in range(7)], np.int32)
    with tp.Program() as program:
        n, b, t = tp.dims("n b t")
        x = tp.input("x", (2,), (n, b))
        where = tp.input("where", (4,), (t,), dtype=tp.int32)
        back = tp.input("back", (1,), (n,), dtype=tp.int32)
        tp.output("any", x.gather(n, where))
        tp.output("promised", x.gather(n, back, within=slice(0, n + 1)))
    expected = {"any": x_data[index].transpose(2, 0, 1, 3), "promised": x_data[past].transpose(0, 2, 1, 3)}
    target.agrees(program, sizes={"t": 5}, x=x_data, where=index, back=past)
    assert expected["any"].shape == (3, 5, 4, 2)


@pytest.mark.one_configuration
@pytest.mark.parametrize("dtype", dtypes.DTYPES)
def test_reading_every_dtype(target: Target, dtype: str) -> None:
    if dtype not in target.info.dtypes:
        pytest.skip(f"{target.info.name} has no {dtype}")
    x_data = numbers((5, 2), dtype)
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,), dtype=dtype)
        tp.output("past", tp.cases((t >= 1, x[t - 1]), x[0]))
        tp.output("window", tp.sort(x[tp.max(t - 2, 0) : t + 1], axis=0).spatial[0])
        tp.output("block", x[1:3])
        tp.output("reversed", x[t.size - 1 - t])
        h = tp.recurrent("h", (2,), (t,), dtype=dtype)
        h[0] = x
        h[t + 1] = tp.maximum(h, x[t + 1])
        tp.output("running", h)
    expected = {
        "past": x_data[[0, 0, 1, 2, 3]],
        "window": np.array([np.sort(x_data[max(at - 2, 0) : at + 1], axis=0)[0] for at in range(5)]),
        "block": x_data[1:3],
        "reversed": x_data[::-1],
        "running": np.maximum.accumulate(x_data),
    }
    target.agrees(program, expected, x=x_data)


FAR = 1_500_000_000  # twice that is beyond 32 bits


def _far_reads() -> tuple[tp.Program, dict[str, Any], dict[str, Any]]:
    """Every place where an index expression is computed, with values on the way that 32 bits do not hold."""
    x_data, wide = numbers((5,)), numbers((5, 10))
    at = np.minimum(np.arange(5) * FAR, 4)
    with tp.Program() as program:
        t, n = tp.dims("t n")
        x, w = tp.input("x", (), (t,)), tp.input("w", (10,), (t,))
        h, back, deep = (tp.recurrent(name, (), (t,)) for name in ("h", "back", "deep"))
        h[0] = x
        h[t] = 0.5 * h[t - 1] + x[tp.min(t * FAR, t.size - 1)]
        back[-1] = x
        back[t] = 0.5 * back[t + 1] + x[tp.min(t * FAR, t.size - 1)]
        deep[0] = 0.0
        deep[t * FAR + t % 3 > 2 * FAR + 2] = deep[t - 1] + 2.0
        deep[t] = deep[t - 1] + 1.0
        many = tp.recurrent("many", (), (n,))
        many[0] = x[0]
        many[n] = many[n - 1] + x[tp.min(n * FAR, t.size - 1)]
        sums = tp.recurrent("sums", (), (t,))
        sums[0] = 0.0
        sums[t] = sums[t - 1] + x[0 : tp.min(t * FAR, t.size)].sum(axis=0)
        cut = tp.recurrent("cut", (), (t,))
        cut[0] = 0.0
        cut[t] = 0.5 * cut[t - 1] + w.spatial[tp.min(t * FAR, 4) : tp.min(t * FAR, 4) + 3].sum()
        shown = {
            "read": (x[tp.min(t * FAR, 4)], x_data[at]),
            "h": (h, _discounted(x_data[at])),
            "back": (back, _discounted(np.append(x_data[at][:-1], x_data[-1])[::-1])[::-1]),
            "deep": (deep, np.cumsum([0, 1, 1, 2, 2])),
            "many": (many[n.size - 1], x_data[0] + 2 * x_data[4]),
            "sums": (sums, np.cumsum([0, *([x_data.sum()] * 4)])),
            "cut": (cut, _discounted([0, *(wide[k, 4:7].sum() for k in range(1, 5))])),
            "lifted": (w.spatial[tp.min(t * FAR, 4)], wide[np.arange(5), at]),
            "value": (x + tp.as_tensor((t * FAR) // 10**9), x_data + np.arange(5) * FAR // 10**9),
            "where": (tp.where(t * FAR + t % 3 > 2 * FAR + 2, x, -x), np.where(np.arange(5) > 2, x_data, -x_data)),
            "gradient": (tp.grad(x[tp.min(t * FAR, 4)] * x, x), x_data[at] + [x_data[0], 0, 0, 0, x_data[1:].sum()]),
        }
        for name, (tensor, _) in shown.items():
            tp.output(name, tensor)
    return program, {"x": x_data, "w": wide}, {name: value for name, (_, value) in shown.items()}


def _discounted(values: Any) -> Any:
    found = [values[0]]
    for value in values[1:]:
        found.append(0.5 * found[-1] + value)
    return np.array(found, np.float32)


def test_index_arithmetic_beyond_32_bits(target: Target) -> None:
    program, inputs, expected = _far_reads()
    target.agrees(program, expected, sizes={"n": 3}, **inputs)


def test_draws_read_from_afar(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        draws = tp.random.bits((), dims=(t,))
        total = tp.recurrent("total", (), (t,), dtype=tp.uint32)
        total[0] = draws
        total[t] = total[t - 1] + draws[tp.min(t * FAR, t.size - 1)]
        tp.output("total", total)
    target.agrees(program, sizes={"t": 5})


@pytest.mark.parametrize("factor", [2**40, 2**62, 3**50], ids=["within", "beyond", "far_beyond"])
def test_beyond_64_bits_it_is_right_or_refused(target: Target, factor: int) -> None:
    x_data, wide = numbers((5,)), numbers((5, 10))
    at = np.minimum(np.arange(5), 1) * 4
    with tp.Program() as program:
        t = tp.dim("t")
        x, w = tp.input("x", (), (t,)), tp.input("w", (10,), (t,))
        tp.output("read", x[tp.min(t * factor, 4)])
        tp.output("lifted", w.spatial[tp.min(t * factor, 4)])
        tp.output("value", tp.as_tensor(tp.min(t * factor, 4)))
        tp.output("where", tp.where(t * factor + t % 3 > 2 * factor + 2, x, -x))
    expected = {"read": x_data[at], "lifted": wide[np.arange(5), at], "value": at}
    expected["where"] = np.where(np.arange(5) > 2, x_data, -x_data)
    refusal = ""
    try:
        target.agrees(program, expected, x=x_data, w=wide)
    except tp.UnsupportedError as error:
        refusal = str(error)
    assert not refusal or (factor > 2**40 and "64 bits" in refusal and "test_indexing.py" in refusal)
