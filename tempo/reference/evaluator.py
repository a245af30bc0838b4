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
from weakref import proxy

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
from tempo.errors import InputError, InternalError, TempoError
from tempo.reference.calls import call_backend, call_host
from tempo.reference.rows import Ends
from tempo.sdg.call import StaticType
from tempo.sdg.graph import Case, Edge, Element, Graph, Node, Output, Point, Slice
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
        here = proxy(self)  # in no circle: all values would stay until the collector comes by
        self._ends = Ends(graph, lambda node, edge, at: here._read(node, edge, {**here.sizes, **at}), self._extents)
        self._is_over = False
        self._failed: Instance | None = None

    def run(self) -> Evaluated:
        """Every output and every effect; host calls in the order that the language prescribes."""
        lengths = {symbol: self._ends.lengths(symbol, self._extents[symbol]) for symbol in self.graph.stops}
        kept = {symbol: max(int(each.max()), 1) for symbol, each in lengths.items()}
        for instance in self._effects_in_order():
            domain = self.graph.nodes[instance.node].domain
            if all(at < kept.get(symbol, at + 1) for symbol, at in zip(domain, instance.point)):
                self._force(instance)
        lengths |= self._ends.given(kept)
        arrays = [(output, self._output(output, lengths, kept)) for output in self.graph.outputs]
        return Evaluated(
            outputs={output.name: array for output, array in arrays if output.role == "output"},
            state={output.name: array for output, array in arrays if output.role == "state"},
            kept={symbol.name: count for symbol, count in kept.items() if count < self._extents[symbol]},
            watched={output.name: array for output, array in arrays if output.role == "watch"},
            lengths=self._ends.of_rows(lengths),
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
        lengths |= {each: self._ends.lengths(each, kept[each]) for each in kept if each in self._ends.rows}
        with suppress(_IsOverError):
            lengths |= self._ends.given(kept)
        found: dict[str, dict[str, Array]] = {"output": {}, "state": {}}
        for output in (each for each in self.graph.outputs if each.role in found):
            begins = output.role == "state" and 0 in kept.values()
            with suppress(_IsOverError):
                value = self._given(output) if begins else self._output(self._until(output, kept), lengths, kept)
                found[output.role][output.name] = value
        ended = {symbol.name: count for symbol, count in kept.items()}
        return Evaluated(found["output"], found["state"], ended, lengths=self._ends.of_rows(lengths))

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
        if node.is_last:
            return self._last_instances(node, env)
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
        if node.is_last:
            return (self._read(node, self._ends.last_read(node, env), env),)
        if node.is_merge:
            case = self._chosen(node, need.point, env)
            value = self._read(node, case.edge, env)
            return (value if case.part is None else _element(value, case.part, _ints(node.shape, env), env),)
        arrays = self._ends.masked(node, env, [self._read(node, edge, env) for edge in node.operands])
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
        shown, domain = self._ends.shown(edge), self.graph.nodes[edge.node].domain
        for point in itertools.product(*self._ranges(reader, edge, env)):
            if not shown:
                yield Instance(edge.node, point)
                continue
            at = dict(zip(domain, point))
            for stop, here in (each for symbol in shown for each in self._ends.conditions(symbol, at)):
                yield from self._read_instances(output_reader(stop), stop.edge, {**self.sizes, **here})
            if self._ends.exists(shown, at):
                yield Instance(edge.node, point)

    def _last_instances(self, node: Node, env: Environment) -> Iterator[Instance]:
        """What says which point is the last, and what is read there."""
        if self._failed is not None and node.attr("along") in self.graph.nodes[self._failed.node].domain:
            raise _IsOverError  # the loop has not ended
        for stop, here in self._ends.conditions_of(node.attr("along"), env):
            yield from self._read_instances(output_reader(stop), stop.edge, {**self.sizes, **here})
        yield from self._read_instances(node, self._ends.last_read(node, env), env)

    def _read(self, reader: Node, edge: Edge, env: Environment) -> Array:
        """What the edge shows: slices stacked in front, padded where the physical read is wider than the logical."""
        points = list(itertools.product(*self._ranges(reader, edge, env)))
        lengths = _ints((index.length for index in edge.map if isinstance(index, Slice)), env)
        shown, domain = self._ends.shown(edge), self.graph.nodes[edge.node].domain
        if not lengths and not shown:
            return self._force(Instance(edge.node, points[0]))[edge.result]
        seen = self.graph.seen_type(edge)
        shape, dtype = _ints(seen.shape, env), dtypes.to_numpy(seen.dtype)
        element_shape = shape[len(lengths) :]
        values = [
            self._force(Instance(edge.node, point))[edge.result]
            if not shown or self._ends.exists(shown, dict(zip(domain, point)))
            else np.zeros(element_shape, dtype)
            for point in points
        ]
        stacked = np.array(values, dtype=dtype).reshape(lengths + element_shape)
        return stacked if stacked.shape == shape else _padded(stacked, shape)

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

    def _output(self, output: Output, lengths: Mapping[Symbol, Array], kept: Mapping[Symbol, int]) -> Array:
        """Of a dim that the layout does not name only the last point that is kept, of a row or of all."""
        reader = output_reader(output)
        counts = [kept.get(each, self._extents[each]) for each in output.domain]
        last = [symbol not in output.layout for symbol in output.domain]
        points = itertools.product(*(range(count)[is_last and -1 :] for is_last, count in zip(last, counts)))
        environments = ({**self.sizes, **dict(zip(output.domain, point))} for point in points)
        nothing = np.zeros(_ints(output.type.shape, self.sizes), dtypes.to_numpy(output.type.dtype))
        places = (self._ends.shown_at(output, env, lengths) for env in environments)
        values = [nothing if env is None else self._read(reader, output.edge, env) for env in places]
        element = values[0].shape if values else nothing.shape
        shape = tuple(count for is_last, count in zip(last, counts) if not is_last)
        array = np.array(values, dtypes.to_numpy(output.type.dtype)).reshape(shape + element)
        named = [symbol for symbol in output.domain if symbol in output.layout]
        axes = [named.index(axis) if isinstance(axis, Symbol) else len(named) + axis for axis in output.layout]
        return array.transpose(axes)

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
