"""Rules of the page "The language": spatial indexing, `x.spatial[...]`."""

import numpy as np
import pytest

import tempo as tp
from tempo.errors import DTypeError, IndexExpressionError, IndexOutOfRangeError, ShapeError

DATA = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
ROWS = np.array([[2, 0], [1, 1]], np.int32)
COLUMNS = np.array([3, 0], np.int32)

BASIC = {
    "0": np.s_[0],
    "-1": np.s_[-1],
    "1, 2": np.s_[1, 2],
    "1, 2, 3": np.s_[1, 2, 3],
    "...": np.s_[...],
    "..., 1": np.s_[..., 1],
    "1, ..., 1": np.s_[1, ..., 1],
    ":, 2": np.s_[:, 2],
    "1:": np.s_[1:],
    "-2:": np.s_[-2:],
    ":-1": np.s_[:-1],
    "clipped": np.s_[1:100, -100:2],
    "empty": np.s_[3:1],
    "::2": np.s_[:, ::2],
    "1::2": np.s_[:, :, 1::2],
    "::-1": np.s_[::-1],
    "3:0:-2": np.s_[:, 3:0:-2],
    "None": np.s_[None],
    "0, None, 1:3, None": np.s_[0, None, 1:3, None],
}

ADVANCED = {
    "rows": lambda rows, columns: np.s_[rows],
    ":, columns": lambda rows, columns: np.s_[:, columns],
    "rows, columns": lambda rows, columns: np.s_[rows, columns],
    ":, rows, columns": lambda rows, columns: np.s_[:, rows, columns],
    "rows, :, columns": lambda rows, columns: np.s_[rows, :, columns],
    "1, rows": lambda rows, columns: np.s_[1, rows],
    "rows, 1": lambda rows, columns: np.s_[rows, 1],
    "1, :, rows": lambda rows, columns: np.s_[1, :, rows],
    "1:, None, rows": lambda rows, columns: np.s_[1:, None, rows],
    "rows, 1:3": lambda rows, columns: np.s_[rows, 1:3],
    "..., columns": lambda rows, columns: np.s_[..., columns],
}


@pytest.mark.parametrize("index", BASIC)
def test_basic_indexing(evaluate, index):
    """Spatial indexing is `x.spatial[...]`: NumPy basic indexing,"""
    np.testing.assert_array_equal(evaluate(lambda x: x.spatial[BASIC[index]], DATA), DATA[BASIC[index]])


@pytest.mark.parametrize("index", ADVANCED)
def test_integer_tensors(evaluate, index):
    """and integer recurrent tensors as gather indices."""
    found = evaluate(lambda x, r, c: x.spatial[ADVANCED[index](r, c)], DATA, ROWS, COLUMNS)
    np.testing.assert_array_equal(found, DATA[ADVANCED[index](ROWS, COLUMNS)])


def test_arrays_and_lists(evaluate):
    np.testing.assert_array_equal(evaluate(lambda x: x.spatial[np.array([2, -1])], DATA), DATA[[2, -1]])
    np.testing.assert_array_equal(evaluate(lambda x: x.spatial[[0, 2]], DATA), DATA[[0, 2]])
    np.testing.assert_array_equal(evaluate(lambda x: x.spatial[np.int64(1)], DATA), DATA[1])


def test_index_expressions_as_points_and_bounds(run_program):
    """with index expressions as points and slice bounds (`v.spatial[t]`, `v.spatial[0:t + 1]`),"""
    with tp.Program() as program:
        t = tp.dim("t", 4)
        v = tp.input("v", shape=(4, 2))
        tp.output("point", v.spatial[t])
        tp.output("last", v.spatial[t.size - 1 - t, 0])
        tp.output("prefix", v.spatial[0 : t + 1].sum(axis=0))
        tp.output("rest", v.spatial[t:, 1].sum(axis=0))
        tp.output("window", v.spatial[tp.max(t - 1, 0) : t + 1].sum(axis=0))
        tp.output("every second", v.spatial[t::-2].sum(axis=0))
        assert repr(v.spatial[0 : t + 1].shape) == "(t + 1, 2)"
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    out = run_program(program, v=data)
    np.testing.assert_array_equal(out["point"], data)
    np.testing.assert_array_equal(out["last"], data[::-1, 0])
    np.testing.assert_array_equal(out["prefix"], data.cumsum(0))
    np.testing.assert_array_equal(out["rest"], [data[t:, 1].sum() for t in range(4)])
    np.testing.assert_array_equal(out["window"], [data[max(t - 1, 0) : t + 1].sum(0) for t in range(4)])
    np.testing.assert_array_equal(out["every second"], [data[t::-2].sum(0) for t in range(4)])


