"""The tensors of a safetensors file, mapped: nothing is read before it is used, and nothing is copied.

The format is eight bytes N, little-endian, then N bytes of JSON with each tensor's dtype, shape and place, then the
numbers, without gaps. The package of that name reads no bfloat16 into NumPy, so the header is read here. A file may
come from anywhere: what its header says is checked before a view is made of it.
Source: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tempo.llm.errors import CheckpointError

LONGEST_HEADER = 100_000_000
"""Bytes: the limit that the format's own reader has."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def map_tensors(path: Path) -> dict[str, np.ndarray]:
    """Read-only views of a file's tensors by name. Raises `CheckpointError` where the file is not what it says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start, header = _header(path, file.read(8), size)
            entries = _entries(path, file.read(header))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    length = size - start
    places = {name: _place(path, name, entry, length) for name, entry in entries.items()}
    _check_without_gaps(path, {name: place[2:] for name, place in places.items()}, length)
    numbers = np.memmap(path, np.uint8, "r", start, (length,)).view(np.ndarray) if length else np.empty(0, np.uint8)
    return {name: numbers[begin:end].view(dtype).reshape(shape) for name, (dtype, shape, begin, end) in places.items()}


def _header(path: Path, first: bytes, size: int) -> tuple[int, int]:
    """Where the numbers start, and how many bytes the header has."""
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > min(size - 8, LONGEST_HEADER):
        raise CheckpointError(
            f"{path} is no whole safetensors file: it has {size} bytes, its header should have {length}",
            hint="download it again; a pointer of Git LFS in its place needs `git lfs pull`",
        )
    return 8 + length, length


def _entries(path: Path, header: bytes) -> dict[str, Any]:
    """What the header says of each tensor, by name."""
    try:
        entries = json.loads(header, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # no text, no JSON, a name that occurs twice, nesting without end
        raise CheckpointError(f"{path} has a broken header: {error}") from error
    if not isinstance(entries, dict):
        raise CheckpointError(f"{path} has a broken header: it is no table of tensors")
    entries.pop("__metadata__", None)
    return entries


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} occurs twice")
        found[name] = value
    return found


def _place(path: Path, name: str, entry: Any, length: int) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """A tensor's dtype and shape, and from where to where among the numbers it lies."""
    given = entry if isinstance(entry, dict) else {}
    shape, offsets, dtype = _sizes(given.get("shape")), _sizes(given.get("data_offsets")), given.get("dtype")
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(dtype, str):
        raise CheckpointError(f"{path}: what the header says of the tensor {name!r} cannot be understood")
    if dtype not in DTYPES:
        raise CheckpointError(
            f"{path}: the tensor {name!r} is of dtype {dtype}, which is not implemented",
            hint=f"those known: {', '.join(DTYPES)}",
        )
    begin, end = offsets
    needed = math.prod(shape) * DTYPES[dtype].itemsize
    if not begin <= end <= length or end - begin != needed:
        raise CheckpointError(
            f"{path}: the tensor {name!r} of shape {shape} and dtype {dtype} needs {needed} bytes, but lies at "
            f"{begin} to {end} of {length}",
            hint="the file was cut short or changed; download it again",
        )
    return DTYPES[dtype], shape, begin, end


def _sizes(numbers: Any) -> tuple[int, ...] | None:
    """Whole numbers of at least 0; no more than NumPy has axes for."""
    if not isinstance(numbers, list) or len(numbers) > 32:
        return None
    return tuple(numbers) if all(type(each) is int and each >= 0 for each in numbers) else None


def _check_without_gaps(path: Path, places: Mapping[str, tuple[int, int]], length: int) -> None:
    """Every byte belongs to one tensor, so that none can hide in another or beside them."""
    at = 0
    for name, (begin, end) in sorted(places.items(), key=lambda item: item[1]):
        if begin != at:
            raise CheckpointError(f"{path}: the tensor {name!r} lies at {begin}, but the one before it ends at {at}")
        at = end
    if at != length:
        raise CheckpointError(f"{path}: {length - at} bytes at its end belong to no tensor")
