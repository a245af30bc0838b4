"""LoopIR: order, storage and shapes as decided; a backend only chooses instructions.

Expressions are over loop variables (the dims' symbols) and sizes. Values are named; every name is assigned in the block
that uses it or in one around it. The text (`str(program)`) is what `explain()` shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tempo.errors import Location
from tempo.placement.mesh import Placement, local, whole
from tempo.sdg.exact import same
from tempo.sdg.graph import Node, Port, TensorType
from tempo.symbolic import Condition, Dim, Expr, Symbol

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class Axis:
    """One storage axis of a buffer, for one dim of the tensor it holds.

    window: index modulo `extent`; full: the index itself, `extent` is the dim's size, or a place more.
    """

    dim: Symbol
    position: int  # of the dim in the tensor's domain
    kind: Literal["window", "full"]
    extent: Expr


def extent_of(size: Expr, sizes: Mapping[Symbol, int]) -> int:
    """How many positions an axis has at these sizes; an extent below zero is of what never runs there."""
    return max(0, int(size.evaluate(sizes)))


@dataclass(frozen=True)
class Buffer:
    """Where the values of a tensor live. Without axes it is a *slot*: replaced as a whole by each write.

    The logical shape is the extents of the axes, then `shape`. `layout` says what the axes of the user's array are
    (inputs and outputs): a Symbol is an axis, an int a position in `shape`. `local`: the variables of loops that
    have all reads in them, each of what its own iteration wrote. `zeroed`: what was not written yet is read as zeros.
    `pooled`: all points along this axis, of which there are so many, are in the host pool, and some of them here.
    `donated`: what it is given is the program's own. `placement`: how its logical axes lie on a mesh; empty: it is
    whole on every device. `is_part`: its extents are those of the part that one device has.
    """

    id: int
    name: str
    dtype: str
    axes: tuple[Axis, ...]
    shape: tuple[Expr, ...]
    role: Literal["internal", "input", "constant", "output"] = "internal"
    layout: tuple[Symbol | int, ...] = ()
    local: frozenset[Symbol] = frozenset()
    zeroed: bool = False
    pooled: tuple[int, int] | None = None
    donated: bool = False
    placement: Placement = ()
    is_part: bool = False
    location: Location | None = field(default=None, compare=False)  # of the tensor

    @property
    def label(self) -> str:
        return f"b{self.id}"

    @property
    def cut_along(self) -> str:
        """For each axis the axis of the mesh that it lies along, for a reader."""
        return ", ".join("-" if cut is None else cut.over for cut in self.placement)

    @property
    def is_given(self) -> bool:
        """Whether it is there before the program runs."""
        return self.role in ("input", "constant")

    @property
    def is_slot(self) -> bool:
        return not self.axes

    @property
    def is_circular(self) -> bool:
        return any(axis.kind == "window" for axis in self.axes)

    @property
    def logical_shape(self) -> tuple[Expr, ...]:
        return tuple(axis.extent for axis in self.axes) + self.shape

    def extents(self, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
        """The logical shape at these sizes."""
        return tuple(extent_of(extent, sizes) for extent in self.logical_shape)

    def whole_extents(self, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
        """Of all of it, where these are of a part."""
        found = self.extents(sizes)
        return whole(found, self.placement) if self.is_part else found

    def local_extents(self, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
        """What one device has of them."""
        return self.extents(sizes) if self.is_part else local(self.extents(sizes), self.placement)

    @cached_property
    def is_as_given(self) -> bool:
        """Whether its axes are in the order of the user's array."""
        return self.from_user == tuple(range(len(self.from_user)))

    @cached_property
    def from_user(self) -> tuple[int, ...]:
        """The permutation from the axes of the user's array to those of the buffer (dims, then shape)."""
        if not self.layout:
            return tuple(range(len(self.logical_shape)))
        logical = [*(axis.dim for axis in self.axes), *range(len(self.shape))]
        return tuple(self.layout.index(label) for label in logical)

    @cached_property
    def to_user(self) -> tuple[int, ...]:
        """The permutation back."""
        axes = self.from_user
        return tuple(axes.index(axis) for axis in range(len(axes)))

    @property
    def storage(self) -> str:
        kinds = [f"window({axis.extent})" if axis.kind == "window" else "full" for axis in self.axes]
        return " x ".join(kinds) if kinds else "point"


@dataclass(frozen=True)
class PointIndex:
    index: Expr

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.index,)


@dataclass(frozen=True)
class WindowIndex:
    """Positions `start, ..., start + extent - 1`; `exact` when all of them are proven to be inside the dim.

    Otherwise each position is clamped into the buffer (what lies outside of the dim is never looked at). `length`: how
    many of them mean anything, where that varies.
    """

    start: Expr
    extent: Expr
    exact: bool
    length: Expr | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.start, self.extent)


BufferIndex = tuple[PointIndex | WindowIndex, ...]


