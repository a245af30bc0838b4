"""`tp.save` and `tp.load`: parameters in a file of safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tempo.errors import AtUserLine, InputError, MissingFileError, package
from tempo.runtime.arguments.binding import numbers
from tempo.runtime.results.files import Format, read, write
from tempo.runtime.results.outputs import Outputs, State, Step
from tempo.runtime.results.paths import path_of, path_to_write

Array = np.ndarray[Any, Any]

FORMAT = Format(
    "tempo-state",
    "1",
    "tp.save",
    "state",
    "read other files with safetensors.numpy.load_file, and give state= the arrays by their names",
)


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
        FORMAT.library()
        target = path_to_write(path, "tp.save(path, outputs.state)")
        write(target, FORMAT, _arrays(state))


def load(path: str | os.PathLike[str]) -> State:
    """The parameters in a file that `tp.save` wrote, as NumPy arrays: what `state=` takes, on any backend.

    Raises `InputError` for a file that is damaged or of another kind, `MissingFileError` (a `FileNotFoundError`) where
    there is none, and `MissingPackageError`.
    """
    with AtUserLine():
        package("safetensors.numpy", "tp.load", "state")
        source = path_of(path, "tp.load(path)")
        if not source.exists():
            raise MissingFileError(f"there is no file {source}")
        if source.is_dir():
            raise InputError(f"{source} is a folder, and no file of tp.save")
        return State(read(source, FORMAT)[0])


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
