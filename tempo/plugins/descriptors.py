"""What a plugin says about itself. A descriptor is data: making one imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tempo.dtypes import DTYPES

API_VERSION = 1
"""The version of the contract between the core and its plugins. It grows when a plugin has to change."""

Factory = str | Callable[[], Any]
"""`"package.module:name"`, imported when the plugin is used, or the callable itself. It is called without arguments."""


@dataclass(frozen=True)
class Capabilities:
    """What a backend does not do, with the reason, and where it runs.

    `unsupported` maps a feature (an operator's name, or `"operator:dtype"`) to the reason; whatever is declared there
    must raise `tp.UnsupportedError`. Everything else is supported. `composites` are the operators among those that are
    made of others (softmax, layer_norm) that the backend has a function for; it never meets the rest of them. A backend
    that `clamps` checks indices only where `Options(checks=True)` asks for it. `meshes`: it runs on a mesh of devices.

    >>> Capabilities(unsupported={"sort:bfloat16": "no kernel"}).why_not("sort", "bfloat16")
    'no kernel'
    """

    devices: tuple[str, ...] = ("cpu",)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    composites: tuple[str, ...] = ()
    clamps: bool = False
    meshes: bool = False

    def why_not(self, operator: str, dtype: str | None = None) -> str | None:
        """Why the operator is not supported for the dtype, or None when it is."""
        feature = self.excluded(operator, dtype)
        return None if feature is None else self.unsupported[feature]

    def excluded(self, operator: str, dtype: str | None = None) -> str | None:
        """The declared feature that the operator with the dtype falls under, or None."""
        return next((each for each in (operator, f"{operator}:{dtype}") if each in self.unsupported), None)


@dataclass(frozen=True)
class Exclusion:
    """An operator on a dtype that a backend does not run, the declared feature that says so, and its reason."""

    operator: str
    dtype: str
    feature: str
    why: str


@dataclass(frozen=True)
class BackendPlugin:
    """A backend: the name that users type, and the factory of an object as `tempo.backends` describes it."""

    name: str
    factory: Factory
    api_version: int = API_VERSION
    summary: str = ""
    capabilities: Capabilities = Capabilities()
    dtypes: tuple[str, ...] = DTYPES
    kind: ClassVar[str] = "backend"

    def why_not(self, operator: str, *dtypes: str) -> Exclusion | None:
        """What of the declaration excludes the operator on operands and results of these dtypes, or None."""
        for dtype in dtypes:
            feature = self.capabilities.excluded(operator, dtype)
            if feature is not None:
                return Exclusion(operator, dtype, feature, self.capabilities.unsupported[feature])
            if dtype in DTYPES and dtype not in self.dtypes:
                return Exclusion(operator, dtype, dtype, f"it has no {dtype}")
        return None


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
        capabilities=Capabilities(composites=("banded_attention",)),
    ),
    BackendPlugin(
        "reference",
        "tempo.reference.backend:ReferenceBackend",
        summary="the demand-driven evaluator: slow and exact, for checking the others",
    ),
)
