"""Matrices that a loop multiplies by are laid out for oneDNN once, where that pays."""

from __future__ import annotations

import copy
import ctypes
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.backend import TorchBackend
from tempo_torch.operators import packing

import tempo as tp

pytestmark = pytest.mark.skipif(not packing._HAS_ONEDNN, reason="this PyTorch has no oneDNN")
WIDTH, ROWS = 512, 4
DRAW = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def on_a_processor_for_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "is_for_mkl", lambda: True)


@pytest.fixture
def where_all_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that MKL has no code for: products of one row of float32 gain by a packed matrix, too."""
    monkeypatch.setattr(packing, "is_for_mkl", lambda: False)
    monkeypatch.setattr(packing, "_HAS_MKL", True)


def recurrence(turned: bool, dims: int) -> tp.Program:
    """Rows by a matrix, or each layer's own, as it is or transposed."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (ROWS, WIDTH), (t,))
        if dims == 1:
            w = tp.input("w", (WIDTH, WIDTH))
            h = tp.recurrent("h", (ROWS, WIDTH), (t,))
            h[0] = x
            h[t + 1] = tp.tanh(h @ (w.T if turned else w)) + x[t + 1]
            tp.output("last", h[t.size - 1])
            return program
        layer = tp.dim("l")
        w = tp.input("w", (WIDTH, WIDTH), (layer,))
        h = tp.recurrent("h", (ROWS, WIDTH), (t, layer))
        h[t, 0] = x + tp.cases((t > 0, h[t - 1, layer.size - 1]), 0.0)
        h[t, layer + 1] = tp.tanh(h @ (w.T if turned else w)) + h
        tp.output("last", h[t.size - 1, layer.size - 1])
    return program


def given(steps: int, dims: int) -> dict[str, Any]:
    shape = (2, WIDTH, WIDTH) if dims == 2 else (WIDTH, WIDTH)
    w = DRAW.normal(0, WIDTH**-0.5, shape).astype(np.float32)
    return {"w": w, "x": DRAW.normal(size=(steps, ROWS, WIDTH)).astype(np.float32)}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    pack = packing.packed

    def counting(matrix: torch.Tensor) -> torch.Tensor:
        found.append(matrix)
        return pack(matrix)

    monkeypatch.setattr(packing, "packed", counting)
    return found


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_a_long_loop_packs_each_matrix_once(turned: bool, dims: int, counted: list[torch.Tensor]) -> None:
    program, arrays = recurrence(turned, dims), given(40, dims)
    found = tp.compile(program, backend="torch")(**arrays)["last"]
    assert len(counted) == dims
    np.testing.assert_allclose(np.asarray(found), tp.compile(program, backend="numpy")(**arrays)["last"], atol=1e-3)


@pytest.mark.parametrize("turned", [False, True])
def test_a_short_loop_packs_nothing(turned: bool, counted: list[torch.Tensor]) -> None:
    program, arrays = recurrence(turned, 1), given(4, 1)
    found = tp.compile(program, backend="torch")(**arrays)["last"]
    assert not counted
    np.testing.assert_allclose(np.asarray(found), tp.compile(program, backend="numpy")(**arrays)["last"], atol=1e-4)


def test_a_stream_packs_nothing_at_each_step(counted: list[torch.Tensor]) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        w, x = tp.input("w", (WIDTH, WIDTH)), tp.input("x", (ROWS, WIDTH), (t,))
        h = tp.recurrent("h", (ROWS, WIDTH), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(h @ w) + x[t + 1]
        tp.output("h", h)
    for _ in tp.compile(program, backend="torch").stream("t", **given(40, 1)):
        pass
    assert not counted


# -- matrices that a caller keeps -----------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LARGE", 1)


FORMS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "x @ w": (lambda x, w: x @ w, (3, 5), (5, 6)),
    "x @ w.T": (lambda x, w: x @ w.T, (3, 5), (6, 5)),
    "v @ w": (lambda v, w: v @ w, (5,), (5, 6)),
    "w @ v": (lambda v, w: w @ v, (5,), (6, 5)),
}


