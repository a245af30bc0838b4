"""Rules of the page "The language": Dimensions."""

import numpy as np
import pytest

import tempo as tp
from tempo.errors import IndexExpressionError, InputError, ProgramError, SizeError


def running_sum(size=None):
    with tp.Program("running_sum") as program:
        t = tp.dim("t", size)
        x = tp.input("x", dims=(t,))
        tp.output("total", x[0 : t + 1].sum(axis=0))
    return program


def test_the_first_program_of_the_page(run_program):
    """mean = x[0:t + 1].mean(axis=0)  # domain (t,), shape (3,)"""
    with tp.Program("running_mean") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        mean = x[0 : t + 1].mean(axis=0)
        tp.output("mean", mean)
    assert (mean.domain, mean.shape, mean.dtype) == ((t,), (3,), "float32")
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    expected = np.cumsum(data, 0) / np.arange(1, 5)[:, None]
    np.testing.assert_allclose(run_program(program, x=data)["mean"], expected, rtol=1e-6)


def test_dims_gives_a_tuple():
    """`tp.dim("t", size=None)`, `tp.dims("b i t")` (a tuple)."""
    with tp.Program() as program:
        b, i, t = tp.dims("b i t")
    assert [dim.name for dim in (b, i, t)] == ["b", "i", "t"]
    assert program.dims == (b, i, t)


@pytest.mark.parametrize("given", [{"size": 4}, {"lengths": None}, "u"])
def test_dims_takes_names_alone(given):
    with tp.Program(), pytest.raises(tp.ProgramError, match="in one string, and nothing else") as caught:
        tp.dims("t", given) if isinstance(given, str) else tp.dims("t", **given)
    assert 't = tp.dim("t", lengths=n)' in str(caught.value)
    assert "test_dims.py" in str(caught.value)


def test_size_is_the_symbolic_bound(run_program):
    """`t.size` is the symbolic bound."""
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("size", tp.as_tensor(t.size))
        tp.output("rest", t.size - 1 - t)
    assert str(t.size) == "t.size"
    out = run_program(program, sizes={"t": 3})
    assert out["size"] == 3
    np.testing.assert_array_equal(out["rest"], [2, 1, 0])


def test_size_of_a_dim_with_a_size():
    with tp.Program():
        t = tp.dim("t", 5)
        s = tp.dim("s", 2 * t.size + 1)
        u = tp.dim("u")
        v = tp.dim("v", u.size - 1)
    assert (int(t.size), int(s.size)) == (5, 11)
    assert str(v.size) == "u.size - 1"
    with pytest.raises(IndexExpressionError, match="no single value"):
        int(v.size)


def test_size_from_the_program(run_program):
    """A size comes from the program,"""
    with tp.Program() as program:
        t = tp.dim("t", 3)
        tp.output("t", t)
    np.testing.assert_array_equal(run_program(program)["t"], [0, 1, 2])


def test_size_from_compile_or_call(run_program):
    """from `sizes=` of `compile` or of a call,"""
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("t", t)
    np.testing.assert_array_equal(run_program(program, compile_sizes={"t": 2})["t"], [0, 1])
    np.testing.assert_array_equal(run_program(program, sizes={"t": 4})["t"], [0, 1, 2, 3])


def test_size_from_an_input(run_program):
    """or from an input that carries the dim;"""
    np.testing.assert_array_equal(run_program(running_sum(), x=np.ones(3, np.float32))["total"], [1, 2, 3])


def test_unknown_size(run_program):
    """one that stays unknown is a `SizeError` naming the dim."""
    with tp.Program() as program:
        t = tp.dim("steps")
        tp.output("t", t)
    with pytest.raises(SizeError, match="'steps'"):
        run_program(program)


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_are_at_least_one(run_program, size):
    """Sizes are integers of at least 1; less, or two sources that disagree, is a `SizeError`;"""
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("t", t)
        with pytest.raises(SizeError, match="at least 1"):
            tp.dim("s", size)
    with pytest.raises(SizeError, match="at least 1"):
        run_program(program, sizes={"t": size})


def test_size_expression_below_one(run_program):
    with tp.Program() as program:
        t = tp.dim("t")
        s = tp.dim("s", t.size - 2)
        tp.output("s", s)
    assert len(run_program(program, sizes={"t": 3})["s"]) == 1
    with pytest.raises(SizeError, match="at least 1"):
        run_program(program, sizes={"t": 2})


