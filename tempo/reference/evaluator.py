"""The meaning of a program: a demand-driven evaluator over domain points.

A value is computed when something needs it, at one point at a time, with the shapes of that point, by the NumPy meaning
of each operator. There is no order of execution beyond that of needs and of host calls, no storage that is reused and
no shape that is padded. Slow and exact: passes, schedulers and backends are checked against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.analysis.demand.instances import demanded
from tempo.analysis.dependence.host_order import Barrier, HostOrder, effect_nodes
from tempo.analysis.reports import (
    Instance,
    cycle_error,
    elements_needed,
    empty_error,
    negative_error,
    output_reader,
    outside_error,
    point_text,
    reduced_axes,
    slice_text,
    tensor_name,
    uncovered_error,
)
from tempo.analysis.rows import is_ragged, row_masks, shows_rows
from tempo.errors import InputError, InternalError, TempoError
from tempo.reference.calls import call_backend, call_host
from tempo.sdg.call import StaticType
from tempo.sdg.graph import Case, Edge, Element, Graph, IndexMap, Node, Output, Point, Slice
from tempo.sdg.operators import OPERATORS, call_for
from tempo.sdg.operators.located import located, name_of_data
from tempo.symbolic import Symbol, const

Array = np.ndarray[Any, Any]
Environment = Mapping[Symbol, int]
Need = Instance | Barrier


@dataclass(frozen=True)
class Evaluated:
    """What a run gives: arrays by name, with the axes of the output's layout (domain dims in front).

    `kept`: how many points there are along each dim where the run ended early. `watched`: the outputs of role "watch".
    `lengths`: by the name of a dim along which rows end each by itself, how many points there are of each.
    """

    outputs: dict[str, Array]
    state: dict[str, Array]
    kept: dict[str, int]
    watched: dict[str, Array] = field(default_factory=dict)
    lengths: dict[str, Array] = field(default_factory=dict)


class _IsOverError(Exception):
    """A call would have to be made, in a run that a call has ended."""


class Evaluator:
    """Evaluates `graph` on `inputs` at known `sizes`.

    `inputs` maps the id of an `input` node to its array, with the axes of its layout: the domain's dims in canonical
    order, then the shape. `seed` is what an input of role "seed" holds unless given. `checks` turns data-dependent
    indices out of range into errors; otherwise they are clamped.

    Raises `DomainError`, `DefinitionError`, `CycleError`, `ShapeError`, `IndexOutOfRangeError` and `HostCallError`,
    each with the tensor, the source line and the point.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[int, Array],
        sizes: Mapping[Symbol, int],
        seed: int = 0,
        checks: bool = True,
    ) -> None:
        self.graph = graph
        self.sizes = dict(sizes)
        self.seed = seed
        self.checks = checks
        self._extents = {dim.symbol: int(dim.size.evaluate(self.sizes)) for dim in graph.dims}
        self._shapes = {node.id: self._domain_shape(node.domain) for node in graph.nodes.values()}
        self._inputs = {node.id: self._laid_out(node, inputs) for node in graph.nodes.values() if node.is_input}
        self._values: dict[Need, tuple[Array, ...]] = {}
        self._functions: dict[object, Callable[..., Any]] = {}
        self.rows = {symbol: stop for symbol, stop in graph.stops.items() if stop.rows}
        self._masks = {symbol: row_masks(graph, stop) for symbol, stop in self.rows.items()}
        self._is_over = False
        self._failed: Instance | None = None

    def run(self) -> Evaluated:
        """Every output and every effect; host calls in the order that the language prescribes."""
        lengths = {symbol: self._lengths(symbol, self._extents[symbol]) for symbol in self.graph.stops}
        kept = {symbol: int(each.max()) for symbol, each in lengths.items()}
        for instance in self._effects_in_order():
            domain = self.graph.nodes[instance.node].domain
            if all(at < kept.get(symbol, at + 1) for symbol, at in zip(domain, instance.point)):
                self._force(instance)
        arrays = [(output, self._output(output, lengths)) for output in self.graph.outputs]
        return Evaluated(
            outputs={output.name: array for output, array in arrays if output.role == "output"},
            state={output.name: array for output, array in arrays if output.role == "state"},
            kept={symbol.name: count for symbol, count in kept.items() if count < self._extents[symbol]},
            watched={output.name: array for output, array in arrays if output.role == "watch"},
            lengths=self._of_rows(lengths),
        )

    def so_far(self) -> dict[str, Array]:
        """After a call that failed: the outputs of role "watch", 0 from the first point that needs another call on."""
        self._is_over = True
        found = {}
        for output in (each for each in self.graph.outputs if each.role == "watch"):
            found[output.name] = array = np.zeros(self._domain_shape(output.domain), dtypes.to_numpy(output.type.dtype))
            with suppress(_IsOverError):
                for point in np.ndindex(array.shape):
                    env = {**self.sizes, **dict(zip(output.domain, point))}
                    array[point] = self._read(output_reader(output), output.edge, env)
        return found

    def made(self) -> Evaluated | None:
        """After a call that failed: outputs and states up to the last whole point of the call's outermost dim, and how
        many points these are. What needs another call is left out."""
        if self._failed is None:
            return None
        self._is_over = True
        kept = dict(zip(self.graph.nodes[self._failed.node].domain[:1], self._failed.point))
        lengths = {symbol: np.array(count, np.int32) for symbol, count in kept.items()}
        lengths |= {symbol: self._lengths(symbol, count) for symbol, count in kept.items() if symbol in self.rows}
        found: dict[str, dict[str, Array]] = {"output": {}, "state": {}}
        for output in (each for each in self.graph.outputs if each.role in found):
            begins = output.role == "state" and 0 in kept.values()
            with suppress(_IsOverError):
                value = self._given(output) if begins else self._output(self._until(output, kept), lengths)
                found[output.role][output.name] = value
        ended = {symbol.name: count for symbol, count in kept.items()}
        return Evaluated(found["output"], found["state"], ended, lengths=self._of_rows(lengths))

    def _given(self, state: Output) -> Array:
        """What the run began with."""
        nodes = (node for node in self.graph.nodes.values() if node.is_input)
        begun = next((node for node in nodes if node.port == state.port), None)
        if begun is None:
            raise _IsOverError
        axes = [*begun.domain, *range(len(begun.shape))]
        return self._inputs[begun.id].transpose([axes.index(label) for label in state.layout])

    def _until(self, output: Output, kept: Mapping[Symbol, int]) -> Output:
        """Of a state: with the last whole point in place of the last of all."""
        if output.role != "state":
            return output
        places = zip(self.graph.nodes[output.edge.node].domain, output.edge.map)
        ended = kept.keys() - set(output.domain)
        map = tuple(Point(const(kept[symbol] - 1)) if symbol in ended else at for symbol, at in places)
        return replace(output, edge=replace(output.edge, map=map))

    def value(self, target: Edge | int, point: Mapping[Symbol, int] | Sequence[int] = ()) -> Array:
        """The value of a node at a point of its domain, or what an edge shows at a point of its consumer's."""
        if isinstance(target, Edge):
            if not isinstance(point, Mapping):
                raise InputError("the point at which an edge is read maps dims to numbers")
            domain = self.graph.canonical(point)
            reader = output_reader(Output("a value", target, domain, self.graph.seen_type(target), ()))
            return self._read(reader, target, {**self.sizes, **point})
        node = self.graph.nodes[target]
        values = [point[symbol] for symbol in node.domain] if isinstance(point, Mapping) else point
        instance = Instance(target, tuple(int(value) for value in values))
        self._check_inside(node, instance.point)
        return self._force(instance)[0]

    # Forcing: depth first along needs, on a stack of our own, so that a recurrence may be of any length.

    def _force(self, goal: Need) -> tuple[Array, ...]:
        if goal in self._values:
            return self._values[goal]
        path: dict[Need, Iterator[Need]] = {goal: self._needs(goal)}
        while path:
            current, rest = next(reversed(path.items()))
            missing = next((need for need in rest if need not in self._values), None)
            if missing is None:
                self._values[current] = self._compute(current)
                del path[current]
            elif missing in path:
                steps = list(path)
                cycle = [need for need in steps[steps.index(missing) :] if isinstance(need, Instance)]
                raise cycle_error(self.graph, cycle)
            else:
                path[missing] = self._needs(missing)
        return self._values[goal]

    def _needs(self, need: Need) -> Iterator[Need]:
        if isinstance(need, Barrier):
            return iter(self._order.members(need))
        node, env = self._situation(need)
        if node.is_input:
            return iter(())
        if node.is_merge:
            return self._read_instances(node, self._chosen(node, need.point, env).edge, env)
        before: list[Need] = list(self._order.before(need)) if node.has_effect else []
        reads = (self._read_instances(node, edge, env) for edge in node.operands)
        return itertools.chain(before, itertools.chain.from_iterable(reads))

    def _compute(self, need: Need) -> tuple[Array, ...]:
        if isinstance(need, Barrier):
            return ()
        node, env = self._situation(need)
        if node.is_input:
            return (self._inputs[node.id][need.point],)
        if node.is_merge:
            case = self._chosen(node, need.point, env)
            value = self._read(node, case.edge, env)
            return (value if case.part is None else _element(value, case.part, _ints(node.shape, env), env),)
        arrays = self._masked(node, env, [self._read(node, edge, env) for edge in node.operands])
        types = [(_ints(type.shape, env), dtypes.to_numpy(type.dtype)) for type in node.results]
        if node.has_effect and self._is_over:
            raise _IsOverError
        if node.has_effect:
            try:
                return call_host(node, need.point, arrays, types)
            except TempoError:
                self._failed = need
                raise
        if node.is_backend_call:
            return call_backend(node, arrays, [_ints(type.shape, env) for type in node.results])
        return (self._apply(node, need.point, env, arrays),)

    def _situation(self, instance: Instance) -> tuple[Node, dict[Symbol, int]]:
        node = self.graph.nodes[instance.node]
        return node, {**self.sizes, **dict(zip(node.domain, instance.point))}

    # Reading through an index map.

    def _chosen(self, node: Node, point: tuple[int, ...], env: Environment) -> Case:
        for case in node.cases:
            if case.condition.evaluate(env):
                return case
        raise uncovered_error(node, point)

    def _ranges(self, reader: Node, edge: Edge, env: Environment) -> list[range]:
        """Per dim of the producer, the indices read."""
        producer = self.graph.nodes[edge.node]
        ranges = []
        for axis, (index, size) in enumerate(zip(edge.map, self._shapes[producer.id])):
            start = int((index.start if isinstance(index, Slice) else index.index).evaluate(env))
            length = int(index.length.evaluate(env)) if isinstance(index, Slice) else 1
            if not (0 <= start <= size and length >= 0 and start + length <= size):
                text = slice_text(start, length) if isinstance(index, Slice) else str(start)
                point = [env[symbol] for symbol in reader.domain]
                raise outside_error(reader, producer, axis, text, size, point)
            ranges.append(range(start, start + length))
        return ranges

    def _read_instances(self, reader: Node, edge: Edge, env: Environment) -> Iterator[Instance]:
        shown = self._rows_shown(edge)
        for point in itertools.product(*self._ranges(reader, edge, env)):
            at = dict(zip(self.graph.nodes[edge.node].domain, point))
            for symbol in shown:
                yield from self._conditions(symbol, at)
            if self._exists(shown, at):
                yield Instance(edge.node, point)

    def _read(self, reader: Node, edge: Edge, env: Environment) -> Array:
        """What the edge shows: slices stacked in front, padded where the physical read is wider than the logical."""
        points = list(itertools.product(*self._ranges(reader, edge, env)))
        lengths = _ints((index.length for index in edge.map if isinstance(index, Slice)), env)
        if not lengths:
            return self._force(Instance(edge.node, points[0]))[edge.result]
        seen = self.graph.seen_type(edge)
        shape, dtype = _ints(seen.shape, env), dtypes.to_numpy(seen.dtype)
        element_shape = shape[len(lengths) :]
        shown, domain = self._rows_shown(edge), self.graph.nodes[edge.node].domain
        values = [
            self._force(Instance(edge.node, point))[edge.result]
            if self._exists(shown, dict(zip(domain, point)))
            else np.zeros(element_shape, dtype)
            for point in points
        ]
        stacked = np.array(values, dtype=dtype).reshape(lengths + element_shape)
        return stacked if stacked.shape == shape else _padded(stacked, shape)

    # Rows that end each by itself.

    def _rows_shown(self, edge: Edge) -> list[Symbol]:
        """The dims along which it shows rows that may have ended."""
        return [symbol for symbol, stop in self.rows.items() if shows_rows(self.graph, stop, edge)]

    def _conditions(self, symbol: Symbol, at: Environment) -> Iterator[Need]:
        """What says whether a row has ended before a point; those asked for are there when the next is."""
        stop = self.rows[symbol]
        for point in range(at[symbol]):
            env = {**self.sizes, **at, symbol: point}
            yield from self._read_instances(output_reader(stop), stop.edge, env)
            if self._read(output_reader(stop), stop.edge, env):
                return

    def _exists(self, symbols: Sequence[Symbol], at: Environment) -> bool:
        return not any(self._end(symbol, at, at[symbol]) for symbol in symbols)

    def _end(self, symbol: Symbol, at: Environment, most: int) -> int:
        """How many points are kept along the dim of a stop; 0 where none of the first `most` ends it. Points behind the
        end are never asked for."""
        stop = self.graph.stops[symbol]
        reader = output_reader(stop)
        ends = (int(self._read(reader, stop.edge, {**self.sizes, **at, symbol: point})) for point in range(most))
        return next((count for count in ends if count), 0)

    def _lengths(self, symbol: Symbol, most: int) -> Array:
        """How many points there are, `most` at most, of each row."""
        rows = self.graph.stops[symbol].rows
        every = (dict(zip(rows, at)) for at in np.ndindex(self._domain_shape(rows)))
        found = [self._end(symbol, at, most) or most for at in every]
        return np.array(found, np.int32).reshape(self._domain_shape(rows))

    def _of_rows(self, lengths: Mapping[Symbol, Array]) -> dict[str, Array]:
        return {symbol.name: each for symbol, each in lengths.items() if symbol in self.rows}

    def _masked(self, node: Node, env: Environment, arrays: list[Array]) -> list[Array]:
        """The operands, without the rows that have ended."""
        found = list(arrays)
        for symbol, masks in self._masks.items():
            for number, array in enumerate(arrays):
                for mask in masks.get((node.id, number), ()):
                    there = np.array(found[number])
                    moved = np.moveaxis(there, mask.rows.axes, range(len(mask.rows.axes)))
                    moved[~self._live(symbol, mask.rows.map, env)] = mask.fill
                    found[number] = there
        return found

    def _live(self, symbol: Symbol, map: IndexMap, env: Environment) -> Array:
        """Which rows there are of what is read through a map."""
        ranges = [_indices(index, env) for index in map]
        points = (dict(zip(self.rows[symbol].domain, point)) for point in itertools.product(*ranges))
        shape = [len(each) for index, each in zip(map, ranges) if isinstance(index, Slice)]
        return np.array([self._exists([symbol], at) for at in points], np.bool_).reshape(shape)

    def _check_inside(self, node: Node, point: Sequence[int]) -> None:
        for axis, (value, size) in enumerate(zip(point, self._shapes[node.id])):
            if not 0 <= value < size:
                raise outside_error(node, node, axis, str(value), size, point)

    # Operators.

    def _apply(self, node: Node, point: tuple[int, ...], env: Environment, arrays: list[Array]) -> Array:
        operator = OPERATORS[node.op]
        attrs = node.attributes
        if not self.checks and "checked" in attrs:
            attrs["checked"] = False
        result = StaticType(_ints(node.shape, env), node.dtype)
        if any(size < 0 for size in result.shape):
            raise negative_error(node, point, result.shape)
        needed = elements_needed(node)
        if needed and 0 not in result.shape and any(arrays[0].shape[axis] < needed for axis in reduced_axes(node)):
            raise empty_error(node, point)
        lengths = _ints(operator.static(attrs), env)
        key = (node.id, lengths, tuple(array.shape for array in arrays), result.shape)
        if key not in self._functions:
            types = (self.graph.seen_type(edge) for edge in node.operands)
            operands = [StaticType(array.shape, type.dtype) for array, type in zip(arrays, types)]
            call = call_for(node.op, attrs, operands, result, lambda expr: int(expr.evaluate(env)))
            self._functions[key] = operator.numpy(call)
        function = self._functions[key]
        if attrs.get("checked"):
            name = name_of_data(self.graph, node)
            at = dict(zip(node.domain, point))
            function = located(function, attrs, node.location, name, lambda _: at, self.sizes)
        scalars = [expr.evaluate(env) for expr in operator.scalars(attrs)]
        with np.errstate(all="ignore"):
            value = np.asarray(function(*arrays, *scalars))
        if value.shape != result.shape or value.dtype != dtypes.to_numpy(result.dtype):
            raise InternalError(
                f"{node.op} gave {value.dtype}{list(value.shape)} at {point_text(node.domain, point)}, "
                f"inferred was {result.dtype}{list(result.shape)}",
                location=node.location,
            )
        return value

    # Inputs, outputs, effects.

    def _laid_out(self, node: Node, inputs: Mapping[int, Array]) -> Array:
        """The input with the axes of the node: its domain's dims, then its shape."""
        if node.id not in inputs and node.attr("role") != "seed":
            raise InputError(f"input {tensor_name(node)} is missing", location=node.location)
        array = np.asarray(inputs.get(node.id, self.seed), dtypes.to_numpy(node.dtype))
        axes = (*node.domain, *range(len(node.shape)))
        layout = node.attr("layout") or axes
        array = array.transpose([layout.index(axis) for axis in axes])
        expected = self._shapes[node.id] + _ints(node.shape, self.sizes)
        if array.shape != expected:
            message = f"input {tensor_name(node)} has shape {array.shape}, needed is {expected}"
            raise InputError(message, location=node.location)
        return array

    def _output(self, output: Output, lengths: Mapping[Symbol, Array]) -> Array:
        """Of a dim that the layout does not name only the last point that is kept, of a row or of all."""
        counts = [int(lengths[each].max()) if each in lengths else self._extents[each] for each in output.domain]
        last = [symbol not in output.layout for symbol in output.domain]
        points = itertools.product(*(range(count)[is_last and -1 :] for is_last, count in zip(last, counts)))
        environments = ({**self.sizes, **dict(zip(output.domain, point))} for point in points)
        values = [self._shown(output, env, lengths) for env in environments]
        element = values[0].shape if values else _ints(output.type.shape, self.sizes)
        shape = tuple(count for is_last, count in zip(last, counts) if not is_last)
        array = np.array(values, dtypes.to_numpy(output.type.dtype)).reshape(shape + element)
        named = [symbol for symbol in output.domain if symbol in output.layout]
        axes = [named.index(axis) if isinstance(axis, Symbol) else len(named) + axis for axis in output.layout]
        return array.transpose(axes)

    def _shown(self, output: Output, env: Environment, lengths: Mapping[Symbol, Array]) -> Array:
        """At a point: zeros behind the end of a row, unless it is the last that counts."""
        for symbol, stop in self.rows.items():
            if symbol in lengths and is_ragged(stop, output.domain):
                length = int(lengths[symbol][tuple(env[row] for row in stop.rows)])
                if symbol in output.layout and env[symbol] >= length:
                    return np.zeros(_ints(output.type.shape, env), dtypes.to_numpy(output.type.dtype))
                env = {**env, symbol: min(env[symbol], length - 1)}
        return self._read(output_reader(output), output.edge, env)

    @cached_property
    def _order(self) -> HostOrder:
        masks = demanded(self.graph, self.sizes)
        points = {
            node.id: [tuple(map(int, point)) for point in np.argwhere(masks[node.id])]
            for node in effect_nodes(self.graph)
        }
        return HostOrder(self.graph, self._shapes, points)

    def _effects_in_order(self) -> list[Instance]:
        """Every needed call: by the coordinates along all dims (an absent dim first), then by declaration."""
        nodes = effect_nodes(self.graph)
        return sorted((Instance(node.id, at) for node in nodes for at in self._order.points[node.id]), key=self._place)

    def _place(self, instance: Instance) -> tuple[int, ...]:
        at = dict(zip(self.graph.nodes[instance.node].domain, instance.point))
        return tuple(at.get(dim.symbol, -1) for dim in self.graph.dims)

    def _domain_shape(self, domain: Sequence[Symbol]) -> tuple[int, ...]:
        return tuple(self._extents[symbol] for symbol in domain)


def _ints(exprs: Any, env: Environment) -> tuple[int, ...]:
    return tuple(int(expr.evaluate(env)) for expr in exprs)


def _indices(index: Point | Slice, env: Environment) -> range:
    if isinstance(index, Point):
        at = int(index.index.evaluate(env))
        return range(at, at + 1)
    start, length = (int(expr.evaluate(env)) for expr in (index.start, index.length))
    return range(start, start + length)


def _element(row: Array, part: Element, shape: tuple[int, ...], env: Environment) -> Array:
    return np.asarray(row.transpose(part.order)[int(part.at.evaluate(env))]).reshape(shape)


def _padded(array: Array, shape: tuple[int, ...]) -> Array:
    """`array` in the corner of an array of `shape`; the rest is poison, since no meaning may depend on it."""
    poison: Any = np.nan
    if np.issubdtype(array.dtype, np.integer):
        poison = np.iinfo(array.dtype).max
    elif array.dtype == np.bool_:
        poison = True
    padded = np.full(shape, poison, array.dtype)
    padded[tuple(slice(0, size) for size in array.shape)] = array
    return padded
