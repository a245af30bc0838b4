"""How isl is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_UNBOUNDED = -1


@dataclass(frozen=True)
class Settings:
    """`whole_component`: one band for all statements that are connected, else as isl merges them.

    `max_coefficient` and `max_constant` bound what stands before a dim and how far a statement is shifted.
    """

    whole_component: bool = False
    max_coefficient: int = _UNBOUNDED
    max_constant: int = _UNBOUNDED
    algorithm: Literal["isl", "feautrier"] = "isl"


@dataclass(frozen=True)
class Rung:
    """One way to ask isl, of several that are tried in turn."""

    name: str
    settings: Settings


FUSING = Settings(whole_component=True, max_coefficient=1, max_constant=64)
"""One loop for all that is connected, with shifts: what n-step learning needs."""

COMPARED = (Rung("fusing", FUSING), Rung("isl's defaults", Settings()))
"""Each may find what the other does not, so both are asked: a shift that lets loops fuse, or groups of loops."""

LAST = Rung("Feautrier's algorithm", Settings(algorithm="feautrier"))
"""Finds some order wherever there is an affine one, without a thought of closeness."""
