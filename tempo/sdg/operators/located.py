"""Where an index was out of range in the user's source: operators see arrays only, their callers know the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tempo.errors import IndexOutOfRangeError, Location

HINT = "correct the index, or let it be clamped into range: tp.compile(..., options=tp.Options(checks=False))"


def located(
    function: Callable[..., Any], attrs: Mapping[str, Any], location: Location | None, where: str = ""
) -> Callable[..., Any]:
    """`function`, whose `IndexOutOfRangeError` says the line and `where`; itself where it checks no index."""
    if not attrs.get("checked", False):
        return function

    def call(*arrays: Any) -> Any:
        try:
            return function(*arrays)
        except IndexOutOfRangeError as error:
            raise IndexOutOfRangeError(error.message + where, location=location, hint=HINT) from None

    return call
