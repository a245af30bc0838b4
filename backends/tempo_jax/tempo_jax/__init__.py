"""The JAX backend of Tempo. Importing this package imports no JAX; `tempo_jax.backend` does.

`tempo_jax.function(program)` is a program as a function that JAX transforms (`tempo_jax.functions`).
"""

from typing import Any

__all__ = ["function"]


def __getattr__(name: str) -> Any:
    if name != "function":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tempo_jax.functions import function

    return function
