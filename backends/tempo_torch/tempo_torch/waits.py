"""Where the host waits for a device, and means to: what stands in `WAITS` is no oversight.

A loop of operators runs ahead of an accelerator, which takes them from a queue. Whoever needs a value on the host waits
until the queue is empty. `tempo_torch.simulated` refuses that in loops, but for functions that are listed here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

WAITS: dict[CodeType, str] = {}
"""Why, by the code of the function."""


def waits(why: str) -> Callable[[_Function], _Function]:
    """A function that waits for its operands, and why."""

    def listed(function: _Function) -> _Function:
        WAITS[function.__code__] = why
        return function

    return listed


def told(function: _Function, why: str) -> _Function:
    """An operator, some part of which waits, and why."""
    function.why_waits = why  # type: ignore[attr-defined]
    return function


def why_waits(operator: Callable[..., Any]) -> str | None:
    """Why an operator of the table waits; None where it does not."""
    found: str | None = getattr(operator, "why_waits", None) or WAITS.get(getattr(operator, "__code__", None))  # type: ignore[arg-type]
    return found
