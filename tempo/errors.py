"""Every error that a user of Tempo can meet, and the place in the user's source that it points at.

Each derives from `TempoError` and from the builtin that fits, so `except ValueError` works as it does with NumPy.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

_PACKAGE = f"{Path(__file__).resolve().parent}{os.sep}"
_CONFORMANCE = str(Path(__file__).resolve().parent / "conformance")  # its programs are written as users write theirs


@dataclass(frozen=True)
class Location:
    """A line of the user's source."""

    path: str
    line: int

    @property
    def text(self) -> str:
        return linecache.getline(self.path, self.line).strip()

    def __str__(self) -> str:
        text = self.text
        return f"{self.path}:{self.line}" + (f"\n    {text}" if text else "")


_PASSED: ContextVar[frozenset[str]] = ContextVar("tempo_passed_packages", default=frozenset())


def user_location() -> Location | None:
    """The innermost frame on the stack that is not in the `tempo` package, nor in one that `called_through` names."""
    frame: FrameType | None = sys._getframe(1)
    passed = _PASSED.get()
    while frame is not None:
        if not _is_ours(frame) and _package_of(frame) not in passed:
            return Location(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


@contextmanager
def called_through(*packages: str) -> Iterator[None]:
    """Inside, frames of these packages are not the user's, and an error that points nowhere points at the user's line:
    for what a framework calls."""
    token = _PASSED.set(frozenset((*packages, "contextlib")))
    try:
        with AtUserLine():
            yield
    finally:
        _PASSED.reset(token)


def _is_ours(frame: FrameType) -> bool:
    """Whether the code is of the package; what `dataclasses` writes for its classes has no file of its own, and what
    is asked for through a `functools.cached_property` is asked for by whoever asks that. Nobody wrote what runs a
    module (`python -m`)."""
    path = frame.f_code.co_filename
    if frame.f_globals.get("__name__") == "functools" or path.startswith("<frozen "):
        return True
    if path == "<string>":
        return str(frame.f_globals.get("__name__", "")).startswith("tempo.")
    return path.startswith(_PACKAGE) and not path.startswith(_CONFORMANCE)


def nearest(name: str, known: Iterable[str], kind: str = "there are") -> str:
    """What to do about a name that is not `known`: the one that was probably meant, and all there are."""
    names = sorted(known)
    near, listed = meant(name, names), f"{kind}: {', '.join(names) or 'none'}"
    return f"did you mean {near!r}? {listed}" if near else listed


def meant(name: str, known: Iterable[str]) -> str | None:
    """The one of the names that was probably meant, if any is near."""
    from difflib import get_close_matches  # only errors need it, and `import tempo` is to be quick

    return next(iter(get_close_matches(name, list(known), 1)), None)


class TempoError(Exception):
    """What is wrong, where (`path:line` and the source line), and what to do."""

    outputs: Any = None
    """Where a run failed in the middle: what it had made until then, up to the last whole point (`tp.Outputs`)."""

    state: Any = None
    """The parameters at that point: `state=` of another call takes them."""

    def __init__(self, message: str, *, location: Location | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint

    def __str__(self) -> str:
        where = f"\n  at {self.location}" if self.location else ""
        what_to_do = f"\n  {self.hint}" if self.hint else ""
        return f"{self.message}{where}{what_to_do}"


class AtUserLine:
    """`with AtUserLine():` an error that points nowhere yet points at a line, else the user's that led here."""

    def __init__(self, location: Location | None = None) -> None:
        self.location = location

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, TempoError) and error.location is None:
            error.location = self.location or user_location()


class DomainError(TempoError, IndexError):
    """A read outside a tensor's domain."""


class DefinitionError(TempoError, ValueError):
    """A case that no point reaches, or a demanded point that no case covers."""


class CycleError(TempoError, ValueError):
    """A demanded point needs its own value."""


class IndexExpressionError(TempoError, TypeError):
    """An index that is no index expression."""


class ProgramError(TempoError, ValueError):
    """A dim or tensor of another program, or of none that is open."""


class ShapeError(TempoError, ValueError):
    """Spatial shapes that do not fit."""


class DTypeError(TempoError, TypeError):
    """Dtypes that do not fit."""


class SizeError(TempoError, ValueError):
    """A size that is unknown, less than 1, or given twice and differently."""


NO_POINTS = "leave the run out where there is nothing to do; an axis of a shape may have size 0, a dim has a point"
"""What to do instead of a dim of size 0."""


class IndexOutOfRangeError(TempoError, IndexError):
    """A data-dependent index outside its range."""


class InputError(TempoError, ValueError):
    """An input that is missing, unknown, or of the wrong shape."""


class MissingFileError(TempoError, FileNotFoundError):
    """A file that is to be loaded, or the folder of one that is to be written, does not exist."""


class CheckpointError(TempoError, OSError):
    """Checkpoints that cannot be written or read; those that were whole before still are."""


class MissingPackageError(TempoError, ImportError):
    """A package that is needed for this alone is not installed; says how to install it."""


def package(module: str, what: str, extra: str) -> Any:
    """The package with the module, which is loaded. Raises `MissingPackageError` where `what` cannot have it."""
    try:
        return __import__(module)
    except ImportError as error:
        hint = f"install it with: python -m pip install 'tempo-sdg[{extra}]'"
        raise MissingPackageError(f"{what} needs {module.partition('.')[0]}", hint=hint) from error


class UnknownBackendError(TempoError, ImportError):
    """No installed backend has this name."""


class UnknownSchedulerError(TempoError, ImportError):
    """No installed scheduler has this name."""


class BrokenPluginError(TempoError, ImportError):
    """A plugin that is installed cannot be loaded."""


class HostCallError(TempoError, RuntimeError):
    """A function of a host call failed, or returned something other than it declared."""


class BackendCallError(TempoError, RuntimeError):
    """A function of a backend call failed, or returned something other than it declared."""


class NotFiniteError(TempoError, FloatingPointError):
    """A value is NaN or infinite, in a run with `tp.Options(check_finite=True)`."""


class UnsupportedError(TempoError, NotImplementedError):
    """The backend or scheduler cannot run this; says what could.

    `feature` is what the backend's descriptor excludes ("sort", "sort:int8", "bfloat16", "checks"), where that is the
    reason; `statements` are those of a `SchedulingProblem` that a scheduler finds no order of.
    """

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        hint: str | None = None,
        feature: str | None = None,
        statements: Iterable[str] = (),
    ) -> None:
        super().__init__(message, location=location, hint=hint)
        self.feature, self.statements = feature, frozenset(statements)


class MemoryLimitError(TempoError, MemoryError):
    """No plan fits the memory limit."""


class GatherWarning(UserWarning):
    """Arrays that lie in parts on a mesh of devices are gathered, which nobody asked for."""


class ScheduleError(TempoError, ValueError):
    """A schedule breaks a dependence or misses an instance (found by `tempo.schedule.verify`)."""


class InternalError(TempoError, RuntimeError):
    """A bug in Tempo or in a plugin, not in the user's program."""

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(f"this is a bug in Tempo: {message}", **details)  # type: ignore[arg-type]
