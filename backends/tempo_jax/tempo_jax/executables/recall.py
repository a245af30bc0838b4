"""Executables of earlier processes, found without tracing: JAX's persistent cache finds them by what was traced and
lowered, which takes longer than all else in a second process.

A file is named after all that an executable follows from: the loops, the function that is made of them, the arguments,
JAX's settings, and the sources of Tempo; the folder (`cache.py`) after versions, machine and XLA's flags. ccache calls
this its direct mode. What cannot be told so (a program with functions in it, a mesh) goes through JAX's cache. An
executable goes through one of them: XLA does not write out all of one that it has read.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from tempo.backends import SegmentRequest
from tempo.caches import digest, read, stamps, write
from tempo.logs import say
from tempo_jax.executables import cache

_FORMAT = "recalled 2"
_OF_CACHES = ("jax_compilation_cache_", "jax_persistent_cache_", "jax_enable_compilation_cache")


@dataclass(frozen=True)
class Identity:
    """What the functions of a segment follow from. `backend`: what it was told, and what things cost on its device."""

    request: SegmentRequest
    device: jax.Device
    backend: str

    @cached_property
    def _text(self) -> str | None:
        """None where it cannot be told: a program with functions in it, sources that have changed."""
        request, program = self.request, self.request.program.identity
        if program is None:
            return None
        try:
            sources = stamps(("tempo", "tempo_jax"))
        except (LookupError, ValueError, OSError):
            return None
        sizes = sorted((str(symbol), size) for symbol, size in request.sizes.items())
        device = f"{self.device.client.platform_version} {self.device.device_kind} {self.device.id}"
        return digest(sources, self.backend, device, f"{request.segment.name} {request.index_bits} {sizes}", program)

    def file(self, function: str, arguments: Any) -> Path | None:
        """Where the executable of `function`, which has its name, is kept for arguments like these. None where it
        cannot be told, or is not kept."""
        folder = cache.own_folder()
        if folder is None or self._text is None:
            return None
        settings = sorted((name, str(value)) for name, value in _settings().items())
        found = [_FORMAT, self._text, function, *kinds_of(arguments), str(settings)]
        return None if any(" at 0x" in each for each in found) else folder / f"{digest(*found)}.executable"


def kinds_of(arguments: Any) -> tuple[str, ...]:
    """What an executable is for, of arguments or of their descriptions."""
    leaves, structure = jax.tree.flatten(arguments)
    return str(structure), *map(_kind, leaves)


def _kind(leaf: Any) -> str:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return f"{leaf.dtype} {leaf.shape} {getattr(leaf, 'weak_type', False)}"
    return type(leaf).__name__


def _settings() -> Mapping[str, Any]:
    """Those that executables may depend on, as they are in this thread."""
    values: Mapping[str, Any] = jax.config.values
    return {name: value for name, value in values.items() if not name.startswith(_OF_CACHES)}


def is_watched() -> bool:
    """Whether JAX is to look at each operator, of which an executable has none."""
    config = jax.config
    return bool(config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs)


def is_seen_through(arguments: Any) -> bool:
    """Whether JAX is to look at each operator: what is traced becomes part of the caller's."""
    return is_watched() or any(isinstance(each, jax.core.Tracer) for each in jax.tree.leaves(arguments))


def may_be_kept(lowered: jax.stages.Lowered) -> bool:
    """Not what calls functions of libraries (LAPACK): lowering is what looks up where these are, in each process."""
    return "custom_call" not in lowered.as_text()


def recalled(path: Path, device: jax.Device) -> Callable[..., Any] | None:
    """The executable that lies there, if there is one."""
    contents = read(path)
    if contents is None:
        return None
    try:
        return serialize_executable.deserialize_and_load(*pickle.loads(contents), device.client, [device])
    except Exception:  # noqa: BLE001 - whatever its reader raises, the file is at fault, and it is compiled again
        return None


def keep(path: Path, compiled: jax.stages.Compiled) -> None:
    """For other processes, where it can be written. It was compiled in this process."""
    try:
        body = pickle.dumps(serialize_executable.serialize(compiled))
    except (ValueError, NotImplementedError, TypeError, pickle.PicklingError, jax.errors.JaxRuntimeError) as error:
        why = f"{error}"  # not every platform's can be
        say("plans", lambda: f"{path.name} is not kept: {why}")
        return
    write(path, body)
