"""Programs as modules of PyTorch's: gradients are those that PyTorch has of the same, written in it."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import numpy as np
import pytest
import tempo_torch
import torch
from tempo_torch.backend import TorchBackend
from tempo_torch.modules import TempoModule

import tempo as tp

DOUBLE = torch.float64


def drawn(shape: Any, dims: Any, dtype: str) -> tp.RecurrentTensor:
    return tp.random.normal(shape, dims=dims, dtype=dtype) * 0.5


def lstm(width: int = 4, inner: int = 3, dtype: str = "float64") -> tp.Program:
    with tp.Program("lstm") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (inner,), (b, t), dtype)
        w, u = (
            tp.parameter(name, (size, 4 * width), drawn, dtype=dtype) for name, size in (("w", inner), ("u", width))
        )
        bias = tp.parameter("bias", (4 * width,), drawn, dtype=dtype)
        h, c = (tp.recurrent(name, (width,), (b, t), dtype) for name in "hc")
        before, kept = (tp.cases((t == 0, tp.zeros((width,), dtype)), each[b, t - 1]) for each in (h, c))
        gates = x @ w + before @ u + bias
        i, f, o, z = (gates.spatial[k * width : (k + 1) * width] for k in range(4))
        c[b, t] = tp.sigmoid(f) * kept + tp.sigmoid(i) * tp.tanh(z)
        h[b, t] = tp.sigmoid(o) * tp.tanh(c)
        tp.output("h", h)
        tp.output("last", c[b, t.size - 1])
    return program


def lstm_by_hand(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
    h = c = x.new_zeros(len(x), len(u))
    states = []
    for t in range(x.shape[1]):
        i, f, o, z = (x[:, t] @ w + h @ u + bias).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return [torch.stack(states, 1), c]


def attention(width: int = 4, dropout: bool = False) -> tp.Program:
    with tp.Program("attention") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (width,), (b, t), "float64")
        q, k, v = (x @ tp.parameter(f"heads.{name}", (width, width), drawn, dtype="float64") for name in "qkv")
        weights = tp.softmax(k[b, 0 : t + 1] @ q / math.sqrt(width), axis=0)
        y = weights @ v[b, 0 : t + 1]
        if dropout:
            y = y * tp.random.bernoulli(0.5, (width,), dims=(b, t)).astype("float64")
        tp.output("y", y)
    return program


def gradients(loss: torch.Tensor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, tensors))


def assert_close(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [1, 7])
def test_an_lstm_over_time(length: int) -> None:
    module = tempo_torch.module(lstm())
    x = torch.randn(2, length, 3, dtype=DOUBLE, requires_grad=True)
    cotangents = [torch.randn(2, length, 4, dtype=DOUBLE), torch.randn(2, 4, dtype=DOUBLE)]
    tensors = [x, *(module.get_parameter(name) for name in ("w", "u", "bias"))]
    found, wanted = list(module(x=x).values()), lstm_by_hand(*tensors)
    assert_close(found, wanted)
    losses = [sum((each * c).sum() for each, c in zip(made, cotangents, strict=True)) for made in (found, wanted)]
    assert_close(gradients(losses[0], tensors), gradients(losses[1], tensors))


def test_causal_attention() -> None:
    module = tempo_torch.module(attention())
    assert sorted(module.state_dict()) == ["heads.k", "heads.q", "heads.v"]
    x = torch.randn(2, 9, 4, dtype=DOUBLE, requires_grad=True)
    weights = [module.get_parameter(f"heads.{name}") for name in "qkv"]
    q, k, v = (x @ each for each in weights)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    found, cotangent = module(x=x), torch.randn(2, 9, 4, dtype=DOUBLE)
    assert_close([found], [wanted])
    tensors = [x, *weights]
    assert_close(gradients((found * cotangent).sum(), tensors), gradients((wanted * cotangent).sum(), tensors))


def test_single_precision_is_relatively_as_exact() -> None:
    module = tempo_torch.module(lstm(dtype="float32"), "last")
    x = torch.randn(2, 5, 3, requires_grad=True)
    tensors = [x, module.w, module.u, module.bias]
    found = gradients((module(x=x) ** 2).sum(), tensors)
    wide = [each.detach().double().requires_grad_() for each in tensors]
    wanted = gradients((lstm_by_hand(*wide)[1] ** 2).sum(), wide)
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine - theirs).abs().max() <= 1e-6 * max(theirs.abs().max(), 1)


def test_draws_are_those_of_the_seed_in_both_directions() -> None:
    module = tempo_torch.module(attention(dropout=True))
    x = torch.randn(1, 3, 4, dtype=DOUBLE, requires_grad=True)
    assert torch.equal(module(x=x, seed=1), module(x=x, seed=1))
    assert not torch.equal(module(x=x, seed=1), module(x=x, seed=2))
    assert torch.autograd.gradcheck(lambda x: module(x=x, seed=3), (x,))


def test_a_training_loop_learns() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 1)
    layer = tempo_torch.module(lstm(8, 2, "float32"), "last")
    model = torch.nn.ModuleDict({"layer": layer, "head": head})
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    assert len(list(model.parameters())) == 5
    losses = []
    for _ in range(60):
        x = torch.rand(32, 6, 2)
        target = x[..., 0].sum(1, keepdim=True) - x[:, -1, 1:]
        loss = torch.nn.functional.mse_loss(head(layer(x=x)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.2 * np.mean(losses[:3])


def scaled() -> tp.Program:
    with tp.Program("scaled") as program:
        b = tp.dim("b")
        x = tp.input("x", (3,), (b,))
        tp.input("unused", (2,))
        w, count = tp.parameter("w", (3,), [1.0, 2.0, 3.0]), tp.parameter("count", (), 2, dtype="int32")
        y = x * w
        tp.output("y", y)
        tp.output("same", y)
        tp.output("best", y.argmax(axis=0) + count)
    return program


def test_several_outputs_and_what_has_no_gradient() -> None:
    module = tempo_torch.module(scaled())
    assert [name for name, _ in module.named_parameters()] == ["w"]
    assert [name for name, _ in module.named_buffers()] == ["count"]
    x, unused = torch.ones(2, 3, requires_grad=True), torch.zeros(2, requires_grad=True)
    outputs = module(x=x, unused=unused)
    assert not outputs["best"].requires_grad
    assert outputs["best"].tolist() == [4, 4]
    (outputs["y"].sum() + 2 * outputs["same"].sum()).backward()
    assert x.grad.tolist() == [[3, 6, 9]] * 2
    assert unused.grad.tolist() == [0, 0]
    assert module.w.grad.tolist() == [6, 6, 6]
    only = tempo_torch.module(scaled(), ["same"])(x=x, unused=unused)
    assert list(only) == ["same"]


def test_only_what_is_asked_for_is_made() -> None:
    module = tempo_torch.module(lstm(), "last")
    module.w.requires_grad_(False)
    x = torch.randn(2, 5, 3, dtype=DOUBLE)
    module(x=x).sum().backward()
    assert module.w.grad is None
    assert module.u.grad is not None
    (reverse,) = module._compiled.values()
    assert {*reverse._pairs} == {frozenset(), frozenset({"u", "bias"})}
    with torch.no_grad():
        assert not module(x=x).requires_grad


def test_tensors_are_not_copied_on_their_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tempo_torch.module(lstm(), "h")
    x = torch.randn(2, 5, 3, dtype=DOUBLE, requires_grad=True)
    seen = []
    from_host = TorchBackend.from_host

    def looked(self: TorchBackend, array: Any) -> torch.Tensor:
        made = from_host(self, array)
        seen.append((array, made))
        return made

    monkeypatch.setattr(TorchBackend, "from_host", looked)
    monkeypatch.setattr(TorchBackend, "to_host", lambda self, array: pytest.fail("a tensor is taken to the host"))
    module(x=x).sum().backward()
    large = [(array, made) for array, made in seen if array.ndim]
    assert x.data_ptr() in [array.data_ptr() for array, _ in large]
    assert all(array.data_ptr() == made.data_ptr() for array, made in large)


def test_a_module_is_one_of_pytorchs() -> None:
    module = tempo_torch.module(lstm(), "last")
    x = torch.randn(2, 5, 3, dtype=DOUBLE)
    wanted = module(x=x)
    other = tempo_torch.module(lstm(), "last")
    other.load_state_dict({name: 2 * value for name, value in module.state_dict().items()})
    assert not torch.equal(other(x=x), wanted)
    assert torch.equal(copy.deepcopy(module)(x=x), wanted)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    read = torch.load(file, weights_only=False)
    assert isinstance(read, TempoModule)
    assert torch.equal(read(x=x), wanted)
    assert "lstm" in repr(torch.nn.Sequential(module))


def test_a_cast_is_differentiated() -> None:
    module = tempo_torch.module(lstm(dtype="float32"), "last").double()
    x = torch.randn(2, 5, 3, dtype=DOUBLE, requires_grad=True)
    module(x=x).sum().backward()
    assert x.grad.dtype == module.w.grad.dtype == DOUBLE


def test_parameters_of_halves() -> None:
    with tp.Program() as program:
        x = tp.input("x", (3,), (tp.dim("b"),), "bfloat16")
        tp.output("y", x * tp.parameter("w", (3,), 2.0, dtype="bfloat16"))
    module = tempo_torch.module(program)
    module(x=torch.ones(2, 3, dtype=torch.bfloat16)).sum().backward()
    assert module.w.dtype == torch.bfloat16
    assert module.w.grad.tolist() == [2, 2, 2]


def test_a_second_derivative_is_refused() -> None:
    module = tempo_torch.module(lstm(), "last")
    x = torch.randn(2, 5, 3, dtype=DOUBLE, requires_grad=True)
    (slope,) = torch.autograd.grad(module(x=x).sum(), x, create_graph=True)
    with pytest.raises(tp.UnsupportedError, match="second derivative") as caught:
        slope.sum().backward()  # here
    assert caught.value.location.path == __file__


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"x": None}, tp.InputError),
        ({"y": torch.ones(2)}, tp.InputError),
        ({"x": torch.ones(2, 5, 4, dtype=DOUBLE)}, tp.InputError),
        ({"x": torch.ones(2, 3, dtype=DOUBLE)}, tp.InputError),
        ({"x": torch.ones(2, 5, 3, dtype=torch.int32)}, tp.DTypeError),
        ({"w": torch.ones(3, 16, dtype=DOUBLE)}, tp.InputError),
        ({"seed": -1}, tp.InputError),
        ({"seed": "one"}, tp.InputError),
    ],
)
def test_calls_that_do_not_fit(changed: dict[str, Any], error: type[tp.TempoError]) -> None:
    module = tempo_torch.module(lstm())
    given = {"x": torch.ones(2, 5, 3, dtype=DOUBLE), **changed}
    with pytest.raises(error) as caught:
        module(**{name: value for name, value in given.items() if value is not None})
    assert caught.value.location.path == __file__


def test_what_is_refused_is_refused_when_a_module_is_made() -> None:
    with tp.Program() as program:
        i = tp.dim("i", 3)
        w = tp.parameter("w", (), 1.0, (i,))
        w[i + 1] = w * 0.5
        tp.output("w", w)
    with pytest.raises(tp.UnsupportedError, match="updated by cases") as caught:
        tempo_torch.module(program)
    assert "w[i + 1]" in caught.value.location.text
    with tp.Program() as named:
        tp.output("y", tp.parameter("training", (), 1.0) + tp.input("x", ()))
    with pytest.raises(tp.ProgramError, match="'training'"):
        tempo_torch.module(named)
    with pytest.raises(tp.UnsupportedError, match="xla"):
        tempo_torch.module(lstm(), device="xla")