@dataclass(frozen=True)
class Read:
    """`result` becomes what `buffer` holds at `index` (one entry per axis). `fresh`: it must not alias the buffer."""

    result: str
    buffer: int
    index: BufferIndex
    fresh: bool = False


@dataclass(frozen=True)
class Write:
    """`extents`: for each axis, how many positions are written from the index on, None for one without an axis in the
    value. May be left out where that is so of all.
    """

    buffer: int
    index: tuple[Expr, ...]
    value: str
    extents: tuple[Expr | None, ...] = ()

    def __post_init__(self) -> None:
        if not self.extents:
            object.__setattr__(self, "extents", (None,) * len(self.index))

    @property
    def is_point(self) -> bool:
        return all(extent is None for extent in self.extents)


@dataclass(frozen=True)
class Compute:
    """One operator. `scalars` are evaluated where it runs and passed after the operands.

    `point`: of a read whose indices are checked, the point that it is at, by dim. `placement`: how the result lies on a
    mesh; None: as whatever compiles it sees fit.
    """

    result: str
    op: str
    attrs: Mapping[str, Any]
    operands: tuple[str, ...]
    operand_types: tuple[TensorType, ...]
    type: TensorType
    scalars: tuple[Expr | Condition, ...] = ()
    point: tuple[tuple[Symbol, Expr], ...] = ()
    name: str = field(default="", compare=False)
    location: Location | None = field(default=None, compare=False)
    placement: Placement | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Compute):
            return NotImplemented
        return self is other or (self._structure() == other._structure() and same(self.attrs, other.attrs))

    def __hash__(self) -> int:
        return hash(self._structure())

    @property
    def is_mask(self) -> bool:
        """Whether it lets the first positions along an axis through, and puts something else behind them."""
        return self.op == "mask"

    def _structure(self) -> tuple[Any, ...]:
        return self.result, self.op, self.operands, self.operand_types, self.type, self.scalars, self.placement


@dataclass(frozen=True)
class Assign:
    result: str
    value: str


@dataclass(frozen=True)
class Branch:
    """`is_choice`: both sides mean the same, and one of them costs less (`dynamic_extent.versions`)."""

    condition: Condition
    then: Block
    otherwise: Block = ()
    is_choice: bool = False


@dataclass(frozen=True)
class Guard:
    """The body runs only at the points marked in table `table` (a run-time boolean array over `point`)."""

    table: int
    point: tuple[Expr, ...]
    body: Block


@dataclass(frozen=True)
class Loop:
    """`lo <= var < hi`, in `direction`. A host loop is run by the driver, a device loop inside a segment.

    `strip`: a host loop runs the calls of so many iterations before their segment, the last statement of its body,
    which is called for all of them (`tempo.loop_ir.transforms.read_ahead`).
    """

    var: Symbol
    lo: Expr
    hi: Expr
    direction: Direction
    body: Block
    strip: int = 1


@dataclass(frozen=True)
class Stop:
    """Stands in the body of a loop: leave it here where `buffer`, a slot that holds an integer, is not 0.

    What stands behind it in the body nobody wants once the loop is left, so it may be run all the same.
    """

    buffer: int


@dataclass(frozen=True)
class CallHost:
    """Call a Python function with what is read. `writes` name its results `y0`, `y1`, ...; one may go to several
    buffers, or to none. `trims`: valid lengths per operand axis."""

    call: int
    point: tuple[Expr, ...]
    reads: tuple[Read, ...]
    trims: tuple[tuple[Expr | None, ...], ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True)
class CallSegment:
    segment: int


@dataclass(frozen=True)
class Fetch:
    """The points from `start` to `stop` along the pooled axis of a buffer come from the host pool; `base` is the point
    that lies at position 0. What was never evicted is not there, and nobody looks at it.

    `ahead`: the points that are fetched next, which nothing changes until then.
    """

    buffer: int
    start: Expr
    stop: Expr
    base: Expr
    ahead: tuple[Expr, Expr] | None = None


@dataclass(frozen=True)
class Evict:
    """These points go to the host pool; the buffer is for others then."""

    buffer: int
    start: Expr
    stop: Expr
    base: Expr


Transfer = Fetch | Evict

Statement = Read | Write | Compute | Assign | Branch | Guard | Loop | Stop | CallHost | CallSegment | Transfer

Block = tuple[Statement, ...]


