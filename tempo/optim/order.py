"""Recurrences over several dims in lexicographic order: iterations, epochs in them, minibatches in those."""

from __future__ import annotations

from collections.abc import Sequence

import tempo as tp


def define_next(tensor: tp.RecurrentTensor, dims: Sequence[tp.Dim], value: tp.RecurrentTensor) -> None:
    """Define `tensor` at every point of `dims` but the first as `value` at the point before, in lexicographic order.

    For dims (i, e): `tensor[i, e + 1] = value` and `tensor[i + 1, 0] = value.at(e=e.size - 1)`.
    """
    for position in reversed(range(len(dims))):
        later = dims[position + 1 :]
        moved = {dims[position].name: dims[position] + 1, **{dim.name: 0 for dim in later}}
        place = tuple(moved.get(dim.name, dim) for dim in tensor.domain)
        tensor[place] = value.at(**{dim.name: dim.size - 1 for dim in later if dim.name in names(value)})


def names(tensor: tp.RecurrentTensor) -> tuple[str, ...]:
    """The names of the dims along which it varies."""
    return tuple(dim.name for dim in tensor.domain)
