"""Rules of the page "The language": `tp.random`."""

import math

import numpy as np
import pytest

import tempo as tp
from tempo.errors import DTypeError, ProgramError, ShapeError
from tempo.sdg.threefry import fold


def drawn(run_program, make, size=50, seed=0):
    with tp.Program() as program:
        t = tp.dim("t", size)
        tp.output("draw", make(t))
    return run_program(program, seed=seed)["draw"]


def test_threefry_of_seed_declaration_and_coordinates(run_program):
    """Threefry-2x32 with 20 rounds, key (seed of the call, number of the declaration), counter the point's coordinates
    and then the element's, never a linear index that depends on a size:"""
    with tp.Program() as program:
        t = tp.dim("t", 3)
        bits = tp.random.bits((2,), dims=(t,))
        tp.output("bits", bits)
    node = program.graph().nodes[bits.edge.node]
    assert node.attr("declaration") == node.declaration
    out = run_program(program, seed=7)["bits"]
    expected = [[fold((7, node.declaration), [step, element])[0] for element in range(2)] for step in range(3)]
    np.testing.assert_array_equal(out, np.array(expected, np.uint32).reshape(3, 2))


def test_the_same_numbers_under_every_size(run_program):
    """the same numbers under every backend, schedule, lifting, tiling and size."""
    small = drawn(run_program, lambda t: tp.random.normal((3,), dims=(t,)), 5)
    large = drawn(run_program, lambda t: tp.random.normal((4,), dims=(t,)), 9)
    np.testing.assert_array_equal(small, large[:5, :3])


@pytest.mark.parametrize("kind", ["bits", "uniform", "normal"])
def test_equal_on_every_backend(kind):
    """Bits and uniforms are equal bit for bit, normals within a few ulp."""
    with tp.Program() as program:
        t = tp.dim("t", 20)
        tp.output("draw", getattr(tp.random, kind)((10,), dims=(t,)))
    first, second = (tp.compile(program, backend=b)(seed=3)["draw"] for b in ("reference", "numpy"))
    if kind == "normal":
        np.testing.assert_array_max_ulp(first, second, 4)
    else:
        np.testing.assert_array_equal(first, second)


def test_each_draw_is_its_own(run_program):
    """Inputs, parameters, recurrent tensors, random draws, host calls and sinks are *nominal*"""
    with tp.Program() as program:
        tp.output("first", tp.random.uniform((8,)))
        tp.output("second", tp.random.uniform((8,)))
    out = run_program(program)
    assert not np.any(out["first"] == out["second"])
    assert not np.any(out["first"] == run_program(program, seed=1)["first"])
    np.testing.assert_array_equal(out["first"], run_program(program, seed=0)["first"])


