"""The backend's contract: arrays in and out, windows, devices, the descriptor."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import torch
from tempo_torch.arrays import clamped, from_host, to_host, wrapped
from tempo_torch.backend import TorchBackend

import tempo as tp
from tempo import dtypes
from tempo.backends.numpy import backend as meaning

CPU = torch.device("cpu")


def doubled(dtype: str = "float32") -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,), dtype=dtype)
        tp.output("y", x * 2)
        tp.output("last", x[t.size - 1])
    return program


def test_listing_backends_does_not_import_torch():
    code = """
import sys
from tempo.plugins.manager import list_backends
assert "torch" in {listing.name for listing in list_backends()}
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_a_run_returns_are_ordinary_tensors():
    outputs = tp.compile(doubled(), backend="torch")(x=np.ones((3, 2), np.float32))
    weight = torch.ones(2, requires_grad=True)
    for name in ("y", "last"):
        assert isinstance(outputs[name], torch.Tensor)
        (outputs[name] * weight).sum().backward()  # an inference tensor could not be used here
    assert weight.grad is not None


@pytest.mark.parametrize("dtype", dtypes.DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_arrays_are_shared_with_numpy(shape: tuple[int, ...], dtype: str):
    array = np.ones(shape, dtypes.to_numpy(dtype))
    tensor = from_host(array, CPU)
    assert str(tensor.dtype) == f"torch.{dtype}"
    back = to_host(tensor)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    assert array.size == 0 or np.shares_memory(back, array)


def test_a_read_only_array_is_taken_without_a_copy_and_without_a_warning():
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = from_host(array, CPU)
    assert np.shares_memory(to_host(tensor), array)


def test_an_array_with_strides_that_torch_has_not_is_copied():
    array = np.arange(6.0).reshape(2, 3)[::-1, ::-1]
    np.testing.assert_array_equal(to_host(from_host(array, CPU)), array)
    records = np.zeros(3, [("a", np.int8), ("b", np.float32)])
    records["b"] = [1, 2, 3]
    np.testing.assert_array_equal(to_host(from_host(records["b"], CPU)), [1, 2, 3])


def test_tensors_go_in_without_a_copy_and_are_not_written_to():
    x = torch.arange(6, dtype=torch.float32).reshape(3, 2)
    outputs = tp.compile(doubled(), backend="torch")(x=x)
    torch.testing.assert_close(outputs["y"], x * 2)
    outputs["last"].fill_(-1)
    assert x[-1].tolist() == [4, 5]


def test_bfloat16_from_end_to_end():
    x = np.array([[1.0, 2.5]], ml_dtypes.bfloat16)
    outputs = tp.compile(doubled("bfloat16"), backend="torch")(x=x)
    assert outputs["y"].dtype == torch.bfloat16
    np.testing.assert_array_equal(to_host(outputs["y"]), x * 2)


@pytest.mark.parametrize("start", [-3, -1, 0, 1, 4, 5, 9])
@pytest.mark.parametrize("extent", [0, 1, 3])
def test_windows_are_numpys(start: int, extent: int):
    array = np.arange(15).reshape(3, 5)
    for ours, numpys in ((clamped, meaning.clamped), (wrapped, meaning.wrapped)):
        expected = numpys(array, 1, start, extent)
        np.testing.assert_array_equal(to_host(ours(from_host(array, CPU), 1, start, extent)), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "uint32", "uint64", "int8"])
def test_allocating_with_a_value(dtype: str):
    fill = 1 if dtype == "bool" else 5
    made = TorchBackend().allocate((2, 3), dtype, fill)
    np.testing.assert_array_equal(to_host(made).astype(np.float64), np.full((2, 3), float(fill)))
    assert TorchBackend().allocate((2, 3), dtype).dtype == made.dtype


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(tp.UnsupportedError, match="does not run on 'tpu'"):
        tp.compile(doubled(), backend="torch", device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(tp.UnsupportedError, match="finds no CUDA device"):
            tp.compile(doubled(), backend="torch", device="cuda")
    assert tp.compile(doubled(), backend="torch", device="cpu")(x=np.ones((1, 2)))["y"].device == CPU


def test_an_executable_may_run_in_several_threads():
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(8,), dims=(t,))
        s = tp.recurrent("s", shape=(8,), dims=(t,))
        s[0] = x
        s[t + 1] = tp.tanh(s * 0.5 + x[t + 1])
        tp.output("s", s)
    run = tp.compile(program, backend="torch")
    inputs = [np.random.default_rng(seed).normal(size=(50, 8)).astype(np.float32) for seed in range(8)]
    expected = [to_host(run(x=x)["s"]) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: to_host(run(x=x)["s"]), inputs))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tracebacks_and_explain_show_the_generated_source():
    run = tp.compile(doubled(), backend="torch", sizes={"t": 3})
    assert "def segment_0" in run.explain("all")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_of_the_dtype_go_in_as_they_are(dtype: str):
    """Also those that NumPy has no view of: bfloat16, and what autograd follows."""
    x = torch.ones((3, 2), dtype=getattr(torch, dtype), requires_grad=True)
    outputs = tp.compile(doubled(dtype), backend="torch")(x=x)
    assert not outputs["y"].requires_grad
    assert outputs["y"].tolist() == [[2, 2]] * 3


def test_a_state_in_bfloat16_goes_on():
    with tp.Program() as program:
        i = tp.dim("i", 3)
        w = tp.parameter("w", (2,), init=np.ones(2, ml_dtypes.bfloat16), dims=(i,), dtype="bfloat16")
        w[i + 1] = w * 2
        tp.output("w", w)
    run = tp.compile(program, backend="torch")
    assert run(state=run().state).state["w"].tolist() == [16, 16]


def test_a_tensor_of_another_kind_is_refused():
    with pytest.raises(tp.DTypeError, match="another kind"):
        tp.compile(doubled(), backend="torch")(x=torch.ones((3, 2), dtype=torch.int32))
    with pytest.raises(tp.TempoError):
        tp.compile(doubled(), backend="torch")(x=torch.ones((3, 2), dtype=torch.complex64))