def test_sources_of_a_size_that_disagree(run_program):
    with pytest.raises(SizeError, match="'t'"):
        run_program(running_sum(), sizes={"t": 4}, x=np.ones(3, np.float32))
    with pytest.raises(SizeError, match="'t'"):
        run_program(running_sum(5), x=np.ones(3, np.float32))


def test_a_size_made_of_others_that_disagrees(run_program):
    with tp.Program() as program:
        t = tp.dim("t")
        u = tp.dim("u", size=2 * t.size)
        tp.output("u", tp.as_tensor(u))
    assert run_program(program, sizes={"t": 3, "u": 6})["u"].shape == (6,)
    with pytest.raises(SizeError, match=r"'u' is 6 by the program \(2\*t.size\), but 7"):
        run_program(program, sizes={"t": 3, "u": 7})


def test_a_size_for_no_dim(run_program):
    """a name that is no dim of the program is an `InputError`."""
    with pytest.raises(InputError, match="'tt'"):
        run_program(running_sum(), sizes={"tt": 4}, x=np.ones(3, np.float32))


@pytest.mark.parametrize("backend", ["reference", "numpy"])
def test_the_same_executable_at_other_sizes(backend):
    """The same executable may be called with other sizes;"""
    run = tp.compile(running_sum(), backend=backend)
    for size in (3, 1, 5, 3):
        np.testing.assert_array_equal(run(x=np.ones(size, np.float32))["total"], np.arange(1, size + 1))


def test_canonical_order_is_that_of_declaration(run_program):
    """an operation on domains `(b, t)` and `(i, t)` has domain `(b, i, t)`, each operand read at the dims it has."""
    with tp.Program() as program:
        b, i, t = tp.dims("b i t")
        x = tp.input("x", dims=(b, t))
        y = tp.input("y", dims=(i, t))
        total = y + 10 * x
        tp.output("total", total)
    assert total.domain == (b, i, t)
    xs, ys = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(9, dtype=np.float32).reshape(3, 3)
    expected = ys[None] + 10 * xs[:, None]
    np.testing.assert_array_equal(run_program(program, x=xs, y=ys)["total"], expected)


def test_dims_in_another_order():
    """`dims=` of a declaration in another order is an error."""
    with tp.Program():
        b, t = tp.dims("b t")
        for declare in (tp.input, lambda name, dims: tp.recurrent(name, (), dims)):
            with pytest.raises(ProgramError, match="order of their declaration"):
                declare("x", dims=(t, b))
        with pytest.raises(ProgramError, match="once"):
            tp.input("x", dims=(b, b))
        with pytest.raises(IndexExpressionError, match="must be dims"):
            tp.input("x", dims=(b, 3))


def test_spatial_shapes_broadcast(run_program):
    """Spatial shapes broadcast as in NumPy."""
    with tp.Program() as program:
        t = tp.dim("t", 2)
        x = tp.input("x", shape=(3, 1), dims=(t,))
        y = tp.input("y", shape=(4,))
        tp.output("product", x * y)
        with pytest.raises(tp.ShapeError, match="broadcast"):
            x + tp.zeros((2, 4))
    xs, ys = np.arange(6, dtype=np.float32).reshape(2, 3, 1), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run_program(program, x=xs, y=ys)["product"], xs * ys)


def test_layers_are_one_node_each():
    """Ten thousand layers written over a dim `l` are one node each in the SDG."""

    def nodes(layers):
        with tp.Program() as program:
            layer = tp.dim("l", layers)
            w = tp.input("w", shape=(4, 4), dims=(layer,))
            h = tp.recurrent("h", shape=(4,), dims=(layer,))
            h[0] = tp.ones((4,))
            h[layer + 1] = tp.tanh(h @ w)
            tp.output("h", h[-1])
        return len(program.graph().nodes)

    assert nodes(10_000) == nodes(2)


def test_dim_names():
    with tp.Program():
        t = tp.dim("t")
        with pytest.raises(ProgramError, match="already"):
            tp.dim("t")
        with pytest.raises(ProgramError, match="identifier"):
            tp.dim("a b")
        with pytest.raises(ProgramError, match="name"):
            tp.dim("")
        with pytest.raises(IndexExpressionError, match="varies with t"):
            tp.dim("s", t + 1)
