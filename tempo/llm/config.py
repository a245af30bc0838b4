"""What `config.json` says, asked for by name and kind: what is missing or of another kind is an error that names it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tempo.llm.errors import CheckpointError

REQUIRED: Any = object()
"""In the place of a default: the name has to be there."""


@dataclass(frozen=True)
class Config:
    """The options of a model; `source` is how errors name where they are from. JSON's null counts as not given."""

    options: Mapping[str, Any]
    source: str = "config.json"

    def has(self, name: str) -> bool:
        return self.options.get(name) is not None

    def get(self, name: str, default: Any = REQUIRED) -> Any:
        """Of any kind."""
        if self.has(name):
            return self.options[name]
        if default is REQUIRED:
            raise CheckpointError(f"{self.source} does not say {name}")
        return default

    def integer(self, name: str, default: int = REQUIRED, most: int = 2**31 - 1) -> int:
        """A whole number from 1 to `most`."""
        value = self.get(name, default)
        if type(value) is not int or not 1 <= value <= most:
            raise self.wrong(name, f"which is no whole number from 1 to {most}")
        return value

    def window(self, name: str, default: int | None) -> int | None:
        """A whole number, or None where the file says null or, without a default, nothing."""
        return self.integer(name, default or REQUIRED) if self.options.get(name, default) is not None else None

    def number(self, name: str, default: float = REQUIRED) -> float:
        """A finite number that is not negative."""
        value = self.get(name, default)
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise self.wrong(name, "which is no number of at least 0")
        return float(value)

    def positive(self, name: str, default: float = REQUIRED) -> float:
        """A finite number above 0."""
        value = self.number(name, default)
        if not value:
            raise self.wrong(name, "which is no number above 0")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "which is neither true nor false")
        return value

    def one_of(self, name: str, known: Iterable[str], default: str = REQUIRED) -> str:
        """A word of those that are implemented."""
        value, words = self.get(name, default), tuple(known)
        if value not in words:
            raise self.wrong(name, f"which is not implemented; {', '.join(words)} {'is' if len(words) == 1 else 'are'}")
        return str(value)

    def part(self, name: str) -> Config | None:
        """A table within it, if it is there."""
        if not self.has(name):
            return None
        value = self.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "which is no table")
        return Config(value, f"{self.source}, {name}")

    def without(self, *names: str) -> None:
        """Refuse options that would change the equations, which know nothing of them."""
        for name in names:
            if self.get(name, False):
                raise self.wrong(name, "which is not implemented")

    def wrong(self, name: str, why: str) -> CheckpointError:
        shown = repr(self.options.get(name))
        return CheckpointError(
            f"{self.source} says {name} is {shown if len(shown) < 80 else shown[:76] + ' ...'}, {why}"
        )
