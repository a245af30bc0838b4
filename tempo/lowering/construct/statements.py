"""One run of a statement as LoopIR: the reads, operators, cases and writes of its nodes, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tempo.loop_ir.ir import (
    Assign,
    Axis,
    Branch,
    Buffer,
    Compute,
    PointIndex,
    Read,
    Statement,
    WindowIndex,
    Write,
)
from tempo.lowering.construct.last_points import LastRead, last_read, refuse
from tempo.lowering.scheduling.clusters import Cluster, Clustered, Value
from tempo.lowering.storage.assignment import Home, Storage
from tempo.sdg.graph import Case, Edge, Node, Point, Slice, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.located import name_of_data
from tempo.sdg.operators.making import cut_attrs
from tempo.symbolic import TRUE, Context, Expr, Symbol, const, var

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Moving:
    """A value under a name, and the statements that have made it; their results are `base` with a number."""

    base: str
    name: str
    type: TensorType
    statements: tuple[Compute, ...] = ()

    def at(self, axis: int, index: Expr) -> Moving:
        """The element `index` of an axis, which keeps one position."""
        return self.cut(axis, index, const(1))

    def cut(self, axis: int, start: Expr, length: Expr) -> Moving:
        attrs = cut_attrs(self.type.shape, axis, start, length)
        return self._by("slice", attrs["lengths"], **attrs)

    def transposed(self, order: tuple[int, ...]) -> Moving:
        if order == tuple(range(len(order))):
            return self
        return self._by("transpose", tuple(self.type.shape[axis] for axis in order), axes=order)

    def reshaped(self, shape: Shape) -> Moving:
        return self if shape == self.type.shape else self._by("reshape", shape, shape=shape)

    def _by(self, op: str, made: Shape, **attrs: Any) -> Moving:
        name, type = f"{self.base}_{len(self.statements)}", TensorType(made, self.type.dtype)
        scalars = OPERATORS[op].scalars(attrs)
        compute = Compute(name, op, attrs, (self.name,), (self.type,), type, scalars)
        return Moving(self.base, name, type, (*self.statements, compute))


# With a number behind them these are names of what a backend's source refers to: functions and tables.
_TAKEN = frozenset({*OPERATORS, "table"})
Here = Mapping[Symbol, Expr]


class RunLowering:
    """Lowers runs. `of_value` holds the buffers of the values that have one; the others are names in the block, but
    for those `moved`, which are in the buffer of a definition. `lasts`: of inputs of role "last", their buffers.
    """

    def __init__(
        self,
        program: Clustered,
        of_value: Mapping[Value, Buffer],
        written_outputs: Mapping[Value, list[Buffer]],
        storage: Mapping[Value, Storage],
        checks: bool,
        lasts: Mapping[int, Buffer],
    ) -> None:
        self.lasts = lasts
        self.program, self.graph = program, program.graph
        self.of_value, self.written_outputs = of_value, written_outputs
        self.homes = {value: each.home for value, each in storage.items() if each.home is not None}
        self.moved = {value for value, each in storage.items() if each.moved}
        self.at_home = {(home.owner, home.case) for home in self.homes.values()}
        self.checks = checks
        self._contexts: dict[str, Context] = {}

    def run(self, cluster: Cluster, point: tuple[Expr, ...]) -> tuple[Statement, ...]:
        here = dict(zip(cluster.domain, point, strict=True))
        found: list[Statement] = []
        for id in cluster.nodes:
            node = self.graph.nodes[id]
            found.extend(self._cases(node, here, cluster) if node.is_merge else self._node(node, here, cluster))
            if not self._has_parts_at_home(node):
                found.extend(self._stores(node, here))
        return tuple(found)

    def _has_parts_at_home(self, node: Node) -> bool:
        """Whether some cases of a definition are in its buffer already; the others each write to it."""
        return any((node.id, number) in self.at_home for number in range(len(node.cases)))

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _node(self, node: Node, here: Here, cluster: Cluster) -> list[Statement]:
        statements: list[Statement] = []
        if node.op == "copy":
            name = self._operand(node, node.operands[0], 0, here, cluster, statements)
            return [*statements, Assign(self.name(node), name)]
        names = tuple(
            self._operand(node, edge, number, here, cluster, statements) for number, edge in enumerate(node.operands)
        )
        operator, attrs = OPERATORS[node.op], self._options(node.attributes)
        compute = Compute(
            self.name(node, len(node.results)) if node.is_backend_call else self.name(node),
            node.op,
            attrs,
            names,
            tuple(self.graph.seen_type(edge) for edge in node.operands),
            node.type,
            tuple(scalar.substitute(here) for scalar in operator.scalars(attrs)),
            tuple(here.items()) if attrs.get("checked") else (),
            name_of_data(self.graph, node) if attrs.get("checked") else node.name,
            node.location,
        )
        if node.is_backend_call:
            return [*statements, compute, *self._taken_apart(node, compute)]
        return [*statements, compute]

    def _taken_apart(self, node: Node, compute: Compute) -> Iterator[Compute]:
        """The results of a function of the backend, each by its own name."""
        for at, type in enumerate(node.results):
            attrs = {"fn": node.attr("fn"), "at": at}
            names, types = (compute.result,), (node.type,)
            yield Compute(
                self.name(node, at), "backend_result", attrs, names, types, type, (), (), node.name, node.location
            )

    def _options(self, attrs: dict[str, object]) -> dict[str, object]:
        attrs.pop("speculated", None)  # which was for passes
        if attrs.get("checked"):
            attrs["checked"] = self.checks
        return attrs

    def _cases(self, node: Node, here: Here, cluster: Cluster) -> list[Statement]:
        """First match wins. The last case needs no test: every point that runs is covered (checked before)."""
        found: list[Statement] = []
        known: tuple[Statement, ...] = ()  # the reads of the case after, under names that all cases could have
        stores = self._stores(node, here) if self._has_parts_at_home(node) else []
        for number in reversed(range(len(node.cases))):
            case = node.cases[number]
            if (node.id, number) in self.at_home:
                found, known = self._elsewhere(case, found, here), ()
                continue
            block: list[Statement] = []
            operand = self._case(node, number, here, cluster, block)
            same = tuple(replace(each, result="") if isinstance(each, Read) else each for each in block)
            same = (*same, Assign(self.name(node), operand if not block else ""))
            condition, otherwise = case.condition.substitute(here), tuple(found)
            if found and same == known:
                if not isinstance(found[0], Branch):
                    continue  # it does as all the cases after it
                condition, otherwise = condition | found[0].condition, found[0].otherwise
            known = same if case.part is None else ()
            block.extend([Assign(self.name(node), operand), *stores])
            last = number == len(node.cases) - 1 or case.condition == TRUE
            found = block if last else [Branch(condition, tuple(block), otherwise)]
        return found

    @staticmethod
    def _elsewhere(case: Case, others: list[Statement], here: Here) -> list[Statement]:
        """The cases after one whose value is where it belongs: that needs no statement, and there is no name for it."""
        if not others or case.condition == TRUE:
            return []
        return [Branch(~case.condition.substitute(here), tuple(others))]

    def _case(self, node: Node, number: int, here: Here, cluster: Cluster, block: list[Statement]) -> str:
        """The name that holds the value of a case; what makes it is added to `block`."""
        case = node.cases[number]
        operand = self._operand(node, case.edge, number, here, cluster, block)
        if case.part is None:
            return operand
        row = Moving(f"{self.name(node)}__{number}__part", operand, self.graph.seen_type(case.edge))
        element = row.at(case.part.order[0], case.part.at.substitute(here)).transposed(case.part.order)
        shown = element.reshaped(node.shape)
        block.extend(shown.statements)
        return shown.name

    def _context(self, cluster: Cluster) -> Context:
        if cluster.name not in self._contexts:
            self._contexts[cluster.name] = self.program.context(cluster)
        return self._contexts[cluster.name]

    # -- reads -----------------------------------------------------------------------------------------------------

    def _operand(
        self, node: Node, edge: Edge, number: int, here: Here, cluster: Cluster, block: list[Statement]
    ) -> str:
        """The name that holds what `edge` reads; a read of a buffer is added to `block`."""
        value, name = (edge.node, edge.result), f"{self.name(node)}__{number}"
        if value in self.moved:
            return self._at_home(self.homes[value], name, edge, here, cluster, block)
        if edge.node in self.lasts:
            return self._at_the_last(name, edge, here, cluster, block)
        if value not in self.of_value:
            return self.name(self.graph.nodes[edge.node], edge.result)
        read = self.read_edge(name, edge, here, cluster)
        aliases = node.is_merge or OPERATORS[node.op].views
        fresh = aliases and self._is_overwritten(edge)
        block.append(Read(read.result, read.buffer, read.index, fresh))
        return read.result

    def _is_overwritten(self, edge: Edge) -> bool:
        """Whether what `edge` reads is changed in place later: on the next lap, or along a dim without an axis."""
        buffer = self.of_value[edge.node, edge.result]
        drops_dims = len(buffer.axes) < len(self.graph.nodes[edge.node].domain)
        return buffer.is_circular or (drops_dims and not buffer.is_slot)

    def read_edge(self, result: str, edge: Edge, here: Here, cluster: Cluster) -> Read:
        """The read of a value that has a buffer, its own or that of a definition; of what is no row."""
        value = edge.node, edge.result
        if value in self.moved:
            return self._read_at_home(result, self.homes[value], edge, here, cluster)
        if edge.node in self.lasts:
            last = self._last_read(edge, here, cluster)
            if not last.is_direct:
                raise refuse(self.graph.nodes[edge.node])
            return Read(result, self.lasts[edge.node].id, last.index)
        buffer = self.of_value[value]
        index = (self._entry(edge.map[axis.position], axis, here, cluster) for axis in buffer.axes)
        return Read(result, buffer.id, tuple(index))

    def _last_read(self, edge: Edge, here: Here, cluster: Cluster) -> LastRead:
        return last_read(
            self.graph.nodes[edge.node],
            edge,
            self.lasts[edge.node],
            lambda index, axis: self._entry(index, axis, here, cluster),
        )

    def _at_the_last(self, name: str, edge: Edge, here: Here, cluster: Cluster, block: list[Statement]) -> str:
        """The name of what an edge reads at the last point of a loop that was left."""
        given, last = self.graph.nodes[edge.node], self._last_read(edge, here, cluster)
        block.append(Read(name, self.lasts[edge.node].id, last.index))
        made = Moving(name, name, TensorType(last.shape, given.dtype))
        for axis, index in last.cuts:
            if isinstance(index, Slice) and not self._inside(index, last.shape[axis], cluster):
                raise refuse(given)
            made = made.cut(axis, *(each.substitute(here) for each in _bounds(index)))
        kept = tuple(size for axis, size in enumerate(made.type.shape) if axis not in last.gone)
        made = made.reshaped(kept).transposed(last.order)
        block.extend(made.statements)
        return made.name

    def _at_home(self, home: Home, name: str, edge: Edge, here: Here, cluster: Cluster, block: list[Statement]) -> str:
        """The name of what an edge reads of a value that lives in the buffer of a definition; of a row, as it was."""
        read = self._read_at_home(name, home, edge, here, cluster)
        block.append(read)
        if home.row is None:
            return name
        owner, seen = self.graph.nodes[home.owner], self.graph.seen_type(edge)
        stored = Moving(name, name, TensorType((home.row[1], *owner.shape), owner.dtype))
        back = tuple(home.order.index(axis) for axis in range(len(home.order)))
        turned = tuple(seen.shape[axis] for axis in home.order)
        found = stored.reshaped(turned).transposed(back)
        block.extend(found.statements)
        return found.name

    def _read_at_home(self, result: str, home: Home, edge: Edge, here: Here, cluster: Cluster) -> Read:
        """The buffer's axes are all the dims of the owner; each dim of the value is one of them, moved by a number."""
        buffer, places = self.of_value[home.owner, 0], dict(zip(self.graph.nodes[edge.node].domain, edge.map))
        found: list[PointIndex | WindowIndex] = []
        for position, (axis, at) in enumerate(zip(buffer.axes, home.index, strict=True)):
            if home.row is not None and home.row[0] == position:
                found.append(WindowIndex(at, home.row[1], exact=True))
                continue
            (dim,) = at.dims()
            found.append(self._entry(_shifted(places[dim], at - var(dim)), axis, here, cluster))
        return Read(result, buffer.id, tuple(found))

    def _entry(self, index: Point | Slice, axis: Axis, here: Here, cluster: Cluster) -> PointIndex | WindowIndex:
        if isinstance(index, Point):
            at = index.index.substitute(here)
            return PointIndex(at % axis.extent if axis.kind == "window" else at)
        exact = axis.kind == "full" and self._inside(index, axis.extent, cluster)
        length = None if index.extent is None else index.length.substitute(here)
        return WindowIndex(index.start.substitute(here), index.seen.substitute(here), exact, length)

    def _inside(self, index: Slice, size: Expr, cluster: Cluster) -> bool:
        if index.start == const(0) and index.seen == size:
            return True
        inside = index.start.ge(0) & (index.start + index.seen).le(size)
        return self._context(cluster).implies(inside)

    # -- writes ----------------------------------------------------------------------------------------------------

    def _stores(self, node: Node, here: Here) -> list[Statement]:
        found: list[Statement] = []
        for at in range(len(node.results)):
            name = self.name(node, at)
            found.extend(self.writes((node.id, at), name, here))
            if (node.id, at) in self.homes:
                found.extend(self._store_at_home(self.homes[node.id, at], name, node.results[at], here))
        return found

    def _store_at_home(self, home: Home, name: str, type: TensorType, here: Here) -> list[Statement]:
        """The write of a value to its place in the buffer of a definition."""
        buffer, index = self.of_value[home.owner, 0], tuple(at.substitute(here) for at in home.index)
        if home.row is None:
            return [Write(buffer.id, index, name)]
        axis, extent = home.row
        shape = (extent, *self.graph.nodes[home.owner].shape)
        row = Moving(f"{name}__row", name, type).transposed(home.order).reshaped(shape)
        extents = tuple(extent if each == axis else None for each in range(len(index)))
        return [*row.statements, Write(buffer.id, index, row.name, extents)]

    def writes(self, value: Value, name: str, here: Here) -> Iterator[Write]:
        """The writes of a value to its buffer, if it has one, and to those of outputs."""
        own = [self.of_value[value]] if value in self.of_value else []
        for buffer in (*own, *self.written_outputs.get(value, ())):
            yield _write(buffer, name, self.graph.nodes[value[0]], here)

    def name(self, node: Node, result: int = 0) -> str:
        """A readable Python name, unique through the node's number.

        A backend call has results beside the first, and after the last the tuple of all.
        """
        base = re.sub(r"\W+", "_", node.name).strip("_")
        number = f"{node.id}___{result}" if result else str(node.id)
        if not base or not base.isascii() or base[0].isdigit() or base in _TAKEN:
            return f"v{number}"
        return f"{base}_{number}"


def _bounds(index: Point | Slice) -> tuple[Expr, Expr]:
    """Where what is read begins, and how many positions it has."""
    return (index.index, const(1)) if isinstance(index, Point) else (index.start, index.seen)


def _shifted(index: Point | Slice, by: Expr) -> Point | Slice:
    return Point(index.index + by) if isinstance(index, Point) else replace(index, start=index.start + by)


def _write(buffer: Buffer, name: str, node: Node, here: Here) -> Write:
    index = []
    for axis in buffer.axes:
        at = here[node.domain[axis.position]]
        index.append(at % axis.extent if axis.kind == "window" else at)
    return Write(buffer.id, tuple(index), name)
