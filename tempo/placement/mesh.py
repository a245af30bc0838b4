"""Meshes of devices, and how an array lies on one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from tempo.errors import InputError, user_location


@dataclass(frozen=True)
class Shards:
    """An axis lies along the axis `over` of a mesh, cut into `count` parts of one size."""

    over: str
    count: int


Placement = tuple[Shards | None, ...]
"""For each axis of an array how it is cut; None: whole, and the same on all devices."""


@dataclass(frozen=True, init=False)
class Mesh:
    """Devices in a grid whose axes have names: `tp.Mesh({"data": 4, "model": 2})` has eight.

    Raises `InputError` for what is no name or no count.
    """

    shape: tuple[tuple[str, int], ...]

    def __init__(self, shape: Mapping[str, int]) -> None:
        given: Any = shape
        if not isinstance(given, Mapping) or not given:
            raise _refused(f"{given!r} is no mesh")
        for name, count in given.items():
            if not (isinstance(name, str) and name.isidentifier()):
                raise _refused(f"{name!r} is no name of an axis of a mesh")
            if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
                raise _refused(f"{count!r} is no number of devices, along the axis {name!r}")
        object.__setattr__(self, "shape", tuple((name, int(count)) for name, count in given.items()))

    @property
    def axes(self) -> dict[str, int]:
        """How many devices there are along each axis."""
        return dict(self.shape)

    @property
    def devices(self) -> int:
        """How many there are."""
        return math.prod(self.axes.values())

    def shards(self, over: str) -> Shards:
        return Shards(over, self.axes[over])

    def __str__(self) -> str:
        return ", ".join(f"{name}={count}" for name, count in self.shape)


def _refused(what: str) -> InputError:
    hint = 'write tp.Mesh({"data": 4}): how many devices there are along each axis, by its name'
    return InputError(what, location=user_location(), hint=hint)


def local(shape: Iterable[int], placement: Placement) -> tuple[int, ...]:
    """The part of an array that one device has; without a placement it has all."""
    return tuple(_local(shape, placement)) if placement else tuple(shape)


def _local(shape: Iterable[int], placement: Placement) -> Iterator[int]:
    for size, cut in zip(shape, placement, strict=True):
        yield size if cut is None else -(-size // cut.count)


def whole(shape: Iterable[int], placement: Placement) -> tuple[int, ...]:
    """The shape of the array of which one device has such a part."""
    sizes = tuple(shape)
    cuts = placement or (None,) * len(sizes)
    return tuple(size if cut is None else size * cut.count for size, cut in zip(sizes, cuts, strict=True))


def permuted(placement: Placement, axes: Iterable[int]) -> Placement:
    """That of an array with its axes in another order."""
    return tuple(placement[axis] for axis in axes) if placement else ()
