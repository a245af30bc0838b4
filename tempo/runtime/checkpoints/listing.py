"""What lies in a folder of checkpoints: `python -m tempo checkpoints DIR`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tempo.errors import InputError
from tempo.runtime.checkpoints.folder import Folder, Saved


class Listed(NamedTuple):
    """One checkpoint; `wrong` says why it is not whole. `tensors`: name, dtype, shape and bytes of each."""

    name: str
    program: str
    point: str
    bytes: int
    wrong: str
    tensors: tuple[tuple[str, str, str, int], ...]


def listed(path: Path) -> Iterator[Listed]:
    """Of all checkpoints in the folder, the last one first."""
    for file in Folder(path).checkpoints():
        yield _listed(path, file)


def _listed(path: Path, file: Path) -> Listed:
    try:
        saved = Folder(path).open(file)
        folder = Folder(path, run=saved.about["run"])
        fixed = saved.about["given"]
        parts = [saved, *folder.points(saved.about["points"]), *([] if fixed is None else [folder.part(fixed)])]
    except (InputError, OSError) as error:
        return Listed(file.name, "", "", 0, str(error).partition("\n")[0], ())
    about = saved.about
    where = f"{about['along']}={about['point']}" + (" (ended)" if about["ended"] else "")
    tensors = _tensors(parts)
    return Listed(file.name, about["program"], where, sum(each[3] for each in tensors), "", tensors)


def _tensors(parts: list[Saved]) -> tuple[tuple[str, str, str, int], ...]:
    """The largest first; what was added in several parts is one tensor."""
    found: dict[str, list[tuple[str, tuple[int, ...], int]]] = {}
    for part in parts:
        for name, array in part.arrays.items():
            found.setdefault(name, []).append((str(array.dtype), array.shape, array.nbytes))
    rows = [(name, each[0][0], _shape(name, parts), sum(bytes for *_, bytes in each)) for name, each in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row[3], row[0])))


def _shape(name: str, parts: list[Saved]) -> str:
    """Of all that was added to it, along the axis to which it was."""
    arrays = [
        (part.arrays[name], part.about.get("places", {}).get(name.split()[0])) for part in parts if name in part.arrays
    ]
    first, place = arrays[0]
    shape = list(first.shape)
    if place is not None:
        shape[place[0]] = max(array.shape[place[0]] + at[1] for array, at in arrays)
    return str(tuple(shape))
