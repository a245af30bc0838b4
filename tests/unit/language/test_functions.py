"""Every function means what NumPy's function of that name means."""

import math

import numpy as np
import pytest

import tempo as tp
from tempo.errors import DTypeError, IndexExpressionError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)
Y = RNG.normal(size=(3, 4)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
UNIT = np.tanh(X)
N = RNG.integers(-5, 6, size=(3, 4)).astype(np.int32)
M = RNG.integers(1, 5, size=(3, 4)).astype(np.int32)
MASK = X > 0
SPECIAL = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
CUBE = RNG.normal(size=(2, 3, 4)).astype(np.float32)

ELEMENTWISE = [
    ("exp", X), ("exp2", X), ("expm1", X), ("log", POSITIVE), ("log1p", POSITIVE), ("log2", POSITIVE),
    ("log10", POSITIVE), ("sqrt", POSITIVE), ("sin", X), ("cos", X), ("tan", X), ("arcsin", UNIT), ("arccos", UNIT),
    ("arctan", X), ("sinh", X), ("cosh", X), ("tanh", X), ("arcsinh", X), ("arccosh", POSITIVE + 1),
    ("arctanh", UNIT * 0.9), ("floor", X), ("ceil", X), ("round", X * 2), ("trunc", X * 3), ("sign", X), ("square", X),
    ("absolute", X), ("abs", N), ("negative", X), ("positive", X), ("reciprocal", X), ("isnan", SPECIAL),
    ("isinf", SPECIAL), ("isfinite", SPECIAL), ("logical_not", N), ("bitwise_not", N), ("bitwise_not", MASK),
    ("sign", N), ("square", N), ("floor", N), ("nan_to_num", SPECIAL),
]  # fmt: skip

BINARY = [
    ("add", X, Y), ("subtract", X, Y), ("multiply", X, Y), ("divide", X, Y), ("floor_divide", X, Y), ("mod", X, Y),
    ("power", POSITIVE, Y), ("power", X, np.float32(2)), ("maximum", X, Y), ("minimum", X, Y), ("arctan2", X, Y),
    ("hypot", X, Y), ("add", N, M), ("floor_divide", N, M), ("mod", N, -M), ("power", N, M), ("maximum", N, M),
    ("bitwise_and", N, M), ("bitwise_or", N, M), ("bitwise_xor", N, M), ("left_shift", N, M), ("right_shift", N, M),
    ("logical_and", N, MASK), ("logical_or", N, MASK), ("logical_xor", X, MASK), ("equal", N, M), ("not_equal", N, M),
    ("less", X, Y), ("less_equal", N, M), ("greater", X, Y), ("greater_equal", N, M), ("isclose", X, X + 1e-7),
    ("add", X, Y[0]), ("multiply", X[:, :1], Y[0]), ("logaddexp", X * 50, Y),
    ("logaddexp", SPECIAL, SPECIAL), ("add", MASK, MASK), ("multiply", MASK, ~MASK),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x"), ELEMENTWISE)
@pytest.mark.filterwarnings("ignore")
def test_elementwise(evaluate, name, x):
    found = evaluate(getattr(tp, name), x)
    np.testing.assert_allclose(found, getattr(np, name)(x), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "a", "b"), BINARY)
@pytest.mark.filterwarnings("ignore")
def test_binary(evaluate, name, a, b):
    np.testing.assert_allclose(evaluate(getattr(tp, name), a, b), getattr(np, name)(a, b), rtol=1e-5, atol=1e-6)


OPERATORS = {
    "arithmetic": lambda a, b: a + b * 2 - a / b + a // b + a % b + 3 - (2 * a) + -a + abs(b) + +a,
    "power": lambda a, b: a**2 + a**3 + a**1 + 2**b + (abs(a) + 1) ** 0.5,
    "comparison": lambda a, b: (a < b) | (a >= b) & (a == b) ^ (a != b) | ~(a > b) & (a <= b),
    "divmod": lambda a, b: divmod(a, b)[0] + divmod(a, b)[1],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(evaluate, name):
    function = OPERATORS[name]
    np.testing.assert_allclose(evaluate(function, X, POSITIVE), function(X, POSITIVE), rtol=1e-5, atol=1e-5)


def test_integer_operators(evaluate):
    found = evaluate(lambda n, m: (n << m) + (n >> 1) + (n & m) + (n | 3) + (n ^ m) + ~n + (7 & n) + (1 | m), N, M)
    np.testing.assert_array_equal(found, (N << M) + (N >> 1) + (N & M) + (N | 3) + (N ^ M) + ~N + (7 & N) + (1 | M))


REDUCTIONS = [
    ("sum", X), ("prod", X), ("mean", X), ("max", X), ("min", X), ("amax", X), ("amin", X), ("var", X), ("std", X),
    ("any", MASK), ("all", MASK), ("sum", N), ("mean", N), ("max", N), ("sum", MASK), ("any", N), ("all", N),
    ("max", MASK), ("min", MASK), ("ptp", X), ("count_nonzero", N), ("sum", CUBE), ("mean", CUBE), ("var", CUBE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x"), REDUCTIONS)
def test_reductions(evaluate, name, x):
    axes = [None, 0, -1, (0, 1), (), (0, -1)]
    for axis in axes if name != "ptp" else axes[:3]:
        for keepdims in (False, True):
            if axis == () and name in ("var", "std", "ptp"):
                continue
            found = evaluate(lambda t, a=axis, k=keepdims: getattr(tp, name)(t, axis=a, keepdims=k), x)
            expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
            assert found.shape == np.shape(expected)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "any", "all", "var", "std", "argmax", "argmin"])
def test_methods_are_the_functions(evaluate, name):
    found = evaluate(lambda x: getattr(x, name)(axis=1, keepdims=True), X)
    np.testing.assert_allclose(found, getattr(np, name)(X, axis=1, keepdims=True), rtol=1e-5)


def test_deviation_of_a_sample(evaluate):
    np.testing.assert_allclose(evaluate(lambda x: x.var(axis=0, ddof=1), X), X.var(0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(evaluate(lambda x: x.std(ddof=1), X), X.std(ddof=1), rtol=1e-5)


@pytest.mark.parametrize("name", ["argmax", "argmin", "cumsum", "cumprod", "sort", "argsort"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_along_an_axis(evaluate, name, axis):
    for x in (X, N):
        found = evaluate(lambda t: getattr(tp, name)(t, axis=axis), x)
        expected = getattr(np, name)(x, axis=axis, **({"kind": "stable"} if name == "argsort" else {}))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, -1])
def test_the_greatest_elements_in_order(evaluate, axis):
    """Equal elements, -0.0 and 0.0 among them, come as they lie; NaN comes first."""
    x = np.array([[1, np.nan, -0.0, 3, 3], [0.0, 3, 0.0, -np.inf, np.nan], [np.inf, 1, 1, 2, 2]], np.float32)
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    expected = x.shape[axis] - 1 - np.flip(order, axis)
    found = evaluate(lambda x: tp.top_k(x, 3, axis=axis).indices, x)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected.take(range(3), axis))
    values = evaluate(lambda x: tp.top_k(x, 3, axis).values, x)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis).take(range(3), axis))


def test_fewer_elements_than_asked_for():
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,))
        with pytest.raises(tp.ShapeError, match="top_k"):
            tp.top_k(x, 5)
        with pytest.raises(tp.ShapeError, match="top_k of -1"):
            tp.top_k(x, -1)
        tp.output("y", tp.top_k(x[0 : t + 1], 2, axis=0).values)
    with pytest.raises(tp.ShapeError, match="top_k over a slice of fewer than 2 elements at t = 0"):
        tp.compile(program, "numpy")(x=np.zeros((3, 4), np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_means_of_halves_count_exactly(evaluate, dtype):
    x = np.ones(1001, np.float32)
    found = evaluate(lambda t: tp.stack([t.astype(dtype).mean(), (t * 300).astype(dtype).var() + 1]), x)
    np.testing.assert_array_equal(found.astype(np.float32), [1, 1])
    assert evaluate(lambda t: t.astype(dtype).mean(), x).dtype.name == dtype


def test_reductions_over_unknown_sizes(run_program):
    with tp.Program() as program:
        a, b = tp.dims("a b")
        x = tp.input("x", shape=(2,), dims=(a, b))
        tp.output("mean", x[:, :].mean())
        tp.output("var", x[:, 0 : b + 1].var(axis=(0, 1)))
        tp.output("flat", x[:, b].reshape(-1).sum())
    data = RNG.normal(size=(3, 2, 2)).astype(np.float32)
    out = run_program(program, x=data)
    np.testing.assert_allclose(out["mean"], data.mean(), rtol=1e-5)
    np.testing.assert_allclose(out["var"], [data[:, : b + 1].var((0, 1)) for b in range(2)], rtol=1e-5)
    np.testing.assert_allclose(out["flat"], data.sum((0, 2)), rtol=1e-5)


def softmax(x, axis):
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax_and_its_logarithms(evaluate, axis):
    large = X * 100
    expected = softmax(large.astype(np.float64), axis)
    np.testing.assert_allclose(evaluate(lambda x: tp.softmax(x, axis=axis), large), expected, rtol=1e-4, atol=1e-7)
    logs = evaluate(lambda x: tp.log_softmax(x, axis=axis), large)
    np.testing.assert_allclose(logs, np.log(np.maximum(expected, 1e-300)), rtol=1e-4, atol=1e-4)
    top = large.max(axis, keepdims=True)
    sums = np.log(np.exp(large - top).sum(axis, keepdims=True)) + top
    found = evaluate(lambda x: tp.logsumexp(x, axis=axis, keepdims=True), large)
    np.testing.assert_allclose(found, sums, rtol=1e-5)


def test_logsumexp_over_several_axes_and_of_infinities(evaluate):
    kept = evaluate(lambda x: tp.logsumexp(x, axis=(0, 1), keepdims=True), X)
    np.testing.assert_allclose(kept, np.log(np.exp(X).sum(keepdims=True)), rtol=1e-5)
    infinite = np.array([-np.inf, -np.inf], np.float32)
    assert evaluate(lambda x: tp.logsumexp(x), infinite) == -np.inf


def erf(x):
    return np.vectorize(math.erf)(x)


def exact_gelu(x):
    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


def fitted_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "relu": (tp.relu, lambda x: np.maximum(x, 0)),
    "leaky_relu": (lambda x: tp.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "elu": (lambda x: tp.elu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0)))),
    "sigmoid": (tp.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "log_sigmoid": (tp.log_sigmoid, lambda x: -np.logaddexp(0, -x)),
    "softplus": (tp.softplus, lambda x: np.logaddexp(0, x)),
    "silu": (tp.silu, lambda x: x / (1 + np.exp(-x))),
    **{
        f"gelu by erf, {given}": (lambda x, given=given: tp.gelu(x, *given), exact_gelu)
        for given in ((), ("none",), (False,), (np.False_,))
    },
    **{
        f"gelu by tanh, {given}": (lambda x, given=given: tp.gelu(x, approximate=given), fitted_gelu)
        for given in ("tanh", True, np.True_)
    },
    "erf": (tp.erf, erf),
    "rsqrt": (lambda x: tp.rsqrt(tp.abs(x)), lambda x: 1 / np.sqrt(np.abs(x))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(evaluate, name):
    ours, reference = ACTIVATIONS[name]
    x = np.concatenate([X.ravel() * 3, np.array([-30.0, 30.0], np.float32)])
    np.testing.assert_allclose(evaluate(ours, x), reference(x.astype(np.float64)), rtol=2e-5, atol=1e-6)


MOVEMENTS = {
    "reshape": (lambda n, x: x.reshape((2, 2, -1)), X),
    "reshape method": (lambda n, x: x.reshape(-1), X),
    "reshape several": (lambda n, x: x.reshape(4, 3), X),
    "reshape to nothing": (lambda n, x: n.reshape(x, ()), X[:1, :1]),
    "ravel": (lambda n, x: n.ravel(x), CUBE),
    "flatten": (lambda n, x: x.flatten(), CUBE),
    "transpose": (lambda n, x: n.transpose(x), CUBE),
    "transpose axes": (lambda n, x: n.transpose(x, (1, 2, 0)), CUBE),
    "transpose method": (lambda n, x: x.transpose(-1, 0, 1), CUBE),
    "T": (lambda n, x: x.T, X),
    "mT": (lambda n, x: x.mT if n is tp else n.swapaxes(x, -1, -2), CUBE),
    "swapaxes": (lambda n, x: n.swapaxes(x, 0, -1), CUBE),
    "moveaxis": (lambda n, x: n.moveaxis(x, 0, -1), CUBE),
    "moveaxis several": (lambda n, x: n.moveaxis(x, (0, 2), (1, 0)), CUBE),
    "expand_dims": (lambda n, x: n.expand_dims(x, 1), X),
    "expand_dims several": (lambda n, x: n.expand_dims(x, (0, -1)), X),
    "squeeze": (lambda n, x: n.squeeze(x), X.reshape(1, 3, 1, 4)),
    "squeeze axis": (lambda n, x: n.squeeze(x, 2), X.reshape(1, 3, 1, 4)),
    "broadcast_to": (lambda n, x: n.broadcast_to(x, (2, 3, 4)), X),
    "broadcast_to ones": (lambda n, x: n.broadcast_to(x, (3, 5)), X[:, :1]),
    "concatenate": (lambda n, x: n.concatenate([x, x * 2, x], axis=1), X),
    "concatenate flat": (lambda n, x: n.concatenate([x, x], axis=None), X),
    "stack": (lambda n, x: n.stack([x, x + 1], axis=-1), X),
    "split": (lambda n, x: n.split(x, 2, axis=1)[1], X),
    "split at": (lambda n, x: n.split(x, [1, 3], axis=1)[1], X),
    "flip": (lambda n, x: n.flip(x), X),
    "flip axis": (lambda n, x: n.flip(x, 1), X),
    "roll": (lambda n, x: n.roll(x, 1, axis=0), X),
    "roll back": (lambda n, x: n.roll(x, -5, axis=1), X),
    "pad": (lambda n, x: n.pad(x, 1), X),
    "pad pairs": (lambda n, x: n.pad(x, ((0, 1), (2, 0)), constant_values=7), X),
    "pad pair": (lambda n, x: n.pad(x, (1, 2)), N),
    "repeat": (lambda n, x: n.repeat(x, 3, axis=1), X),
    "tile": (lambda n, x: n.tile(x, 2), X),
    "tile several": (lambda n, x: n.tile(x, (2, 1, 3)), X),
    "take": (lambda n, x: n.take(x, np.array([[2, 0]]), axis=0), X),
    "take flat": (lambda n, x: n.take(x, np.array([5, 0])), X),
    "take_along_axis": (lambda n, x: n.take_along_axis(x, n.argsort(x, axis=1), axis=1), X),
    "take_along_axis 0": (lambda n, x: n.take_along_axis(x, n.argmax(x, axis=0, keepdims=True), axis=0), CUBE),
    "tril": (lambda n, x: n.tril(x), X),
    "triu": (lambda n, x: n.triu(x, 1), CUBE),
    "tril below": (lambda n, x: n.tril(x, -1), X),
    "diagonal": (lambda n, x: n.diagonal(x), X[:, :3]),
    "where": (lambda n, x: n.where(x > 0, x, -1.0), X),
    "where of numbers": (lambda n, x: n.where(x, 1.0, 0.0), N),
    "clip": (lambda n, x: n.clip(x, -0.5, 0.5), X),
    "clip one side": (lambda n, x: x.clip(0), X),
    "round": (lambda n, x: x.round(), X),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVEMENTS)
def test_movements(evaluate, name):
    function, x = MOVEMENTS[name]
    expected = function(np, x)
    if name in ("clip one side",):
        expected = np.maximum(x, 0)
    found = evaluate(lambda t: function(tp, t), x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.shape == expected.shape


def test_unstack_and_broadcast_arrays(evaluate):
    np.testing.assert_array_equal(evaluate(lambda x: tp.unstack(x, 1)[2], X), X[:, 2])
    found = evaluate(lambda x: sum(tp.broadcast_arrays(x, tp.ones((2, 1, 4)))), X)
    np.testing.assert_allclose(found, X + np.ones((2, 3, 4), np.float32))


CREATIONS = [
    ("zeros", ((2, 3),)), ("ones", (4,)), ("full", ((2,), 1.5)), ("arange", (5,)), ("arange", (2, 9)),
    ("arange", (2, 9, 3)), ("arange", (9, 2, -2)), ("arange", (5, 2)), ("arange", (0.0, 1.0, 0.25)), ("eye", (3,)),
    ("eye", (2, 4)), ("tri", (3, 4)), ("linspace", (0.0, 1.0, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), CREATIONS)
def test_creations(evaluate, name, arguments):
    expected = getattr(np, name)(*arguments)
    found = evaluate(lambda: getattr(tp, name)(*arguments))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == {"f": np.float32, "i": np.int32}[expected.dtype.kind]


def test_creations_like(evaluate):
    np.testing.assert_array_equal(evaluate(tp.zeros_like, N), np.zeros_like(N))
    np.testing.assert_array_equal(evaluate(tp.ones_like, X), np.ones_like(X))
    found = evaluate(lambda x: tp.full_like(x, 2.7, dtype=tp.int32), X)
    assert (found.dtype, found[0, 0]) == (np.int32, 2)
    assert evaluate(lambda: tp.zeros((2,), dtype=tp.bool)).dtype == np.bool_


def test_arange_of_an_index_expression(run_program):
    """`tp.arange(n)` with `n` an index expression."""
    with tp.Program() as program:
        t = tp.dim("t", 4)
        assert repr(tp.arange(t + 1).shape) == "(t + 1,)"
        tp.output("sum", tp.arange(t + 1).sum())
        tp.output("from", tp.arange(t, t.size).sum())
        tp.output("down", tp.arange(t, -1, -1).max())
        tp.output("steps", (tp.arange(0, t.size + t, 2) + 1).sum())
        tp.output("size", tp.arange(t.size))
    out = run_program(program)
    np.testing.assert_array_equal(out["sum"], [0, 1, 3, 6])
    np.testing.assert_array_equal(out["from"], [6, 6, 5, 3])
    np.testing.assert_array_equal(out["down"], [0, 1, 2, 3])
    np.testing.assert_array_equal(out["steps"], [(np.arange(0, 4 + t, 2) + 1).sum() for t in range(4)])
    np.testing.assert_array_equal(out["size"], [0, 1, 2, 3])


def test_one_hot(evaluate):
    classes = np.array([[1, 0], [2, 5]], np.int32)
    expected = (classes[..., None] == np.arange(3)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(lambda c: tp.one_hot(c, 3), classes), expected)
    np.testing.assert_array_equal(evaluate(lambda c: tp.one_hot(c, 3, axis=0), classes), np.moveaxis(expected, -1, 0))


PRODUCTS = {
    "vector vector": ((4,), (4,)),
    "matrix vector": ((3, 4), (4,)),
    "vector matrix": ((4,), (4, 5)),
    "matrix matrix": ((3, 4), (4, 5)),
    "batch matrix": ((2, 3, 4), (4, 5)),
    "matrix batch": ((3, 4), (2, 4, 5)),
    "vector batch": ((4,), (2, 4, 5)),
    "batch vector": ((2, 3, 4), (4,)),
    "batch batch": ((2, 3, 4), (2, 4, 5)),
    "broadcast batch": ((2, 1, 3, 4), (6, 4, 5)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_matmul(evaluate, name):
    a, b = (RNG.normal(size=shape).astype(np.float32) for shape in PRODUCTS[name])
    found = evaluate(lambda x, y: x @ y, a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)
    if a.ndim <= 2 or b.ndim <= 2:
        np.testing.assert_allclose(evaluate(tp.dot, a, b), np.dot(a, b), rtol=1e-4, atol=1e-5)


def test_other_products(evaluate):
    a, b = CUBE, RNG.normal(size=(4, 3, 5)).astype(np.float32)
    close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)  # noqa: E731
    close(evaluate(lambda x, y: tp.tensordot(x, y, 1), a, b), np.tensordot(a, b, 1))
    close(evaluate(lambda x, y: tp.tensordot(x, y, ([1, 2], [1, 0])), a, b), np.tensordot(a, b, ([1, 2], [1, 0])))
    close(evaluate(lambda x, y: tp.tensordot(x, y, (2, 0)), a, b), np.tensordot(a, b, (2, 0)))
    close(evaluate(tp.outer, X[0], Y[:, 0]), np.outer(X[0], Y[:, 0]))
    close(evaluate(tp.inner, X, Y), np.inner(X, Y))
    close(evaluate(tp.vdot, X, Y), np.vdot(X, Y))
    close(evaluate(lambda x, y: x.dot(y), X, Y.T), X.dot(Y.T))
    close(evaluate(lambda m, n: m @ n, MASK, MASK.T), MASK.astype(int) @ MASK.T.astype(int))


EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bhd,bhsd->bhs", (2, 3, 4), (2, 3, 5, 4)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("ij,ij", (3, 4), (3, 4)),
    ("ij->ji", (3, 4)),
    ("ij", (3, 4)),
    ("ji", (3, 4)),
    ("ij->i", (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("bi,bj,bk->bijk", (2, 3), (2, 4), (2, 5)),
    ("ij,k->k", (2, 3), (4,)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 6, 3, 4), (4, 5)),
    ("...i,...i->...", (3, 4), (2, 3, 4)),
    ("i...,i->...", (3, 4, 2), (3,)),
    ("...ij,...jk", (2, 3, 4), (2, 4, 5)),
    ("ij,ij->ij", (3, 1), (3, 4)),
    (" i j , j -> i ", (3, 4), (4,)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda case: case[0])
def test_einsum(evaluate, case):
    text, *shapes = case
    arrays = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    found = evaluate(lambda *tensors: tp.einsum(text, *tensors), *arrays)
    expected = np.einsum(text, *arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert found.shape == expected.shape


def test_einsum_misuse():
    with tp.Program():
        x = tp.zeros((3, 4))
        for text, operands, message in (
            ("ij,jk->ik", (x,), "names 2 operands"),
            ("ijk->i", (x,), "does not name 2 axes"),
            ("ii->i", (x,), "twice"),
            ("ij->k", (x,), "in no operand"),
            ("ij,jk->ik", (x, x), "both 4 and 3"),
            ("i1->i", (x,), "does not name"),
        ):
            with pytest.raises(ShapeError, match=message):
                tp.einsum(text, *operands)


def test_conv(evaluate):
    x = RNG.normal(size=(2, 3, 8)).astype(np.float32)
    kernel = RNG.normal(size=(4, 3, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    expected = np.stack([(padded[:, None, :, i : i + 3] * kernel).sum((2, 3)) for i in range(0, 8, 2)], -1)
    found = evaluate(lambda a, k: tp.conv(a, k, strides=2, padding=1), x, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_misuse_is_told_at_the_users_line():
    with tp.Program():
        t = tp.dim("t")
        x, y = tp.zeros((3, 4)), tp.zeros((3, 5))
        for use, error in (
            (lambda: x + y, ShapeError),
            (lambda: x @ y, ShapeError),
            (lambda: x.sum(axis=2), ShapeError),
            (lambda: x.sum(axis=(0, 0)), ShapeError),
            (lambda: x.sum(axis=0.5), IndexExpressionError),
            (lambda: x.reshape(5, 5), ShapeError),
            (lambda: x.reshape(-1, -1), ShapeError),
            (lambda: x.reshape(-1, 5), ShapeError),
            (lambda: tp.concatenate([x, y]), ShapeError),
            (lambda: tp.concatenate([]), ShapeError),
            (lambda: tp.concatenate(x), ShapeError),
            (lambda: tp.concatenate([tp.as_tensor(1), 2]), ShapeError),
            (lambda: tp.squeeze(x, 0), ShapeError),
            (lambda: tp.broadcast_to(x, (3, 5)), ShapeError),
            (lambda: tp.transpose(x, (0, 0)), ShapeError),
            (lambda: tp.stack([x, y]), ShapeError),
            (lambda: tp.split(x, 3, axis=1), ShapeError),
            (lambda: tp.split(tp.arange(t), 2), ShapeError),
            (lambda: tp.unstack(tp.arange(t)), ShapeError),
            (lambda: tp.roll(tp.arange(t), 1, 0), ShapeError),
            (lambda: tp.tril(tp.zeros((3,))), ShapeError),
            (lambda: tp.arange(5, step=0), ShapeError),
            (lambda: tp.zeros((2.5,)), IndexExpressionError),
            (lambda: tp.zeros((x,)), IndexExpressionError),
            (lambda: tp.as_tensor(1) @ x, ShapeError),
            (lambda: tp.take(x, tp.ones(2), 0), DTypeError),
            (lambda: tp.take_along_axis(x, tp.arange(3), 0), ShapeError),
            (lambda: tp.one_hot(x, 3), DTypeError),
            (lambda: tp.diagonal(x), ShapeError),
            (lambda: tp.pad(x, ((0, 0), (0, 0), (0, 0))), ShapeError),
            (lambda: tp.conv(x, y), ShapeError),
            (lambda: tp.zeros((2, 3)).var(axis=5), ShapeError),
            (lambda: tp.moveaxis(x, (0, 1), 0), ShapeError),
        ):
            with pytest.raises(error) as caught:
                use()
            assert caught.value.location.path == __file__
            assert caught.value.location.line == use.__code__.co_firstlineno


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_that_of_pytorch(approximate, evaluate):
    torch = pytest.importorskip("torch")
    x = np.linspace(-5, 5, 41)
    wanted = torch.nn.functional.gelu(torch.tensor(x), approximate=approximate).numpy()
    np.testing.assert_allclose(evaluate(lambda x: tp.gelu(x, approximate), x), wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("approximate", ["exact", "", None, 1, 0.0, ("none",)])
def test_gelu_has_no_other_way(approximate):
    with tp.Program():
        x = tp.input("x", (2,))
        with pytest.raises(tp.ProgramError, match="names no way to compute gelu") as caught:
            tp.gelu(x, approximate)
    assert caught.value.location.path == __file__
    assert '"tanh"' in str(caught.value)


@pytest.mark.parametrize("ignored", [-100, 2])
def test_cross_entropy_is_that_of_pytorch(ignored, evaluate):
    torch = pytest.importorskip("torch")
    scores, labels = np.random.default_rng(0).normal(0, 5, (4, 6, 3)), np.arange(12).reshape(4, 3) % 6
    labels[1, 2] = labels[3, 0] = ignored
    given = torch.tensor(scores, requires_grad=True)
    wanted = torch.nn.functional.cross_entropy(given, torch.tensor(labels), reduction="none", ignore_index=ignored)
    wanted.sum().backward()

    def loss(x, classes):
        return tp.cross_entropy(x, classes, axis=1, ignore_index=ignored)

    np.testing.assert_allclose(evaluate(loss, scores, labels), wanted.detach().numpy(), rtol=1e-12)
    found = evaluate(lambda x, classes: tp.grad(loss(x, classes).sum(), x), scores, labels)
    np.testing.assert_allclose(found, given.grad.numpy(), rtol=1e-10, atol=1e-15)


def test_what_cross_entropy_takes(evaluate):
    scores = np.random.default_rng(0).normal(size=(2, 6))
    none_is_ignored = evaluate(lambda x: tp.cross_entropy(x, np.array([3, 5], np.uint8), ignore_index=-100), scores)
    np.testing.assert_allclose(none_is_ignored, evaluate(lambda x: tp.cross_entropy(x, [3, 5]), scores))
    with tp.Program():
        x = tp.input("x", (2, 6))
        assert tp.cross_entropy(x.spatial[0], 3).shape == ()
        with pytest.raises(tp.ShapeError, match=r"labels of shape \(2, 6\)") as caught:
            tp.cross_entropy(x, tp.zeros((2, 6), tp.int32))
        assert "(2,)" in caught.value.hint and caught.value.location.path == __file__
        with pytest.raises(tp.DTypeError, match="float32"):
            tp.cross_entropy(x, np.zeros(2))
        with pytest.raises(tp.ShapeError, match="out of range"):
            tp.cross_entropy(x, [0, 1], axis=2)
        with pytest.raises(tp.IndexExpressionError, match="ignore_index"):
            tp.cross_entropy(x, [0, 1], ignore_index=0.5)
