"""The program that is being written: its dims, and the builder of its nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from tempo.errors import (
    NO_POINTS,
    DTypeError,
    IndexExpressionError,
    ProgramError,
    ShapeError,
    SizeError,
    user_location,
)
from tempo.language.indexing.expression import Dim, IndexExpression, show, to_expr
from tempo.sdg.builder import NodeBuilder
from tempo.sdg.exact import exact
from tempo.sdg.graph import Case, Edge, Element, Graph, Node, Output, Port, TensorType
from tempo.sdg.operators.axes import show as show_sizes
from tempo.symbolic import LARGEST_SIZE, TRUE, Condition, Context, Expr, Symbol, var
from tempo.symbolic import Dim as SymbolicDim

if TYPE_CHECKING:
    from tempo.language.definitions import Parameter, ParameterSpec
    from tempo.language.tensor import RecurrentTensor

SEED_DECLARATION = 0
"""The number of the program's seed, whenever it is declared, so that no other number depends on when that is."""


class GraphBuilder(NodeBuilder):
    """The nodes of a program while it is written. `changes` grows with every change."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[Port, Output] = {}
        self.inputs: dict[str, int] = {}  # the nodes that are given when a program runs, by name
        self.seed: int | None = None
        self.sinks: list[int] = []
        self.means: dict[int, tuple[int, int]] = {}  # by quotient, the sum and by how many terms less it is divided
        self.lengths: dict[Symbol, Edge] = {}  # by dim along which rows have lengths of their own, these
        self.guards: dict[int, Condition] = {}  # by selection, the condition on rows under which its first side counts
        self.last_reads: dict[int, Expr] = {}  # by gather, the point that it reads, over the last one of its row
        self.ended: dict[tuple[Symbol, Edge], int] = {}  # the reads at last points that are known when a loop has ended
        self.changes = 0
        self._declaration = SEED_DECLARATION + 1

    def add_dim(self, dim: SymbolicDim) -> None:
        self.dims = (*self.dims, dim)
        self.__dict__.pop("context", None)  # which holds for the dims that there were
        self.changes += 1

    @cached_property
    def context(self) -> Context:
        """What holds for every dim: it lies between 0 and its size."""
        return Context.of(self.dims)

    def rows(self, symbol: Symbol) -> tuple[Symbol, ...]:
        """The dims whose points have lengths of their own along the dim, or end along it each by itself."""
        if symbol in self.lengths:
            return self.nodes[self.lengths[symbol].node].domain
        return self.outputs[Port("stop", symbol.name)].rows

    def ends_early(self, symbol: Symbol) -> bool:
        """Whether a run, or each of its rows, ends along the dim where a condition holds."""
        return Port("stop", symbol.name) in self.outputs

    def at_end(self, symbol: Symbol, edge: Edge, name: str) -> Edge:
        """Of all points along such a dim, which the edge shows along its first axis, the last one that is kept."""
        key = symbol, edge
        if key not in self.ended:
            seen = self.seen_type(edge)
            domain = self.canonical({*edge.dims(), *self.rows(symbol)})
            type = TensorType(seen.shape[1:], seen.dtype)
            attrs = {"along": symbol, "name": name, "role": "last"}
            self.ended[key] = id = self.nominal("merge", domain, (type,), attrs=attrs, name=name)
            part = Element(tuple(range(len(seen.shape))), self.size(symbol) - 1)
            self.add_case(id, Case(TRUE, edge, user_location(), part))
        return self.identity(self.ended[key])

    def size(self, symbol: Symbol) -> Expr:
        return next(dim.size for dim in self.dims if dim.symbol == symbol)

    @contextmanager
    def declarations_from(self, first: int) -> Iterator[None]:
        """Inside, declarations are numbered from `first`, and do not count among the others."""
        outer, self._declaration = self._declaration, first
        try:
            yield
        finally:
            self._declaration = outer

    def nominal(
        self,
        op: str,
        domain: tuple[Symbol, ...],
        results: tuple[TensorType, ...],
        operands: tuple[Edge, ...] = (),
        *,
        attrs: Mapping[str, Any],
        declaration: int | None = None,
        name: str = "",
    ) -> int:
        """A node of its own, however equal to another."""
        items = tuple(sorted(attrs.items()))
        number = self.new_declaration() if declaration is None else declaration
        node = Node(self.new_number(), op, domain, results, operands, items, (), number, name, user_location())
        return self._put(node)

    def placeholder(
        self, op: str, domain: tuple[Symbol, ...], type: TensorType, attrs: Mapping[str, Any], name: str = ""
    ) -> int:
        """A node that stands for another until the program is compiled; equal ones are one node."""
        items = tuple(sorted(attrs.items()))
        key = (op, domain, type, exact(items))
        if key not in self._interned:
            node = Node(self.new_number(), op, domain, (type,), attrs=items, name=name, location=user_location())
            self._interned[key] = self._put(node)
        return self._interned[key]

    def add_case(self, id: int, case: Case) -> None:
        """One more case of a declared tensor."""
        node = self.nodes[id]
        self._put(replace(node, cases=(*node.cases, case)))

    def add_output(self, output: Output) -> None:
        self.outputs[output.port] = output
        self.changes += 1

    def add_sink(self, id: int) -> None:
        self.sinks.append(id)
        self.changes += 1

    def _put(self, node: Node) -> int:
        self.changes += 1
        return super()._put(node)


_OPEN: ContextVar[tuple[Program, ...]] = ContextVar("tempo_programs", default=())


class Program:
    """A set of equations over recurrent tensors.

    Dims, tensors and outputs that are made inside `with tp.Program("name"):` belong to it. It may be entered again to
    add more.

    >>> import tempo as tp
    >>> with tp.Program("count") as program:
    ...     t = tp.dim("t", 3)
    ...     tp.output("count", t + 1)
    >>> program
    Program('count', dims: t; outputs: count)
    """

    def __init__(self, name: str = "program") -> None:
        self.name = name
        self.builder = GraphBuilder()
        self.declared_parameters: dict[str, Parameter] = {}
        self._dims: dict[str, Dim] = {}
        self._finished: tuple[int, Graph, Graph, Mapping[str, ParameterSpec]] | None = None
        self._finishing = threading.RLock()

    def made_of(self, graph: Graph, parameters: Iterable[str] = ()) -> Program:
        """A program of the same dims that is given by its graph, with some of this one's parameters. Nothing is added
        to it."""
        made = Program(self.name)
        made.builder.dims, made._dims = graph.dims, dict(self._dims)
        made.builder.means = {id: each for id, each in self.builder.means.items() if id in graph.nodes}
        specs = {name: self.parameters[name] for name in parameters}
        made._finished = (made.builder.changes, graph, graph, specs)
        return made

    def __enter__(self) -> Program:
        _OPEN.set((*_OPEN.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _OPEN.set(_OPEN.get()[:-1])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_finishing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _finishing=threading.RLock())

    def __repr__(self) -> str:
        outputs = ", ".join(output.name for output in self.builder.outputs.values() if output.role == "output")
        return f"Program({self.name!r}, dims: {', '.join(self._dims) or 'none'}; outputs: {outputs or 'none'})"

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dims in canonical order: that of their declaration."""
        return tuple(self._dims.values())

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        """What the runtime must know of each parameter, by name."""
        return self._finish()[2]

    def declared(self) -> Graph:
        """The graph as it was declared: `tp.grad` is a placeholder in it."""
        return self._finish()[1]

    def graph(self) -> Graph:
        """The symbolic dependence graph of everything declared so far, with gradients expanded.

        It is made anew only after a change. Raises what a gradient cannot be made of, at the line of `tp.grad`.
        """
        return self._finish()[0]

    def _finish(self) -> tuple[Graph, Graph, Mapping[str, ParameterSpec]]:
        with self._finishing:  # it makes nodes, and several threads may compile the program
            return self._finish_alone()

    def _finish_alone(self) -> tuple[Graph, Graph, Mapping[str, ParameterSpec]]:
        if self._finished is None or self._finished[0] != self.builder.changes:
            from tempo.analysis.rows import with_counts, with_folds_apart, with_own_points
            from tempo.autodiff import expand_gradients  # needed only where a program is compiled
            from tempo.language.rows import without_lasts

            with self:
                finished = [each.finished(self) for each in self.declared_parameters.values()]
                changed = {node.id: node for made, _, _ in finished for node in made}
                known = {**self.builder.nodes, **changed}.values() if self.builder.lengths else ()
                merges = [node for node in known if node.is_merge]
                ended = [replace(node, cases=without_lasts(self, node.cases, node.domain)) for node in merges]
            nodes = {**self.builder.nodes, **changed, **{node.id: node for node in ended}}
            outputs = (*self.builder.outputs.values(), *(output for _, output, _ in finished))
            declared = Graph(
                self.builder.dims,
                dict(sorted(nodes.items())),
                outputs,
                tuple(self.builder.sinks),
                dict(self.builder.guards),
                dict(self.builder.last_reads),
            )
            if declared.ragged:
                declared = with_counts(*with_folds_apart(with_own_points(declared), self.builder.means))

            specs = {spec.name: spec for _, _, spec in finished}
            self._finished = (self.builder.changes, expand_gradients(declared), declared, specs)
        _, graph, declared, parameters = self._finished
        return graph, declared, MappingProxyType(dict(parameters))

    def dim_of(self, symbol: Symbol) -> Dim:
        return self._dims[symbol.name]

    def add_dim(self, name: str, size: Expr) -> Dim:
        if not name.isidentifier():
            raise ProgramError(f"{name!r} cannot name a dim: it is no identifier", location=user_location())
        if name in self._dims:
            raise ProgramError(
                f"the program {self.name!r} has a dim {name!r} already",
                location=user_location(),
                hint="give the second dim another name, or use the first",
            )
        symbol = Symbol(name, "dim")
        self.builder.add_dim(SymbolicDim(symbol, size))
        self._dims[name] = Dim(self, var(symbol))
        return self._dims[name]

    def check_dims(self, dims: tuple[Any, ...] | Any, what: str) -> tuple[Symbol, ...]:
        """The symbols of dims given by the user, which must be dims of this program in canonical order."""
        given = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
        for dim in given:
            if not isinstance(dim, Dim):
                raise IndexExpressionError(
                    f"{what} must be dims, and {show(dim)} is none", location=user_location(), hint="write dims=(t,)"
                )
            self.require(dim.program, f"the dim {dim.name}")
        symbols = tuple(dim.symbol for dim in given)
        canonical = self.builder.canonical(symbols)
        if canonical != symbols:
            wanted = ", ".join(symbol.name for symbol in canonical)
            raise ProgramError(
                f"{what} must name each dim once, in the order of their declaration",
                location=user_location(),
                hint=f"write ({wanted}{',' * (len(canonical) == 1)})",
            )
        for symbol in symbols:
            rows = self.builder.rows(symbol) if symbol in self.builder.lengths else ()
            if missing := [row.name for row in rows if row not in symbols]:
                raise ProgramError(
                    f"{what} have {symbol.name} without {', '.join(missing)}, each point of which has a length of its "
                    f"own along it",
                    location=user_location(),
                    hint=f"name all of {', '.join(each.name for each in self.builder.canonical((*rows, symbol)))}",
                )
        return symbols

    def require(self, owner: Program | None, what: str) -> None:
        """Raises `ProgramError` where `what` belongs to another program than this one."""
        if owner is None or owner is self:
            return
        raise ProgramError(
            f"{what} belongs to the program {owner.name!r}, not to {self.name!r}",
            location=user_location(),
            hint=f"declare it inside the program {self.name!r}, or enter {owner.name!r} again",
        )