def test_axes_of_unknown_size(run_program):
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        whole = x[:]
        tp.output("first", whole.spatial[:3].sum())
        tp.output("last", whole.spatial[-3:].sum())
        tp.output("end", whole.spatial[-1])
        tp.output("reversed", whole.spatial[::-1].spatial[0])
        tp.output("point", whole.spatial[t])
    for size in (2, 5):
        data = np.arange(1, size + 1, dtype=np.float32)
        out = run_program(program, x=data)
        assert (out["first"], out["last"]) == (data[:3].sum(), data[-3:].sum())
        assert out["end"] == out["reversed"] == data[-1]
        np.testing.assert_array_equal(out["point"], data)


def test_out_of_range_is_checked(run_program):
    """any out-of-range index in `.spatial` raises `tp.IndexOutOfRangeError` in checked mode"""
    with tp.Program() as program:
        t = tp.dim("t", 3)
        v = tp.input("v", shape=(3,))
        tp.output("y", v.spatial[t - 1])
    with pytest.raises(IndexOutOfRangeError):
        run_program(program, v=np.ones(3, np.float32))
    with tp.Program() as program:
        v = tp.input("v", shape=(3,))
        index = tp.input("index", shape=(2,), dtype=tp.int32)
        tp.output("y", v.spatial[index])
    for wrong in (3, -1):
        with pytest.raises(IndexOutOfRangeError, match=rf"index {wrong} (.|\n)*test_spatial.py:\d+\n *tp.output"):
            run_program(program, v=np.ones(3, np.float32), index=np.array([0, wrong], np.int32))
    with tp.Program(), pytest.raises(IndexOutOfRangeError, match="3"):
        tp.zeros((3,)).spatial[3]


@pytest.mark.parametrize("backend", ["reference", "numpy"])
def test_out_of_range_is_clamped_without_checks(backend):
    """and is clamped into range otherwise, the same on every backend."""
    with tp.Program() as program:
        t = tp.dim("t", 4)
        v = tp.input("v", shape=(3,))
        tp.output("y", v.spatial[2 * t - 1])
    run = tp.compile(program, backend=backend, options=tp.Options(checks=False))
    np.testing.assert_array_equal(run(v=np.array([1.0, 2.0, 3.0]))["y"], [1, 2, 3, 3])


def test_guarded_points_are_not_read(run_program):
    with tp.Program() as program:
        t = tp.dim("t", 3)
        v = tp.input("v", shape=(3,))
        tp.output("y", tp.cases((t > 0, v.spatial[t - 1]), -1.0))
    np.testing.assert_array_equal(run_program(program, v=np.array([1.0, 2.0, 3.0]))["y"], [-1, 1, 2])


def test_misuse():
    with tp.Program():
        x = tp.input("x", shape=(3, 4))
        for index, error, text in (
            (1.0, IndexExpressionError, "integer"),
            (x > 0, IndexExpressionError, "tp.where"),
            (np.array([True, False, True]), IndexExpressionError, "tp.where"),
            (x, DTypeError, "integers"),
            ((0, 0, 0), ShapeError, "3 indices for the 2 axes"),
            ((..., ...), ShapeError, "more than one"),
            (slice(0, 3, 0), IndexExpressionError, "step"),
            (slice(0, tp.constant(2)), IndexExpressionError, "mask"),
            ("x", IndexExpressionError, "integer"),
        ):
            with pytest.raises(error, match=text) as caught:
                x.spatial[index]
            assert caught.value.location.path == __file__
        with pytest.raises(IndexExpressionError, match="tp.unstack"):
            list(x.spatial)
