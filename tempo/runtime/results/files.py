"""Arrays in files of safetensors, with what tells a whole file from a damaged one.

The header's metadata holds the names of the arrays and a checksum of each, beside the versions that wrote them, all as
text. A file appears under its name when it is complete, or not at all: it is written under another one and renamed.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import InputError, package

Array = np.ndarray[Any, Any]

_ABOUT = "about"
_HEADER_LENGTH = 8  # bytes, before the header: its length, little-endian
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "I8": "int8", "I16": "int16",
    "I32": "int32", "I64": "int64", "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64",
}  # fmt: skip


class DamagedError(InputError):
    """A file that is not what was written."""


@dataclass(frozen=True)
class Format:
    """`writer` is what writes such files, in words; `extra` the package with safetensors."""

    name: str
    version: str
    writer: str
    extra: str
    hint: str = ""

    def library(self) -> Any:
        """safetensors."""
        return package("safetensors.numpy", self.writer, self.extra)


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path, format: Format, arrays: Mapping[str, Array], about: Mapping[str, Any] | None = None) -> None:
    """The file and its place in the folder are on the disk when this returns. `about`: anything that JSON can say."""
    library, held = format.library(), dict(arrays)
    if about is not None:  # not in the header, whose length is limited
        held[_ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    metadata = _metadata(library, format, held)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            file.write(library.numpy.save(held, metadata))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _synchronize(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _synchronize(folder: Path) -> None:
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _metadata(library: Any, format: Format, arrays: Mapping[str, Array]) -> dict[str, str]:
    import tempo

    versions = {"tempo": tempo.__version__, "numpy": np.__version__, "safetensors": library.__version__}
    checksums = {name: _checksum(array) for name, array in arrays.items()}
    return {
        "format": format.name,
        "version": format.version,
        "versions": json.dumps(versions),
        "checksums": json.dumps(checksums),
    }


def _checksum(array: Array) -> int:
    """CRC-32 of the dtype, the shape and the elements."""
    start = zlib.crc32(f"{dtypes.from_numpy(array.dtype)}{list(array.shape)}".encode())
    return zlib.crc32(array.reshape(-1).view(np.uint8).data, start)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(path: Path, format: Format) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays, in the order in which they were given, and what was said about them.

    Raises `DamagedError`, and `InputError` for a file of another kind.
    """
    library, data = format.library(), path.read_bytes()
    try:
        tensors = dict(library.deserialize(data))
    except library.SafetensorError as error:
        raise _unreadable(path, format, f"it is damaged, or no file of safetensors ({error})") from error
    end = _HEADER_LENGTH + int.from_bytes(data[:_HEADER_LENGTH], "little")
    metadata = json.loads(data[_HEADER_LENGTH:end]).get("__metadata__") or {}
    if metadata.get("format") != format.name:
        raise InputError(f"{path} was not written by {format.writer}", hint=format.hint or None)
    if metadata.get("version") != format.version:
        raise InputError(
            f"{path} has version {metadata.get('version')} of the format, this is version {format.version}",
            hint=f"it was written by {metadata.get('versions')}: upgrade tempo-sdg",
        )
    checksums = _checksums(path, format, metadata)
    if checksums.keys() != tensors.keys():
        raise _unreadable(path, format, "it is damaged: its list of names is not that of its arrays")
    arrays = {name: _tensor(path, format, name, tensors[name]) for name in checksums}
    for name, array in arrays.items():
        if _checksum(array) != checksums[name]:
            raise _unreadable(path, format, f"it is damaged: {name!r} is not what was written")
    about = arrays.pop(_ABOUT, None)
    return arrays, {} if about is None else json.loads(about.tobytes())


def _checksums(path: Path, format: Format, metadata: Mapping[str, str]) -> dict[str, Any]:
    """By name, in the order in which the arrays were given."""
    try:
        found = json.loads(metadata.get("checksums", ""))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _unreadable(path, format, "it is damaged: it has no list of names")
    return found


def _tensor(path: Path, format: Format, name: str, tensor: Mapping[str, Any]) -> Array:
    if tensor["dtype"] not in _DTYPES:
        raise _unreadable(path, format, f"{name!r} has dtype {tensor['dtype']}, which Tempo has not")
    little = dtypes.to_numpy(_DTYPES[tensor["dtype"]])
    array = np.frombuffer(bytearray(tensor["data"]), little.newbyteorder("<")).reshape(tensor["shape"])
    return array.astype(little, copy=False)


def _unreadable(path: Path, format: Format, why: str) -> DamagedError:
    return DamagedError(
        f"{path} cannot be loaded: {why}", hint=f"load a file that {format.writer} wrote, and that is complete"
    )
