"""One place along an axis (`codegen.unit_slices`) as one view, made in advance where there are not too many."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tempo_torch.arrays import Array

_MANY = 1024  # places beyond which views of all of them would cost memory that matters


def picked(tensor: torch.Tensor, axis: int, place: int) -> torch.Tensor:
    """The place of the axis, clamped into it; a view. Of an axis without places: something that nobody looks at."""
    if not tensor.shape[axis]:
        return tensor.new_zeros((*tensor.shape[:axis], *tensor.shape[axis + 1 :]))
    return tensor.select(axis, min(max(place, 0), tensor.shape[axis] - 1))


def element(array: Array, place: int) -> Any:
    """The element of a vector at a place, clamped into it; of no elements: something that nobody looks at."""
    return array[min(max(place, 0), len(array) - 1)] if len(array) else array.dtype.type(0)


@cache
def picker(axis: int) -> Callable[[torch.Tensor], Callable[[int], torch.Tensor]]:
    """What makes of a tensor the function `picked` along one axis, its views made in advance where they are few."""

    def places(tensor: torch.Tensor) -> Callable[[int], torch.Tensor]:
        if not 0 < tensor.shape[axis] <= _MANY:
            return lambda place: picked(tensor, axis, place)
        views = tensor.unbind(axis)
        last = len(views) - 1
        return lambda place: views[min(max(place, 0), last)]

    places.__name__ = f"places_of_axis_{axis}"  # the source names what is made in advance by it
    return places