@dataclass(frozen=True)
class Segment:
    """A maximal piece without host work: one executable of the backend.

    `results`: of the buffers that it writes those that it returns, in order. `is_loop`: it is one loop, which is run
    from `start` to `stop` as given at the call. `unread`: it is given None for these, since it reads nothing of them
    that it did not write.
    """

    id: int
    body: Block
    results: tuple[int, ...]
    is_loop: bool = False
    unread: frozenset[int] = frozenset()

    @staticmethod
    def of(id: int, body: Block, is_loop: bool = False) -> Segment:
        """The segment of these statements; all that they write are its results."""
        written = {each.buffer for each in walk(body) if isinstance(each, Write)}
        return Segment(id, body, tuple(sorted(written)), is_loop)

    @property
    def name(self) -> str:
        return f"segment_{self.id}"

    @property
    def loop(self) -> Loop | None:
        loop = self.body[0] if self.is_loop else None
        assert isinstance(loop, Loop | None)
        return loop

    @cached_property
    def buffers(self) -> tuple[int, ...]:
        """All that it touches."""
        return tuple(sorted({each.buffer for each in walk(self.body) if isinstance(each, Read | Write)}))

    @cached_property
    def tables(self) -> tuple[int, ...]:
        return tuple(sorted({each.table for each in walk(self.body) if isinstance(each, Guard)}))

    @cached_property
    def arguments(self) -> tuple[Symbol, ...]:
        """The symbols whose values it is given: sizes, variables of host loops around it."""
        inner = {statement.var for statement in walk(self.body) if isinstance(statement, Loop)}
        given = (statement for statement in walk(self.body) if statement is not self.loop)
        needed = {symbol for each in given for expr in expressions(each) for symbol in expr.symbols()}
        return tuple(sorted(needed - inner))


@dataclass(frozen=True)
class LastValue:
    """Where a parameter's value lies while it runs: what is read, in its own shape, its axes then put in order.

    `dims`: those along which it is that of one point, the last; their variables say which. `made`: where there is one.
    """

    read: Read
    shape: tuple[Expr, ...]
    axes: tuple[int, ...]
    dims: tuple[Dim, ...]
    made: Condition


Offsets = Mapping[int, tuple[int, int]]
"""By buffer: from how many to how many points past an iteration's own are made in it."""


@dataclass(frozen=True)
class LoopProgram:
    """The whole program: a sequence of items, each one segment, or one host loop or call around segments."""

    items: Block
    segments: tuple[Segment, ...]
    buffers: Mapping[int, Buffer]
    hosts: tuple[Node, ...]  # what `CallHost.call` numbers
    constants: Mapping[int, Any]  # buffer -> array
    inputs: Mapping[Port, int]  # -> buffer
    outputs: Mapping[Port, int]
    tables: Mapping[int, int]  # table -> node of the graph whose demanded points it marks
    registers: tuple[Buffer, ...] = ()  # values that never leave the block that makes them; for `run.memory`
    stopped: tuple[int | None, ...] = ()  # for each item, the buffer of the stop after which it is left out
    states: Mapping[Port, LastValue] = field(default_factory=dict)  # where what is in `outputs` is no copy
    offsets: Mapping[int, Offsets] = field(default_factory=dict)  # by item that is one loop

    def called(self, items: Block) -> list[Segment]:
        """The segments that these statements of the driver call, in order."""
        return [self.segments[each.segment] for each in walk(items) if isinstance(each, CallSegment)]

    def statements(self) -> Iterator[Statement]:
        """Every statement of the items and of the segments, outer before inner."""
        for body in (self.items, *(segment.body for segment in self.segments)):
            yield from walk(body)

    def __str__(self) -> str:
        from tempo.loop_ir.text import render

        return render(self)

    @cached_property
    def identity(self) -> str | None:
        """What tells it from all others but for lines of the user's; None where it has functions in it."""
        from tempo.loop_ir.text import identity

        return identity(self)


def nested(statement: Statement) -> tuple[Block, ...]:
    """The blocks directly inside a statement."""
    if isinstance(statement, Loop | Guard):
        return (statement.body,)
    if isinstance(statement, Branch):
        return (statement.then, statement.otherwise)
    if isinstance(statement, CallHost):
        return (statement.reads, statement.writes)
    return ()


def stop_in(loop: Loop) -> int | None:
    """The buffer that says when to leave the loop early."""
    return next((each.buffer for each in loop.body if isinstance(each, Stop)), None)


def walk(statements: Block) -> Iterator[Statement]:
    """Every statement, outer before inner."""
    for statement in statements:
        yield statement
        for block in nested(statement):
            yield from walk(block)


def expressions(statement: Statement) -> Iterator[Expr | Condition]:
    """The run-time expressions of one statement, not of the blocks inside it."""
    match statement:
        case Read(index=index):
            yield from (expr for entry in index for expr in entry.exprs)
        case Write(index=index, extents=extents):
            yield from index
            yield from (extent for extent in extents if extent is not None)
        case Compute(scalars=scalars, point=at):
            yield from scalars
            yield from (index for _, index in at)
        case Branch(condition=condition):
            yield condition
        case Guard(point=point):
            yield from point
        case Loop(lo=lo, hi=hi):
            yield from (lo, hi)
        case Fetch(ahead=ahead):
            yield from (statement.start, statement.stop, statement.base, *(ahead or ()))
        case Evict():
            yield from (statement.start, statement.stop, statement.base)
        case CallHost(point=point, trims=trims):
            yield from point
            yield from (length for operand in trims for length in operand if length is not None)