def test_draws_depend_on_nothing():
    """Draws depend on nothing, so the compiler may take them out of loops."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        tp.output("draw", tp.random.categorical(x))
    nodes = program.graph().nodes
    (bits,) = (node for node in nodes.values() if node.op == "random_bits")
    assert [nodes[edge.node].attr("role") for edge in bits.operands] == ["seed"]


def test_dims_default_to_the_domain_of_the_arguments():
    with tp.Program():
        b, t = tp.dims("b t")
        p = tp.input("p", dims=(t,))
        assert tp.random.bernoulli(p).domain == (t,)
        assert tp.random.bernoulli(p, dims=(b, t)).domain == (b, t)
        assert tp.random.uniform((2,)).domain == ()
        assert tp.random.normal((2,), loc=p).domain == (t,)
        drawn_once = tp.random.bernoulli(p, dims=())
        assert drawn_once.domain == (t,)


def test_uniform(run_program):
    draws = drawn(run_program, lambda t: tp.random.uniform((400,), dims=(t,)))
    assert draws.dtype == np.float32
    assert draws.min() >= 0
    assert draws.max() < 1
    np.testing.assert_array_equal(draws * 2**24, np.floor(draws * 2**24))
    assert abs(draws.mean() - 0.5) < 0.01
    assert len(np.unique(draws)) > 0.99 * draws.size
    scaled = drawn(run_program, lambda t: tp.random.uniform((400,), -2.0, 3.0, dims=(t,)))
    np.testing.assert_allclose(scaled, draws * 5 - 2, atol=1e-6)
    low = drawn(run_program, lambda t: tp.random.uniform((4,), tp.as_tensor(t), t + 1, dims=(t,)))
    np.testing.assert_array_equal(np.floor(low), np.arange(50)[:, None] * np.ones(4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_float(run_program, dtype):
    uniform = drawn(run_program, lambda t: tp.random.uniform((40,), dims=(t,), dtype=dtype)).astype(np.float64)
    normal = drawn(run_program, lambda t: tp.random.normal((40,), dims=(t,), dtype=dtype)).astype(np.float64)
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() <= 1
    assert abs(normal.mean()) < 0.1
    assert abs(normal.std() - 1) < 0.1
    if dtype == "float64":
        np.testing.assert_array_equal(uniform * 2**53, np.floor(uniform * 2**53))
        assert np.any(uniform * 2**24 != np.floor(uniform * 2**24))


def normal_distribution(x):
    return np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.ravel()])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_are_the_quantiles_of_their_bits(run_program, dtype):
    """The draws are the quantiles of the bits: no approximation shows beyond a few ulp."""
    with tp.Program() as program:
        tp.output("normal", tp.random.normal((2000,), dtype=dtype))
    (node,) = (node for node in program.graph().nodes.values() if node.op == "random_bits")
    first, second = fold((0, node.declaration), [np.arange(2000, dtype=np.uint32)])
    wide = np.asarray(first, np.uint64) << np.uint64(32) | np.asarray(second, np.uint64)
    narrow = (np.asarray(first, np.uint32) >> np.uint32(8)) / 2.0**24 + 2.0**-25
    middle = (wide >> np.uint64(11)) / 2.0**53 + 2.0**-54 if dtype == "float64" else narrow
    found = normal_distribution(run_program(program)["normal"].astype(np.float64))
    np.testing.assert_allclose(found, middle, rtol=2e-13 if dtype == "float64" else 4e-6)


def test_normal_with_mean_and_deviation(run_program):
    draws = drawn(run_program, lambda t: tp.random.normal((400,), 3.0, 0.5, dims=(t,)))
    assert abs(draws.mean() - 3) < 0.02
    assert abs(draws.std() - 0.5) < 0.02


def test_bernoulli(run_program):
    def make(t):
        return tp.random.bernoulli(tp.constant([0.0, 0.25, 1.0]) + tp.as_tensor(t) * 0)

    draws = drawn(run_program, make, 2000)
    assert draws.dtype == np.bool_
    assert not draws[:, 0].any()
    assert draws[:, 2].all()
    assert abs(draws[:, 1].mean() - 0.25) < 0.04
    assert drawn(run_program, lambda t: tp.random.bernoulli(0.5, (3,), dims=(t,)), 2).shape == (2, 3)


def test_categorical(run_program):
    def make(t):
        logits = tp.log(tp.constant([[0.5, 0.3, 0.2], [1e-30, 0.0, 1.0]])) + tp.as_tensor(t) * 0
        return tp.random.categorical(logits)

    draws = drawn(run_program, make, 3000)
    assert (draws.dtype, draws.shape) == (np.int32, (3000, 2))
    frequencies = np.bincount(draws[:, 0], minlength=3) / 3000
    np.testing.assert_allclose(frequencies, [0.5, 0.3, 0.2], atol=0.04)
    assert np.all(draws[:, 1] == 2)
    other = drawn(run_program, lambda t: tp.random.categorical(tp.zeros((3, 2)), axis=0, dims=(t,)), 4)
    assert other.shape == (4, 2)


def test_permutation(run_program):
    draws = drawn(run_program, lambda t: tp.random.permutation(6, dims=(t,)), 30)
    assert draws.dtype == np.int32
    np.testing.assert_array_equal(np.sort(draws, axis=1), np.tile(np.arange(6), (30, 1)))
    assert len({tuple(row) for row in draws}) > 20
    symbolic = drawn(run_program, lambda t: tp.random.permutation(t.size), 9)
    np.testing.assert_array_equal(np.sort(symbolic), np.arange(9))


def test_bits_of_every_width(run_program):
    for dtype in ("uint8", "uint32", "uint64"):
        draws = drawn(run_program, lambda t, dtype=dtype: tp.random.bits((20,), dims=(t,), dtype=dtype))
        assert draws.dtype == dtype
        assert len(np.unique(draws)) > 200


def test_shapes_that_vary(run_program):
    draws = drawn(run_program, lambda t: (tp.random.uniform((t + 1,)) * 0 + 1).sum(), 4)
    np.testing.assert_array_equal(draws, [1, 2, 3, 4])


def test_misuse():
    with tp.Program():
        b, t = tp.dims("b t")
        with pytest.raises(DTypeError, match="int32"):
            tp.random.uniform(dtype=tp.int32)
        with pytest.raises(DTypeError, match="float32"):
            tp.random.bits(dtype=tp.float32)
        with pytest.raises(ProgramError, match="order"):
            tp.random.uniform(dims=(t, b))
        with pytest.raises(ShapeError, match="one size"):
            tp.random.permutation((3, 2))
