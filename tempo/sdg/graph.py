"""The symbolic dependence graph: nodes, edges with index maps, outputs.

The graph is immutable; passes return a new one. It may be cyclic only through `merge` nodes (recurrent tensors and
parameters), so edges name their producer by number instead of holding it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from tempo.errors import Location
from tempo.sdg.components import reached, strongly_connected
from tempo.sdg.exact import same
from tempo.symbolic import TRUE, Condition, Dim, Expr, Symbol, var
from tempo.symbolic.structural import Structural, cached

NOMINAL = frozenset({"input", "merge", "random_bits", "host_call", "backend_call", "sink"})
Role = Literal["input", "seed", "state", "output", "stop", "rows", "lengths", "last", "watch"]


class Port(NamedTuple):
    """What a program is given or gives, by its role and its name: an input and a state may have one name.

    It is given each "input", the "seed", and the "state" of each parameter at the start. It gives each "output", each
    "state" at the end, a "stop" per dim along which it may end early (see `Graph.stops`), the "lengths" of rows where
    each ends by itself or that it computes (see `tempo.passes.rows`), what is "last" of a tensor, which the rest of the
    program is given again (see `tempo.passes.rows`), the "rows" of each dim along which they have lengths (see
    `Graph.ragged`), and what each "watch" saw (see `tempo.passes.instrument`).
    """

    role: Role
    name: str


@dataclass(frozen=True, eq=False)
class Point(Structural):
    """One dim of the producer is read at one index."""

    index: Expr

    # As in Structural, without its tuples: passes compare and look up reads all the time.
    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Point and self.index == other.index)

    __hash__ = Structural.__hash__


@dataclass(frozen=True, eq=False)
class Slice(Structural):
    """One dim of the producer is read at `start, ..., start + length - 1`; it becomes a leading axis.

    `length` is logical: what is demanded and depended on. Static tiling widens the physical read to `extent` positions
    (an upper bound of the length, made of numbers and sizes): the axis then has that extent, and what lies at or after
    `length` is arbitrary. Physical positions outside the producer's dim are clamped or wrapped, never read.
    """

    start: Expr
    length: Expr
    extent: Expr | None = None

    @property
    def seen(self) -> Expr:
        """The size of the axis that the consumer sees."""
        return self.length if self.extent is None else self.extent


IndexMap = tuple[Point | Slice, ...]


@dataclass(frozen=True, eq=False)
class Edge(Structural):
    """A read of result `result` of node `node` through `map`: one `Point` or `Slice` per dim of its domain."""

    node: int
    map: IndexMap = ()
    result: int = 0
    _dims: frozenset[Symbol] | None = cached(None)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is Edge and self.node == other.node and self.map == other.map and self.result == other.result
        )

    __hash__ = Structural.__hash__

    def substitute(self, mapping: Mapping[Symbol, Expr]) -> Edge:
        return Edge(self.node, tuple(substitute_index(index, mapping) for index in self.map), self.result)

    def dims(self) -> frozenset[Symbol]:
        """The dims that what is read varies along."""
        if self._dims is None:
            found = frozenset(symbol for index in self.map for expr in index_exprs(index) for symbol in expr.dims())
            object.__setattr__(self, "_dims", found)
            return found
        return self._dims


def substitute_index(index: Point | Slice, mapping: Mapping[Symbol, Expr]) -> Point | Slice:
    if isinstance(index, Point):
        return Point(index.index.substitute(mapping))
    extent = None if index.extent is None else index.extent.substitute(mapping)
    return Slice(index.start.substitute(mapping), index.length.substitute(mapping), extent)


def index_exprs(index: Point | Slice) -> tuple[Expr, ...]:
    return (index.index,) if isinstance(index, Point) else (index.start, index.length)


def index_symbols(index: Point | Slice) -> frozenset[Symbol]:
    """What the place that is read varies with."""
    return frozenset(symbol for expr in index_exprs(index) for symbol in expr.symbols())


@dataclass(frozen=True)
class Element:
    """An element of a row: of what is seen, its axes put in `order`, the element `at` of the first.

    Axes of size 1 may still be missing, or be too many.
    """

    order: tuple[int, ...]
    at: Expr

    def is_one_of(self, count: Expr) -> Condition:
        """Whether there is such an element in a row of `count`."""
        return self.at.ge(0) & self.at.lt(count)


@dataclass(frozen=True)
class Case:
    """One case of a `merge`: where `condition` holds (and none before it), the value is what `edge` reads.

    `part`: the value is a part of what the edge reads. Lowering makes such cases (`passes.storage`), and merges of role
    "last" are declared with one.
    """

    condition: Condition
    edge: Edge
    location: Location | None = field(default=None, compare=False)
    part: Element | None = None


@dataclass(frozen=True)
class TensorType:
    """Spatial shape (numbers and index expressions) and dtype (its NumPy name, or "bfloat16")."""

    shape: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True)
class Node:
    """One operator over a domain.

    `attrs` holds the operator's attributes as sorted pairs, hashable. `cases` is used by `merge` alone. `declaration`
    numbers nominal nodes and is None for pure ones. Name and location stand outside equality.

    Attributes of nominal nodes:
      input      name; role "input" | "state" | "seed" | "last"; layout (see `Output`)
      merge      name; role "recurrent" | "parameter" | "cases" | "gradient" | "last" (and `along`, a Symbol: what its
                 case shows is that of the last point that is kept along the dim)
      host_call  fn, ordered_by (Symbols), batched (Symbols, for messages), resource; trims once shapes are static (see
                 `tempo.passes.ragged.static_extents`); results in `results`
                 `stream`, the name of a streamed input, in place of fn
      sink       the same, without results
      backend_call  fn (a `BackendFunction`), backend (its name); results in `results`; pure
    A `batched` dim of a host call is no dim of its domain: its operands are read with a slice over the whole dim, and
    its results have the batched sizes as leading axes, in canonical order.
    """

    id: int
    op: str
    domain: tuple[Symbol, ...]
    results: tuple[TensorType, ...]
    operands: tuple[Edge, ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()
    cases: tuple[Case, ...] = ()
    declaration: int | None = None
    name: str = field(default="", compare=False)
    location: Location | None = field(default=None, compare=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return self is other or (self._structure() == other._structure() and same(self.attrs, other.attrs))

    def __hash__(self) -> int:
        return hash(self._structure())

    def _structure(self) -> tuple[Any, ...]:
        """What equality compares beside the attributes, which are the same only by bits."""
        return self.id, self.op, self.domain, self.results, self.operands, self.cases, self.declaration

    @property
    def type(self) -> TensorType:
        return self.results[0]

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.results[0].shape

    @property
    def dtype(self) -> str:
        return self.results[0].dtype

    def attr(self, name: str, default: Any = None) -> Any:
        return next((value for key, value in self.attrs if key == name), default)

    @property
    def is_last(self) -> bool:
        """It reads at the last point of a dim along which a run, or a row, ends early."""
        return self.is_merge and self.attr("role") == "last"

    @property
    def is_nominal(self) -> bool:
        """Each declaration is its own node: two that look alike are not one."""
        return self.op in NOMINAL

    @property
    def is_input(self) -> bool:
        return self.op == "input"

    @property
    def is_constant(self) -> bool:
        return self.op == "constant"

    @property
    def is_given(self) -> bool:
        """It lives in a buffer that is there before anything runs."""
        return self.is_input or self.is_constant

    @property
    def is_merge(self) -> bool:
        return self.op == "merge"

    @property
    def is_draw(self) -> bool:
        """It makes random bits."""
        return self.op == "random_bits"

    @property
    def is_host_call(self) -> bool:
        return self.op == "host_call"

    @property
    def is_stream(self) -> bool:
        """It is a host call that takes the next value of a streamed input."""
        return self.is_host_call and self.attr("stream") is not None

    @property
    def is_backend_call(self) -> bool:
        return self.op == "backend_call"

    @property
    def has_effect(self) -> bool:
        """The host sees how often and in which order it is evaluated."""
        return self.op in ("host_call", "sink")

    @property
    def is_call(self) -> bool:
        """It runs a function that is not ours."""
        return self.has_effect or self.is_backend_call

    @cached_property
    def port(self) -> Port:
        """Of an input; every call asks for those of all inputs."""
        return Port(self.attr("role", "input"), self.attr("name", "") or self.name)

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.attrs)

    def reads(self) -> Iterator[tuple[Condition | None, Edge]]:
        """Every edge that this node reads through, with the condition of its case, if it has one.

        The condition is that of the case alone; that no earlier case holds is for `guarded_reads`.
        """
        for edge in self.operands:
            yield None, edge
        for case in self.cases:
            yield case.condition, case.edge

    def reading(self, read: Callable[[Edge], Edge]) -> Node:
        """The node with what `read` makes of every edge."""
        operands = tuple(map(read, self.operands))
        cases = tuple(replace(case, edge=read(case.edge)) for case in self.cases)
        return (
            self if (operands, cases) == (self.operands, self.cases) else replace(self, operands=operands, cases=cases)
        )

    def with_attrs(self, **changed: Any) -> Node:
        return replace(self, attrs=tuple(sorted({**self.attributes, **changed}.items())))

    def guarded_reads(self) -> tuple[tuple[Condition, Edge], ...]:
        """Every edge, with the exact condition under which it is read (first match wins)."""
        return self._guarded

    @cached_property
    def _guarded(self) -> tuple[tuple[Condition, Edge], ...]:
        found: list[tuple[Condition, Edge]] = [(TRUE, edge) for edge in self.operands]
        earlier: Condition = TRUE
        for case in self.cases:
            found.append((earlier & case.condition, case.edge))
            earlier = earlier & ~case.condition
        return tuple(found)


@dataclass(frozen=True)
class Output:
    """A named result: `edge` is read at every point of `domain`.

    `layout` says what the axes of the user's array are: a Symbol is a dim of the domain, an int an axis of the shape
    that the edge shows. Before lifting it is `(*domain, 0, 1, ...)`; lifting turns a dim into axis 0.
    `role` is that of its `Port`. `packed`: the user is given the points that there are, row by row. `resumes`: of a
    stop, whether the run may go on behind it.
    """

    name: str
    edge: Edge
    domain: tuple[Symbol, ...]
    type: TensorType
    layout: tuple[Symbol | int, ...]
    role: Role = "output"
    location: Location | None = field(default=None, compare=False)
    packed: bool = False
    resumes: bool = False

    @cached_property
    def port(self) -> Port:
        return Port(self.role, self.name)

    @property
    def rows(self) -> tuple[Symbol, ...]:
        """Of a stop, or of lengths: the dims whose points end each by itself; none where it ends the run."""
        return tuple(symbol for symbol in self.domain if symbol.name != self.name)

    @property
    def along(self) -> Symbol:
        """Of a stop, or of lengths: the dim along which it ends."""
        return next(symbol for symbol in self.domain if symbol.name == self.name)

    @property
    def last_along(self) -> Symbol | None:
        """The dim at whose last point it is taken."""
        return next((symbol for symbol in self.domain if symbol not in self.layout), None)


@dataclass(frozen=True)
class Graph:
    """A whole program. `dims` is in canonical order (the order of declaration).

    What was written over the last points of rows that have lengths: `guards`, by selection, is the condition under
    which its first side counts, and `last_reads`, by gather, the point that it reads.
    """

    dims: tuple[Dim, ...]
    nodes: Mapping[int, Node]
    outputs: tuple[Output, ...]
    sinks: tuple[int, ...] = ()
    guards: Mapping[int, Condition] = field(default_factory=dict, compare=False)
    last_reads: Mapping[int, Expr] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        from tempo.sdg.text import graph_text  # the text module prints these classes, so it imports this one

        return graph_text(self)

    @cached_property
    def _by_symbol(self) -> dict[Symbol, Dim]:
        return {dim.symbol: dim for dim in self.dims}

    def dim(self, symbol: Symbol) -> Dim:
        return self._by_symbol[symbol]

    @cached_property
    def stops(self) -> Mapping[Symbol, Output]:
        """The outputs that end runs early, by dim. One of role "stop" is named after a dim `t` and varies along it.

        Its value, an int32 scalar, is 0 at the points after which the run goes on, and at point `p` where it ends the
        number of points kept, `p + 1`. Outputs along `t` are cut to them. Of an output of role "state" or "stop" whose
        layout does not name `t`, the value at the last point that is kept counts.

        One that varies along other dims, too, its layout, ends each point of these, a *row*, by itself: of what varies
        along `t` and all of them, only a row's kept points exist. The run ends with its longest row.
        """
        return self._along("stop")

    @cached_property
    def ragged(self) -> Mapping[Symbol, Output]:
        """By dim of which rows have lengths of their own, what gives them: its edge shows, at a point of the dim and
        the rows, how many points there are of the row."""
        return self._along("rows")

    @cached_property
    def lengths(self) -> Mapping[Symbol, Output]:
        """By dim, where the rows' own ends have become values: of a stop 0, or how many points were kept, of each row;
        else the lengths that the run computes."""
        return self._along("lengths")

    def _along(self, role: Role) -> Mapping[Symbol, Output]:
        return {Symbol(output.name, "dim"): output for output in self.outputs if output.role == role}

    def domain_dims(self, node: Node) -> tuple[Dim, ...]:
        return tuple(map(self._by_symbol.__getitem__, node.domain))

    def named_sizes(self, sizes: Mapping[Symbol, int]) -> dict[str, int]:
        """The size of every dim by its name, given the values of size symbols."""
        return {dim.symbol.name: int(dim.size.evaluate(sizes)) for dim in self.dims}

    def shape_of(self, output: Output) -> tuple[Expr, ...]:
        """Of the user's array."""
        shape = output.type.shape
        return tuple(self.dim(each).size if isinstance(each, Symbol) else shape[each] for each in output.layout)

    def canonical(self, symbols: Iterable[Symbol]) -> tuple[Symbol, ...]:
        """The given dims, each once, in canonical order."""
        return canonical(self.dims, symbols)

    def seen_type(self, edge: Edge) -> TensorType:
        """Shape and dtype of what a consumer sees through `edge`."""
        producer = self.nodes[edge.node]
        return seen_type(producer.results[edge.result], producer.domain, edge.map)

    def view(self, edge: Edge) -> Node | None:
        """The pure node that `edge` reads, where it reads it at the reader's own point."""
        node = self.nodes[edge.node]
        return None if node.is_nominal or not self.is_identity(edge) else node

    def is_identity(self, edge: Edge) -> bool:
        """Whether `edge` reads every dim of its producer at itself."""
        domain = self.nodes[edge.node].domain
        return all(isinstance(index, Point) and index.index == var(symbol) for index, symbol in zip(edge.map, domain))

    @cached_property
    def consumers(self) -> Mapping[int, Sequence[tuple[int, Edge]]]:
        """For each node the reads of it, as (consumer's id, edge)."""
        found: dict[int, list[tuple[int, Edge]]] = {id: [] for id in self.nodes}
        for node in self.nodes.values():
            for _, edge in node.reads():
                found[edge.node].append((node.id, edge))
        return found

    @cached_property
    def shown(self) -> Mapping[int, Sequence[Output]]:
        """The outputs of each node that has some."""
        found: dict[int, list[Output]] = {}
        for output in self.outputs:
            found.setdefault(output.edge.node, []).append(output)
        return found

    def reachable(self) -> frozenset[int]:
        """Nodes that an output or a sink needs."""
        roots = (*(output.edge.node for output in self.outputs), *self.sinks)
        return frozenset(reached(roots, self.producers))

    def producers(self, id: int) -> list[int]:
        """Whom a node reads, with repetitions."""
        return [edge.node for _, edge in self.nodes[id].reads()]

    @cached_property
    def components(self) -> list[tuple[int, ...]]:
        """What hangs together through reads in a cycle, producers first."""
        return strongly_connected(self.nodes, {id: self.producers(id) for id in self.nodes})

    def operands_first(self) -> list[Node]:
        """All nodes, each behind its operands: every cycle runs through the cases of a merge, which are none."""
        operands = {id: [edge.node for edge in node.operands] for id, node in self.nodes.items()}
        return [self.nodes[id] for component in strongly_connected(operands, operands) for id in component]


def canonical(dims: Iterable[Dim], symbols: Iterable[Symbol]) -> tuple[Symbol, ...]:
    """The given symbols, each once, in the order of the dims."""
    wanted = set(symbols)
    return tuple(dim.symbol for dim in dims if dim.symbol in wanted)


def seen_type(produced: TensorType, domain: tuple[Symbol, ...], map: IndexMap) -> TensorType:
    """Slices become leading axes; a shape that varies over the producer's domain is taken at the point read."""
    lengths = tuple(index.seen for index in map if isinstance(index, Slice))
    if not any(size.dims() for size in produced.shape):
        return TensorType(lengths + produced.shape, produced.dtype) if lengths else produced
    points = {symbol: index.index for symbol, index in zip(domain, map) if isinstance(index, Point)}
    return TensorType(lengths + tuple(size.substitute(points) for size in produced.shape), produced.dtype)


@cache
def identity_map(domain: tuple[Symbol, ...]) -> IndexMap:
    return tuple(Point(var(symbol)) for symbol in domain)
