"""Loops as CUDA graphs: what is launched operator by operator is recorded once, and launched as one from there on.

An eager operator costs the host 5 to 10 microseconds, and one of a recorded graph the device 1 or 2. A *stretch* is as
much of a loop's body as can be recorded in one: operators, reads and writes, choices that are made by positions alone,
inner loops whose bounds are known, written out. What it is recorded with has to be there at the same address when it
is launched again, so

- the position of a loop that is not written out lies on the device (`Position`): reads and writes there are
  `index_select` and `index_copy_`, and one graph serves all iterations in which the same choices are made;
- what a segment replaces as a whole (slots), and values that another stretch looks at, lie in *cells*;
- other arrays are those of the call. Calls with arrays elsewhere have graphs of their own, the latest few are kept.

What the host has to look at (draws, what a user's function gives) stands between stretches, operator by operator.
Whether an index is out of range is looked at on the device, and by the host once for a call: it is then run again
operator by operator, which raises the error that says where.
Each stretch runs once without a graph, which also loads what its kernels need, and is recorded when it is due again.

`Recorder` is the device's part. Where there is none (`tempo_torch.simulated`) the function of a stretch is called again
in the place of a graph, with nothing told to it, so that all that varies must come from cells.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any

import torch

from tempo import dtypes
from tempo.backends import ByPoint, SegmentRequest
from tempo.backends.emission import operands
from tempo.backends.loop_ir import (
    Assign,
    Block,
    Branch,
    Buffer,
    Compute,
    Guard,
    Loop,
    PointIndex,
    Read,
    Segment,
    Statement,
    Stop,
    WindowIndex,
    Write,
    expressions,
    nested,
    walk,
)
from tempo.errors import IndexOutOfRangeError
from tempo.symbolic import Condition, Expr, Symbol
from tempo_torch.arrays import clamped, positions_of, signed, wrapped
from tempo_torch.emitter import CudaEmitter, holds
from tempo_torch.emitter import number as on_host
from tempo_torch.flow import Flow
from tempo_torch.moving import REACH, Moving, Place, Position, Values, bucket, evaluated, number
from tempo_torch.operators import Operation
from tempo_torch.operators.indexing import as_long
from tempo_torch.waits import waits, why_waits

LARGEST = 8192
"""Operators of a stretch, at most."""
SHORT = 256
"""A stretch of fewer operators is of several iterations, up to so many."""
DOUBLED = 1 << 20
"""Bytes of cells, beside a sixteenth of what a segment's buffers take, up to which what is copied into them may lie
twice; with more, memory would not be what is planned."""
LITTLE = 1 << 12
"""Elements of an array that is copied for each call, so that it may lie anywhere: they seldom lie where they did."""
KEPT = 4
"""Sets of graphs of a segment, for arrays that lie elsewhere; and plans, for other sizes."""
MOST = 256
"""Graphs of a set. Where more are asked for, choices differ from step to step, and graphs are of no use."""
REMEMBERED = 1 << 16
"""Positions for which it is remembered what is chosen."""

Launch = Callable[[], None]
Points = Mapping[Symbol, int]


class Recorder:
    """Records on a stream of its own. All graphs share the memory of what lives within one of them."""

    few = 32
    """Operators of a call below which it is run one by one."""
    once = 64
    """Iterations for which graphs are made though it is not known whether their arrays come again."""
    address = staticmethod(torch.Tensor.data_ptr)

    @staticmethod
    def memory(tensor: torch.Tensor) -> int:
        """Where what it is a view of lies."""
        return tensor.untyped_storage().data_ptr()

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._first: Launch | None = None
        self._around: torch.cuda.Stream | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Recorder, (self._device,)

    def is_here(self) -> bool:
        """Whether it is the stream of the first call: graphs that share memory must not run at once."""
        current = torch.cuda.current_stream(self._device)
        self._around = self._around or current
        return current == self._around

    def __call__(self, work: Callable[[], None]) -> Launch:
        if self._first is None:  # the memory goes back where no graph is left that has a part in it
            self._first = self._recorded(lambda: torch.zeros(1, device=self._device).neg_())
        return self._recorded(work)

    def _recorded(self, work: Callable[[], Any]) -> Launch:
        graph, around = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        self._stream.wait_stream(around)
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        around.wait_stream(self._stream)
        replay: Launch = graph.replay
        return replay


# -- what a segment is made of -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Stretch:
    """Statements that are recorded in one. `kept`: names that something outside of it looks at. `asked`: conditions and
    lengths that loops around it decide, each with the positions of the loops written out around it. `size`: operators.
    """

    statements: Block
    size: int
    asked: tuple[tuple[Condition | Expr, Points], ...]
    symbols: tuple[Symbol, ...]
    kept: tuple[str, ...] = ()
    found: dict[tuple[int, ...], Hashable] = field(default_factory=dict)

    def outcomes(self, points: Points) -> Hashable:
        """What its conditions and lengths are: with the same outcomes it is the same graph."""
        at = tuple(points[symbol] for symbol in self.symbols)
        if at not in self.found:
            if len(self.found) >= REMEMBERED:
                self.found.clear()
            self.found[at] = tuple(_outcome(asked, {**points, **inner}) for asked, inner in self.asked)
        return self.found[at]


def _outcome(asked: Condition | Expr, points: Points) -> int:
    found = evaluated(asked, points)
    return bool(found) if isinstance(asked, Condition) else bucket(int(found))


@dataclass(eq=False)
class Repeated:
    loop: Loop
    body: tuple[Item, ...]

    @property
    def stretch(self) -> Stretch | None:
        """All of its body, where that is one."""
        return self.body[0] if len(self.body) == 1 and isinstance(self.body[0], Stretch) else None


@dataclass(eq=False)
class Chosen:
    branch: Branch
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...]


@dataclass(eq=False)
class Guarded:
    guard: Guard
    body: tuple[Item, ...]


@dataclass(eq=False)
class Waiting:
    """An operator for which the host waits, and why."""

    compute: Compute
    why: str


Item = Stretch | Repeated | Chosen | Guarded | Waiting | Stop


def unchecked(compute: Compute) -> Compute:
    if not compute.attrs.get("checked"):
        return compute
    return replace(compute, attrs={**compute.attrs, "checked": False})


def is_copied(plan: Planner, buffer: Buffer, array: Any) -> bool:
    """Whether an array goes into a cell for a call: what is replaced as a whole, and what is small and no constant."""
    if buffer.is_slot and buffer.id in plan.written:
        return True
    return buffer.role != "constant" and isinstance(array, torch.Tensor) and array.numel() <= LITTLE


class Planner:
    """Cuts a segment into items."""

    def __init__(self, segment: Segment, sizes: Points, emitter: CudaEmitter) -> None:
        """`sizes`: of the executable, and those that a call is given."""
        self.segment, self.sizes, self.emitter, self.buffers = segment, sizes, emitter, emitter.program.buffers
        every = tuple(walk(self.segment.body))
        self._makers = {each.result: each for each in every if isinstance(each, Read | Compute | Assign)}
        self.reads = {name: each for name, each in self._makers.items() if isinstance(each, Read)}
        self.written = frozenset(each.buffer for each in every if isinstance(each, Write))
        self._uses = Counter(name for each in every for name in operands(each))
        self._operators: dict[int, Callable[..., Any]] = {}
        self._last: dict[int, Sequence[tuple[str, ...]]] = {}
        self.flow = Flow.of(self.segment)
        self.is_varied = False  # whether more graphs were asked for than are of use
        self.stretches: list[Stretch] = []
        self.items = self._items(self.segment.body, frozenset(self.sizes))
        for stretch in self.stretches:
            stretch.kept = self._kept(stretch)
        moving = {*self.segment.arguments, *(loop.var for loop in repeated(self.items))} - self.sizes.keys()
        points = ((each.buffer, entry) for each in self.reads.values() for entry in each.index)
        self.at_moving = frozenset(
            buffer for buffer, entry in points if isinstance(entry, PointIndex) and entry.index.symbols() & moving
        )
        """The buffers that are read at points that vary."""

    def operator(self, compute: Compute) -> Callable[..., Any]:
        """Its function; one that clamps its indices, where these are looked at on the device."""
        if id(compute) not in self._operators:
            self._operators[id(compute)] = self.emitter.operator(self.emitter.call_of(unchecked(compute)))
        return self._operators[id(compute)]

    @cached_property
    def looks(self) -> bool:
        """Whether some index is looked at on the device."""
        every = (each for stretch in self.stretches for each in walk(stretch.statements))
        return any(isinstance(each, Compute) and each.attrs.get("checked") for each in every)

    @cached_property
    def rounds(self) -> bool:
        """Whether sums have other bits than operator by operator, since what lies behind a length is in them as zeros.
        Then it is not to depend on earlier calls which way a call is run."""
        every = (self.operator(each) for each in walk(self.segment.body) if isinstance(each, Compute))
        return any(isinstance(each, Operation) and each.bounded for each in every)

    def why_waits(self, compute: Compute) -> str | None:
        return why_waits(self.operator(compute))

    @cached_property
    def in_cells(self) -> int:
        """The bytes of slots and values that lie in cells beside where they are made."""
        kept = dict.fromkeys(name for stretch in self.stretches for name in stretch.kept)
        slots = (self.buffers[id] for id in self.written if self.buffers[id].is_slot)
        types = [*map(self._type, kept), *((slot.shape, slot.dtype) for slot in slots)]
        return sum(self._bytes(*type) for type in types if type is not None)

    def _bytes(self, shape: Sequence[Expr], dtype: str) -> int:
        return prod(max(0, int(size.evaluate(self.sizes))) for size in shape) * dtypes.itemsize(dtype)

    def _type(self, name: str) -> tuple[Sequence[Expr], str] | None:
        """The shape and dtype of a value."""
        while isinstance(made := self._makers[name], Assign):
            name = made.value
        if isinstance(made, Compute):
            return (made.type.shape, made.type.dtype)
        buffer, windows = self.buffers[made.buffer], (each for each in made.index if isinstance(each, WindowIndex))
        return (*(each.extent for each in windows), *buffer.shape), buffer.dtype

    def waited_for(self, compute: Compute, given: Sequence[Any], points: Points) -> Any:
        """The result of an operator for which the host waits; an error says the point, as where source was generated:
        from the variables of whoever calls."""
        function = self.emitter.function_of(compute)
        symbols = {symbol for _, index in compute.point for symbol in index.symbols()}
        variables = {self.emitter.names(symbol): points[symbol] for symbol in symbols}
        scalars = [evaluated(scalar, points) for scalar in compute.scalars]
        return eval("function(*given)", {"function": function, "given": [*given, *scalars]}, variables)  # noqa: S307

    def last(self, block: Block) -> Sequence[tuple[str, ...]]:
        """After each statement of a block, the names made in it that nothing needs any more."""
        if id(block) not in self._last:
            made = {each.result for each in walk(block) if isinstance(each, Read | Compute | Assign)}
            uses = [Counter(name for each in walk((statement,)) for name in operands(each)) for statement in block]
            inside = sum(uses, Counter[str]())
            left, found = {name for name in made if inside[name] == self._uses[name]}, list[tuple[str, ...]]()
            for each in reversed(uses):
                found.append(tuple(name for name in each if name in left))
                left.difference_update(each)
            self._last[id(block)] = found[::-1]
        return self._last[id(block)]

    def _items(self, block: Block, known: frozenset[Symbol]) -> tuple[Item, ...]:
        found: list[Item] = []
        run: list[Statement] = []
        size = 0

        def close() -> None:
            nonlocal size
            if any(not isinstance(each, Read) for each in run):
                found.append(self._stretch(tuple(run), size, known))
            run.clear()
            size = 0

        for statement in block:
            more = self._size(statement, known)
            if more is None or size + more > LARGEST:
                close()
            if more is None:
                found.append(self._item(statement, known))
                continue
            run.append(statement)
            size += more
        close()
        return tuple(found)

    def _item(self, statement: Statement, known: frozenset[Symbol]) -> Item:
        match statement:
            case Loop(body=body):
                return Repeated(statement, self._items(body, known))
            case Branch(then=then, otherwise=otherwise):
                return Chosen(statement, self._items(then, known), self._items(otherwise, known))
            case Guard(body=body):
                return Guarded(statement, self._items(body, known))
            case Compute():
                return Waiting(statement, self.why_waits(statement) or "")
            case Stop():
                return statement
        raise AssertionError(statement)

    def _size(self, statement: Statement, known: frozenset[Symbol]) -> int | None:
        """How many operators are launched, at most; None where it cannot be recorded with what is around it."""
        match statement:
            case Compute():
                return None if self.why_waits(statement) else 1
            case Write():
                return 1
            case Read() | Assign():
                return 0
            case Branch(then=then, otherwise=otherwise):
                return self._sum((*then, *otherwise), known)
            case Loop(var=var, lo=lo, hi=hi, body=body) if statement is not self.segment.loop:
                if not (lo.symbols() | hi.symbols()) <= self.sizes.keys():
                    return None
                inside = self._sum(body, known | {var})
                count = max(0, int(hi.evaluate(self.sizes)) - int(lo.evaluate(self.sizes)))
                return None if inside is None or inside * count > LARGEST else inside * count
        return None

    def _sum(self, block: Block, known: frozenset[Symbol]) -> int | None:
        sizes = [self._size(each, known) for each in block]
        return None if None in sizes else sum(each or 0 for each in sizes)

    def _stretch(self, statements: Block, size: int, known: frozenset[Symbol]) -> Stretch:
        asked = tuple(self._asked(statements, {}))
        symbols = {symbol for each, inner in asked for symbol in each.symbols() - inner.keys() - self.sizes.keys()}
        self.stretches.append(Stretch(statements, max(1, size), asked, tuple(sorted(symbols))))
        return self.stretches[-1]

    def _asked(self, block: Block, inner: Points) -> Iterator[tuple[Condition | Expr, Points]]:
        known = self.sizes.keys() | inner.keys()
        for each in block:
            if isinstance(each, Branch) and not each.condition.symbols() <= known:
                yield each.condition, inner
            if isinstance(each, Compute):
                bounded = getattr(self.operator(each), "bounded", False)
                asked = (scalar for scalar in each.scalars if bounded or isinstance(scalar, Condition))
                yield from ((scalar, inner) for scalar in asked if not scalar.symbols() <= known)
            if isinstance(each, Loop):
                lo, hi = int(each.lo.evaluate(self.sizes)), int(each.hi.evaluate(self.sizes))
                for point in range(lo, hi):
                    yield from self._asked(each.body, {**inner, each.var: point})
            else:
                for nest in nested(each):
                    yield from self._asked(nest, inner)

    def _kept(self, stretch: Stretch) -> tuple[str, ...]:
        every = tuple(walk(stretch.statements))
        uses = Counter(name for each in every for name in operands(each))
        made = dict.fromkeys(each.result for each in every if isinstance(each, Compute | Assign))
        return tuple(name for name in made if self._uses[name] > uses[name])


def sizes_of(items: Sequence[Item]) -> int:
    """The operators of one pass through items, those of inner loops once."""
    return sum(_size_of(item) for item in items)


def _size_of(item: Item) -> int:
    match item:
        case Stretch(size=size):
            return size
        case Repeated(body=body) | Guarded(body=body):
            return sizes_of(body)
        case Chosen(then=then, otherwise=otherwise):
            return sizes_of(then) + sizes_of(otherwise)
    return 1


# -- how it runs -------------------------------------------------------------------------------------------------------


@dataclass
class _Trace:
    """What is known within one run of a stretch, or of one operator. `points`: positions as they were when it was
    recorded, which choices are made by; `values`: by which is read and written."""

    values: Values
    points: Points
    names: dict[str, Any]
    slots: dict[int, torch.Tensor]
    lengths: dict[Hashable, Moving] = field(default_factory=dict)

    def inner(self, symbol: Symbol, at: int) -> _Trace:
        values, points = {**self.values, symbol: at}, {**self.points, symbol: at}
        return _Trace(values, points, dict(self.names), self.slots, self.lengths)


class Graphs:
    """A segment on arrays at certain addresses: its cells, positions and graphs."""

    def __init__(self, plan: Planner, buffers: Mapping[int, Buffer], device: torch.device, recorder: Recorder) -> None:
        self.plan, self.buffers, self.device, self.recorder = plan, buffers, device, recorder
        self.arrays: dict[int, Any] = {}
        self.tables: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}  # on the host, of this call
        self.cells: dict[int | str, Any] = {}
        self.positions: dict[Symbol, Position] = {}
        self.launches: dict[Hashable, Launch] = {}
        self.ran: set[Hashable] = set()
        with torch.inference_mode():
            self._outside = torch.zeros((), dtype=torch.bool, device=device)

    @torch.inference_mode()
    def __call__(
        self, start: int, stop: int, points: Points, arrays: Mapping[int, Any], tables: Mapping[int, Any]
    ) -> tuple[Any, ...]:
        self.arrays, self.tables = dict(arrays), dict(tables)
        for buffer, array in arrays.items():
            if array is not None and is_copied(self.plan, self.buffers[buffer], array):
                self._put(buffer, array)
                self.arrays[buffer] = self.cells[buffer]
        for symbol in points.keys() - self.plan.sizes.keys():
            self._position(symbol).set(points[symbol])
        self._outside.zero_()
        self._bounds = start, stop
        try:
            self._all(self.plan.items, {**self.plan.sizes, **points})
            return tuple(self._result(buffer, arrays[buffer]) for buffer in self.plan.segment.results)
        finally:  # nothing is kept of a call but cells, so that the memory of what was given may be given again
            self.arrays, self.tables, self.numbers = {}, {}, {}
            self.cells = {key: each for key, each in self.cells.items() if isinstance(each, torch.Tensor)}

    def _result(self, buffer: int, given: Any) -> Any:
        """A slot as a new array, all else in the array that was given."""
        if buffer not in self.cells:
            return given
        if self.buffers[buffer].is_slot:
            return self.cells[buffer].clone()
        return given.copy_(self.cells[buffer])

    @waits("whether an index was out of range is looked at once, after a call")
    def is_outside(self) -> bool:
        """Whether an index was out of range in the last call."""
        return self.plan.looks and bool(self._outside)

    def _position(self, symbol: Symbol) -> Position:
        if symbol not in self.positions:
            self.positions[symbol] = Position(self.device)
        return self.positions[symbol]

    def _put(self, key: int | str, value: Any) -> None:
        if not isinstance(value, torch.Tensor):  # what a user's function gave, which no graph looks at
            self.cells[key] = value
            return
        if key not in self.cells:
            self.cells[key] = torch.empty(value.shape, dtype=value.dtype, device=self.device)
        self.cells[key].copy_(value)

    # -- items -----------------------------------------------------------------------------------------------------

    def _all(self, items: Sequence[Item], points: dict[Symbol, int], advance: tuple[Symbol, int] | None = None) -> bool:
        """Whether a loop is left. `advance`: the position that the last stretch moves on."""
        for item in items:
            match item:
                case Stretch():
                    self._stretch(item, points, 1, advance if item is items[-1] else None)
                case Repeated():
                    self._repeat(item, points)
                case Chosen(branch, then, otherwise):
                    if self._all(then if evaluated(branch.condition, points) else otherwise, points):
                        return True
                case Guarded(guard, body):
                    marked = self.tables[guard.table][tuple(int(evaluated(each, points)) for each in guard.point)]
                    if marked and self._all(body, points):
                        return True
                case Waiting(compute):
                    given = [self._value(name, _Trace(points, points, {}, {})) for name in compute.operands]
                    if (at := getattr(self.plan.operator(compute), "number", None)) is not None:
                        given[at] = self._looked_at(compute.operands[at], given[at])
                    self._put(compute.result, self.plan.waited_for(compute, given, points))
                case Stop(buffer):
                    if holds(self._slot(buffer, {})):
                        return True
        return False

    def _looked_at(self, name: str, value: torch.Tensor) -> int:
        """A number on the host, once a call where nothing writes to it, as to a seed."""
        read = self.plan.reads.get(name)
        if read is None or read.index or read.buffer in self.plan.written:
            return on_host(value)
        if read.buffer not in self.numbers:
            self.numbers[read.buffer] = on_host(value)
        return self.numbers[read.buffer]

    def _repeat(self, item: Repeated, points: dict[Symbol, int]) -> None:
        loop = item.loop
        bounds = (int(evaluated(bound, points)) for bound in (loop.lo, loop.hi))
        lo, hi = self._bounds if loop is self.plan.segment.loop else bounds
        if hi <= lo:
            return
        forward = loop.direction == "forward"
        at, step = (lo, 1) if forward else (hi - 1, -1)
        position, stretch = self._position(loop.var), item.stretch
        position.set(at)
        inner = dict(points)
        if stretch is None:
            moves = isinstance(item.body[-1], Stretch)
            for point in range(lo, hi) if forward else range(hi - 1, lo - 1, -1):
                inner[loop.var] = point
                if self._all(item.body, inner, (loop.var, step) if moves else None):
                    return
                if not moves:
                    position.advance(step)
            return
        several, left = max(1, min(SHORT // stretch.size, REACH // 2)), hi - lo
        while left:
            inner[loop.var] = at
            count = several if several <= left and self._are_alike(stretch, inner, loop.var, step, several) else 1
            self._stretch(stretch, inner, count, (loop.var, step))
            at, left = at + step * count, left - count

    @staticmethod
    def _are_alike(stretch: Stretch, points: Points, symbol: Symbol, step: int, count: int) -> bool:
        if symbol not in stretch.symbols:
            return True
        here, at = stretch.outcomes(points), points[symbol]
        return all(stretch.outcomes({**points, symbol: at + step * ahead}) == here for ahead in range(1, count))

    def _stretch(self, stretch: Stretch, points: Points, count: int, advance: tuple[Symbol, int] | None) -> None:
        here = dict(points)
        key = stretch, count, stretch.outcomes(here)
        launch = self.launches.get(key)
        if launch is None:

            def work() -> None:
                with torch.inference_mode():
                    self.trace(stretch, here, count, advance)

            self.plan.is_varied |= len(self.ran) > MOST
            if key not in self.ran or len(self.launches) >= MOST:
                work()
                self.ran.add(key)  # with all the cells that it leaves something in
                return
            launch = self.launches[key] = self.recorder(work)
        launch()

    # -- what is recorded ------------------------------------------------------------------------------------------

    def trace(self, stretch: Stretch, points: Points, count: int, advance: tuple[Symbol, int] | None) -> None:
        """Runs the statements for so many iterations, by positions alone."""
        slots: dict[int, torch.Tensor] = {}
        names: dict[str, torch.Tensor] = {}
        lengths: dict[Hashable, Moving] = {}
        for ahead in range(count):
            moved = {} if advance is None else {advance[0]: advance[1] * ahead}
            places = {symbol: Place(position, moved.get(symbol, 0)) for symbol, position in self.positions.items()}
            here = {symbol: value + moved.get(symbol, 0) for symbol, value in points.items()}
            lengths.clear()
            at = _Trace({**self.plan.sizes, **places}, here, {}, slots, lengths)
            self._block(stretch.statements, at)
            names = at.names
        left: dict[int | str, torch.Tensor] = {**slots, **{name: names[name] for name in stretch.kept if name in names}}
        held = {self.recorder.memory(self.cells[key]) for key in left if key in self.cells}
        ready = {key: each.clone() if self.recorder.memory(each) in held else each for key, each in left.items()}
        for key, value in ready.items():
            self._put(key, value)
        if advance is not None:
            self.positions[advance[0]].advance(advance[1] * count)

    def _block(self, block: Block, at: _Trace) -> None:
        for statement, last in zip(block, self.plan.last(block), strict=True):
            match statement:
                case Read(result):
                    at.names[result] = self._read(statement, at)
                case Assign(result, value):
                    at.names[result] = self._value(value, at)
                case Compute(result):
                    at.names[result] = self._compute(statement, at)
                case Write(buffer, index, value):
                    if index:
                        write(self.arrays[buffer], statement, at.values, self._value(value, at), self.plan.sizes)
                    else:
                        at.slots[buffer] = self._value(value, at)
                case Branch(condition, then, otherwise):
                    self._block(then if evaluated(condition, at.points) else otherwise, at)
                case Loop(var, lo, hi, direction, body):
                    points = range(int(lo.evaluate(self.plan.sizes)), int(hi.evaluate(self.plan.sizes)))
                    for point in points if direction == "forward" else reversed(points):
                        self._block(body, at.inner(var, point))
            for name in last:
                at.names.pop(name, None)

    def _value(self, name: str, at: _Trace) -> torch.Tensor:
        if name in at.names:
            return at.names[name]
        if name in self.plan.reads:
            return self._read(self.plan.reads[name], at)
        return self.cells[name]

    def _slot(self, buffer: int, slots: Mapping[int, torch.Tensor]) -> torch.Tensor:
        if buffer in slots:
            return slots[buffer]
        return self.cells[buffer] if buffer in self.cells else self.arrays[buffer]

    def _read(self, read: Read, at: _Trace) -> torch.Tensor:
        if not read.index:
            found = self._slot(read.buffer, at.slots)
        else:
            found = taken(self.arrays[read.buffer], self.buffers[read.buffer], read, at.values, self.plan.sizes)
        return found.clone() if read.fresh else found

    def _compute(self, compute: Compute, at: _Trace) -> torch.Tensor:
        operator = self.plan.operator(compute)
        given = [self._value(name, at) for name in compute.operands]
        bounded = isinstance(operator, Operation) and operator.bounded
        scalars = [self._scalar(each, at, bounded) for each in compute.scalars]
        if compute.attrs.get("checked"):
            for index, end in indices(compute, given, scalars):
                self._outside.logical_or_((index != index.clamp(min=0).clamp(max=end - 1)).any())
        if isinstance(operator, Operation) and operator.in_place:
            free = self.plan.flow.free(compute)
            for place in (0, 1) if operator.commutes else (0,):
                if place in free:
                    return operator.in_place(*(given if place == 0 else given[::-1]), *scalars)
        return operator(*given, *scalars)

    def _scalar(self, value: Expr | Condition, at: _Trace, bounded: bool) -> Any:
        if isinstance(value, Condition):
            return bool(evaluated(value, at.points))
        found = number(value, at.values)
        if not isinstance(found, torch.Tensor):
            return found
        if not bounded:
            return found.reshape(())
        most = bucket(int(evaluated(value, at.points)))
        written_out = (at.values[symbol] for symbol in sorted(value.symbols()))
        key = value, most, tuple(each for each in written_out if isinstance(each, int))
        if key not in at.lengths:
            at.lengths[key] = Moving(found.reshape(()), most)
        return at.lengths[key]


# -- arrays ------------------------------------------------------------------------------------------------------------


def taken(array: Any, buffer: Buffer, read: Read, values: Values, sizes: Points) -> torch.Tensor:
    """What is at an index: a view where all of it is known, else a copy."""
    entries = list(zip(buffer.axes, read.index, strict=True))
    while isinstance(array, ByPoint):
        (_, entry), *entries = entries
        assert isinstance(entry, PointIndex)
        array = array[number(entry.index, values)]
    axis, moving = 0, list[tuple[int, torch.Tensor, bool]]()
    for along, entry in entries:
        if isinstance(entry, PointIndex):
            at = number(entry.index, values)
            if isinstance(at, torch.Tensor):
                moving.append((axis, at, True))
                axis += 1
            else:
                array = array.select(axis, at)
            continue
        start, extent, size = number(entry.start, values), int(entry.extent.evaluate(sizes)), array.shape[axis]
        is_circular = along.kind == "window"
        if isinstance(start, torch.Tensor):
            at = start + torch.arange(extent, device=array.device)
            inside = at if entry.exact else at.remainder(size) if is_circular else at.clamp(0, size - 1)
            moving.append((axis, inside, False))
        elif entry.exact:
            array = array.narrow(axis, start, extent)
        elif is_circular or (start, extent) != (0, size):
            array = (wrapped if is_circular else clamped)(array, axis, start, extent)
        axis += 1
    for at_axis, positions, _ in moving:
        array = positions_of(array, at_axis, positions)
    for at_axis, _, is_point in reversed(moving):
        array = array.squeeze(at_axis) if is_point else array
    return array  # type: ignore[no-any-return]


def indices(compute: Compute, given: Sequence[Any], scalars: Sequence[Any]) -> Iterator[tuple[torch.Tensor, Any]]:
    """What an operator looks up, and how many positions there are."""
    count, axis = compute.attrs.get("count", 1), compute.attrs["axis"]
    sizes, lengths = given[0].shape[axis : axis + count], scalars or [None] * count
    for index, size, length in zip(given[1 : 1 + count], sizes, lengths, strict=True):
        short = length if isinstance(length, torch.Tensor) else size if length is None else min(length, size)
        yield as_long(index), short.clamp(max=size) if isinstance(short, torch.Tensor) else short


def write(array: torch.Tensor, statement: Write, values: Values, value: torch.Tensor, sizes: Points) -> None:
    axis, moving = 0, list[tuple[int, torch.Tensor]]()
    for index, far in zip(statement.index, statement.extents, strict=True):
        at, extent = number(index, values), None if far is None else int(far.evaluate(sizes))
        if isinstance(at, torch.Tensor):
            if extent is None:
                value = value.unsqueeze(axis)
            else:
                at = at + torch.arange(extent, device=array.device)
            moving.append((axis, at))
        elif extent is None:
            array = array.select(axis, at)
            continue
        else:
            array = array.narrow(axis, at, extent)
        axis += 1
    if not moving:
        array.copy_(value)
        return
    shape = list(array.shape)
    for at_axis, at in moving:
        shape[at_axis] = len(at)
    whole, part = signed(array), signed(value.expand(shape))
    if len(moving) == 1:
        whole.index_copy_(moving[0][0], moving[0][1], part)
        return
    axes, front = [each for each, _ in moving], tuple(range(len(moving)))
    index = tuple(at.reshape([-1 if each == mine else 1 for each in front]) for mine, (_, at) in enumerate(moving))
    whole.movedim(axes, front).index_put_(index, part.movedim(axes, front))


# -- what stands in the place of a segment -----------------------------------------------------------------------------


class GraphedSegment:
    """A segment as graphs where that is worth while, else `one_by_one`, the function that its source is of."""

    def __init__(
        self,
        request: SegmentRequest,
        emitter: CudaEmitter,
        one_by_one: Callable[..., tuple[Any, ...]],
        device: torch.device,
        recorder: Recorder,
    ) -> None:
        self.segment, self.buffers, self.one_by_one = request.segment, request.program.buffers, one_by_one
        self.sizes, self.emitter, self.device, self.recorder = request.sizes, emitter, device, recorder
        self._plans = OrderedDict[Hashable, Planner]()
        exprs = (expr for each in walk(self.segment.body) for expr in expressions(each))
        self.is_long = any(isinstance(expr, Expr) and expr.is_long for expr in exprs)
        self._graphs = OrderedDict[Hashable, Graphs]()
        self._seen = OrderedDict[Hashable, None]()
        self._lock = Lock()  # cells are of one call

    def __call__(self, start: int, stop: int, *given: Any) -> tuple[Any, ...]:
        """Operator by operator on another stream, and where a call has not ended: of another thread, or around it."""
        if not (self.recorder.is_here() and self._lock.acquire(blocking=False)):
            return self.one_by_one(start, stop, *given)
        try:
            return self._run(start, stop, *given)
        finally:
            self._lock.release()

    def _run(self, start: int, stop: int, *given: Any) -> tuple[Any, ...]:
        points, arrays, tables = self._parts(given)
        graphs = self._graphs_for(points, arrays, stop - start)
        if graphs is None:
            return self.one_by_one(start, stop, *given)
        found = graphs(start, stop, points, arrays, tables)
        if graphs.is_outside():
            self.one_by_one(start, stop, *given)
            raise self._out_of_range()
        return found

    def _out_of_range(self) -> IndexOutOfRangeError:
        """Where the call that was run again finds nothing: its loop had changed what the index was made of."""
        every = (each for each in walk(self.segment.body) if isinstance(each, Compute) and each.attrs.get("checked"))
        found = {each.name or each.op: each.location for each in every}
        message = f"an index was out of range in a loop that reads {', '.join(map(repr, found))} at indices"
        hint = 'TorchBackend("cuda", graphs=False) says which index, and at which point'
        return IndexOutOfRangeError(message, location=next(iter(found.values()), None), hint=hint)

    def _graphs_for(self, points: Points, arrays: Mapping[int, Any], iterations: int) -> Graphs | None:
        plan = self.plan({symbol: value for symbol, value in points.items() if symbol.kind == "size"})
        if self.why_not(plan, iterations, arrays):
            return None
        return self._found(plan, self._key(plan, arrays), iterations)

    def plan(self, sizes: Points) -> Planner:
        """For the sizes that a call is given."""
        key = tuple(sizes.values())
        if key not in self._plans:
            self._plans[key] = Planner(self.segment, {**self.sizes, **sizes}, self.emitter)
            if len(self._plans) > KEPT:
                self._plans.popitem(last=False)
        return self._plans[key]

    def why_not(self, plan: Planner, iterations: int, arrays: Mapping[int, Any]) -> str | None:
        """Why a call is run one by one."""
        if self.is_long:
            return "it computes indices of more than 64 bits"
        if plan.is_varied:
            return "its choices differ from step to step"
        count = max(1, iterations) if self.segment.is_loop else 1
        if sizes_of(plan.items) * count < self.recorder.few:
            return f"it has fewer than {self.recorder.few} operators"
        if any(isinstance(arrays[id], ByPoint) for id in plan.at_moving & arrays.keys()):
            return "what is given by point is read at points that vary"
        if plan.in_cells > DOUBLED and plan.in_cells > sum(map(bytes_of, arrays.values())) // 16:
            return "too much of it would lie twice"
        return None

    @property
    def told(self) -> str:
        """For `explain`."""
        computes = {id(each): each for each in walk(self.segment.body) if isinstance(each, Compute)}.values()
        whys = {each.op: why_waits(self.emitter.operator(self.emitter.call_of(unchecked(each)))) for each in computes}
        lines = [f"# not in a CUDA graph: {op} ({why})" for op, why in whys.items() if why]
        return "\n".join([f"# in CUDA graphs, where a call is of {self.recorder.few} operators or more", *lines])

    def _parts(self, given: Sequence[Any]) -> tuple[dict[Symbol, int], dict[int, Any], dict[int, Any]]:
        segment, left = self.segment, list(given)
        points = {symbol: int(left.pop(0)) for symbol in segment.arguments}
        arrays = {id: left.pop(0) for id in segment.buffers}
        return points, arrays, dict(zip(segment.tables, left, strict=True))

    def _found(self, plan: Planner, key: Hashable, iterations: int) -> Graphs | None:
        if key in self._graphs:
            self._graphs.move_to_end(key)
            return self._graphs[key]
        if iterations < self.recorder.once and not plan.rounds and key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > KEPT * KEPT:
                self._seen.popitem(last=False)
            return None
        made = self._graphs[key] = Graphs(plan, self.buffers, self.device, self.recorder)
        if len(self._graphs) > KEPT:
            self._graphs.popitem(last=False)
        return made

    def _key(self, plan: Planner, arrays: Mapping[int, Any]) -> Hashable:
        """The plan, and where the arrays lie that are read and written where they are. Of others, which shapes they
        have, which may be made of sizes that a segment does not need."""
        replaced = {id for id in plan.written if self.buffers[id].is_slot}
        copied = (id for id, each in arrays.items() if is_copied(plan, self.buffers[id], each))
        shapes = {id: tuple(arrays[id].shape) for id in copied if id not in replaced}
        others = (id for id in arrays if id not in shapes and id not in replaced)
        return plan, tuple(shapes.values()), tuple(self._place(arrays[id]) for id in others)

    def _place(self, array: Any) -> Hashable:
        if isinstance(array, ByPoint):
            return tuple(map(self._place, array))
        return None if array is None else (self.recorder.address(array), tuple(array.shape), array.stride())


def bytes_of(array: Any) -> int:
    if isinstance(array, ByPoint):
        return sum(map(bytes_of, array))
    return 0 if array is None else array.numel() * array.element_size()


def repeated(items: Sequence[Item]) -> Iterator[Loop]:
    """The loops that are not written out."""
    for item in items:
        match item:
            case Repeated(loop, body):
                yield loop
                yield from repeated(body)
            case Guarded(body=body):
                yield from repeated(body)
            case Chosen(then=then, otherwise=otherwise):
                yield from repeated((*then, *otherwise))
