"""What a run returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tempo.reference.evaluator import Evaluated
    from tempo.runtime.arguments.call import Arguments
    from tempo.sdg.graph import Graph


Array = np.ndarray[Any, Any]


class Packed(NamedTuple):
    """Rows with lengths of their own, one behind the other: row i is `values[offsets[i]:offsets[i + 1]]`."""

    values: Any
    offsets: Array


def _shape(array: Any) -> str:
    return f"packed {tuple(array.values.shape)}" if isinstance(array, Packed) else str(tuple(array.shape))


class _ArrayMapping(Mapping[str, Any]):
    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = dict(arrays)

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name}: {_shape(array)}" for name, array in self._arrays.items())
        return f"{type(self).__name__}({arrays})"


class State(_ArrayMapping):
    """The parameters at the end of a run, by name.

    Another program with parameters of the same names takes it as `state=`; names that it does not have are left out.
    """


class Outputs(_ArrayMapping):
    """The outputs by name: arrays of the backend, the domain's dims in front, then the shape.

    `state` holds the parameters at the end, `sizes` the size of every dim: along one with a `tp.stop_when`, the points
    that were kept. `lengths` has, by dim, those of each row, where rows have lengths of their own: int32 arrays of
    NumPy's over the dims of the lengths that were given, or over the `each=` of a stop.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        state: Mapping[str, Any],
        sizes: Mapping[str, int],
        lengths: Mapping[str, Array] | None = None,
    ) -> None:
        super().__init__(arrays)
        self.state = State(state)
        self.sizes = dict(sizes)
        self.lengths = dict(lengths or {})


def outputs_of(
    made: Evaluated, graph: Graph, arguments: Arguments, from_host: Callable[[Array], Any] = np.asarray
) -> Outputs:
    """Of a run that has ended. `from_host` gives an array of NumPy's as the backend indexes by it."""
    sizes, lengths = graph.named_sizes(arguments.sizes) | made.kept, {**made.lengths, **arguments.lengths}
    dims = {each.name: each.domain[-1].name for each in graph.outputs if each.packed and each.name in made.outputs}
    packed = {name: _packed(made.outputs[name], lengths[dim], from_host) for name, dim in dims.items()}
    return Outputs({**made.outputs, **packed}, made.state, sizes, lengths)


def _packed(array: Any, lengths: Array, from_host: Callable[[Array], Any]) -> Packed:
    inside = np.arange(array.shape[lengths.ndim]) < lengths[..., None]
    ends = np.cumsum(lengths, dtype=np.int32).ravel()
    at = tuple(from_host(each.astype(np.int32)) for each in np.nonzero(inside))
    return Packed(array[at], np.concatenate([np.zeros(1, np.int32), ends]))


class Step(_ArrayMapping):
    """The outputs over the streamed dim for its points `start, ..., stop - 1`.

    When the stream goes point by point the dim's axis is dropped, else it has `stop - start` entries. `lengths`: those
    of `Outputs`, if the run ended here; a row that is shorter than `stop` has ended.
    """

    def __init__(
        self, arrays: Mapping[str, Any], start: int, stop: int, lengths: Mapping[str, Array] | None = None
    ) -> None:
        super().__init__(arrays)
        self.start = start
        self.stop = stop
        self.lengths = dict(lengths or {})
