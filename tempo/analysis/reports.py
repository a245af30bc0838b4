"""How messages name tensors, points and instances: in the user's words, never by node numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

from tempo.errors import CycleError, DefinitionError, DomainError, ShapeError
from tempo.sdg.graph import Graph, Node, Output
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Expr, Symbol


class Instance(NamedTuple):
    """One point of one node's domain."""

    node: int
    point: tuple[int, ...]


class SymbolicInstance(NamedTuple):
    """A point given by expressions of sizes."""

    node: int
    point: tuple[Expr, ...]


def output_reader(output: Output) -> Node:
    """An output as the node that it would be: what reads `output.edge` at every point of the domain."""
    name = f"output {output.name!r}"
    return Node(-1, "copy", output.domain, (output.type,), (output.edge,), name=name, location=output.location)


def elements_needed(node: Node) -> int:
    """How many elements along its axes the reduction has no value without."""
    return OPERATORS[node.op].least(node.attributes)


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of its operand that a reduction goes along."""
    axis = node.attr("axis")
    return tuple(node.attr("axes")) if axis is None else (axis,)


def slice_text(start: int | Expr, length: int | Expr) -> str:
    """`3:9`. A negative length is that of a slice whose stop is negative, and is that stop."""
    negative = length < 0 if isinstance(length, int) else length.is_const and length.as_int() < 0
    return f"{start}:{length if negative else start + length}"


def tensor_name(node: Node) -> str:
    """The name that the user gave, or the operator that made the tensor."""
    name = node.name or node.attr("name")
    return str(name) if name else f"the result of {node.op}"


_FIRST: ContextVar[Mapping[Symbol, int]] = ContextVar("first", default=MappingProxyType({}))


@contextmanager
def beginning_at(first: Mapping[Symbol, int]) -> Iterator[None]:
    """Inside, the points of a program that begins later along some dims are told as those of the whole one."""
    token = _FIRST.set(first)
    try:
        yield
    finally:
        _FIRST.reset(token)


def point_text(dims: Iterable[Symbol], point: Iterable[int | Expr]) -> str:
    """`i = 3, t = 7`; the empty point is named as such."""
    first = _FIRST.get()
    pairs = [f"{symbol.name} = {value + first.get(symbol, 0)}" for symbol, value in zip(dims, point)]
    return ", ".join(pairs) or "its only point"


def instance_text(graph: Graph, instance: Instance | SymbolicInstance) -> str:
    """`h[i = 3, t = 7]`."""
    node = graph.nodes[instance.node]
    point = point_text(node.domain, instance.point) if node.domain else ""
    return tensor_name(node) + (f"[{point}]" if point else "")


def cycle_text(graph: Graph, cycle: Sequence[Instance | SymbolicInstance]) -> str:
    """One line per instance, each needed by the one above it; the last needs the first.

    Nodes without a name of the user's are left out where others remain, since the user never wrote them.
    """
    named = [instance for instance in cycle if graph.nodes[instance.node].name] or list(cycle)
    lines = [_cycle_line(graph, instance) for instance in (*named, named[0])]
    return "\n  needs ".join(lines)


def _cycle_line(graph: Graph, instance: Instance | SymbolicInstance) -> str:
    location = graph.nodes[instance.node].location
    return instance_text(graph, instance) + (f" ({location.path}:{location.line})" if location else "")


def cycle_error(graph: Graph, cycle: Sequence[Instance | SymbolicInstance]) -> CycleError:
    """Each instance needs the next, the last the first."""
    location = next((graph.nodes[instance.node].location for instance in cycle), None)
    return CycleError(
        f"a value is needed to compute itself:\n  {cycle_text(graph, cycle)}",
        location=location,
        hint="Read an earlier point, or add a case that ends the recurrence.",
    )


def outside_error(
    reader: Node, producer: Node, axis: int, index: str, size: int | Expr, point: Iterable[int | Expr]
) -> DomainError:
    """`reader` at `point` reads `producer` at `index` (`7`, or `3:9`) along one dim, which is not in its domain."""
    name = producer.domain[axis].name
    bounds = f"0 <= start, stop <= {size}" if ":" in index else f"0 <= {name} < {size}"
    by = f" by {tensor_name(reader)}" if reader.name else ""
    where = f" at {point_text(reader.domain, point)}" if reader.domain else ""
    return DomainError(
        f"{tensor_name(producer)}[{name} = {index}] is read{by}{where}, outside its domain {bounds}",
        location=reader.location or producer.location,
        hint="Guard the read with a case, or change the index: indices are not clipped.",
    )


def uncovered_error(node: Node, point: Iterable[int | Expr]) -> DefinitionError:
    return DefinitionError(
        f"{tensor_name(node)} is needed at {point_text(node.domain, point)}, where no case defines it",
        location=node.location,
        hint="Add a case for that point, or do not read it there.",
    )


def negative_error(node: Node, point: Iterable[int | Expr], shape: Iterable[int | Expr]) -> ShapeError:
    sizes = [str(size) for size in shape]
    return ShapeError(
        f"the shape ({', '.join(sizes)}{',' * (len(sizes) == 1)}) of the result of {node.op} at "
        f"{point_text(node.domain, point)} has a negative size",
        location=node.location,
        hint="Guard the point with a case, or keep the size from falling below 0 with tp.max(..., 0).",
    )


def empty_error(node: Node, point: Iterable[int | Expr]) -> ShapeError:
    operation = node.attr("nonempty") or node.op.removeprefix("reduce_").removesuffix("_indices")
    needed = elements_needed(node)
    short = "an empty slice" if needed == 1 else f"a slice of fewer than {needed} elements"
    return ShapeError(
        f"{operation} over {short} at {point_text(node.domain, point)}",
        location=node.location,
        hint=f"{operation} has no value there: guard the point with a case, or make the slice longer.",
    )
