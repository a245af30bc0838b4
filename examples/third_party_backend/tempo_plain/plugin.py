"""What Tempo's plugin manager loads when it lists backends: a descriptor. This module imports nothing heavy."""

from __future__ import annotations

from tempo.dtypes import DTYPES
from tempo.plugins import BackendPlugin, Capabilities, hookimpl

PLUGIN = BackendPlugin(
    name="plain",
    api_version=1,  # written out: the version of the contract that this package was made for
    summary="an example: NumPy with a table of its own, without bfloat16 and convolutions",
    factory="tempo_plain.backend:PlainBackend",  # imported when the backend is used
    dtypes=tuple(name for name in DTYPES if name != "bfloat16"),
    # An operator, or "operator:dtype", and why not. Tempo refuses them at the user's line with this reason.
    capabilities=Capabilities(unsupported={"conv": "no convolution is written yet"}),
)


@hookimpl
def tempo_backend() -> BackendPlugin:
    return PLUGIN
