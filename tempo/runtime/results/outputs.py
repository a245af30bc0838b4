"""What a run returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tempo.reference.evaluator import Evaluated
    from tempo.sdg.graph import Graph
    from tempo.symbolic import Symbol


class _Arrays(dict[str, Any]):
    """By name."""

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name}: {tuple(array.shape)}" for name, array in self.items())
        return f"{type(self).__name__}({arrays})"


class State(_Arrays):
    """The parameters at the end of a run, by name.

    Another program with parameters of the same names takes it as `state=`; names that it does not have are left out.
    """


class Outputs(_Arrays):
    """The outputs by name: arrays of the backend, the domain's dims in front, then the shape.

    `state` holds the parameters at the end, `sizes` the size of every dim: along one with a `tp.stop_when`, the points
    that were kept.
    """

    def __init__(self, arrays: Mapping[str, Any], state: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        super().__init__(arrays)
        self.state = State(state)
        self.sizes = dict(sizes)


def outputs_of(made: Evaluated, graph: Graph, sizes: Mapping[Symbol, int]) -> Outputs:
    """Of a run that has ended."""
    return Outputs(made.outputs, made.state, graph.named_sizes(sizes) | made.kept)


class Step(_Arrays):
    """The outputs over the streamed dim for its points `start, ..., stop - 1`.

    When the stream goes point by point the dim's axis is dropped, else it has `stop - start` entries.
    """

    def __init__(self, arrays: Mapping[str, Any], start: int, stop: int) -> None:
        super().__init__(arrays)
        self.start = start
        self.stop = stop
