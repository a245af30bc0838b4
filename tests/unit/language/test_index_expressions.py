"""Rules of the page "The language": Index expressions."""

import operator

import numpy as np
import pytest

import tempo as tp
from tempo.errors import IndexExpressionError, ProgramError


@pytest.fixture
def program():
    with tp.Program("outer") as program:
        yield program


def values(run_program, make, size=6):
    """The values of an index expression at every point of one dim."""
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("value", make(t))
    return run_program(program, sizes={"t": size})["value"]


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t + 3,
        lambda t: 3 - t,
        lambda t: 2 * t - 1,
        lambda t: t * -2,
        lambda t: -t,
        lambda t: +t,
        lambda t: t // 3,
        lambda t: (t - 4) // 3,
        lambda t: t % 4,
        lambda t: (t - 4) % 3,
        lambda t: t + np.int64(2),
    ],
)
def test_arithmetic_by_constants(run_program, make):
    """`+ - *` by constants, `//` and `%` by positive constants,"""
    np.testing.assert_array_equal(values(run_program, make), [int(make(t)) for t in range(6)])


def test_min_and_max_of_expressions(run_program):
    """`tp.min(...)`, `tp.max(...)` of expressions,"""
    make = lambda t: tp.max(tp.min(t, 3), t - 1, 2)  # noqa: E731
    np.testing.assert_array_equal(values(run_program, make), [max(min(t, 3), t - 1, 2) for t in range(6)])
    assert int(tp.max(3, 4)) == 4


def test_min_and_max_of_tensors(run_program, program):
    """(the same names reduce tensors; the argument's type decides)"""
    x = tp.constant([[1.0, 5.0], [3.0, 2.0]])
    assert isinstance(tp.max(x, axis=0), tp.RecurrentTensor)
    assert tp.max(x, 0).shape == tp.max(x, axis=0).shape == (2,)
    tp.output("max", tp.max(x, axis=0))
    tp.output("min", tp.min(x))
    out = run_program(program)
    np.testing.assert_array_equal(out["max"], [3, 5])
    assert out["min"] == 1


def test_min_of_tensors_elementwise_says_minimum(program):
    t, x = tp.dim("t"), tp.constant([1.0, 2.0])
    with pytest.raises(IndexExpressionError, match="tp.minimum"):
        tp.min(t, x)
    with pytest.raises(IndexExpressionError, match="tp.minimum"):
        tp.min(x, x)


def test_sizes_and_comparisons(run_program):
    """sizes, comparisons, `& | ~` of conditions."""
    make = lambda t: ((t > 1) & (t < t.size - 1)) | ~(t != 0)  # noqa: E731
    np.testing.assert_array_equal(values(run_program, make), [t == 0 or 1 < t < 5 for t in range(6)])
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        found = values(run_program, lambda t, compare=compare: compare(t, 2) & True)
        np.testing.assert_array_equal(found, [compare(t, 2) for t in range(6)])


def test_an_expression_is_a_weak_int32_tensor(run_program, program):
    """An expression used where a tensor is wanted is its value at the point, weak int32 (`x * t` is a tensor;"""
    t = tp.dim("t", 3)
    for dtype in (tp.float32, tp.float16, tp.int8, tp.float64):
        x = tp.input(f"x_{dtype}", dims=(t,), dtype=dtype)
        assert (x * t).dtype == (t * x).dtype == dtype
    assert tp.as_tensor(t).dtype == "int32"
    assert (tp.as_tensor(t) / 2).dtype == "float32"
    tp.output("y", tp.constant([1.0, 10.0]) * t)
    inputs = {f"x_{dtype}": np.zeros(3, dtype) for dtype in ("float32", "float16", "int8", "float64")}
    np.testing.assert_array_equal(run_program(program, **inputs)["y"], [[0, 0], [1, 10], [2, 20]])


def test_explicit_conversion(program):
    """explicitly `tp.as_tensor(t, dtype=tp.int32)`);"""
    t = tp.dim("t")
    strong = tp.as_tensor(t, dtype=tp.int32)
    assert strong.dtype == "int32"
    assert (strong + tp.constant(np.zeros(2, np.int8))).dtype == "int32"
    assert (tp.as_tensor(t) + tp.constant(np.zeros(2, np.int8))).dtype == "int8"


def test_a_condition_is_a_bool_tensor(run_program, program):
    """a condition so used is bool."""
    t = tp.dim("t", 3)
    assert tp.as_tensor(t > 0).dtype == "bool"
    tp.output("y", tp.where(t > 0, tp.constant([1.0, 2.0]), 0.0))
    np.testing.assert_array_equal(run_program(program)["y"], [[0, 0], [1, 2], [1, 2]])


def test_arrays_and_expressions_make_tensors(run_program, program):
    t = tp.dim("t", 2)
    array = np.array([1.0, 2.0], np.float32)
    for made in (t + array, array + t, array * (t + 1) - t * array):
        assert isinstance(made, tp.RecurrentTensor)
    tp.output("y", array * t + (t < array))
    np.testing.assert_array_equal(run_program(program)["y"], [[1, 1], [1, 3]])


