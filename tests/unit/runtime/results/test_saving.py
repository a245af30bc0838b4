"""`tp.save` and `tp.load`."""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tempo as tp
from tempo import dtypes

safetensors = pytest.importorskip("safetensors")
numpy_files = pytest.importorskip("safetensors.numpy")


def training() -> tp.Program:
    with tp.Program() as program:
        i = tp.dim("i", 3)
        w = tp.parameter("w", (2,), init=np.float32([1, 2]), dims=(i,))
        m = tp.parameter("moment of w", (), init=0, dims=(i,), dtype=tp.int64)
        w[i + 1] = w * 2
        m[i + 1] = m + 1
    return program


def inference() -> tp.Program:
    with tp.Program() as program:
        tp.output("w", tp.parameter("w", (2,), init=0.0))
    return program


SPECIAL = {
    "bool": [True, False],
    "float16": [np.nan, -0.0, np.inf, 6e-8],
    "bfloat16": [np.nan, -0.0, -np.inf, 9.2e-41],
    "float32": [np.nan, -0.0, 1e-45, 3.4e38],
    "float64": [np.nan, -0.0, 5e-324, 1.7e308],
}


@pytest.mark.parametrize("dtype", dtypes.DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 2), "transposed"])
def test_every_dtype_and_shape_comes_back_to_the_bit(tmp_path: Path, dtype: str, shape: Any) -> None:
    kind = dtypes.to_numpy(dtype)
    least = 0 if not dtypes.is_integer(dtype) else np.iinfo(kind).min
    array = np.array(SPECIAL.get(dtype, [least, 1, 2, 3] if dtypes.is_integer(dtype) else None), kind)
    if shape == "transposed":
        array = np.resize(array, (2, 3)).T
    else:
        array = np.resize(array, shape)
    tp.save(tmp_path / "a", {"x": array})
    found = tp.load(tmp_path / "a")["x"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable


@pytest.mark.parametrize("backend", ["numpy", "reference", "jax", "torch"])
def test_the_state_of_a_run_goes_to_another_program(tmp_path: Path, backend: str) -> None:
    pytest.importorskip({"jax": "tempo_jax", "torch": "tempo_torch"}.get(backend, "tempo"))
    trained = tp.compile(training(), backend)()
    tp.save(str(tmp_path / "state"), trained.state)
    state = tp.load(str(tmp_path / "state"))
    assert list(state) == ["w", "moment of w"]
    np.testing.assert_array_equal(state["w"], [4, 8])
    np.testing.assert_array_equal(tp.compile(inference(), backend)(state=state)["w"], [4, 8])
    again = tp.compile(training(), backend)(state=state)
    np.testing.assert_array_equal(again.state["moment of w"], 4)


def test_bfloat16_of_torch_is_saved_and_given_to_other_backends(tmp_path: Path) -> None:
    pytest.importorskip("tempo_torch")
    with tp.Program() as program:
        tp.parameter("w", (2,), init=[1.5, -2.0], dtype=tp.bfloat16)
        tp.output("y", tp.parameter("v", (), init=1.0, dtype=tp.bfloat16) * 2)
    state = tp.compile(program, "torch")().state
    tp.save(tmp_path / "a", dict(state))
    assert tp.load(tmp_path / "a")["w"].dtype == ml_dtypes.bfloat16
    for backend in ("numpy", "reference"):
        out = tp.compile(program, backend)(state=state)
        np.testing.assert_array_equal(np.asarray(out["y"], np.float32), 2)


def test_numbers_and_lists_are_arrays(tmp_path: Path) -> None:
    tp.save(tmp_path / "a", {"number": 3, "list": [[1.5], [2.5]], "": np.float32(1)})
    state = tp.load(tmp_path / "a")
    assert (state["number"].dtype, state["list"].dtype, state["list"].shape) == (np.int64, np.float64, (2, 1))
    assert state[""] == 1


def test_other_tools_can_read_the_file(tmp_path: Path) -> None:
    tp.save(tmp_path / "a", {"w": np.arange(3)})
    np.testing.assert_array_equal(numpy_files.load_file(tmp_path / "a")["w"], [0, 1, 2])
    with safetensors.safe_open(tmp_path / "a", "np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "tempo-state"
    assert json.loads(metadata["versions"])["tempo"] == tp.__version__
    assert list(json.loads(metadata["checksums"])) == ["w"]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (3, "the state is a int"),
        ([1], "the state is a list"),
        ({"w": "text"}, "'w' in the state is no array of numbers"),
        ({"w": {"b": np.ones(2)}}, "'w' in the state is no array of numbers"),
        ({"w": [[1], [1, 2]]}, "'w' in the state is no array"),
        ({"w": 1j}, "'w' in the state has dtype complex128"),
        ({"w": np.ma.masked_array([1.0])}, "is a masked array"),
        ({3: np.ones(2)}, "3 cannot name an array"),
        ({"__metadata__": np.ones(2)}, "cannot name an array"),
        ({"\ud800": np.ones(2)}, "cannot name an array"),
    ],
)
def test_what_is_no_state_is_refused_and_the_file_stays(tmp_path: Path, state: Any, message: str) -> None:
    tp.save(tmp_path / "a", {"w": np.ones(2)})
    with pytest.raises(tp.TempoError, match=message) as caught:
        tp.save(tmp_path / "a", state)
    assert caught.value.location is not None
    assert caught.value.location.text == 'tp.save(tmp_path / "a", state)'
    assert tp.load(tmp_path / "a")["w"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["a"]


def test_outputs_are_no_state(tmp_path: Path) -> None:
    with pytest.raises(tp.InputError, match="these are outputs"):
        tp.save(tmp_path / "a", tp.compile(inference())())


@pytest.mark.parametrize("path", [None, 3, b"a", ""])
def test_a_path_is_a_path(path: Any) -> None:
    with pytest.raises(tp.InputError, match="path"):
        tp.save(path, {})
    with pytest.raises(tp.InputError, match="path"):
        tp.load(path)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*none\n.*test_saving.py"):
        tp.save(tmp_path / "none" / "a", {})
    with pytest.raises(FileNotFoundError, match=r"there is no file .*a\n.*test_saving.py"):
        tp.load(tmp_path / "a")
    for call in (lambda: tp.load(tmp_path), lambda: tp.save(tmp_path, {"w": np.ones(2)})):
        with pytest.raises(tp.InputError, match="is a folder"):
            call()
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp.save(tmp_path / "a", {"w": np.ones(2)})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        tp.save(tmp_path / "a", {"w": np.zeros(2)})
    assert os.listdir(tmp_path) == ["a"]
    assert tp.load(tmp_path / "a")["w"].tolist() == [1, 1]


def damaged(data: bytes) -> dict[str, bytes]:
    header = int.from_bytes(data[:8], "little")
    return {
        "empty": b"",
        "short": data[:5],
        "a cut header": data[: header // 2],
        "no end": data[:-1],
        "more at the end": data + b"\0",
        "a flipped bit": data[:-1] + bytes([data[-1] ^ 1]),
        "another name": data.replace(b'"w":{"dtype"', b'"v":{"dtype"'),
        "another dtype": data.replace(b"F32", b"I32"),
        "another shape": data.replace(b'"shape":[4]', b'"shape":[2]'),
        "text": b"weights: 1, 2, 3" * 100,
        "a file of NumPy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }" * 9,
        "no checksums": data.replace(b"checksums", b"checksumz"),
        "foreign checksums": data.replace(b'"checksums":"{', b'"checksums":"['),
        "a later version": data.replace(b'"version":"1"', b'"version":"2"'),
    }


@pytest.mark.parametrize("kind", damaged(b"\0" * 8))
def test_a_file_that_is_damaged_or_foreign_is_one_clear_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    tp.save(path, {"w": np.float32([1, 2, 3, 4])})
    whole = path.read_bytes()
    assert damaged(whole)[kind] != whole
    path.write_bytes(damaged(whole)[kind])
    with pytest.raises(tp.InputError, match=str(path)) as caught:
        tp.load(path)
    assert caught.value.location is not None
    assert caught.value.location.text == "tp.load(path)"


def test_weights_of_others_say_how_to_read_them(tmp_path: Path) -> None:
    numpy_files.save_file({"w": np.ones(2)}, tmp_path / "a")
    with pytest.raises(tp.InputError, match="was not written by tp.save") as caught:
        tp.load(tmp_path / "a")
    assert "safetensors.numpy.load_file" in str(caught.value)


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    """Whole files replace each other, however many write at once; nothing is left beside them."""
    path = tmp_path / "a"
    tp.save(path, {"w": np.zeros(50_000)})

    def write(value: float) -> None:
        for _ in range(10):
            tp.save(path, {"w": np.full(50_000, value)})

    writers = [threading.Thread(target=write, args=(float(at),)) for at in range(3)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert len(set(tp.load(path)["w"])) == 1
    for writer in writers:
        writer.join()
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_goes_on_pointing_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    tp.save(tmp_path / "link", {"w": np.ones(2)})
    assert (tmp_path / "link").is_symlink()
    assert tp.load(tmp_path / "a")["w"].tolist() == [1, 1]


def test_the_file_is_as_open_as_others(tmp_path: Path) -> None:
    tp.save(tmp_path / "a", {})
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
    assert dict(tp.load(tmp_path / "a")) == {}


def test_without_safetensors_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for call in (lambda: tp.save(tmp_path / "a", {}), lambda: tp.load(tmp_path / "a")):
        with pytest.raises(ImportError, match="needs safetensors") as caught:
            call()
        assert "python -m pip install 'tempo-sdg[state]'" in str(caught.value)