def put(dtype: str, rows: int, turned: bool) -> tuple[tp.Executable, Any, Callable[[], None]]:
    """A matrix that a loop multiplies rows by, put, and a run of nine products."""
    with tp.Program() as program:
        t = tp.dim("t")
        w, x = tp.input("w", (WIDTH, WIDTH), dtype=dtype), tp.input("x", (rows, WIDTH), dtype=dtype)
        h = tp.recurrent("h", (rows, WIDTH), (t,), dtype)
        h[0] = x
        h[t + 1] = tp.tanh(h @ (w.T if turned else w))
        tp.output("h", h)
    run = tp.compile(program, "torch", sizes={"t": 9})
    w = run.device_put(w=torch.randn(WIDTH, WIDTH).to(getattr(torch, dtype)) / WIDTH**0.5)["w"]
    return run, w, lambda: run(w=w, x=torch.ones(rows, WIDTH).to(w.dtype))


@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_that_was_put_is_packed_once_for_all_loops(turned: bool, counted: list[Any]) -> None:
    _, _, run = put("float32", ROWS, turned)
    assert not counted
    found = [run()["h"] for _ in range(6)]
    assert len(counted) == 1
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_that_one_row_is_multiplied_by_stays_as_it_was_given(turned: bool, counted: list[Any]) -> None:
    """It is as fast so, and a file's stays in the file."""
    _, w, run = put("float32", 1, turned)
    for _ in range(6):
        run()
    assert not counted
    assert w.kept is not None


@pytest.mark.parametrize("chunk", [1, 4, 9])
def test_chunks_of_any_length_have_the_bits_of_one_call(chunk: int) -> None:
    many, w, run = put("float32", ROWS, True)
    pieces = list(many.stream("t", chunk=chunk, w=w, x=torch.ones(ROWS, WIDTH)))
    assert len(pieces) == -(-9 // chunk)
    streamed = np.concatenate([np.asarray(piece["h"]).reshape(-1, ROWS, WIDTH) for piece in pieces])
    np.testing.assert_array_equal(streamed, np.asarray(run()["h"]))


@pytest.mark.parametrize("is_for_mkl", [False, True])
def test_chunks_of_one_row_by_a_matrix_that_was_not_put_have_the_bits_of_one_call(
    is_for_mkl: bool, monkeypatch: pytest.MonkeyPatch, counted: list[Any]
) -> None:
    monkeypatch.setattr(packing, "is_for_mkl", lambda: is_for_mkl)
    with tp.Program() as program:
        t = tp.dim("t")
        w, x = tp.input("w", (WIDTH, WIDTH)), tp.input("x", (1, WIDTH))
        h = tp.recurrent("h", (1, WIDTH), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(h @ w)
        tp.output("h", h)
    run = tp.compile(program, "torch", sizes={"t": packing.OFTEN + 4})
    arrays = {"w": DRAW.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32), "x": np.ones((1, WIDTH), np.float32)}
    pieces = [np.asarray(piece["h"]) for piece in run.stream("t", chunk=5, **arrays)]
    np.testing.assert_array_equal(np.concatenate(pieces), np.asarray(run(**arrays)["h"]))
    assert not counted


@pytest.mark.parametrize("use", ["rows of it", "other axis"])
def test_what_another_program_needs_of_a_matrix_is_made_once(
    use: str, where_all_gain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a matrix that lies in oneDNN's layout alone, not at each step."""
    _, kept, _ = put("float32", 1, True)
    assert kept.kept is None
    with tp.Program() as program:
        t = tp.dim("t", 6)
        w, at = tp.input("w", (WIDTH, WIDTH)), tp.input("at", (), (t,), tp.int32)
        h = tp.recurrent("h", (WIDTH,), (t,))
        h[0] = w.spatial[at]
        h[t + 1] = tp.tanh(h + w.spatial[at[t + 1]]) if use == "rows of it" else tp.tanh(h @ w)
        tp.output("h", h)
    given = {"w": kept, "at": np.array([3, 1, 4, 1, 5, 9], np.int32)}
    made, as_given = [], packing._Forms.as_given

    def counting(forms: Any) -> torch.Tensor:
        made.extend([forms] if forms.plain is None else [])
        return as_given(forms)

    monkeypatch.setattr(packing._Forms, "as_given", counting)
    found = tp.compile(program, "torch")(**given)["h"]
    assert len(made) == 1
    wanted = tp.compile(program, "numpy")(**{**given, "w": kept.numpy()})["h"]
    np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-5)


def test_products_out_of_loops_leave_it_as_it_was_given(counted: list[Any]) -> None:
    """Whatever ran before: a call has the same bits again."""
    with tp.Program() as program:
        w, x = tp.input("w", (WIDTH, WIDTH)), tp.input("x", (ROWS, WIDTH))
        tp.output("y", x @ w.T)
    once = tp.compile(program, "torch")
    _, w, run = put("float32", ROWS, True)
    x = torch.randn(ROWS, WIDTH)
    before = [once(w=w, x=x)["y"] for _ in range(40)]
    assert not counted
    run()
    assert len(counted) == 1
    assert all(torch.equal(each, before[0]) for each in (*before, once(w=w, x=x)["y"]))


def test_a_loop_that_takes_it_along_the_other_axis_packs_it_for_itself(counted: list[Any]) -> None:
    _, w, _ = put("float32", ROWS, True)
    run, arrays = tp.compile(recurrence(False, 1), "torch"), given(packing.OFTEN, 1)
    found = run(w=w, x=arrays["x"])["last"]
    assert len(counted) == 1
    assert w.kept is not None
    wanted = tp.compile(recurrence(False, 1), "numpy")(w=np.asarray(w), x=arrays["x"])["last"]
    np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-3)


