"""What the core's plugin manager loads: a descriptor, and nothing heavy."""

from __future__ import annotations

from tempo.plugins import BackendPlugin, Capabilities, hookimpl

PLUGIN = BackendPlugin(
    name="jax",
    api_version=1,
    summary="each segment is one jitted executable with its loops inside; XLA on CPU, GPU and TPU",
    factory="tempo_jax.backend:JaxBackend",
    capabilities=Capabilities(
        devices=("cpu", "cuda", "rocm", "tpu"),
        composites=("banded_attention",),
        clamps=True,
        meshes=True,
    ),
)


@hookimpl
def tempo_backend() -> BackendPlugin:
    return PLUGIN
