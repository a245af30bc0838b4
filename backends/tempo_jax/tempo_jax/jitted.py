"""A segment as executables (`tempo_jax.executables`): one of all of it, or one for each stretch of a loop in parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax

from tempo import dtypes
from tempo.backends import ByPoint, Costs, SegmentRequest, Submit
from tempo.backends.heap import Frame, Heap, Piece, array_of
from tempo.backends.loops import given_up, layouts_in_segments, made_first, replaced
from tempo.backends.tracing import Origin
from tempo.symbolic import Symbol
from tempo_jax import halves
from tempo_jax.executables import Array, Calls, JittedFunction
from tempo_jax.mesh import DeviceMesh
from tempo_jax.pieces import Pieces, as_pieces, as_points
from tempo_jax.scopes import Scopes
from tempo_jax.segments import Operator, SegmentTracer, known_bounds

_OWN = "temporaries of XLA's"


class JittedSegment:
    """A segment as a function. XLA makes a better loop where it knows how often it runs, so a loop of known bounds has
    an executable that runs it whole, and others for any part of it: one for each stretch (`tempo_jax.storage`).
    """

    def __init__(
        self,
        request: SegmentRequest,
        operator: Operator,
        costs: Costs,
        calls: Calls,
        mesh: DeviceMesh | None = None,
        moves_halves: bool = True,
    ) -> None:
        """The last as `SegmentTracer` has it."""
        segment = request.segment
        first = 2 + len(segment.arguments)
        kept = replaced(request.program)  # what is in them is remembered, should a call of the host fail
        self._request, self._donated = request, frozenset(segment.results) - kept
        places = {id: first + at for at, id in enumerate(segment.buffers)}
        self._bounds, self._calls = known_bounds(request), calls
        self._orders = layouts_in_segments(request.program)
        self._given_up = given_up(request.program, segment)
        self._places = tuple(places[id] for id in sorted(self._donated))
        self._between = frozenset[int]() if moves_halves else halves.between(request.program)
        self._tracer = partial(
            SegmentTracer, request, operator, costs, self._bounds, mesh=mesh, moves_halves=moves_halves
        )
        self._replaced = self._results_in_inputs()
        self._made: Parts | None = None
        self._turn = threading.Lock()
        self._whole: JittedFunction | None = None
        if segment.loop is None or self._bounds is not None:
            self._all = self._tracer()
            donated = tuple(places[id] for id in sorted({*self._donated, *self._replaced.values()}))
            self._whole = JittedFunction(self._all, segment.name, self._all.word, self._calls, donated)

    def modules(self) -> dict[str, Callable[[], Mapping[str, Origin]]]:
        """Of the executables that were called, by their names: what their instructions are of."""
        own = [] if self._whole is None else [self._whole]
        called = [each for each in (*own, *([] if self._made is None else self._made.executables)) if each.was_called]
        return {each.module: partial(self._origins_in, each) for each in called}

    def _origins_in(self, executable: JittedFunction) -> Mapping[str, Origin]:
        return Scopes.of(self._request).of_instructions(executable.text())

    def by_point(self, buffer: int) -> int:
        """Along its first axis, where each point has an array of its own anyway or is that of the loop of chunks."""
        tracer = self._parts.tracer if self._whole is None else self._all
        return int(tracer.takes_points(buffer))

    @property
    def _parts(self) -> Parts:
        """Made once, when it is first asked for: most loops are only run whole."""
        if self._made is None:
            with self._turn:
                if self._made is None:
                    self._made = Parts(self._tracer(in_parts=True), self._places, self._calls, self._given_up)
        return self._made

    def executable(self, start: int, stop: int) -> JittedFunction | None:
        """The executable of all of the segment, where that is what is run."""
        return self._whole if self._bounds is None or (start, stop) == self._bounds else None

    def __call__(self, start: int, stop: int, *arguments: Any) -> tuple[Array, ...]:
        """With arrays of whole buffers, or by point; those it leaves so."""
        whole = self.executable(start, stop)  # whose bounds are known
        if any(isinstance(each, ByPoint) for each in arguments):
            arguments = tuple(map(as_pieces, arguments))
            whole = None if self._parts.in_steps(arguments) else whole
        made = self._parts.whole(start, stop, *arguments) if whole is None else whole(None, None, *arguments)
        return tuple(map(as_points, made))

    @contextmanager
    def trial(
        self,
        heap: Heap,
        given: Mapping[int, Piece | None],
        sizes: Mapping[Symbol, int],
        tables: Callable[[], Sequence[Any]],
    ) -> Iterator[Mapping[int, Piece]]:
        """What a call needs, as XLA tells it. Results lie where what is donated for them does."""
        program, segment = self._request.program, self._request.segment
        arguments = self._arguments(given, {}, sizes, tables)
        with Frame[int](heap) as made:
            for id in segment.results:
                lies = self._replaced.get(id, id) if self._runs_whole else id
                old = given[lies] if id in self._donated else None
                made[id] = old or array_of(program.buffers[id], sizes)
            planned = sum(piece.bytes for id, piece in made.held.items() if piece is not given[id])
            own, new = self._needs(arguments, sizes)
            with heap.within(segment.name), Frame[int](heap, given):  # arguments live as long as the call
                Frame[str](heap, {"own": Piece(own + max(0, new - planned), _OWN)}).become({})
            yield made.held

    def _described(self, id: int, sizes: Mapping[Symbol, int]) -> jax.ShapeDtypeStruct:
        buffer = self._request.program.buffers[id]
        shape = buffer.extents(sizes)
        order = self._orders.get(id, range(len(shape)))
        dtype = halves.BITS if id in self._between else dtypes.to_numpy(buffer.dtype)
        return jax.ShapeDtypeStruct([shape[axis] for axis in order], dtype)

    def _arguments(
        self,
        given: Mapping[int, Piece | None],
        by_point: Mapping[int, int],
        sizes: Mapping[Symbol, int],
        tables: Callable[[], Sequence[Any]],
    ) -> tuple[Any, ...]:
        """Descriptions of those of a call."""
        segment = self._request.segment
        arrays = (
            _by_point(self._described(id, sizes), by_point.get(id, 0), given.get(id) is not None)
            for id in segment.buffers
        )
        symbols = (sizes.get(symbol, 0) for symbol in segment.arguments)
        return (*symbols, *arrays, *tables())

    def _needs(self, arguments: tuple[Any, ...], sizes: Mapping[Symbol, int]) -> tuple[int, int]:
        """Of what was called, or of a call with arrays of whole buffers."""
        with self._calls.entered():
            if self._whole is not None and self._runs_whole:
                return self._whole.needs((None, None, *arguments))
            found = [executable.needs(described) for executable, described in self._parts.described(arguments, sizes)]
            return max((own for own, _ in found), default=0), 0

    def ahead(
        self,
        given: Mapping[int, Piece | None],
        by_point: Mapping[int, int],
        sizes: Mapping[Symbol, int],
        tables: Callable[[], Sequence[Any]],
        submit: Submit,
    ) -> None:
        """As `tempo.backends.Ahead` has it."""
        arguments = tuple(map(as_pieces, self._arguments(given, by_point, sizes, tables)))
        in_steps = any(isinstance(each, Pieces) for each in arguments) and self._parts.in_steps(arguments)
        with self._calls.entered():
            if self._whole is not None and not in_steps:
                self._whole.make((None, None, *arguments), submit)
                return
            for executable, described in self._parts.described(arguments, sizes):
                executable.make(described, submit)

    @property
    def _runs_whole(self) -> bool:
        """Whether calls are of the executable of all of the segment, as far as is known."""
        return self._whole is not None and (self._whole.was_called or self._made is None)

    def _results_in_inputs(self) -> dict[int, int]:
        """By result that the segment makes, an input of its shape and dtype in whose memory it may lie."""
        request, found = self._request, dict[int, int]()
        left = sorted(self._given_up)
        for id in made_first(request.program, request.segment) if left else ():
            shape = self._described(id, request.sizes)
            donor = next((each for each in left if self._described(each, request.sizes) == shape), None)
            if donor is not None and id in self._donated:
                found[id] = donor
                left.remove(donor)
        return found

    # -- in chunks, with arrays as the storage has them ------------------------------------------------------------

    def part(self, start: int, stop: int, *arguments: Any) -> tuple[Array, ...]:
        return self._parts(start, stop, *arguments)

    def opened(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        return self._parts.opened(arrays)

    def closed(self, arrays: Mapping[int, Array]) -> dict[int, Array | None]:
        return {id: as_points(array) for id, array in self._parts.closed(arrays).items()}


class Parts:
    """The loop of a segment for any part of it. Arrays lie between calls as the storage says: in pieces, and no longer
    than was needed so far; they are made so before the first call, and longer where a stretch begins that needs it.
    """

    def __init__(
        self, tracer: SegmentTracer, donated: tuple[int, ...], calls: Calls, given_up: frozenset[int] = frozenset()
    ) -> None:
        """`donated`: the numbers of arguments. `given_up`: inputs not needed once they lie as the storage says."""
        self.tracer, self._calls, self._segment, self._given_up = tracer, calls, tracer.segment, given_up
        storage = tracer.storage
        self._lying = frozenset((*storage.pieces, *(id for id, _ in storage.growing)))
        shown = tracer.segment.name
        self.executables = [
            self._stretch(number, f"{shown}_{number}", donated) for number in range(len(tracer.stretches))
        ]
        self._open = JittedFunction(self._opened, f"{shown}_opened", None, calls)
        self._close = JittedFunction(self._closed, f"{shown}_closed", None, calls)

    def _stretch(self, number: int, shown: str, donated: tuple[int, ...]) -> JittedFunction:
        tracer, own = self.tracer, f"{self.tracer.__name__}_{number}"
        return JittedFunction(partial(tracer.stretch, number), shown, tracer.word, self._calls, donated, own)

    def cut(self, start: int, stop: int, sizes: tuple[Any, ...]) -> Iterator[tuple[int, int, int]]:
        """The stretches, by number, from where and to where they are run, in the loop's direction."""
        known = {**self.tracer.static, **dict(zip(self._segment.arguments, sizes, strict=True))}
        for number, stretch in enumerate(self.tracer.stretches):
            lo, hi = stretch.within(start, stop, known)
            if lo < hi:
                yield number, lo, hi

    def __call__(self, start: int, stop: int, *arguments: Any) -> tuple[Array, ...]:
        sizes, arrays, tables = self._apart(arguments)
        by_step = self._by_step(arrays)
        for number, lo, hi in self.cut(start, stop, sizes):
            arrays = self._grown(arrays, number)
            for first, last in self._steps(lo, hi) if by_step else ((lo, hi),):
                arrays.update((id, pieces.only(first)) for id, pieces in by_step.items())
                results = self.executables[number](first, last, *sizes, *arrays.values(), *tables)
                arrays.update(zip(self._segment.results, results, strict=True))
                for id in by_step.keys() & set(self._segment.results):
                    by_step[id] = by_step[id].replaced(first, arrays[id].arrays[0])
        arrays.update(by_step)
        return tuple(arrays[id] for id in self._segment.results)

    def _steps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """One iteration each, in the loop's direction."""
        loop, points = self._segment.loop, range(start, stop)
        assert loop is not None
        yield from ((at, at + 1) for at in (points if loop.direction == "forward" else reversed(points)))

    def in_steps(self, arguments: tuple[Any, ...]) -> bool:
        """Whether iterations are called one by one, each with its own array of an input."""
        _, arrays, _ = self._apart(arguments)
        return bool(self._by_step(arrays))

    def _by_step(self, arrays: Mapping[int, Array]) -> dict[int, Pieces]:
        """What lies in pieces along the axis of the loop, of which an iteration is given its own alone."""
        given = {id: arrays[id] for id in self.tracer.stepped}
        return {id: array for id, array in given.items() if isinstance(array, Pieces) and array.axis == 0}

    def whole(self, start: int, stop: int, *arguments: Any) -> tuple[Array, ...]:
        """The same with arrays of whole buffers, or by point."""
        sizes, arrays, tables = self._apart(arguments)
        opened = self.opened(arrays)
        for array in (arrays[id] for id in self._given_up if opened[id] is not arrays[id]):
            if isinstance(array, jax.Array):
                array.delete()
        made = dict(zip(self._segment.results, self(start, stop, *sizes, *opened.values(), *tables), strict=True))
        made.update(self.closed({id: array for id, array in made.items() if not isinstance(arrays[id], Pieces)}))
        return tuple(self._filled(id, array) for id, array in made.items())

    def _filled(self, id: int, array: Array) -> Array:
        """With pieces for points that the loop has not come to."""
        if not isinstance(array, Pieces) or all(each is not None for each in array.arrays):
            return array
        with self._calls.entered():
            return self.tracer.left(id, self.tracer.array(id, array))

    def _apart(self, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[int, Array], tuple[Any, ...]]:
        """Sizes, buffers and tables."""
        first, ids = len(self._segment.arguments), self._segment.buffers
        end = first + len(ids)
        return arguments[:first], dict(zip(ids, arguments[first:end], strict=True)), arguments[end:]

    def _grown(self, arrays: dict[int, Array], number: int) -> dict[int, Array]:
        """As long as a stretch needs them."""
        storage = self.tracer.storage
        if not storage.growing:
            return arrays
        with self._calls.entered():
            return storage.fitted(arrays, number)

    def described(
        self, arguments: tuple[Any, ...], known: Mapping[Symbol, int]
    ) -> Iterator[tuple[JittedFunction, tuple[Any, ...]]]:
        """What a call with descriptions of arrays, whole or in pieces, calls in turn, and with what; where it is not
        known how far the loop runs, all that it may call."""
        loop = self._segment.loop
        assert loop is not None
        sizes, arrays, tables = self._apart(arguments)
        by_point = {id for id, array in arrays.items() if isinstance(array, Pieces)}
        changed = self._changed(arrays)
        if changed:
            yield self._open, (changed,)
            made = jax.eval_shape(self._opened, changed)
            arrays.update((id, made[id]) for id in changed)
        by_step = self._by_step(arrays)
        is_known = loop.lo.symbols() | loop.hi.symbols() <= known.keys()
        lo, hi = (int(each.evaluate(known)) if is_known else 0 for each in (loop.lo, loop.hi))
        everywhere = ((number, 0, 0) for number in range(len(self.executables)))
        for number, start, stop in self.cut(lo, hi, sizes) if is_known else everywhere:
            fitted = jax.eval_shape(partial(self.tracer.storage.fitted, statement=number), arrays)
            arrays = {id: fitted[id] for id in arrays}  # JAX sorts them
            given = {**arrays, **{id: arrays[id].only(start) for id in by_step}}
            yield self.executables[number], (start, stop, *sizes, *given.values(), *tables)
        changed = {id: arrays[id] for id in self._segment.results if id in self._lying and id not in by_point}
        if changed:
            yield self._close, (changed,)

    def opened(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        given = {id: as_pieces(array) for id, array in arrays.items()}
        changed = self._changed(given)
        return {**given, **self._open(changed)} if changed else given

    def _changed(self, given: Mapping[int, Array]) -> dict[int, Array]:
        """Those that do not lie as the storage says."""
        lying = {id for id in self._lying if not isinstance(given.get(id), Pieces)}
        return {
            id: array for id, array in given.items() if (array is None and id in self._segment.results) or id in lying
        }

    def _opened(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        opened = self.tracer.storage.opened({id: self.tracer.array(id, array) for id, array in arrays.items()})
        return {id: self.tracer.shared(id, self.tracer.left(id, array)) for id, array in opened.items()}

    def closed(self, arrays: Mapping[int, Array]) -> dict[int, Array | None]:
        """What a call that failed was given to write to is gone."""
        found = {id: None if _is_gone(array) else array for id, array in arrays.items()}
        changed = {id: array for id, array in found.items() if array is not None and id in self._lying}
        if changed:
            found.update(self._close(changed))
        return found

    def _closed(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        return {id: self.tracer.shared(id, self.tracer.closed(id, array)) for id, array in arrays.items()}


def _by_point(described: jax.ShapeDtypeStruct, axes: int, is_there: bool) -> Any:
    """Along the first axes one for each point, of an array whose axes lie in order; None where it is to be made."""
    if not axes:
        return described if is_there else None
    inner = _by_point(jax.ShapeDtypeStruct(described.shape[1:], described.dtype), axes - 1, is_there)
    return ByPoint([inner] * described.shape[0])


def _is_gone(array: Array) -> bool:
    """What a call of the host wrote is NumPy's, and stays."""
    return any(isinstance(each, jax.Array) and each.is_deleted() for each in jax.tree.leaves(array))