def check_name(name: Any, what: str) -> None:
    """Raises `ProgramError` where `name` is no string, or an empty one."""
    if not isinstance(name, str) or not name:
        raise ProgramError(f"{name!r} cannot name {what}", location=user_location(), hint="a name is a string")


def current_program() -> Program:
    """The innermost open program. Raises `ProgramError` where none is."""
    opened = _OPEN.get()
    if not opened:
        raise ProgramError(
            "no program is open",
            location=user_location(),
            hint='declare dims and tensors inside `with tp.Program("name") as program:`',
        )
    return opened[-1]


def dim(name: str, size: int | IndexExpression | None = None, *, lengths: RecurrentTensor | None = None) -> Dim:
    """A temporal dimension: `0 <= t < size`.

    Without a size the bound is the symbol `t.size`, known when the program is compiled or run. A size is an integer
    (at least 1, else `SizeError`) or an index expression of sizes of earlier dims.

    `lengths`: integers of shape () over earlier dims, the *rows*, each of which has so many points along the dim, 0 to
    `t.size`: an input, or a tensor that the program computes, also a recurrent one that is defined later. What is
    declared over the dim has the rows' dims, too. Points behind a row's end do not exist: they have no value and no
    share in a sum, a maximum, a softmax, a contraction or a mean; outputs are zero there, and `outputs.lengths["t"]`
    are the lengths. Rows may be points of other rows (sentences of a document, words of each of them): those that are
    not there have no points, whatever their lengths say. `t.last` is a row's last point: of the row that is read, where
    it is an index (`x[0, t.last]`), of the own one in a condition. `t.size` stays the size of the arrays.
    A read behind a row's end is a `DomainError`, a maximum, mean or softmax of an empty row a `ShapeError`, lengths out
    of range are a `SizeError`: before the program runs where lengths are inputs, else when it has run. Lengths that
    depend on the points of their own row are a `CycleError`.

    >>> with Program("example"):
    ...     t = dim("t")
    ...     s = dim("s", 2 * t.size)
    >>> t.size, s.size
    (t.size, 2*t.size)

    A frontier: which points a level has is made of the level before.

    >>> import tempo as tp
    >>> with tp.Program("halves") as program:
    ...     l = tp.dim("l")
    ...     width = tp.recurrent("width", (), (l,), "int32")
    ...     i = tp.dim("i", 8, lengths=width)
    ...     x = tp.recurrent("x", (), (l, i))
    ...     x[0, i] = 5.0
    ...     x[l, i] = x[l - 1].gather(i, tp.as_tensor(i) // 2) / 2
    ...     width[0] = 1
    ...     width[l + 1] = 2 * (x > 2)[l, :].sum()
    ...     tp.output("x", x)
    >>> outputs = tp.compile(program, sizes={"l": 4})()
    >>> outputs.lengths["i"].tolist(), outputs["x"][:, 0].tolist()
    ([1, 2, 4, 0], [5.0, 2.5, 1.25, 0.0])
    """
    program = current_program()
    check_name(name, "a dim")
    given = None if lengths is None else _lengths(program, name, lengths)
    made = program.add_dim(name, _size(program, name, size))
    if given is not None:
        rows = program.builder.nodes[given.node].domain
        program.builder.lengths[made.symbol] = given
        type, domain = TensorType((), program.builder.nodes[given.node].dtype), (*rows, made.symbol)
        program.builder.add_output(Output(name, given, domain, type, rows, "rows", location=user_location()))
    return made


