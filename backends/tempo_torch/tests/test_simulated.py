"""The device that is not there: what CUDA would refuse, and what a loop would wait for, is found; all else agrees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tempo_torch.backend import TorchBackend
from tempo_torch.simulated import RefusedError, is_on_cuda, launches

import tempo as tp


def looped(step: Callable[[torch.Tensor], torch.Tensor]) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t", 5)
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = tp.ones((3,))
        (made,) = tp.backend_call(step, h, out=[((3,), tp.float32)], backend="torch")
        h[t + 1] = made * 2
        tp.output("h", h)
    return program


def run(step: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    backend = TorchBackend().without_device("cuda")
    return backend.to_host(tp.compile(looped(step), backend)()["h"])


def refused(step: Callable[[torch.Tensor], torch.Tensor]) -> str:
    with pytest.raises(Exception) as caught:
        run(step)
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, RefusedError):
        error = error.__cause__ or error.__context__
    assert error is not None, caught.value
    return str(error)


def test_a_program_runs_as_on_the_cpu() -> None:
    assert run(lambda h: h + 1).tolist() == [[1] * 3, [4] * 3, [10] * 3, [22] * 3, [46] * 3]


def test_tensors_say_that_they_are_elsewhere() -> None:
    seen = []
    run(lambda h: (seen.append((h.is_cpu, torch.ones(3, device=h.device).is_cpu)), h)[1])
    assert set(seen) == {(False, False)}


def test_a_constant_of_the_cpu_is_found() -> None:
    constant = torch.ones(3)
    assert "tensors of the device and of the CPU (torch.float32[3])" in refused(lambda h: h + constant)


@pytest.mark.parametrize(
    "waiting",
    [
        lambda h: h * h.sum().item(),
        lambda h: h if h.sum() > 0 else -h,
        lambda h: h.cpu().to(h.device),
        lambda h: h.sum() + h[h > 0].sum() + h,
        lambda h: h + torch.nonzero(h).sum(),
    ],
    ids=["item", "bool", "cpu", "mask", "nonzero"],
)
def test_waiting_in_a_loop_is_found(waiting: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert "waits for the device in a loop" in refused(waiting)


def test_an_operator_that_cuda_lacks_is_found() -> None:
    assert "CUDA has no such operator" in refused(lambda h: torch.histogram(h, 3).hist)
    assert not is_on_cuda(torch.ops.aten.histogram.bin_ct)
    for operator in (torch.ops.aten.add.Tensor, torch.ops.aten.mm.default, torch.ops.aten.reshape.default):
        assert is_on_cuda(operator)


def test_products_of_integers_are_found() -> None:
    assert "CUDA has none of torch.int32" in refused(lambda h: torch.dot(h.int(), h.int()) + h)


@pytest.mark.parametrize(
    "operator",
    [
        lambda x: x * x,
        lambda x: x ^ x,
        lambda x: x[torch.tensor([0], device=x.device)],
        lambda x: x.long().sum(dtype=x.dtype),
    ],
    ids=["mul", "xor", "index", "dtype"],
)
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_what_cuda_lacks_for_unsigned_integers_is_found(
    operator: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    assert f"CUDA has none of {dtype}" in refused(lambda h: operator(h.to(dtype)).float() + h)


def test_what_cuda_has_for_unsigned_integers_is_let_by() -> None:
    def step(h: torch.Tensor) -> torch.Tensor:
        x = torch.cat([h.to(torch.uint16), torch.full((1,), 7, dtype=torch.uint16, device=h.device)])
        return torch.where(x[:3] == x.clone()[:3], h + 1, h)

    assert run(step).tolist() == run(lambda h: h + 1).tolist()


def test_launches_in_loops_are_counted() -> None:
    launches.clear()
    run(lambda h: torch.tanh(h) + 1)
    assert launches["tanh"] == 4
    assert launches["add"] == 4
