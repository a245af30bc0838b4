"""Whole models against PyTorch and JAX: the same arithmetic, differentiated by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.passes.manager import PassContext
from tempo.passes.simplify.simplify import Canonicalize, Simplify
from tests.unit.autodiff.differences import numbers

F = tp.float64
Made = tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]


def weights(*shapes: tuple[str, tuple[int, ...]]) -> dict[str, tp.RecurrentTensor]:
    return {name: tp.input(name, shape=shape, dims=(), dtype=F) for name, shape in shapes}


def lstm() -> Made:
    t = tp.dim("t")
    x = tp.input("x", shape=(4, 3), dims=(t,), dtype=F)
    w = weights(("w", (3, 8)), ("u", (2, 8)), ("b", (8,)))
    h = tp.recurrent("h", shape=(4, 2), dims=(t,), dtype=F)
    c = tp.recurrent("c", shape=(4, 2), dims=(t,), dtype=F)
    z = x[t + 1] @ w["w"] + h @ w["u"] + w["b"]
    i, f, g, o = (z.spatial[:, 2 * k : 2 * k + 2] for k in range(4))
    h[0] = tp.zeros((4, 2), dtype=F)
    c[0] = tp.zeros((4, 2), dtype=F)
    c[t + 1] = tp.sigmoid(f) * c + tp.sigmoid(i) * tp.tanh(g)
    h[t + 1] = tp.sigmoid(o) * tp.tanh(c[t + 1])
    return (h**2).mean(), w


def attention() -> Made:
    t = tp.dim("t")
    x = tp.input("x", shape=(4,), dims=(t,), dtype=F)
    w = weights(*((name, (4, 4)) for name in "qkvo"))
    q, k, v = ((x @ w[name]).reshape(2, 2) for name in "qkv")
    scores = tp.einsum("thd,hd->ht", k[0 : t + 1], q) / 2.0
    y = tp.einsum("ht,thd->hd", tp.softmax(scores, axis=-1), v[0 : t + 1])
    return ((x + y.reshape(4) @ w["o"]) ** 2).mean(), w


def lstm_in_torch(x: Any, w: Any, u: Any, b: Any) -> Any:
    import torch

    h = c = torch.zeros(4, 2, dtype=torch.float64)
    loss = (h**2).mean()
    for row in x[1:]:
        i, f, g, o = (row @ w + h @ u + b).split(2, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        loss = loss + (h**2).mean()
    return loss


def attention_in_torch(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    import torch

    heads = [(x @ each).reshape(-1, 2, 2).transpose(0, 1) for each in (q, k, v)]
    scores = heads[0] @ heads[1].transpose(1, 2) / 2
    seen = torch.tril(torch.ones(len(x), len(x), dtype=torch.bool))
    y = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1) @ heads[2]
    return ((x + y.transpose(0, 1).reshape(-1, 4) @ o) ** 2).mean(dim=1).sum()


MODELS: dict[str, tuple[Callable[[], Made], Callable[..., Any], np.ndarray]] = {
    "lstm": (lstm, lstm_in_torch, numbers(6, 4, 3)),
    "attention": (attention, attention_in_torch, numbers(6, 4)),
}


def compiled(make: Callable[[], Made], gradients: bool) -> tp.Program:
    with tp.Program("model") as program:
        loss, w = make()
        tp.output("loss", loss)
        for name, gradient in tp.grad(loss, w).items() if gradients else ():
            tp.output(name, gradient)
    return program


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_torch(name: str, backend: str):
    torch = pytest.importorskip("torch")
    pytest.importorskip(f"tempo_{backend}" if backend != "numpy" else "tempo")
    make, model, x = MODELS[name]
    program = compiled(make, gradients=True)
    shapes = {node.name: node.shape for node in program.graph().nodes.values() if node.op == "input"}
    arrays = {
        key: numbers(*(size.as_int() for size in shape), seed=len(key) + ord(key[0]))
        for key, shape in shapes.items()
        if key != "x"
    }
    found = tp.compile(program, backend=backend)(x=x, **arrays)
    tensors = {key: torch.tensor(array, requires_grad=True) for key, array in arrays.items()}
    model(torch.tensor(x), **tensors).backward()
    for key, tensor in tensors.items():
        np.testing.assert_allclose(np.asarray(found[key]), tensor.grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_computes_the_forward_pass_once(name: str):
    """With what it adds it has at most four times the operators, and each transcendental of the loss only once."""
    counts = []
    for gradients in (False, True):
        graph = compiled(MODELS[name][0], gradients).graph()
        graph = Simplify().apply(Canonicalize().apply(graph, PassContext()), PassContext())
        ops = [node.op for node in graph.nodes.values() if node.op not in ("constant", "input", "broadcast")]
        counts.append((len(ops), sum(op in ("tanh", "logistic", "exp") for op in ops)))
    (before, functions), (after, functions_after) = counts
    assert functions == functions_after
    assert after <= 4 * before
