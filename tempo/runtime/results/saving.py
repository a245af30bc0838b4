"""`tp.save` and `tp.load`: parameters in a file of safetensors, with what tells a whole file from a damaged one.

The header's metadata holds the names of the arrays and a checksum of each, beside the versions that wrote them, all as
text. A file appears under its name when it is complete, or not at all: it is written under another one and renamed.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import AtUserLine, InputError, MissingFileError, package
from tempo.runtime.arguments.binding import numbers
from tempo.runtime.results.outputs import Outputs, State, Step

Array = np.ndarray[Any, Any]

FORMAT = "tempo-state"
VERSION = "1"
_HEADER_LENGTH = 8  # bytes, before the header: its length, little-endian
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "I8": "int8", "I16": "int16",
    "I32": "int32", "I64": "int64", "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def save(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write parameters to a file: the `.state` of a run on any backend, or arrays by name.

    Every dtype is kept to the bit. The file is replaced at once, when the new one is complete. Needs safetensors.

    Raises `InputError` for what holds no arrays by name, `MissingFileError` where there is no such folder,
    `MissingPackageError`, and what the system raises where the file cannot be written.

    >>> import numpy as np, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "weights.safetensors")
    >>> save(path, {"w": np.float32([1, 2])})
    >>> load(path)["w"]
    array([1., 2.], dtype=float32)
    """
    with AtUserLine():
        library, target = package("safetensors.numpy", "tp.save", "state"), _path(path)
        _check_folder(target)
        arrays = _arrays(state)
        _write(library, target, arrays, _metadata(library, arrays))


def load(path: str | os.PathLike[str]) -> State:
    """The parameters in a file that `tp.save` wrote, as NumPy arrays: what `state=` takes, on any backend.

    Raises `InputError` for a file that is damaged or of another kind, `MissingFileError` (a `FileNotFoundError`) where
    there is none, and `MissingPackageError`.
    """
    with AtUserLine():
        library, source = package("safetensors.numpy", "tp.load", "state"), _path(path)
        if not source.exists():
            raise MissingFileError(f"there is no file {source}")
        if source.is_dir():
            raise InputError(f"{source} is a folder, and no file of tp.save")
        return State(_read(library, source, source.read_bytes()))


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InputError(
            f"a {type(path).__name__} is no path", hint="give the path first: tp.save(path, outputs.state)"
        )
    if not os.fspath(path):
        raise InputError("the path is empty")
    return Path(os.path.realpath(path))  # a link keeps pointing at what is written


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise MissingFileError(f"there is no folder {path.parent}", hint="make it first: os.makedirs(...)")
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint="give the path of a file in it")


# -- writing -----------------------------------------------------------------------------------------------------------


def _arrays(state: Any) -> dict[str, Array]:
    if isinstance(state, Outputs | Step):
        raise InputError("these are outputs, not the state of a run", hint="write tp.save(path, outputs.state)")
    if not isinstance(state, Mapping):
        raise InputError(f"the state is a {type(state).__name__}, and must map names to arrays")
    arrays = {_name(name): numbers(value, f"{name!r} in the state") for name, value in state.items()}
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _name(name: Any) -> str:
    if isinstance(name, str) and name != "__metadata__" and not any("\ud800" <= each <= "\udfff" for each in name):
        return name
    raise InputError(f"{name!r} cannot name an array in a file of safetensors", hint="give it another name")


def _metadata(library: ModuleType, arrays: Mapping[str, Array]) -> dict[str, str]:
    import tempo

    versions = {"tempo": tempo.__version__, "numpy": np.__version__, "safetensors": library.__version__}
    checksums = {name: _checksum(array) for name, array in arrays.items()}
    return {"format": FORMAT, "version": VERSION, "versions": json.dumps(versions), "checksums": json.dumps(checksums)}


def _checksum(array: Array) -> int:
    """CRC-32 of the dtype, the shape and the elements."""
    start = zlib.crc32(f"{dtypes.from_numpy(array.dtype)}{list(array.shape)}".encode())
    return zlib.crc32(array.reshape(-1).view(np.uint8).data, start)


def _write(library: ModuleType, path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            file.write(library.numpy.save(dict(arrays), dict(metadata)))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(library: ModuleType, path: Path, data: bytes) -> dict[str, Array]:
    try:
        tensors = dict(library.deserialize(data))
    except library.SafetensorError as error:
        raise _no_state(path, f"it is damaged, or no file of safetensors ({error})") from error
    end = _HEADER_LENGTH + int.from_bytes(data[:_HEADER_LENGTH], "little")
    metadata = json.loads(data[_HEADER_LENGTH:end]).get("__metadata__") or {}
    if metadata.get("format") != FORMAT:
        raise InputError(
            f"{path} was not written by tp.save",
            hint="read other files with safetensors.numpy.load_file, and give state= the arrays by their names",
        )
    if metadata.get("version") != VERSION:
        raise InputError(
            f"{path} has version {metadata.get('version')} of the format, this is version {VERSION}",
            hint=f"it was written by {metadata.get('versions')}: upgrade tempo-sdg",
        )
    checksums = _checksums(path, metadata)
    if checksums.keys() != tensors.keys():
        raise _no_state(path, "it is damaged: its list of names is not that of its arrays")
    arrays = {name: _tensor(path, name, tensors[name]) for name in checksums}
    for name, array in arrays.items():
        if _checksum(array) != checksums[name]:
            raise _no_state(path, f"it is damaged: {name!r} is not what was written")
    return arrays


def _checksums(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """By name, in the order in which the arrays were given."""
    try:
        found = json.loads(metadata.get("checksums", ""))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _no_state(path, "it is damaged: it has no list of names")
    return found


def _tensor(path: Path, name: str, tensor: Mapping[str, Any]) -> Array:
    if tensor["dtype"] not in _DTYPES:
        raise _no_state(path, f"{name!r} has dtype {tensor['dtype']}, which Tempo has not")
    little = dtypes.to_numpy(_DTYPES[tensor["dtype"]])
    array = np.frombuffer(bytearray(tensor["data"]), little.newbyteorder("<")).reshape(tensor["shape"])
    return array.astype(little, copy=False)


def _no_state(path: Path, why: str) -> InputError:
    return InputError(f"{path} cannot be loaded: {why}", hint="load a file that tp.save wrote, and that is complete")
