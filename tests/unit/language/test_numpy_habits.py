"""What users of NumPy write out of habit: it works, or it says at their line what to write instead."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp


def test_arrays_stand_on_the_left_of_operators(run_program):
    """(operators, ...) have NumPy's name and meaning"""
    a, x = np.float32([1, 2, 3]), np.float32([2, 2, 5])
    with tp.Program() as program:
        v = tp.input("x", shape=(3,))
        results = {"add": a + v, "sub": a - v, "mod": a % v, "less": a < v, "dot": a @ v, "scaled": np.float32(2) * v}
        for name, result in results.items():
            tp.output(name, result)
    out = run_program(program, x=x)
    expected = {"add": a + x, "sub": a - x, "mod": a % x, "less": a < x, "dot": a @ x, "scaled": 2 * x}
    for name, value in expected.items():
        np.testing.assert_array_equal(out[name], value)


@pytest.mark.parametrize(
    ("misuse", "instead"),
    [
        (lambda x, t: np.exp(x), "tp.exp"),
        (lambda x, t: np.sum(x), "tp.sum"),
        (lambda x, t: np.stack([x, x]), "tp.stack"),
        (lambda x, t: np.add.reduce(x), "tp.add"),
        (lambda x, t: len(x), "x.shape"),
        (lambda x, t: [x[k] for k in t], r"x\[t - 1\]"),
    ],
)
def test_functions_of_numpy_and_loops_over_dims_are_refused(misuse: Callable[..., Any], instead: str):
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        with pytest.raises(tp.IndexExpressionError, match=rf"test_numpy_habits.py:\d+(.|\n)*{instead}"):
            misuse(x, t)


def test_assignment_to_a_part_of_a_tensor_is_refused():
    with tp.Program():
        x = tp.input("x", shape=(3,))
        with pytest.raises(tp.DefinitionError, match=r"changed in place(.|\n)*tp.where"):
            x.spatial[0] = 1.0


def test_none_is_no_dtype():
    with tp.Program():
        x = tp.input("x", shape=(3,))
        with pytest.raises(tp.DTypeError, match="None is no dtype"):
            x.astype(None)


@pytest.mark.parametrize("value", ["text", None, object(), [1, None]])
def test_what_is_no_number_is_named(value: Any):
    with tp.Program():
        x = tp.input("x", shape=())
        with pytest.raises(tp.DTypeError, match=r"no array of numbers(.|\n)*test_numpy_habits.py"):
            x + value
        with pytest.raises(tp.DTypeError, match=r"'w'(.|\n)*no array of numbers(.|\n)*test_numpy_habits.py"):
            tp.parameter("w", shape=(), init=value)


def test_an_initial_value_keeps_the_precision_of_its_parameter(run_program):
    """an explicit `dtype=tp.float64` is honoured on every backend"""
    with tp.Program() as program:
        tp.output("w", tp.parameter("w", shape=(), init=np.float64(0.1), dtype=tp.float64))
        tp.output("n", tp.parameter("n", shape=(), init=np.int64(2**40), dtype=tp.int64))
    out = run_program(program)
    assert (float(out["w"]), int(out["n"])) == (0.1, 2**40)


def test_two_unknown_sizes_are_not_multiplied():
    """`dim * dim` (...) which says what to write instead"""
    with tp.Program():
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(3,), dims=(b, t))
        for flatten in (lambda: x[:, :].reshape(-1, 3), lambda: x[:, :].argmax(), lambda: x[:, :].flatten()):
            with pytest.raises(tp.ShapeError, match=r"b.size \* t.size is no index expression(.|\n)*axis=\(0, 1\)"):
                flatten()
        with pytest.raises(tp.ShapeError, match="must divide the number of elements"):
            tp.zeros((3, 4)).reshape(5, -1)
