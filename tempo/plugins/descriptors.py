"""What a plugin says about itself. A descriptor is data: making one imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

API_VERSION = 1
"""The version of the contract between the core and its plugins. It grows when a plugin has to change."""

Factory = str | Callable[[], Any]
"""`"package.module:name"`, imported when the plugin is used, or the callable itself. It is called without arguments."""

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
"""The dtypes of the language."""


@dataclass(frozen=True)
class Capabilities:
    """What a backend does not do, with the reason, and where it runs.

    `unsupported` maps a feature (an operator's name, or `"operator:dtype"`) to the reason; whatever is declared there
    must raise `tp.UnsupportedError`. Everything else is supported.

    >>> Capabilities(unsupported={"sort:bfloat16": "no kernel"}).why_not("sort", "bfloat16")
    'no kernel'
    """

    devices: tuple[str, ...] = ("cpu",)
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, operator: str, dtype: str | None = None) -> str | None:
        """Why the operator is not supported for the dtype, or None when it is."""
        return self.unsupported.get(operator) or self.unsupported.get(f"{operator}:{dtype}")


@dataclass(frozen=True)
class BackendPlugin:
    """A backend: the name that users type, and the factory of an object as `tempo.backends.base` describes it."""

    name: str
    factory: Factory
    api_version: int = API_VERSION
    summary: str = ""
    capabilities: Capabilities = Capabilities()
    dtypes: tuple[str, ...] = DTYPES
    kind: ClassVar[str] = "backend"


@dataclass(frozen=True)
class SchedulerPlugin:
    """A scheduler: the name that users type, and the factory of an object with `schedule(problem)`."""

    name: str
    factory: Factory
    api_version: int = API_VERSION
    summary: str = ""
    kind: ClassVar[str] = "scheduler"


EMBEDDED_BACKENDS = (
    BackendPlugin(
        "numpy",
        "tempo.backends.numpy.backend:NumpyBackend",
        summary="generated loops over preallocated NumPy arrays, on one CPU thread",
    ),
    BackendPlugin(
        "reference",
        "tempo.reference.backend:ReferenceBackend",
        summary="the demand-driven evaluator: slow and exact, for checking the others",
    ),
)
