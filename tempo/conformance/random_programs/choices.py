"""Where a generator's decisions come from: hypothesis, which shrinks them, or a seeded random generator."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Decisions, each made of numbers below a bound. Number 0 is the simplest, so alternatives are simplest first."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below

    @staticmethod
    def seeded(seed: int) -> Choices:
        return Choices(random.Random(seed).randrange)

    def number(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return low + (self._below(high - low + 1) if high > low else 0)

    def choice(self, alternatives: Sequence[T]) -> T:
        return alternatives[self.number(0, len(alternatives) - 1)]

    def chance(self, percent: int) -> bool:
        """True in about `percent` of a hundred."""
        return self._below(100) >= 100 - percent

    def weighted(self, alternatives: Sequence[tuple[int, T]]) -> T:
        """One of pairs of weight and alternative."""
        place = self._below(sum(weight for weight, _ in alternatives))
        for weight, alternative in alternatives:
            if place < weight:
                return alternative
            place -= weight
        raise AssertionError("unreachable: place is below the sum of the weights")

    def some(self, items: Sequence[T], percent: int = 50) -> tuple[T, ...]:
        """A subset, in order."""
        return tuple(item for item in items if self.chance(percent))
