"""`backend="reference"`: the evaluator itself, for debugging and for checking other backends."""

from __future__ import annotations

from typing import ClassVar

from tempo.loop_ir.passes import LoopPass
from tempo.plugins.descriptors import EMBEDDED_BACKENDS, BackendPlugin


class ReferenceBackend:
    """Evaluates the graph on demand; has no operator table and compiles nothing."""

    info: BackendPlugin = next(plugin for plugin in EMBEDDED_BACKENDS if plugin.name == "reference")
    interprets: ClassVar[bool] = True

    def loop_passes(self, passes: tuple[LoopPass, ...]) -> tuple[LoopPass, ...]:
        """It runs none; options may name them all the same."""
        return passes

    def with_device(self, name: str) -> ReferenceBackend:
        """One device: nothing to choose."""
        return self
