"""Backends with one planted fault each: the NumPy backend, wrong in a way that one family of the suite must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from tempo_greedy.scheduler import GreedyScheduler

from tempo.backends.base import CompiledSegment, SegmentRequest
from tempo.backends.numpy.backend import NumpyBackend, clamped, host_write, wrapped
from tempo.errors import TempoError
from tempo.loop_ir.ir import Branch, Statement
from tempo.loop_ir.rewriter import Block, BlockScope, rewritten
from tempo.plugins.descriptors import BackendPlugin, SchedulerPlugin
from tempo.schedule import ScheduleTree, SchedulingProblem
from tempo.sdg.call import Call

Array = Any
Functions = Mapping[str, Callable[..., Any]]


class ShiftedWindows(NumpyBackend):
    """Windows that are clamped begin one position late."""

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        def late(array: Array, axis: int, start: int, extent: int) -> Array:
            return clamped(array, axis, start + 1, extent)

        return {**super().array_functions(), "clamped": late}


class MirroredWrap(NumpyBackend):
    """What wraps around the end of a circular buffer comes in the wrong order."""

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        def mirrored(array: Array, axis: int, start: int, extent: int) -> Array:
            found = wrapped(array, axis, start, extent)
            return found if start % array.shape[axis] + extent <= array.shape[axis] else np.flip(found, axis)

        return {**super().array_functions(), "wrapped": mirrored}


class SwappedBranches(NumpyBackend):
    """Where both sides of a case have statements, they change places."""

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        segment = request.segment
        return super().compile_segment(replace(request, segment=segment.with_body(_swapped(segment.body))))


def _swapped(statements: Block) -> Block:
    return rewritten(statements, _swap)


def _swap(statement: Statement, scope: BlockScope) -> Block | None:
    if isinstance(statement, Branch) and statement.otherwise:
        return (Branch(statement.condition, _swapped(statement.otherwise), _swapped(statement.then)),)
    return None


class ShortLoops(NumpyBackend):
    """Loops end after 4,096 iterations."""

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        compiled, loop = super().compile_segment(request), request.segment.loop

        def short(start: int, stop: int, *rest: Any) -> tuple[Array, ...]:
            if loop is not None and loop.direction == "backward":
                return compiled.function(max(start, stop - 4096), stop, *rest)
            return compiled.function(start, min(stop, start + 4096), *rest)

        return replace(compiled, function=short) if loop is not None else compiled


class Replaced(NumpyBackend):
    """Some operators are others than they should be."""

    functions: ClassVar[Functions] = {}

    def operator(self, call: Call) -> Callable[..., Array]:
        if call.op not in self.functions:
            return super().operator(call)
        wrong, right = self.functions[call.op], super().operator(call)
        return lambda *operands: wrong(call, right, *operands)


class TruncatedDivision(Replaced):
    """Integer division goes towards zero, as it does in C."""

    functions: ClassVar[Functions] = {
        "floordiv": lambda call, right, a, b: right(a, b) if call.result.dtype[0] != "i" else _truncated(right, a, b)
    }


def _truncated(right: Callable[..., Array], a: Array, b: Array) -> Array:
    quotient = right(a, b)
    return quotient + (np.multiply(quotient, b) != a).astype(quotient.dtype) * (quotient < 0)


class VisiblePadding(Replaced):
    """What lies beyond the end of a slice of varying length is left as it was read."""

    functions: ClassVar[Functions] = {"mask": lambda call, right, x, length: x}


class ShiftedBits(Replaced):
    """Random bits are off by one place."""

    functions: ClassVar[Functions] = {"random_bits": lambda call, right, *operands: right(*operands) >> 1}


class UncheckedIndices(Replaced):
    """Indices out of range are clamped, also where they should raise."""

    def operator(self, call: Call) -> Callable[..., Array]:
        return super().operator(
            replace(call, attrs={**call.attrs, "checked": False}) if "checked" in call.attrs else call
        )


class SteepTanh(Replaced):
    """The hyperbolic tangent is the sign."""

    functions: ClassVar[Functions] = {"tanh": lambda call, right, x: np.sign(x)}


class ForgetfulSums(Replaced):
    """Running sums begin anew after four elements."""

    @staticmethod
    def anew(call: Call, right: Callable[..., Any], x: Any) -> Any:
        axis = call.attrs["axis"]
        return np.concatenate([right(part) for part in np.split(x, range(4, x.shape[axis], 4), axis)], axis)

    functions: ClassVar[Functions] = {"cumsum": anew}


class StaleResults(Replaced):
    """A function of the backend is asked once, and never again."""

    def operator(self, call: Call) -> Callable[..., Array]:
        function = super().operator(call)
        return _once(function) if call.op == "backend_call" else function


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    found: list[Any] = []

    def first(*operands: Array) -> Any:
        if not found:
            found.append(function(*operands))
        return found[0]

    return first


class LostAdditions(Replaced):
    """Nothing is added where indices say."""

    functions: ClassVar[Functions] = {"scatter_add": lambda call, right, base, indices, updates: base}


class CoarseRoots(Replaced):
    """Square roots have the precision of float16."""

    functions: ClassVar[Functions] = {
        "sqrt": lambda call, right, x: np.asarray(right(x)).astype(np.float16).astype(call.result.dtype)
    }


class SharedResults(NumpyBackend):
    """Arrays of a shape are handed out again, although a result lives in them."""

    def __init__(self) -> None:
        self._pool: dict[tuple[tuple[int, ...], str], Array] = {}

    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> Array:
        if (shape, dtype) not in self._pool:
            self._pool[shape, dtype] = super().allocate(shape, dtype, fill)
        return self._pool[shape, dtype]

    def owned(self, array: Array) -> Array:
        return array


class LostWrites(NumpyBackend):
    """Of what a host function returned, everything goes to the first point."""

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        def first(array: Array, index: tuple[int, ...], value: Array) -> Array:
            return host_write(array, tuple(0 for _ in index), value)

        return {**super().array_functions(), "host_write": first}


class OwnErrors(NumpyBackend):
    """What goes wrong in an operator is told in the words of the library beneath."""

    def operator(self, call: Call) -> Callable[..., Array]:
        function = super().operator(call)

        def told_otherwise(*operands: Any) -> Array:
            try:
                return function(*operands)
            except TempoError as error:
                raise RuntimeError("the kernel returned status 7") from error

        return told_otherwise


class DroppedOrder:
    """The order among host calls is no matter of the scheduler's."""

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        kept = tuple(each for each in problem.dependences if each.kind != "order")
        return GreedyScheduler().schedule(replace(problem, dependences=kept))


BACKENDS: Mapping[str, type[NumpyBackend]] = {
    "shifted-windows": ShiftedWindows,
    "mirrored-wrap": MirroredWrap,
    "swapped-branches": SwappedBranches,
    "short-loops": ShortLoops,
    "truncated-division": TruncatedDivision,
    "visible-padding": VisiblePadding,
    "shifted-bits": ShiftedBits,
    "unchecked-indices": UncheckedIndices,
    "steep-tanh": SteepTanh,
    "lost-additions": LostAdditions,
    "forgetful-sums": ForgetfulSums,
    "stale-results": StaleResults,
    "coarse-roots": CoarseRoots,
    "shared-results": SharedResults,
    "lost-writes": LostWrites,
    "own-errors": OwnErrors,
}


def descriptors() -> list[BackendPlugin | SchedulerPlugin]:
    made: list[BackendPlugin | SchedulerPlugin] = [SchedulerPlugin("dropped-order", DroppedOrder)]
    for name, factory in BACKENDS.items():
        info = BackendPlugin(name, factory)
        factory.info = info
        made.append(info)
    return made