MISUSES = {
    "dim * dim": (lambda t, s, x: t * s, "tp.as_tensor"),
    "dim * float": (lambda t, s, x: t * 0.5, "tp.as_tensor"),
    "float + dim": (lambda t, s, x: 0.5 + t, "tp.as_tensor"),
    "dim / 2": (lambda t, s, x: t / 2, "//"),
    "2 / dim": (lambda t, s, x: 2 / t, "tp.as_tensor"),
    "dim ** 2": (lambda t, s, x: t**2, "tp.as_tensor"),
    "dim // dim": (lambda t, s, x: t // s, "positive integer"),
    "7 % dim": (lambda t, s, x: 7 % t, "positive integer"),
    "dim // 0": (lambda t, s, x: t // 0, "positive integer"),
    "dim % -2": (lambda t, s, x: t % -2, "positive integer"),
    "dim < float": (lambda t, s, x: t < 2.5, "integer"),
    "dim + True": (lambda t, s, x: t + True, "integer"),
    "max of a float": (lambda t, s, x: tp.max(t, 0.5), "int(...)"),
    "float index": (lambda t, s, x: x[1.0], "int(...)"),
    "NumPy float index": (lambda t, s, x: x[np.float32(1)], "int(...)"),
    "tensor index": (lambda t, s, x: x[tp.constant(1)], "x.gather(t, index"),
    "tensor bound": (lambda t, s, x: x[0 : tp.constant(1)], "x.gather(t, index"),
    "condition index": (lambda t, s, x: x[t > 0], "tp.cases"),
    "bool index": (lambda t, s, x: x[True], "tp.cases"),
    "None index": (lambda t, s, x: x[None], "tp.expand_dims"),
    "string index": (lambda t, s, x: x["t"], "write an integer"),
    "step": (lambda t, s, x: x[::2], "tp.flip"),
    "reverse": (lambda t, s, x: x[::-1], "x[t.size - 1 - t]"),
    "two ellipses": (lambda t, s, x: x[..., ...], "once"),
    "if": (lambda t, s, x: 1 if t > 0 else 2, "tp.cases"),
    "if dim": (lambda t, s, x: 1 if t else 2, "index by it"),
    "chained comparison": (lambda t, s, x: 0 < t < 4, "& | ~"),
    "and": (lambda t, s, x: t > 0 and t < 4, "& | ~"),
    "range": (lambda t, s, x: range(t), "index by it"),
    "array by dim": (lambda t, s, x: np.arange(5)[t], "tp.constant(array).spatial[t]"),
    "asarray": (lambda t, s, x: np.asarray(t), "tp.as_tensor(t)"),
    "float(dim)": (lambda t, s, x: float(t), "index by it"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_says_what_to_write(program, misuse):
    """`dim * dim`, `dim * float`, a float or a tensor as an index raise `IndexExpressionError` (a `TypeError`) at that
    line, which says what to write instead."""
    t, s = tp.dims("t s")
    x = tp.input("x", dims=(t,))
    function, advice = MISUSES[misuse]
    with pytest.raises(IndexExpressionError) as caught:
        function(t, s, x)
    error = caught.value
    assert isinstance(error, TypeError)
    assert advice in f"{error}"
    assert error.location.path == __file__
    assert error.location.line == function.__code__.co_firstlineno


def test_another_program(program):
    """A dim or tensor of another program, or of none that is open, is a `ProgramError`."""
    t = tp.dim("t")
    x = tp.input("x", shape=(2,), dims=(t,))
    with tp.Program("inner"):
        s = tp.dim("s")
        y = tp.input("y", shape=(2,), dims=(s,))
        for use in (
            lambda: x + 1,
            lambda: y + x,
            lambda: y[t],
            lambda: y + t,
            lambda: s + t,
            lambda: s < t,
            lambda: tp.max(s, t),
            lambda: (s > 0) & (t > 0),
            lambda: x[0],
            lambda: tp.input("z", dims=(t,)),
            lambda: tp.output("z", x),
            lambda: tp.zeros((t.size,)),
            lambda: tp.cases((t > 0, 1), 2),
            lambda: x.spatial[0],
        ):
            with pytest.raises(ProgramError, match="outer") as caught:
                use()
            assert caught.value.location.path == __file__


def test_no_program_is_open():
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        h = tp.recurrent("h", (), (t,))

    def define():
        h[0] = 1.0

    for use in (
        lambda: tp.dim("s"),
        lambda: tp.zeros((3,)),
        lambda: x + 1,
        lambda: x[t - 1],
        lambda: tp.output("x", x),
        lambda: tp.as_tensor(t),
        lambda: tp.constant([1.0]),
        lambda: tp.constant(1.0),
        lambda: tp.random.uniform(),
        define,
    ):
        with pytest.raises(ProgramError, match="no program is open"):
            use()
    assert (x.shape, repr(t - 1)) == ((), "t - 1")
    with program:
        tp.output("x", x + 1)
    assert len(program.graph().outputs) == 1


def test_expressions_print_and_hash(program):
    t, s = tp.dims("t s")
    assert [str(e) for e in (2 * t + 1, tp.max(t - 3, 0), t.size - 1)] == ["2*t + 1", "max(t - 3, 0)", "t.size - 1"]
    assert {t: 1, s: 2}[t] == 1
    assert t in (t, s)
    assert len({t + 1, 1 + t}) == 1