def _size(program: Program, name: str, size: int | IndexExpression | None) -> Expr:
    if size is None:
        return var(Symbol(name, "size"))
    expr = to_expr(size, program, f"the size of the dim {name}")
    if expr.dims():
        raise IndexExpressionError(
            f"the size of the dim {name} varies with {', '.join(sorted(s.name for s in expr.dims()))}",
            location=user_location(),
            hint="a size is a number or an expression of sizes (t.size); where rows have lengths of their own give "
            "these as an input, lengths=n; guard other points outside with cases",
        )
    if expr.is_const and expr.as_int() < 1:
        raise SizeError(
            f"the size of the dim {name} is {expr}; it must be at least 1", location=user_location(), hint=NO_POINTS
        )
    if expr.is_const and expr.as_int() > LARGEST_SIZE:
        raise SizeError(f"the size of the dim {name} is {expr}; it must be at most 2**30", location=user_location())
    return expr


def _lengths(program: Program, name: str, lengths: Any) -> Edge:
    """The read of what gives a length for each of its points."""
    what = f"the lengths of the dim {name!r}"
    if not hasattr(lengths, "edge"):
        raise IndexExpressionError(
            f"{what} are {show(lengths)}",
            location=user_location(),
            hint='declare them: n = tp.input("n", (), (b,), "int32"); one length for all is the size of the dim',
        )
    program.require(lengths.program, what)
    type = lengths.type
    if not type.dtype.startswith(("int", "uint")):
        raise DTypeError(f"{what} are {type.dtype}", location=user_location(), hint='they are integers: "int32"')
    if type.shape:
        raise ShapeError(f"{what} have the shape {show_sizes(type.shape)}, and it is ()", location=user_location())
    from tempo.language.rows import of_those_there  # which is written with tensors

    edge = lengths.edge
    if not lengths.is_identity:
        copy = Node(edge.node, "copy", (), (type,), (edge,), name=lengths.spelled, location=user_location())
        edge = program.builder.typed(copy)
    return of_those_there(program, edge)


def dims(names: str, *more: Any, **options: Any) -> tuple[Dim, ...]:
    """Several dims at once, in canonical order: `b, i, t = tp.dims("b i t")`.

    Raises `ProgramError` for anything else than names: a dim with a size or lengths of its own is `tp.dim`'s.
    """
    if more or options:
        raise ProgramError(
            "tp.dims takes the names of dims, in one string, and nothing else",
            location=user_location(),
            hint='write b, t = tp.dims("b t"); one with a size or lengths is by itself: t = tp.dim("t", lengths=n)',
        )
    check_name(names, "dims")
    return tuple(dim(name) for name in names.replace(",", " ").split())
