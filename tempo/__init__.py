"""Tempo: programs over time, declared as recurrent tensors and compiled whole. `import tempo as tp`."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any

from tempo import language as _language
from tempo.errors import (
    BackendCallError,
    BrokenPluginError,
    CheckpointError,
    CycleError,
    DefinitionError,
    DomainError,
    DTypeError,
    GatherWarning,
    HostCallError,
    IndexExpressionError,
    IndexOutOfRangeError,
    InputError,
    InternalError,
    MemoryLimitError,
    MissingFileError,
    MissingPackageError,
    NotFiniteError,
    ProgramError,
    ScheduleError,
    ShapeError,
    SizeError,
    TempoError,
    UnknownBackendError,
    UnknownSchedulerError,
    UnsupportedError,
)
from tempo.language import *  # noqa: F403 - the language's own list of names
from tempo.language.functions import *  # noqa: F403 - once more, as type checkers read no list made of lists
from tempo.language.unknown_names import UnknownName as _UnknownName

__version__ = "0.1.0"

bool = "bool"
bool_ = "bool"
bfloat16 = "bfloat16"
float16 = "float16"
float32 = "float32"
float64 = "float64"
int8 = "int8"
int16 = "int16"
int32 = "int32"
int64 = "int64"
uint8 = "uint8"
uint16 = "uint16"
uint32 = "uint32"
uint64 = "uint64"

pi = 3.141592653589793
e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None

# What runs programs, and libraries, are imported when first used, so that declaring one stays quick to start.
_RUNTIME = {
    "compile": "tempo.runtime.compile",
    "stages": "tempo.runtime.compile",
    "Options": "tempo.compiler.options",
    "save": "tempo.runtime.results.saving",
    "load": "tempo.runtime.results.saving",
    "Checkpoints": "tempo.runtime.checkpoints.folder",
    "Mesh": "tempo.placement.mesh",
    "Pipeline": "tempo.placement.request",
    "register_backend": "tempo.plugins",
    "register_scheduler": "tempo.plugins",
}
_LIBRARIES = ("llm", "nn", "optim", "rl", "testing")


__all__ = [
    *_language.__all__, "compile", "stages", "Options", "save", "load", "Checkpoints", "Mesh", "Pipeline",  # noqa: F405 - see __getattr__
    "register_backend", "register_scheduler", "llm", "nn", "optim", "rl", "testing",  # noqa: F405
    "bool", "bool_", "bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64",
    "pi", "e", "inf", "nan", "newaxis",
    "TempoError", "DomainError", "DefinitionError", "CycleError", "IndexExpressionError", "ProgramError", "ShapeError",
    "DTypeError", "SizeError", "IndexOutOfRangeError", "InputError", "MissingFileError", "MissingPackageError",
    "CheckpointError", "UnknownBackendError",
    "UnknownSchedulerError",
    "BrokenPluginError", "HostCallError", "BackendCallError", "NotFiniteError", "UnsupportedError", "MemoryLimitError",
    "ScheduleError", "GatherWarning",
    "InternalError",
]  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _RUNTIME:
        return getattr(_import_module(_RUNTIME[name]), name)
    if name in _LIBRARIES:
        return _import_module(f"tempo.{name}")
    raise _UnknownName(f"module 'tempo' has no attribute {name!r}", name, __all__, "tp")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
