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

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from tempo.backends import ByPoint, SegmentRequest
from tempo.backends.loop_ir import (
    Assign,
    Block,
    Branch,
    Buffer,
    Compute,
    Loop,
    Read,
    Stop,
    Write,
    expressions,
    walk,
)
from tempo.errors import IndexOutOfRangeError
from tempo.symbolic import Condition, Expr, Symbol
from tempo_torch.access import indices, taken, write
from tempo_torch.emitter import CudaEmitter, holds
from tempo_torch.emitter import number as on_host
from tempo_torch.moving import REACH, Moving, Place, Points, Position, Values, bucket, evaluated, number
from tempo_torch.operators import Operation, moved_first
from tempo_torch.stretches import (
    Chosen,
    Guarded,
    Item,
    Operators,
    Planner,
    Repeated,
    Stretch,
    Waiting,
    is_copied,
)
from tempo_torch.waits import waits, why_waits

SHORT = 256
"""A stretch of fewer operators is of several iterations, up to so many."""
DOUBLED = 1 << 20
"""Bytes of cells, beside a sixteenth of what a segment's buffers take, up to which what is copied into them may lie
twice; with more, memory would not be what is planned."""
KEPT = 4
"""Sets of graphs of a segment, for arrays that lie elsewhere; and plans, for other sizes."""
MOST = 256
"""Graphs of a set. Where more are asked for, choices differ from step to step, and graphs are of no use."""

Launch = Callable[[], None]


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
        for ahead in range(count):
            moved = {} if advance is None else {advance[0]: advance[1] * ahead}
            places = {symbol: Place(position, moved.get(symbol, 0)) for symbol, position in self.positions.items()}
            here = {symbol: value + moved.get(symbol, 0) for symbol, value in points.items()}
            at = _Trace({**self.plan.sizes, **places}, here, {}, slots)
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
            place = operator.place(self.plan.flow.free(compute))
            if place is not None:
                return operator.in_place(*moved_first(given, place), *scalars)
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
        self.sizes, self.operators, self.device, self.recorder = request.sizes, Operators(emitter), device, recorder
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
            self._plans[key] = Planner(self.segment, {**self.sizes, **sizes}, self.operators)
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
        if plan.size * count < self.recorder.few:
            return f"it has fewer than {self.recorder.few} operators"
        if any(isinstance(arrays[id], ByPoint) for id in plan.at_moving & arrays.keys()):
            return "what is given by point is read at points that vary"
        if plan.in_cells > DOUBLED and plan.in_cells > sum(map(bytes_of, arrays.values())) // 16:
            return "too much of it would lie twice"
        return None

    @property
    def told(self) -> str:
        """For `explain`."""
        computes = (each for each in walk(self.segment.body) if isinstance(each, Compute))
        whys = {each.op: why_waits(self.operators(each)) for each in computes}
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
        copied = (id for id, each in arrays.items() if is_copied(plan, self.buffers[id], each))
        shapes = {id: tuple(arrays[id].shape) for id in copied if id not in plan.replaced}
        others = (id for id in arrays if id not in shapes and id not in plan.replaced)
        return plan, tuple(shapes.values()), tuple(self._place(arrays[id]) for id in others)

    def _place(self, array: Any) -> Hashable:
        if isinstance(array, ByPoint):
            return tuple(map(self._place, array))
        return None if array is None else (self.recorder.address(array), tuple(array.shape), array.stride())


def bytes_of(array: Any) -> int:
    if isinstance(array, ByPoint):
        return sum(map(bytes_of, array))
    return 0 if array is None else array.numel() * array.element_size()
