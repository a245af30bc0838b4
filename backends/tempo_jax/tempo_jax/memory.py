"""How many bytes of arrays live at once: what there is when an executable is called, and what XLA says it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


class Meter:
    """Looks at every call of a segment while it measures."""

    def __init__(self) -> None:
        self.measures = False
        self._peak = self._before = 0

    def measured_peak(self, work: Callable[[], Any]) -> int:
        """The bytes that `work` allocates and that live at once, at most."""
        self._before, self._peak, self.measures = _live(), 0, True
        try:
            work()
        finally:
            self.measures = False
        return self._peak

    def look(self, function: Any, arguments: tuple[Any, ...]) -> None:
        """Before a call of a `jax.jit` function: its arguments are alive, and what it donates makes room."""
        needs = function.lower(*arguments).compile().memory_analysis()
        made = needs.temp_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
        self._peak = max(self._peak, _live() - self._before + made)


def _live() -> int:
    return sum(array.nbytes for array in jax.live_arrays())