HAS_BFLOAT16 = pytest.mark.skipif(not packing.has_bfloat16(), reason="this processor has no instructions for bfloat16")


@pytest.mark.parametrize("dtype", [pytest.param("bfloat16", marks=HAS_BFLOAT16), "float32"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_matrix_by_which_all_products_gain_is_packed_where_it_is_put(
    dtype: str, turned: bool, counted: list[Any], where_all_gain: None
) -> None:
    """All of bfloat16, and of float32 where MKL has no code for the processor."""
    _, w, run = put(dtype, 1, turned)
    run()
    assert len(counted) == 1
    assert w.kept is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_a_loop", [False, True])
def test_a_matrix_that_was_put_is_packed_and_means_the_same(form: str, in_a_loop: bool, large: None) -> None:
    multiplied, rows, shape = FORMS[form]
    with tp.Program() as program:
        t = tp.dim("t")
        w, x = tp.input("w", shape), tp.input("x", rows, (t,))
        state = tp.recurrent("state", rows, (t,))
        state[0] = x
        state[t + 1] = tp.tanh(state + x[t + 1])
        tp.output("y", multiplied(state if in_a_loop else x, w))
    arrays = {"w": DRAW.normal(size=shape).astype(np.float32)}
    arrays["x"] = DRAW.normal(size=(4, *rows)).astype(np.float32)
    run = tp.compile(program, "torch", sizes={"t": 4}, options=tp.Options(mapping="sequential"))
    kept = run.device_put(w=arrays["w"])
    assert isinstance(kept["w"], packing.PackedMatrix) == (form != "w @ v")  # of which it is the left operand
    wanted = tp.compile(program, "numpy")(**arrays)["y"]
    for given in (kept["w"], arrays["w"]):
        np.testing.assert_allclose(np.asarray(run(x=arrays["x"], w=given)["y"]), wanted, atol=1e-5)


def test_another_program_reads_a_packed_matrix_as_any(large: None) -> None:
    matrix = DRAW.normal(size=(4, 4)).astype(np.float32)
    rows = np.eye(4, dtype=np.float32)
    with tp.Program() as program:
        w, x = tp.input("w", (4, 4)), tp.input("x", (4, 4))
        tp.output("y", x @ w)
    kept = tp.compile(program, "torch", sizes={}).device_put(w=matrix)["w"]
    assert isinstance(kept, packing.PackedMatrix)
    with tp.Program() as other:
        w, x = tp.input("w", (4, 4)), tp.input("x", (4, 4))
        tp.output("turned", x @ w.T)
        tp.output("rows", tp.exp(w) + w.spatial[1:2])
        tp.output("w", tp.as_tensor(w))
    found, wanted = tp.compile(other, "torch")(w=kept, x=rows), tp.compile(other, "numpy")(w=matrix, x=rows)
    for name, array in wanted.items():
        np.testing.assert_allclose(np.asarray(found[name]), array, atol=1e-5)


def test_a_packed_matrix_is_a_tensor(large: None) -> None:
    matrix = torch.arange(12.0).reshape(3, 4) + 0.5
    for contracted in (0, 1):
        for keep in (False, True):
            kept = packing.PackedMatrix.of(matrix, contracted, keep)
            assert torch.equal(kept + 1, matrix + 1)
            assert torch.equal(kept.t()[2], matrix.t()[2])
            np.testing.assert_array_equal(np.asarray(kept), matrix.numpy())
            assert " 1.5000" in repr(kept)
    with pytest.raises(tp.InputError, match="not written to"):
        kept.add_(1)


LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "dlpack": lambda kept, _: np.from_dlpack(kept),
    "dlpack of torch": lambda kept, _: torch.from_dlpack(kept),
    "tolist": lambda kept, _: kept.tolist(),
    "storage": lambda kept, _: torch.tensor(kept.untyped_storage(), dtype=torch.uint8).view(torch.float32).view(3, 4),
    "address": lambda kept, _: np.ctypeslib.as_array((ctypes.c_float * 12).from_address(kept.data_ptr())).reshape(3, 4),
    "copy": lambda kept, _: copy.copy(kept),
    "deepcopy": lambda kept, _: copy.deepcopy({"w": kept})["w"],
    "pickle": lambda kept, _: pickle.loads(pickle.dumps(kept)),
    "torch.save": lambda kept, file: (torch.save({"w": kept}, file), torch.load(file)["w"])[1],
    "written to another": lambda kept, _: torch.empty(3, 4).copy_(kept),
    "added to others": lambda kept, _: torch._foreach_add((torch.zeros(3, 4),), (kept,))[0],
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("contracted", [0, 1])
def test_whatever_looks_at_a_packed_matrix_finds_the_matrix(
    look: str, keep: bool, contracted: int, large: None, tmp_path: Path
) -> None:
    """Its own memory is nobody's: what looked at that read anything, or crashed."""
    matrix = torch.randn(3, 4)
    kept = packing.PackedMatrix.of(matrix.clone(), contracted, keep)
    assert isinstance(kept, packing.PackedMatrix)
    np.testing.assert_array_equal(np.asarray(LOOKS[look](kept, tmp_path / "file")), matrix.numpy())


GIVEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "some of its rows": lambda large: large[2:5, :4],
    "strided": lambda large: large[:3, ::5],
    "columns first": lambda large: large[:4, :3].t(),
    "a part of its memory": lambda large: large.reshape(-1)[8:20].reshape(3, 4),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("look", LOOKS)
def test_what_lies_otherwise_is_shown_as_a_matrix_of_its_own(
    look: str, given: str, large: None, tmp_path: Path
) -> None:
    matrix = GIVEN[given](torch.randn(10, 20))
    kept = packing.PackedMatrix.of(matrix, 1, keep=False)
    np.testing.assert_array_equal(np.asarray(LOOKS[look](kept, tmp_path / "file")), matrix.numpy())


@pytest.mark.parametrize("packs", [False, True])
def test_a_matrix_that_was_put_may_be_used_in_inference_mode(packs: bool, counted: list[Any]) -> None:
    _, _, run = put("float32", ROWS if packs else 1, True)
    with torch.inference_mode():
        found = run()["h"]
    assert len(counted) == packs
    assert torch.equal(run()["h"], found)


def test_what_a_packed_matrix_cannot_do_is_refused(large: None) -> None:
    kept = packing.PackedMatrix.of(torch.randn(3, 4), 0, keep=False)
    with pytest.raises(tp.InputError, match="no memory that processes may share"):
        kept.share_memory_()
    for write in (lambda: kept.copy_(torch.ones(3, 4)), lambda: torch.add(torch.ones(3, 4), 1, out=kept)):
        with pytest.raises(tp.InputError, match="not written to"):
            write()


def test_a_packed_matrix_is_donated_once(large: None) -> None:
    with tp.Program() as program:
        w, x = tp.input("w", (3, 4)), tp.input("x", (2, 3))
        tp.output("y", x @ w)
    run = tp.compile(program, "torch", sizes={})
    kept = run.device_put(w=np.ones((3, 4), np.float32))["w"]
    other = copy.copy(kept)
    for each in (kept, other):
        np.testing.assert_array_equal(np.asarray(run(w=each, x=np.ones((2, 3), np.float32), donate=True)["y"]), 3)
        with pytest.raises(tp.InputError, match="donated"):
            run(w=each, x=np.ones((2, 3), np.float32))


def test_what_else_reads_a_matrix_has_it_as_it_was_given(large: None) -> None:
    """As rows of embeddings, say, that are the head's outputs, too."""
    matrix = DRAW.normal(size=(7, 4)).astype(np.float32)
    with tp.Program() as program:
        t = tp.dim("t")
        token, w = tp.input("token", (2,), (t,), "int32"), tp.input("w", (7, 4))
        tp.output("y", w.spatial[token] @ w.T)
    arrays = {"token": np.array([[1, 2], [3, 6]], np.int32), "w": matrix}
    run = tp.compile(program, "torch", sizes={"t": 2})
    kept = run.device_put(w=matrix)["w"]
    assert isinstance(kept, packing.PackedMatrix)
    assert kept.plain.data_ptr() == matrix.ctypes.data
    wanted = tp.compile(program, "numpy")(**arrays)["y"]
    np.testing.assert_allclose(np.asarray(run(token=arrays["token"], w=kept)["y"]), wanted, atol=1e-5)


@pytest.mark.parametrize(("steps", "copies"), [(packing.OFTEN + 4, 1), (packing.OFTEN - 4, 0)])
def test_the_memory_of_what_a_loop_packs_is_foretold(steps: int, copies: int) -> None:
    memory = tp.compile(recurrence(True, 1), "torch", sizes={"t": steps}).memory
    given = 4 * WIDTH * (WIDTH + steps * ROWS)
    assert (memory.peak_bytes - given) // (4 * WIDTH**2) == copies


def test_the_memory_of_what_a_loop_packs_is_measured() -> None:
    run, arrays = tp.compile(recurrence(True, 1), "torch"), given(packing.OFTEN + 4, 1)
    run(**arrays)  # what is made once for all runs is made
    measured = TorchBackend().measured_peak(lambda: run(**arrays))
    assert 1 <= measured / (4 * WIDTH**2) < 1.5
    kept = run.device_put(**arrays)
    run(**kept)
    assert TorchBackend().measured_peak(lambda: run(**kept)) / (4 * WIDTH**2) < 0.5
