"""Backends that say something of themselves: the NumPy backend with true and with false declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tempo.backends.numpy.backend import NumpyBackend
from tempo.errors import UnsupportedError
from tempo.plugins.descriptors import DTYPES, BackendPlugin, Capabilities
from tempo.sdg.call import Call

Array = Any
UNSUPPORTED = {"sort": "it has no kernel", "cumsum:int32": "it overflows", "checks": "it cannot raise"}


class Honest(NumpyBackend):
    """Does without what its descriptor excludes."""

    def operator(self, call: Call) -> Callable[..., Array]:
        types = (call.result, *call.operands)
        if self.info.why_not(call.op, *(each.dtype for each in types)):
            raise UnsupportedError(f"the backend {self.info.name!r} does not run {call.op!r}")
        if "checked" in call.attrs:
            call = replace(call, attrs={**call.attrs, "checked": False})
        return super().operator(call)


class TooModest(NumpyBackend):
    """Does all of what its descriptor excludes."""


class Boastful(NumpyBackend):
    """Excludes nothing, and cannot sort."""

    def operator(self, call: Call) -> Callable[..., Array]:
        if call.op == "sort":
            raise UnsupportedError(f"the backend {self.info.name!r} does not sort")
        return super().operator(call)


_WITHOUT_HALVES = tuple(dtype for dtype in DTYPES if dtype not in ("float16", "bfloat16"))

BACKENDS: Mapping[str, tuple[type[NumpyBackend], dict[str, str], tuple[str, ...]]] = {
    "honest": (Honest, UNSUPPORTED, _WITHOUT_HALVES),
    "too-modest-operator": (TooModest, {"sort": "it has no kernel"}, DTYPES),
    "too-modest-dtype": (TooModest, {}, _WITHOUT_HALVES),
    "too-modest-checks": (TooModest, {"checks": "it cannot raise"}, DTYPES),
    "boastful": (Boastful, {}, DTYPES),
}


def descriptors() -> list[BackendPlugin]:
    made = []
    for name, (factory, unsupported, dtypes) in BACKENDS.items():
        info = BackendPlugin(name, factory, capabilities=Capabilities(unsupported=unsupported), dtypes=dtypes)
        made.append(replace(info, factory=type(factory.__name__, (factory,), {"info": info})))
    return made
