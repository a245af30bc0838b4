"""Functions as executables: found on disk or compiled when they are first called, and what a call of them needs."""

from tempo_jax.executables.function import Array, Calls, JittedFunction, Meter, Scope, needs
from tempo_jax.executables.options import compile_options
from tempo_jax.executables.recall import Identity

__all__ = ["Array", "Calls", "Identity", "JittedFunction", "Meter", "Scope", "compile_options", "needs"]
