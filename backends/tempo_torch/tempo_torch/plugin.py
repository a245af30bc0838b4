"""What the core's plugin manager loads: a descriptor. Nothing here imports torch."""

from __future__ import annotations

import pluggy

from tempo.plugins import BackendPlugin, Capabilities

hookimpl = pluggy.HookimplMarker("tempo")

_COMPOSITES = ("softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "silu", "gelu", "gelu_by_tanh")
_ATTENTION = ("attention", "banded_attention")

INFO = BackendPlugin(
    name="torch",
    api_version=1,
    summary="generated loops over preallocated PyTorch tensors on a CPU, CUDA graphs on CUDA",
    factory="tempo_torch.backend:TorchBackend",
    capabilities=Capabilities(
        devices=("cpu", "cuda"),
        meshes=True,
        composites=(*_COMPOSITES, *_ATTENTION),
    ),
)


@hookimpl
def tempo_backend() -> BackendPlugin:
    return INFO
