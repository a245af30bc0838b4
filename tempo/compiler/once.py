"""What is made once for each key, however many threads ask for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Once(Generic[K, V]):
    """Values by key. Who asks while another thread makes the value waits for it; what failed is made by the next."""

    def __init__(self) -> None:
        self._made: dict[K, V] = {}
        self._turns: dict[K, threading.RLock] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of `key`; what `make` raises is raised, and nothing is kept."""
        try:
            return self._made[key]
        except KeyError:
            pass
        with self._turns.setdefault(key, threading.RLock()):
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def __iter__(self) -> Iterator[K]:
        """The keys of what has been made so far, in that order."""
        return iter(tuple(self._made))
