"""A folder of checkpoints: what lies in it, and what is written next.

A checkpoint is one file, `checkpoint-N.safetensors`, with everything that changes. What a loop adds to, a point in each
iteration, is in `points-N.safetensors`, each of which names the one before it and is never written again; what was made
before a loop is in `given-K.safetensors`. A file is there whole or not at all (`tempo.runtime.results.files`).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from tempo.errors import CheckpointError, InputError, user_location
from tempo.logs import logger
from tempo.runtime.results.files import DamagedError, Format, read, write

Array = np.ndarray[Any, Any]

FORMAT = Format(
    "tempo-checkpoint", "1", "a run with checkpoint=", "state", "give the folder another name, or move the file away"
)
_LOGGER = logger("checkpoints")
_LOCK = ".lock"
_SAID = {"run", "along", "item", "point", "ended", "seed", "sizes", "inputs", "outside", "identity", "points", "given"}
_NAME = re.compile(r"checkpoint-(\d{8,})\.safetensors")


@dataclass(frozen=True)
class Checkpoints:
    """Where a run keeps what it needs to go on, and when: `run(checkpoint=tp.Checkpoints("ckpt", along="i"))`.

    After every `every` points of `along`, a dim that the outermost loop is over, everything that is alive there is
    written to `folder` by a thread, while the run goes on: values that later points or results need, outputs so far,
    the seed, sizes, positions of streams, and what resources of host calls say of their state. The last `keep`
    checkpoints stay (None: all), and each is whole or not there at all. `run(..., resume=True)` goes on at the last.

    Raises `InputError` for arguments that say nothing of the kind.

    >>> Checkpoints("ckpt", along="i", every=100)
    Checkpoints(folder='ckpt', along='i', every=100, keep=3)
    """

    folder: str | os.PathLike[str]
    along: str
    every: int = 1
    keep: int | None = 3

    def __post_init__(self) -> None:
        folder, along = cast(Any, self.folder), cast(Any, self.along)
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder) or "\0" in str(folder):
            raise InputError(f"folder={folder!r} is no path", location=user_location())
        if not isinstance(along, str):
            raise InputError(f"along={along!r} is no name of a dim", location=user_location())
        for name, value in (("every", self.every), ("keep", self.keep)):
            if value is None and name == "keep":
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name}={value!r} is no integer of at least 1", location=user_location())


@dataclass(frozen=True)
class Saved:
    """One checkpoint: its arrays by buffer, and what it says of the run."""

    path: Path
    arrays: Mapping[str, Array]
    about: Mapping[str, Any]

    def buffers(self) -> dict[int, Array]:
        return {int(name.split()[0]): array for name, array in self.arrays.items() if name[0].isdigit()}


@dataclass
class Folder:
    """The checkpoints of one run. `run` tells its files from those of others; `serial` is the number of the next."""

    path: Path
    keep: int | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    serial: int = 0
    damaged: set[Path] = field(default_factory=set)
    """Checkpoints that were passed over. They stay, and do not count among those that are kept."""

    def checkpoints(self) -> list[Path]:
        """All that there are, the last one first."""
        try:
            names = [each.name for each in self.path.iterdir()] if self.path.exists() else []
        except OSError as error:
            raise failed(self.path, error) from error
        return [self.path / name for name in sorted(filter(_NAME.fullmatch, names), key=_number, reverse=True)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, the folder is there, files can be made in it, and no other run writes to it.

        Raises `CheckpointError` otherwise.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / _LOCK).open("ab")
        except OSError as error:
            raise failed(self.path, error) from error
        with lock:
            try:
                _locked(lock)
            except BlockingIOError:
                raise CheckpointError(
                    f"another run is writing checkpoints to {self.path}", hint="give each run a folder of its own"
                ) from None
            yield

    def last(self, usable: Any = lambda saved: True) -> Saved | None:
        """The last whole one that is `usable`; it is what is added to from here on."""
        there = self.checkpoints()
        broken = list[str]()
        for path in there:
            try:
                found = self._whole(path)
            except (DamagedError, OSError) as error:
                broken.append(str(error))
                self.damaged.add(path)
                _LOGGER.warning("%s; going on from the one before", error)
                continue
            if not usable(found):
                continue
            self.serial = _number(there[0].name) + 1
            return found
        if broken:
            raise CheckpointError(f"no checkpoint in {self.path} is whole", hint=broken[0])
        return None

    def _whole(self, path: Path) -> Saved:
        """With everything that it names."""
        found = self.open(path)
        if not found.about.keys() >= _SAID:
            raise DamagedError(f"{path} does not say what a checkpoint says")
        self.run = str(found.about["run"])
        for _ in self.points(found.about["points"]):
            pass
        if found.about["given"] is not None:
            self.part(found.about["given"])
        return found

    def open(self, path: Path) -> Saved:
        arrays, about = read(path, FORMAT)
        if "run" not in about:
            raise DamagedError(f"{path} does not say of which run it is")
        return Saved(path, arrays, about)

    def points(self, name: str | None) -> Iterator[Saved]:
        """What was added up to there, the last first. Raises where one is missing, or of another run."""
        while name is not None:
            found = self.part(name)
            yield found
            name = found.about["previous"]

    def part(self, name: str) -> Saved:
        found = self.open(self.path / name)
        if found.about["run"] != self.run:
            raise DamagedError(f"{found.path} is of another run than the checkpoints beside it")
        return found

    def write(self, kind: str, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> str:
        """One file of the next checkpoint; its name."""
        name = f"{kind}-{self.serial:08d}.safetensors"
        write(self.path / name, FORMAT, arrays, {"run": self.run, **about})
        return name

    def finished(self, spared: int = 0) -> None:
        """The checkpoint is whole; the last ones stay, and `spared` more."""
        self.serial += 1
        if self.keep is not None:
            whole = [path for path in self.checkpoints() if path not in self.damaged]
            for path in whole[self.keep + spared :]:
                path.unlink(missing_ok=True)


def _locked(file: Any) -> None:
    """Until it is closed, or its process has ended; raises `BlockingIOError` where another one has it."""
    try:
        import fcntl
    except ImportError:  # not a system of this kind
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def failed(path: Path, error: OSError) -> CheckpointError:
    why = error.strerror or str(error)
    return CheckpointError(
        f"no checkpoint can be kept in {path}: {why}", hint="those that are there already are as they were"
    )


def _number(name: str) -> int:
    found = _NAME.fullmatch(name)
    assert found is not None
    return int(found[1])
