"""One segment as one traced function: device loops are `lax.fori_loop`, buffers are loop state.

Names are block-scoped in LoopIR, so a loop carries exactly the buffers that its body writes. A branch whose blocks only
read becomes a selection; any other becomes a `lax.cond` that returns values, and what it writes into an array is
written outside of it, so that no buffer goes through a conditional.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, tree

from tempo import dtypes
from tempo.backends import NARROW, Costs, SegmentRequest
from tempo.backends.emission import operands
from tempo.backends.loop_ir import (
    Assign,
    Branch,
    Buffer,
    Compute,
    Guard,
    Loop,
    Read,
    Statement,
    Stop,
    WindowIndex,
    Write,
    stop_in,
    walk,
)
from tempo.backends.loops import (
    Liveness,
    LoopStretch,
    Place,
    dropped,
    in_segments,
    is_empty,
    layouts_in_segments,
    overwrites,
    read_place,
    replaced,
    touched_by_iteration,
)
from tempo.backends.operators import Call, call_for, static_type
from tempo.errors import IndexOutOfRangeError, InternalError, ShapeError
from tempo.symbolic import Expr, Symbol, const
from tempo_jax import access, halves
from tempo_jax.alike import AlikeIterations
from tempo_jax.branches import BranchPlan
from tempo_jax.checks import WORD, ErrorWord, checks, is_checked
from tempo_jax.loops import Handed, inside, repeat
from tempo_jax.mesh import DeviceMesh
from tempo_jax.operators.values import HALF
from tempo_jax.pieces import Pieces, order_within, piece_of
from tempo_jax.precision import is_wide
from tempo_jax.scopes import Scopes
from tempo_jax.storage import ArrayPlan
from tempo_jax.stretches import LARGEST_SELECTION, stretches
from tempo_jax.work import work

Array = Any
Operator = Callable[[Call], Callable[..., Array]]
Where = tuple[tuple[Expr, ...], tuple[Expr | None, ...]]
"""The index of a write, and its extents."""
# A constant of more elements is an argument: XLA takes long to compile with large ones.
_MOST_KNOWN = 1 << 10
# With less than this share of the body's work, a branch is done whatever the condition says, and selected from: XLA
# finds better orders, in time and in memory, for a body without conditionals.
_SMALL_SHARE = 64


class Written(NamedTuple):
    """A value that was written somewhere, and what that has made of the buffer."""

    value: Array
    where: Where
    array: Array


@dataclass
class TraceState:
    """What is known at one place of the trace: values by name, arrays by buffer, numbers by symbol."""

    names: dict[str, Array]
    buffers: dict[int, Array]
    values: dict[Symbol, Any]
    tables: Mapping[int, Array] = field(default_factory=dict)
    carried: frozenset[int] = frozenset()
    """The buffers that the innermost loop writes."""
    handed: Mapping[Place, Array] = field(default_factory=dict)
    """What earlier iterations of the loops around wrote, by place."""
    written: dict[int, Written] = field(default_factory=dict)
    """What was last written at an index of a buffer."""
    work: float = 0
    """What an iteration of the innermost loop does."""
    left: Array | None = None
    """Whether the innermost loop is being left: what is behind its `Stop` nobody wants then."""

    def inner(self) -> TraceState:
        names, buffers, values = dict(self.names), dict(self.buffers), dict(self.values)
        return replace(self, names=names, buffers=buffers, values=values, written=dict(self.written))


class SegmentTracer:
    """Traces the statements of one segment. `operator` is the backend's table, `costs` what things take on its device.

    With `bounds` the outermost loop runs between these numbers, and what the call says of them is ignored. `in_parts`:
    each stretch of the outermost loop is a function of its own (`stretch`), run from and to where the call says, and
    all of them have their arrays as `storage` says. `moves_halves`: what is of bfloat16 need not be held as bits.
    """

    def __init__(
        self,
        request: SegmentRequest,
        operator: Operator,
        costs: Costs,
        bounds: tuple[int, int] | None = None,
        in_parts: bool = False,
        mesh: DeviceMesh | None = None,
        moves_halves: bool = True,
    ) -> None:
        self.request, self.segment, self.bounds, self.mesh = request, request.segment, bounds, mesh
        self.origins = Scopes.of(request)
        self.__name__ = f"{request.segment.name}_{self.origins.digest}"  # JAX's name of the executable
        self.buffers = request.program.buffers
        self.static: access.Values = request.sizes
        self.counter = (
            jnp.int32 if request.index_bits == NARROW else jnp.int64
        )  # of loops, and all that is made of them
        self.operator = operator
        self.orders = layouts_in_segments(request.program)
        self._functions: dict[int, Callable[..., Array]] = {}
        self.stretches = tuple(self._stretches(self.segment.loop)) if self.segment.loop is not None else ()
        self.body = self.segment.body if self.segment.loop is None else tuple(each.loop for each in self.stretches)
        word_of = jnp.int64 if is_wide(request) else jnp.int32
        self.word = ErrorWord(self.body, request.sizes, word_of) if checks(self.body) else None
        blocks = [(each,) for each in self.body] if in_parts else [self.body]
        self.liveness = Liveness(request.program, self.segment, blocks)
        known = {id: self.buffers[id] for id in self.segment.buffers}
        outputs = frozenset(id for id, buffer in known.items() if buffer.role == "output")
        whole = outputs if in_parts else frozenset[int]()  # they are looked at between calls
        self.storage = ArrayPlan.of(self.body, known, self.static, self.orders, costs, whole)
        self.between = frozenset[int]() if moves_halves else halves.between(request.program)
        written = () if moves_halves else {*self.segment.results, *self.between}
        self.as_bits = frozenset(id for id in written if halves.is_held(self.buffers[id]))

    @cached_property
    def stepped(self) -> frozenset[int]:
        """The inputs, and what segments alone look at, of which an iteration of the outermost loop touches its own
        point alone."""
        loop, program = self.segment.loop, self.request.program
        if loop is None:
            return frozenset()
        known = {id: self.buffers[id] for id in in_segments(program)}
        full = {id for id, each in known.items() if each.axes and each.axes[0].kind == "full"}
        growing = {id for id, _ in self.storage.growing}
        return touched_by_iteration(loop) & (full - growing | set(program.inputs.values()))

    def takes_points(self, id: int) -> bool:
        """Whether it may be given a buffer as an array for each point along the first axis, and leaves it so."""
        return id in self.stepped or self.storage.pieces.get(id) == 0

    @cached_property
    def unwanted(self) -> frozenset[int]:
        """What nothing touches after the call."""
        return dropped(self.request.program, self.segment) - replaced(self.request.program)

    def _stretches(self, loop: Loop) -> Iterator[LoopStretch]:
        """The outermost loop in pieces, in its direction, with its bounds in it where these are known; what else there
        is to split `SplitLoops` has divided.

        What never runs at the static sizes is never traced: its shapes may make no sense there.
        """
        if self.bounds is not None:
            lo, hi = map(const, self.bounds)
            loop = replace(loop, lo=lo, hi=hi)
        for part in stretches(loop, self.buffers, self.static):
            if not is_empty(part.loop, self.static) and self.possible(part.loop.body):
                yield part

    def __call__(self, start: Any, stop: Any, *arguments: Any) -> tuple[Array, ...]:
        """`(start, stop, *sizes, *buffers, *tables)`, as `tempo.backends.base` says; the error word comes last."""
        arrays, state = self._entered(arguments)
        for number, statement in enumerate(self.body):
            state.buffers = self.storage.fitted(state.buffers, number)
            self.statement(statement, state)
        results = [self._result(id, arrays[id], state.buffers[id]) for id in self.segment.results]
        return self._left(arrays, results, state)

    def _result(self, id: int, given: Array, made: Array) -> Array:
        """What was given by point is given back so. What nobody wants and was cut into pieces need not be whole."""
        if isinstance(given, Pieces):
            return made
        return given if id in self.storage.pieces and id in self.unwanted else self.closed(id, made)

    def stretch(self, number: int, start: Any, stop: Any, *arguments: Any) -> tuple[Array, ...]:
        """A part of a stretch, with arrays as the storage has them, before and after."""
        arrays, state = self._entered(arguments)
        lo, hi = (jnp.asarray(bound, self.counter) for bound in (start, stop))
        self.loop(self.stretches[number].loop, lo, hi, state)
        return self._left(arrays, [state.buffers[id] for id in self.segment.results], state)

    def _entered(self, arguments: Iterable[Any]) -> tuple[dict[int, Array], TraceState]:
        """The buffers as they were given, and the state at the start."""
        segment, given = self.segment, list(arguments)
        symbols = {symbol: self.known(symbol, given.pop(0)) for symbol in segment.arguments}
        arrays = {id: self.laid(id, self.array(id, given.pop(0))) for id in segment.buffers}
        state = TraceState({}, self.storage.opened(arrays), symbols, dict(zip(segment.tables, given, strict=True)))
        if self.word is not None:
            state.buffers[WORD] = self.word.clear()
        return arrays, state

    def _left(self, arrays: Mapping[int, Array], results: list[Array], state: TraceState) -> tuple[Array, ...]:
        ids = self.segment.results
        shown = [self.left(id, each) for id, each in zip(ids, results, strict=True)]
        found = tuple(self.shared(id, each) for id, each in zip(ids, _distinct(shown, arrays, ids), strict=True))
        return found if self.word is None else (*found, self.shared(WORD, state.buffers[WORD]))

    def left(self, id: int, array: Array) -> Array:
        """An array as others than the statements have it."""
        return array if id in self.between else halves.numbers(array, self.buffers[id].dtype)

    def closed(self, id: int, array: Array) -> Array:
        """The array of the whole buffer."""
        return self.laid(id, self.storage.closed(id, array, self.buffers[id].extents(self.static)))

    def laid(self, id: int, array: Array) -> Array:
        """The array of a buffer as it lies on the mesh."""
        placement = self.buffers[id].placement
        if self.mesh is None or not placement:
            return array
        return self.mesh.constrained(array, placement, self.orders.get(id))

    def shared(self, id: int, array: Array) -> Array:
        """A result of the function, which all processes of a mesh have, also where nothing else in it names the mesh;
        what is whole is whole in each."""
        is_cut = id != WORD and self.buffers[id].placement
        if self.mesh is None or not self.mesh.is_shared or is_cut:
            return array
        return self.mesh.constrained(array, ())

    def known(self, symbol: Symbol, given: Any) -> Any:
        """A size that the executable is made for is a number, so that XLA knows how often loops over it run."""
        return self.static[symbol] if symbol in self.static else jnp.asarray(given, self.counter)

    def array(self, id: int, given: Array | None) -> Array:
        """A buffer; one that nobody has touched yet is made here, so that XLA can give it the place of the result.

        A small constant is one for XLA too, which then computes with it when it compiles.
        """
        buffer, constants = self.buffers[id], self.request.program.constants
        if id in constants and constants[id].array.size <= _MOST_KNOWN:
            return jnp.asarray(constants[id].array.transpose(buffer.from_user))
        if isinstance(given, Pieces):
            return given.mapped(lambda piece: self._made_of(id, piece, given.axis))
        return self._made_of(id, given)

    def _made_of(self, id: int, given: Array | None, axis: int | None = None) -> Array:
        """An array of a buffer, or a piece of it at a position of an axis, as the statements have it."""
        buffer = self.buffers[id]
        if given is None:
            shape, order = buffer.extents(self.static), self.orders.get(id)
            if axis is None:
                shape = self.storage.short(id, shape)
            else:
                shape, order = (*shape[:axis], *shape[axis + 1 :]), order_within(order, axis)
            lying = shape if order is None else [shape[at] for at in order]
            given = jnp.full(lying, self._untouched(buffer, shape), dtypes.to_numpy(buffer.dtype))
        return halves.bits(given) if id in self.as_bits else given

    @staticmethod
    def _untouched(buffer: Buffer, shape: Iterable[int]) -> int:
        """What is in an array that nobody has touched. Of large ones that are all zeros XLA makes one, and a copy of it
        for each loop that one goes into; of what nobody reads before it is written it need not."""
        is_read = buffer.zeroed or buffer.role != "internal" or math.prod(shape) <= _MOST_KNOWN
        return 0 if is_read else buffer.id % 64

    # -- statements ------------------------------------------------------------------------------------------------

    def block(self, statements: Iterable[Statement], state: TraceState) -> None:
        for statement in statements:
            self.statement(statement, state)

    def statement(self, statement: Statement, state: TraceState) -> None:
        match statement:
            case Read(result, buffer):
                handed = state.handed.get(read_place(statement))
                if handed is not None:
                    state.names[result] = handed
                    return
                array = state.buffers[buffer]
                order = self.orders.get(buffer)
                stays = buffer in state.carried
                state.names[result] = access.read(
                    self.buffers[buffer], array, statement, state.values, self.static, order, stays
                )
            case Compute(result):
                with self.origins.entered(statement):
                    state.names[result] = self.compute(statement, state)
            case Assign(result, value):
                state.names[result] = state.names[value]
            case Write(buffer, index, value, extents):
                place = access.place(index, state.values, extents, self.static)
                order = self.orders.get(buffer)
                with self.origins.entered(statement):
                    written = access.write(state.buffers[buffer], place, state.names[value], order)
                state.buffers[buffer] = self.laid(buffer, written)
                state.written[buffer] = Written(state.names[value], (index, extents), state.buffers[buffer])
                kept = (item for item in state.handed.items() if not overwrites(statement, item[0]))
                state.handed = dict(kept)
            case Loop(lo=lo, hi=hi):
                if not is_empty(statement, self.static) and self.possible(statement.body):
                    self.loop(statement, lo.evaluate(state.values), hi.evaluate(state.values), state)
            case Branch(test, then, otherwise, is_choice):
                # What a choice reads is used in it alone, so it is fused into nothing behind it.
                carried = state.carried
                state.carried = frozenset() if is_choice else carried
                numbers = {symbol: value for symbol, value in state.values.items() if isinstance(value, int)}
                decided = test.substitute({**self.static, **numbers})
                self.branch(decided.evaluate(state.values), then, otherwise, state)
                state.carried = carried
            case Guard(table, point, body):
                marked = access.at(state.tables[table], access.point(point, state.values), "bool")
                self.branch(marked, body, (), state)
            case Stop(buffer):
                state.left = state.buffers[buffer] != 0  # the condition of the loop looks at it, too
            case _:
                raise InternalError(f"a segment holds {type(statement).__name__}, which needs the host")

    def compute(self, statement: Compute, state: TraceState) -> Array:
        operands = [state.names[name] for name in statement.operands]
        if self.word is not None and is_checked(statement):
            state.buffers[WORD] = self.word.after(state.buffers[WORD], statement, operands, state.values)
        function = self.function(statement)
        made = function(*operands, *(s.evaluate(state.values) for s in statement.scalars))
        if self.mesh is None or statement.placement is None:
            return made
        return self.mesh.constrained(made, statement.placement)

    def function(self, statement: Compute) -> Callable[..., Array]:
        """The operator for the shapes at the static sizes. Raises ShapeError where it has no value for them."""
        if id(statement) not in self._functions:
            given = tuple(static_type(type, self.resolve) for type in statement.operand_types)
            result = static_type(statement.type, self.resolve)
            attrs = {**statement.attrs, "stays": True} if self._stays(statement) else statement.attrs
            call = call_for(statement.op, attrs, given, result, self.resolve)
            self._functions[id(statement)] = self.operator(call)
        return self._functions[id(statement)]

    def _stays(self, gather: Compute) -> bool:
        """Whether it takes a part of what its loop writes to, and not for one operator alone: fused into each of them,
        of which one may follow the write, it would have all that it is a part of copied."""
        is_part = gather.op == "gather" and gather.operands[0] in self._read_where_written
        return is_part and gather.result not in self._used_once

    @cached_property
    def _statements(self) -> tuple[Statement, ...]:
        return tuple(walk(self.segment.body if self.segment.loop is None else (self.segment.loop,)))

    @cached_property
    def _read_where_written(self) -> frozenset[str]:
        """The names of what is read of buffers that a loop writes to."""
        within = (each for loop in self._statements if isinstance(loop, Loop) for each in walk(loop.body))
        written = {each.buffer for each in within if isinstance(each, Write)}
        return frozenset(each.result for each in self._statements if isinstance(each, Read) and each.buffer in written)

    @cached_property
    def _used_once(self) -> frozenset[str]:
        """The names that one operator looks at, and nothing else."""
        uses = Counter(name for each in self._statements for name in operands(each))
        by_operators = (name for each in self._statements if isinstance(each, Compute) for name in each.operands)
        return frozenset(name for name in by_operators if uses[name] == 1)

    def possible(self, block: tuple[Statement, ...]) -> bool:
        """Whether what the block runs unconditionally makes sense at the static sizes.

        The checks of a program at its sizes say so of everything that runs; so a block of which it is wrong never
        does: no extent is below zero, no read leaves its buffer, no maximum is over nothing.
        """
        return all(self._possible(statement) for statement in block)

    def _possible(self, statement: Statement) -> bool:
        if isinstance(statement, Read):
            axes = self.buffers[statement.buffer].axes
            windows = [(axis, entry) for axis, entry in zip(axes, statement.index) if isinstance(entry, WindowIndex)]
            return all(
                not each.exact or self.resolve(each.extent) <= self.resolve(axis.extent) for axis, each in windows
            )
        if isinstance(statement, Write):
            pairs = zip(self.buffers[statement.buffer].axes, statement.extents)
            return all(far is None or self.resolve(far) <= self.resolve(axis.extent) for axis, far in pairs)
        if not isinstance(statement, Compute):
            return True
        types = (statement.type, *statement.operand_types)
        return all(self.resolve(extent) >= 0 for type in types for extent in type.shape) and self._has_value(statement)

    def _has_value(self, statement: Compute) -> bool:
        try:
            self.function(statement)
        except (ShapeError, IndexOutOfRangeError):  # the second: all that is read is at indices into nothing
            return False
        return True

    def resolve(self, expr: Expr) -> int:
        return int(expr.evaluate(self.static))

    # -- loops -----------------------------------------------------------------------------------------------------

    def work(self, statements: tuple[Statement, ...]) -> float:
        return work(statements, self.buffers, self.static)

    def loop(self, loop: Loop, lo: Any, hi: Any, state: TraceState) -> None:
        if state.left is not None:
            left, state.left = state.left, None
            self.branch(~left, (loop,), (), state)
            state.left = left
            return
        stop = stop_in(loop)
        few = loop.var in self.storage.loops
        is_known = isinstance(lo, int) and isinstance(hi, int)
        if stop is None and is_known and (few or hi - lo <= 1):
            points = range(lo, hi)
            self.few(loop, points if loop.direction == "forward" else points[::-1], state)
            return
        recent = Handed(loop, lo, hi, self.buffers, self.orders)
        carried = [id for id in self.carried(loop) if id not in recent.replaced]
        forward, unchanged = loop.direction == "forward", self.unchanged(loop, state)
        fixed = [id for id in unchanged if self.buffers[id].dtype in HALF and state.buffers[id].size > _MOST_KNOWN]

        def body(step: Any, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
            inner = self.iteration(loop, state)
            inner.buffers.update(zip(fixed, inside(step, [state.buffers[id] for id in fixed]), strict=True))
            inner.carried = frozenset(carried)
            inner.buffers.update(zip(carried, arrays, strict=False))
            inner.values[loop.var] = step if forward else lo + hi - 1 - step
            handed = arrays[len(carried) :]
            inner.handed = {**state.handed, **dict(zip(recent.places, handed, strict=True))}
            self.block(loop.body, inner)
            return (
                *(inner.buffers[id] for id in carried),
                *recent.on({id: each.value for id, each in inner.written.items()}, handed),
            )

        start = (*(state.buffers[id] for id in carried), *recent.before(state.buffers, state.values))
        arrays = repeat(lo, hi, body, start, None if stop is None else carried.index(stop), self.counter)
        state.buffers.update(zip(carried, arrays, strict=False))
        state.buffers.update(recent.after(state.buffers, state.values, arrays[len(carried) :]))

    def unchanged(self, loop: Loop, state: TraceState) -> list[int]:
        """The buffers that the loop reads and does not write."""
        read = {each.buffer for each in walk(loop.body) if isinstance(each, Read)} & state.buffers.keys()
        return sorted(read.difference(self.carried(loop), self.liveness.local(loop)))

    def few(self, loop: Loop, points: range, state: TraceState) -> None:
        """Iterations without a loop around them, at points that are numbers."""
        pieces = {id: array.axis for id, array in state.buffers.items() if isinstance(array, Pieces)}
        alike = AlikeIterations(loop, pieces, self.static)
        told = checks(loop.body)  # an error word says the point
        kinds = {point: point if told else alike.kind(point) for point in points}
        count, made = Counter(kinds.values()), dict[Hashable, Callable[..., Any]]()
        for point, kind in kinds.items():
            if count[kind] == 1:
                state.buffers.update(self.once(loop, point, state))
                continue
            if kind not in made:
                made[kind] = jax.jit(self.function_of(loop, point, state))
            touched = {id: state.buffers[id] for id in alike.touched & state.buffers.keys()}
            own = {
                id: piece_of(touched[id], axis, point, self.orders.get(id))
                for id, axis in alike.own.items()
                if id in touched
            }
            names = {name: state.names[name] for name in alike.names if name in state.names}
            found = made[kind](names, {**touched, **own}, _traced(state.values), state.tables, [*state.handed.values()])
            for id, array in found.items():
                state.buffers[id] = state.buffers[id].replaced(point, array.arrays[0]) if id in own else array

    def once(self, loop: Loop, point: int, state: TraceState) -> dict[int, Array]:
        """What one iteration leaves in the buffers that outlive it."""
        inner = self.iteration(loop, state)
        inner.values[loop.var] = point
        self.block(loop.body, inner)
        return {id: inner.buffers[id] for id in self.carried(loop)}

    def function_of(self, loop: Loop, point: int, state: TraceState) -> Callable[..., dict[int, Array]]:
        """An iteration as a function of all that is traced: the buffers that it has written."""
        numbers = {symbol: value for symbol, value in state.values.items() if isinstance(value, int)}
        places = tuple(state.handed)

        def iteration(
            names: dict[str, Array],
            buffers: dict[int, Array],
            values: dict[Symbol, Array],
            tables: Mapping[int, Array],
            handed: list[Array],
        ) -> dict[int, Array]:
            known = replace(state, names=names, buffers=buffers, values={**numbers, **values}, tables=tables)
            known.handed = dict(zip(places, handed, strict=True))
            found = self.once(loop, point, known)
            return {id: array for id, array in found.items() if array is not buffers.get(id)}

        return iteration

    def carried(self, loop: Loop) -> list[int]:
        """What iterations hand to one another."""
        found, stop = [*self.liveness.carried(loop), *([WORD] if checks(loop.body) else [])], stop_in(loop)
        return found if stop is None or stop in found else [*found, stop]  # a stretch may not write it

    def iteration(self, loop: Loop, state: TraceState) -> TraceState:
        """What an iteration starts with: what is local to it has a place of its own."""
        inner = state.inner()
        inner.buffers.update((id, self.array(id, None)) for id in self.liveness.local(loop))
        inner.work, inner.left = self.work(loop.body), None
        return inner

    # -- branches --------------------------------------------------------------------------------------------------

    def branch(
        self, test: Any, then: tuple[Statement, ...], otherwise: tuple[Statement, ...], state: TraceState
    ) -> None:
        if not isinstance(test, bool) and not self.possible(then):
            test = False
        if not isinstance(test, bool) and not self.possible(otherwise):
            test = True
        if isinstance(test, bool):
            self.block(then if test else otherwise, state)
            return
        plan = BranchPlan.of(then, otherwise, self.buffers)
        if checks((*then, *otherwise)):
            plan = replace(plan, whole=(*plan.whole, WORD))
        places = [(id, access.place(index, state.values, extents, self.static)) for id, index, extents in plan.places]

        def part(inner: TraceState, id: int, place: access.SliceAddress, where: Where) -> Array:
            """What is there. What was just written is not read: XLA would keep the array before and after."""
            last = inner.written.get(id)
            if last is not None and last.array is inner.buffers[id] and last.where == where:
                return last.value
            return access.at(inner.buffers[id], place, self.buffers[id].dtype, self.orders.get(id))

        def side(statements: tuple[Statement, ...]) -> Callable[[], tuple[Array, ...]]:
            def run() -> tuple[Array, ...]:
                inner = state.inner()
                self.block(statements, inner)
                wholes = [inner.buffers[id] for id in plan.whole]
                parts = [
                    part(inner, id, place, (index, extents))
                    for (id, place), (_, index, extents) in zip(places, plan.places, strict=True)
                ]
                return (*(inner.names[name] for name in plan.names), *wholes, *parts)

            return run

        if self._selects(plan, places, (*then, *otherwise), state):
            pairs = zip(side(then)(), side(otherwise)(), strict=True)
            found = tuple(mine if mine is theirs else jnp.where(test, mine, theirs) for mine, theirs in pairs)
        else:
            found = lax.cond(test, side(then), side(otherwise))
        names, rest = found[: len(plan.names)], found[len(plan.names) :]
        state.names.update(zip(plan.names, names, strict=True))
        state.buffers.update(zip(plan.whole, rest, strict=False))
        for (id, place), value in zip(places, rest[len(plan.whole) :], strict=True):
            state.buffers[id] = access.write(state.buffers[id], place, value, self.orders.get(id))

    def _selects(
        self,
        plan: BranchPlan,
        places: list[tuple[int, access.SliceAddress]],
        both: tuple[Statement, ...],
        state: TraceState,
    ) -> bool:
        wholes = (state.buffers[id].size for id in plan.whole)
        parts = (math.prod(self.buffers[id].extents(self.static)[len(at.index) :]) * at.size for id, at in places)
        if plan.only_reads and sum(wholes) + sum(parts) <= LARGEST_SELECTION:
            return True
        return plan.only_operators and self.work(both) * _SMALL_SHARE < state.work


def _traced(values: Mapping[Symbol, Any]) -> dict[Symbol, Any]:
    return {symbol: value for symbol, value in values.items() if not isinstance(value, int)}


def known_bounds(request: SegmentRequest) -> tuple[int, int] | None:
    """From where to where a segment's loop runs, where the sizes that the executable is made for say so."""
    loop, sizes = request.segment.loop, request.sizes
    if loop is None or not (loop.lo.symbols() | loop.hi.symbols()) <= sizes.keys():
        return None
    return int(loop.lo.evaluate(sizes)), int(loop.hi.evaluate(sizes))


def _distinct(results: list[Array], arguments: Mapping[int, Array], ids: tuple[int, ...]) -> tuple[Array, ...]:
    """JAX returns an argument that is passed through as the same array; what may be donated later must be its own."""
    taken: list[Array] = []

    def own(array: Array, others: list[Array]) -> Array:
        shared = any(array is each for each in (*others, *taken))
        taken.append(jnp.copy(array) if shared else array)
        return taken[-1]

    found = []
    for id, result in zip(ids, results, strict=True):
        others = tree.leaves([argument for other, argument in arguments.items() if other != id])
        found.append(tree.map(partial(own, others=others), result))
    return tuple(found)
