"""Tempo's PyTorch backend. Importing this package imports no torch; `tempo_torch.backend` does.

`tempo_torch.module(program)` is a program as an `nn.Module` (`tempo_torch.modules`).
"""

from typing import Any

__all__ = ["module"]


def __getattr__(name: str) -> Any:
    if name != "module":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tempo_torch.modules import module

    return module
