"""Family 3, composite functions: NumPy's names with NumPy's meaning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers

X, Y = numbers((2, 3, 4)), numbers((2, 3, 4), seed=1)
P = np.abs(X) + 0.25  # positive
U = X / 4  # in [-0.5, 0.5]


def agrees(target: Target, outputs: dict[str, tuple[tp.RecurrentTensor, Any]], program: tp.Program) -> None:
    with program:
        for name, (tensor, _) in outputs.items():
            tp.output(name, tensor)
    inputs: dict[str, Any] = {"x": X, "y": Y, "p": P, "u": U}
    expected = {name: value for name, (_, value) in outputs.items()}
    with np.errstate(all="ignore"):
        target.agrees(program, expected, **inputs, tolerance=8)


def open_program() -> tuple[tp.Program, tp.RecurrentTensor, tp.RecurrentTensor, tp.RecurrentTensor, tp.RecurrentTensor]:
    with tp.Program() as program:
        x, y, p, u = (tp.input(name, X.shape) for name in "xypu")
    return program, x, y, p, u


@pytest.mark.few_configurations
def test_functions_of_one_element(target: Target) -> None:
    program, x, _, p, u = open_program()
    sigmoid = 1 / (1 + np.exp(-X))
    erf = np.vectorize(math.erf)
    with program:
        outputs = {
            "exp": (tp.exp(x), np.exp(X)),
            "exp2": (tp.exp2(x), np.exp2(X)),
            "expm1": (tp.expm1(x), np.expm1(X)),
            "log": (tp.log(p), np.log(P)),
            "log2": (tp.log2(p), np.log2(P)),
            "log10": (tp.log10(p), np.log10(P)),
            "log1p": (tp.log1p(p), np.log1p(P)),
            "sqrt": (tp.sqrt(p), np.sqrt(P)),
            "rsqrt": (tp.rsqrt(p), 1 / np.sqrt(P)),
            "sin": (tp.sin(x), np.sin(X)),
            "cos": (tp.cos(x), np.cos(X)),
            "tan": (tp.tan(u), np.tan(U)),
            "arcsin": (tp.arcsin(u), np.arcsin(U)),
            "arccos": (tp.arccos(u), np.arccos(U)),
            "arctan": (tp.arctan(x), np.arctan(X)),
            "sinh": (tp.sinh(x), np.sinh(X)),
            "cosh": (tp.cosh(x), np.cosh(X)),
            "tanh": (tp.tanh(x), np.tanh(X)),
            "arcsinh": (tp.arcsinh(x), np.arcsinh(X)),
            "arccosh": (tp.arccosh(p + 1), np.arccosh(P + 1)),
            "arctanh": (tp.arctanh(u), np.arctanh(U)),
            "erf": (tp.erf(x), erf(X)),
            "round": (tp.round(x), np.round(X)),
            "trunc": (tp.trunc(x), np.trunc(X)),
            "floor": (tp.floor(x), np.floor(X)),
            "ceil": (tp.ceil(x), np.ceil(X)),
            "square": (tp.square(x), np.square(X)),
            "reciprocal": (tp.reciprocal(p), 1 / P),
            "sign": (tp.sign(x), np.sign(X)),
            "abs": (abs(x), np.abs(X)),
            "clip": (tp.clip(x, -1, 1), np.clip(X, -1, 1)),
            "nan_to_num": (tp.nan_to_num(tp.where(u > 0, x, tp.nan)), np.where(U > 0, X, 0)),
            "relu": (tp.relu(x), np.maximum(X, 0)),
            "sigmoid": (tp.sigmoid(x), sigmoid),
            "silu": (tp.silu(x), X * sigmoid),
            "gelu": (tp.gelu(x), X * 0.5 * (1 + erf(X / math.sqrt(2)))),
            "gelu by tanh": (
                tp.gelu(x, "tanh"),
                X * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))),
            ),
            "elu": (tp.elu(x), np.where(X > 0, X, np.expm1(X))),
            "softplus": (tp.softplus(x), np.log1p(np.exp(X))),
            "log_sigmoid": (tp.log_sigmoid(x), np.log(sigmoid)),
        }
    agrees(target, outputs, program)


@pytest.mark.few_configurations
def test_functions_of_two(target: Target) -> None:
    program, x, y, p, _ = open_program()
    with program:
        outputs = {
            "power": (p**y, P**Y),
            "arctan2": (tp.arctan2(x, y), np.arctan2(X, Y)),
            "hypot": (tp.hypot(x, y), np.hypot(X, Y)),
            "logaddexp": (tp.logaddexp(x, y), np.logaddexp(X, Y)),
            "maximum": (tp.maximum(x, y), np.maximum(X, Y)),
            "minimum": (tp.minimum(x, y), np.minimum(X, Y)),
            "where": (tp.where(x > y, x, y), np.maximum(X, Y)),
            "isclose": (tp.isclose(x, y), np.isclose(X, Y)),
            "equal": (tp.equal(x, y), np.equal(X, Y)),
            "logical": (tp.logical_xor(x > 0, y > 0), (X > 0) ^ (Y > 0)),
            "outer": (tp.outer(x.ravel(), y.reshape((24,))), np.outer(X, Y)),
            "einsum": (tp.einsum("bij,bkj->bik", x, y), np.einsum("bij,bkj->bik", X, Y)),
            "einsum_sum": (tp.einsum("bij,bij->", x, y), np.einsum("bij,bij->", X, Y)),
            "tensordot": (tp.tensordot(x, y, axes=([1, 2], [1, 2])), np.tensordot(X, Y, axes=([1, 2], [1, 2]))),
            "matmul": (x @ tp.swapaxes(y, 1, 2), X @ Y.swapaxes(1, 2)),
            "inner": (tp.inner(x, y), np.inner(X, Y)),
        }
    agrees(target, outputs, program)


@pytest.mark.few_configurations
def test_reductions(target: Target) -> None:
    program, x, _, p, _ = open_program()
    shifted = np.exp(X - X.max(1, keepdims=True))
    softmax = shifted / shifted.sum(1, keepdims=True)
    with program:
        outputs = {
            "sum": (x.sum(), X.sum()),
            "sum_keep": (x.sum(axis=(0, 2), keepdims=True), X.sum((0, 2), keepdims=True)),
            "mean": (x.mean(axis=-1), X.mean(-1)),
            "var": (tp.var(x, axis=1), X.var(1)),
            "std": (tp.std(x, axis=0), X.std(0)),
            "max": (x.max(axis=1), X.max(1)),
            "min": (x.min(), X.min()),
            "prod": (p.prod(axis=2), P.prod(2)),
            "ptp": (tp.ptp(x, axis=2), np.ptp(X, axis=2)),
            "argmax": (x.argmax(axis=2), X.argmax(2)),
            "argmin": (x.argmin(axis=0), X.argmin(0)),
            "count": (tp.count_nonzero(x, axis=1), np.count_nonzero(X, axis=1)),
            "any": (tp.any(x > 1.5, axis=2), (X > 1.5).any(2)),
            "all": (tp.all(x > -1.5, axis=2), (X > -1.5).all(2)),
            "cumsum": (tp.cumsum(x, axis=1), X.cumsum(1)),
            "cumprod": (tp.cumprod(x, axis=1), X.cumprod(1)),
            "sort": (tp.sort(x, axis=1), np.sort(X, axis=1)),
            "top": (tp.top_k(x, 2).values, -np.sort(-X, axis=-1)[..., :2]),
            "top_at": (tp.top_k(x, 2, axis=1).indices, np.argsort(-X, axis=1, kind="stable")[:, :2]),
            "argsort": (tp.argsort(x, axis=2), np.argsort(X, axis=2, kind="stable")),
            "softmax": (tp.softmax(x, axis=1), softmax),
            "log_softmax": (tp.log_softmax(x, axis=1), np.log(softmax)),
            "logsumexp": (tp.logsumexp(x, axis=1), np.log(np.exp(X).sum(1))),
            "huge": (tp.logsumexp(x * 0 + 300.0, axis=1), 300 + np.log(np.full((2, 4), 3.0))),
        }
    agrees(target, outputs, program)


@pytest.mark.few_configurations
def test_linear_algebra(target: Target) -> None:
    """Each at its points; what has no answer is not finite, and the other matrices of its batch have theirs."""
    random = np.random.default_rng(0)
    a = (random.standard_normal((4, 2, 3, 3)) + 3 * np.eye(3)).astype(np.float32)
    a[1, 0] = 1.0
    b = random.standard_normal((4, 3, 2)).astype(np.float32)
    with tp.Program() as program:
        t = tp.dim("t", 4)
        x, y = tp.input("a", a.shape[1:], (t,)), tp.input("b", b.shape[1:], (t,))
        tp.output("solved", tp.linalg.solve(x, y))
        tp.output("vector", tp.linalg.solve(x, y.spatial[:, 0]))
        tp.output("inverse", tp.linalg.inv(x[0]))
        tp.output("factor", tp.linalg.cholesky(x @ tp.swapaxes(x, -1, -2)))
        tp.output("indefinite", tp.linalg.cholesky(x - 9 * tp.eye(3)))
        tp.output("volume", tp.linalg.det(x))
    out = target.arrays(target.compile(program)(a=a, b=b))
    singular = np.zeros((4, 2), bool)
    singular[1, 0] = True
    expected = np.linalg.solve(a[~singular], np.broadcast_to(b[:, None], (4, 2, 3, 2))[~singular])
    np.testing.assert_allclose(out["solved"][~singular], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out["vector"][~singular], expected[..., 0], rtol=1e-4, atol=1e-4)
    assert not np.isfinite(out["solved"][singular]).all()
    np.testing.assert_allclose(out["inverse"], np.linalg.inv(a[0]), rtol=1e-4, atol=1e-4)
    product = out["factor"] @ np.swapaxes(out["factor"], -1, -2)
    np.testing.assert_allclose(product[~singular], (a @ np.swapaxes(a, -1, -2))[~singular], rtol=1e-4, atol=1e-3)
    assert np.array_equal(out["factor"][~singular], np.tril(out["factor"])[~singular])
    assert np.isnan(out["indefinite"]).any(axis=(-1, -2)).all()
    np.testing.assert_allclose(out["volume"], np.linalg.det(a), rtol=1e-4, atol=1e-4)


@pytest.mark.few_configurations
def test_movement(target: Target) -> None:
    program, x, y, _, _ = open_program()
    padding = ((0, 0), (1, 0), (0, 2))
    with program:
        outputs = {
            "reshape": (x.reshape((4, -1)), X.reshape(4, -1)),
            "transpose": (x.transpose((2, 0, 1)), X.transpose(2, 0, 1)),
            "moveaxis": (tp.moveaxis(x, 0, 2), np.moveaxis(X, 0, 2)),
            "expand": (tp.expand_dims(x, 1), np.expand_dims(X, 1)),
            "squeeze": (tp.squeeze(tp.expand_dims(x, 0), 0), X),
            "broadcast": (tp.broadcast_to(x, (5, 2, 3, 4)), np.broadcast_to(X, (5, 2, 3, 4))),
            "concatenate": (tp.concatenate([x, y], axis=1), np.concatenate([X, Y], axis=1)),
            "stack": (tp.stack([x, y], axis=-1), np.stack([X, Y], axis=-1)),
            "split": (tp.split(x, 2, axis=2)[1], np.split(X, 2, axis=2)[1]),
            "flip": (tp.flip(x, axis=(0, 2)), np.flip(X, (0, 2))),
            "roll": (tp.roll(x, 1, axis=2), np.roll(X, 1, axis=2)),
            "repeat": (tp.repeat(x, 2, axis=1), np.repeat(X, 2, axis=1)),
            "tile": (tp.tile(x, (1, 2, 1)), np.tile(X, (1, 2, 1))),
            "pad": (tp.pad(x, padding), np.pad(X, padding)),
            "ravel": (tp.ravel(x), X.ravel()),
            "tril": (tp.tril(x), np.tril(X)),
            "triu": (tp.triu(x, 1), np.triu(X, 1)),
            "diagonal": (tp.diagonal(x.spatial[:, :2]), X[[0, 1], [0, 1]]),
            "take": (tp.take(x, tp.constant(np.array([2, 0], np.int32)), axis=1), X[:, [2, 0]]),
            "along": (
                tp.take_along_axis(x, tp.argsort(x, axis=2), axis=2),
                np.sort(X, axis=2),
            ),
            "spatial": (x.spatial[1, ::-1, 1:3], X[1, ::-1, 1:3]),
        }
    agrees(target, outputs, program)


@pytest.mark.few_configurations
def test_creation(target: Target) -> None:
    program, x, _, _, _ = open_program()
    with program:
        labels = tp.constant(np.array([0, 2, 1], np.int32))
        outputs = {
            "zeros": (tp.zeros((2, 3)), np.zeros((2, 3))),
            "ones": (tp.ones((2,), dtype=tp.int8), np.ones(2)),
            "full": (tp.full((2,), 2.5), np.full(2, 2.5)),
            "arange": (tp.arange(5), np.arange(5)),
            "eye": (tp.eye(3), np.eye(3)),
            "linspace": (tp.linspace(0.0, 1.0, 5), np.linspace(0, 1, 5)),
            "one_hot": (tp.one_hot(labels, 3), np.eye(3)[[0, 2, 1]]),
            "like": (tp.zeros_like(x) + tp.ones_like(x), np.ones_like(X)),
            "constant": (tp.constant([[1.0, tp.nan], [tp.inf, -0.0]]), [[1, np.nan], [np.inf, 0]]),
        }
    agrees(target, outputs, program)


def losses(scores: Any, labels: Any, ignored: int | None) -> tuple[Any, Any]:
    """The cross entropies with the classes in the last axis, and their gradient; 0 where a label is ignored."""
    known = labels != ignored if ignored is not None else np.full(labels.shape, True)
    finite = np.where(known[..., None], scores, 0).astype(np.float64)
    from_largest = finite - finite.max(axis=-1, keepdims=True)
    logs = from_largest - np.log(np.exp(from_largest).sum(axis=-1, keepdims=True))
    at = np.where(known, labels, 0)[..., None]
    chosen = np.take_along_axis(logs, at, axis=-1)[..., 0]
    gradient = np.exp(logs) - (np.arange(scores.shape[-1]) == at)
    return np.where(known, -chosen, 0), np.where(known[..., None], gradient, 0)


@pytest.mark.few_configurations
@pytest.mark.parametrize("ignored", [None, -100, 1])
def test_cross_entropy(target: Target, ignored: int | None) -> None:
    """At every point of a dim, along the last axis and along another; far from 0; ignored where logits are NaN."""
    scores = 4 * numbers((5, 3, 6))
    scores[1, 0] = [1e4, 1e4 - 1, -1e4, 0, 3, -np.inf]
    labels = np.arange(15, dtype=np.int32).reshape(5, 3) % 5
    if ignored is not None:
        labels[2, 1] = labels[4, 2] = ignored
        scores[2, 1] = np.nan
    with tp.Program() as program:
        t = tp.dim("t", 5)
        x, classes = tp.input("x", (3, 6), (t,)), tp.input("classes", (3,), (t,), dtype=tp.int32)
        loss = tp.cross_entropy(x, classes, ignore_index=ignored)
        tp.output("loss", loss)
        tp.output("gradient", tp.grad(loss.sum(), x))
        turned = tp.cross_entropy(x.T, classes, axis=0, ignore_index=ignored)
        tp.output("turned", turned)
        tp.output("scaled", tp.grad((turned * (t + 1)).sum(), x))
    value, gradient = losses(scores, labels, ignored)
    weights = np.arange(1, 6)[:, None, None]
    expected = {"loss": value, "turned": value, "gradient": gradient, "scaled": gradient * weights}
    target.agrees(program, expected, x=scores, classes=labels, tolerance=8)


@pytest.mark.one_configuration
@pytest.mark.parametrize("label", [-1, 6, -100])
@pytest.mark.one_process
def test_cross_entropy_at_no_class(target: Target, label: int) -> None:
    with tp.Program() as program:
        t = tp.dim("t", 2)
        x, classes = tp.input("x", (3, 6), (t,)), tp.input("classes", (3,), (t,), dtype=tp.int32)
        tp.output("loss", tp.cross_entropy(x, classes, ignore_index=7))
    labels = np.array([[0, 5, 7], [1, label, 2]])
    with pytest.raises(tp.IndexOutOfRangeError, match=str(label)):
        target.compile(program, checks=True)(x=numbers((2, 3, 6)), classes=labels)
