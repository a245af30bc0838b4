"""Reads of reads, at random: a view means what indexing its values one after the other means."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tempo as tp
from tempo.errors import DomainError
from tempo.sdg.validate import validate

SIZES = {"a": 4, "b": 3, "c": 5}


class Values:
    """A recurrent tensor as a table: a dict from points to arrays of `shape` (None where it has no value)."""

    def __init__(self, dims, shape, table):
        self.dims, self.shape, self.table = dims, shape, table

    def read(self, index):
        """`index` maps each dim to a function from a point to an int or a range."""
        uses = {dim for expression, _ in index.values() for dim in expression}
        dims = tuple(dim for dim in SIZES if dim in uses)
        table = {}
        lengths = ()
        for position in np.ndindex(*(SIZES[dim] for dim in dims)):
            point = dict(zip(dims, position))
            places = [index[dim][1](point) for dim in self.dims]
            lengths = tuple(len(place) for place in places if not isinstance(place, int))
            table[position] = self._at(places, lengths + self.shape)
        return Values(dims, lengths + self.shape, table)

    def _at(self, places, shape):
        for dim, place in zip(self.dims, places):
            low, high = (place, place + 1) if isinstance(place, int) else (place.start, place.stop)
            if not (0 <= low <= SIZES[dim] and 0 <= high <= SIZES[dim]):
                return None
        axes = [(place,) if isinstance(place, int) else tuple(place) for place in places]
        found = [self.table[key] for key in _product(axes)]
        if any(value is None for value in found):
            return None
        return np.array(found, np.int32).reshape(shape)


def _product(axes):
    if not axes:
        return [()]
    return [(first, *rest) for first in axes[0] for rest in _product(axes[1:])]


@st.composite
def point_index(draw, dim):
    """One index of `dim`: (the dims it uses, the text of the tempo expression, its value at a point)."""
    other = draw(st.sampled_from(list(SIZES)))
    shift = draw(st.integers(-2, 2))
    kind = draw(st.sampled_from(["same", "shift", "number", "reverse", "other", "minimum"]))
    size = SIZES[dim]
    if kind == "same":
        return (dim,), lambda dims: dims[dim], lambda point: point[dim]
    if kind == "number":
        number = draw(st.integers(0, size - 1))
        return (), lambda dims: number, lambda point: number
    if kind == "reverse":
        return (dim,), lambda dims: dims[dim].size - 1 - dims[dim], lambda point: size - 1 - point[dim]
    if kind == "minimum":
        least = lambda dims: tp.max(tp.min(dims[other] + shift, size - 1), 0)  # noqa: E731
        return (other,), least, lambda point: max(min(point[other] + shift, size - 1), 0)
    name = dim if kind == "shift" else other
    return (name,), lambda dims: dims[name] + shift, lambda point: point[name] + shift


@st.composite
def slice_index(draw, dim):
    low = draw(st.integers(0, SIZES[dim]))
    high = draw(st.integers(0, SIZES[dim]))
    return (), lambda dims: slice(low, high), lambda point: range(low, max(low, high))


@given(data=st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_reads_of_reads_mean_what_they_say(data):
    array = np.arange(4 * 3 * 5, dtype=np.int32).reshape(4, 3, 5)
    values = Values(("a", "b", "c"), (), {key: array[key] for key in np.ndindex(4, 3, 5)})
    with tp.Program() as program:
        dims = {name: tp.dim(name, size) for name, size in SIZES.items()}
        tensor = tp.input("x", dims=tuple(dims.values()), dtype=tp.int32)
        for _ in range(data.draw(st.integers(1, 3))):
            index = {}
            for dim in values.dims:
                uses, write, evaluate = data.draw(st.one_of(point_index(dim), point_index(dim), slice_index(dim)))
                index[dim] = (uses, evaluate, write)
            tensor = tensor[tuple(index[dim][2](dims) for dim in values.dims)] if values.dims else tensor
            values = values.read({dim: (uses, evaluate) for dim, (uses, evaluate, _) in index.items()})
        weights = np.arange(1, np.prod(values.shape, dtype=int) + 1, dtype=np.int32)  # that tell axes from each other
        tp.output("y", (tensor.reshape(-1) * weights).sum())
    validate(program.graph())
    assert tuple(dim.name for dim in tensor.domain) == values.dims
    if any(value is None for value in values.table.values()):
        with pytest.raises(DomainError):
            tp.compile(program, backend="reference")(x=array)
        return
    sums = [np.dot(value.reshape(-1), weights) for value in values.table.values()]
    expected = np.array(sums, np.int32).reshape(tuple(SIZES[dim] for dim in values.dims))
    np.testing.assert_array_equal(tp.compile(program, backend="reference")(x=array)["y"], expected)
