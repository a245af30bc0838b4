"""The iterators that a call is given for streamed inputs, held to what the program declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo.errors import HostCallError, InputError
from tempo.runtime.arguments import binding
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import Symbol

Array = np.ndarray[Any, Any]


class StreamEndError(InputError):
    """An iterator has ended before the run. Where the run has no end of its own, that is its end."""


def stream_nodes(graph: Graph) -> dict[str, Node]:
    """The streamed inputs, by name."""
    return {node.attr("stream"): node for node in graph.nodes.values() if node.is_stream}


def claim_length(table: binding.SizeTable, node: Node, given: Any, endless: Symbol | None = None) -> None:
    """What has a length has that of the dim, unless that is `endless`; raises `InputError` for what gives no values one
    after the other."""
    name = node.attr("stream")
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable) or not getattr(given, "shape", (1,)):
        raise InputError(
            f"the stream {name!r} is a {type(given).__name__}, which gives no arrays one after the other",
            location=node.location,
            hint="pass an iterator, a generator or a sequence of arrays, one for each point",
        )
    symbol = node.domain[0]
    if isinstance(given, Sized) and symbol != endless:
        claim = binding.SizeClaim(len(given), f"the length of the stream {name!r}", node.location)
        table.claim(table.graph.dim(symbol).size, claim, symbol.name)


@dataclass
class IteratorFeed:
    """Takes the next array of an iterator at every point; `shape` is that of each, `size` their number.

    Nothing is taken after the last point, so that a call may go on where another has stopped.
    """

    node: Node
    values: Iterator[Any]
    shape: tuple[int, ...]
    size: int

    @staticmethod
    def of(graph: Graph, node: Node, given: Any, sizes: Mapping[Symbol, int]) -> IteratorFeed:
        shape = tuple(int(extent.evaluate(sizes)) for extent in node.shape)
        size = int(graph.dim(node.domain[0]).size.evaluate(sizes))
        return IteratorFeed(node, iter(given), shape, size)

    def __call__(self, point: tuple[int, ...]) -> Array:
        """Raises `InputError` and `DTypeError` with the point, and `HostCallError` chained to what the iterator raised.

        The array is the run's own: an iterator may go on writing into what it gave.
        """
        where = f"the stream {self.node.attr('stream')!r} at {self.node.domain[0].name} = {point[0]}"
        try:
            value = next(self.values)
        except StopIteration:
            raise StreamEndError(
                f"{where} has ended: it gave {point[0]} arrays, and the size of {self.node.domain[0].name} is "
                f"{self.size}",
                location=self.node.location,
            ) from None
        except Exception as error:
            message = f"{where} failed: {type(error).__name__}: {error}"
            raise HostCallError(message, location=self.node.location) from error
        array = np.array(binding.as_array(value, self.node, where))
        if array.shape != self.shape:
            raise InputError(f"{where} has shape {array.shape}, declared is {self.shape}", location=self.node.location)
        return array
