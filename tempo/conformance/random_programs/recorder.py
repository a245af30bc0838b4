"""Host functions whose results are a pure function of their arguments, and the record of their calls."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tempo.dtypes import to_numpy

Array = np.ndarray[Any, Any]
Result = tuple[Sequence["str | int"], str]


def own_step(x: Any) -> tuple[Any, Any]:
    """A function of the arrays of any backend, with operators that they all have."""
    return x * 2 - 1, x > 0


@dataclass(frozen=True)
class HostFunction:
    """What a recorder knows of a function that it made.

    Its last arguments are the coordinates of the point along `dims`; it is called in the order of `ordered`, also
    among the functions of the same `resource`. `rank` is its place among the functions that were made.
    """

    name: str
    rank: int
    dims: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    resource: str | None = None


@dataclass(frozen=True)
class RecordedCall:
    """One call: the function, and copies of its arguments."""

    function: HostFunction
    arguments: tuple[Array, ...]

    def coordinates(self, dims: Sequence[str]) -> tuple[int, ...]:
        """The point of the call, along those of `dims` that the function has."""
        given = self.arguments[len(self.arguments) - len(self.function.dims) :]
        point = {dim: int(value) for dim, value in zip(self.function.dims, given)}
        return tuple(point[dim] for dim in dims if dim in point)


@dataclass
class Recorder:
    """Makes host functions and writes down their calls in the order in which they happen.

    `sizes` must hold the sizes of the run: batched results have them in front.
    """

    calls: list[RecordedCall] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    functions: list[HostFunction] = field(default_factory=list)

    def start(self, sizes: Mapping[str, int]) -> None:
        """Forget the calls of the run before."""
        self.calls.clear()
        self.sizes.clear()
        self.sizes.update(sizes)

    def function(
        self,
        name: str,
        *results: Result,
        dims: tuple[str, ...] = (),
        ordered: tuple[str, ...] = (),
        resource: str | None = None,
        fails_at: int | None = None,
    ) -> Callable[..., Any]:
        """A function with results of these shapes (a name is the size of that dim) and dtypes; see `HostFunction`.

        Floats depend on all arguments, integers and bools on those that are no floats, which no backend rounds. With
        `fails_at` it raises `ArithmeticError` in all calls but that many.
        """

        function = HostFunction(name, len(self.functions), dims, ordered, resource)
        self.functions.append(function)

        def called(*arguments: Array) -> Any:
            self.calls.append(RecordedCall(function, tuple(np.array(argument) for argument in arguments)))
            if fails_at is not None and sum(call.function == function for call in self.calls) > fails_at:
                raise ArithmeticError(f"{name} was asked to fail")
            made = tuple(self._result(name, place, result, arguments) for place, result in enumerate(results))
            return made if len(made) != 1 else made[0]

        called.__name__ = name
        return called

    def _result(self, name: str, place: int, result: Result, arguments: Sequence[Array]) -> Array:
        sizes, dtype = result
        shape = tuple(self.sizes[size] if isinstance(size, str) else size for size in sizes)
        salt = zlib.crc32(f"{name}:{place}".encode()) % 97
        steps = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
        kind = to_numpy(dtype).kind
        if kind not in "iub":
            total = sum((place + 2) * _bounded(argument) for place, argument in enumerate(arguments))
            return np.asarray(np.sin(0.1 * salt + total + 0.7 * steps)).astype(to_numpy(dtype))
        exact = [argument for argument in arguments if argument.dtype.kind in "iub"]
        whole = salt + sum(8 * (place + 2) * _bounded(argument) for place, argument in enumerate(exact))
        numbers = (int(whole) + steps.astype(np.int64)) % 5
        return np.asarray(numbers % 2 == 0) if kind == "b" else numbers.astype(to_numpy(dtype))


def _bounded(argument: Array) -> float:
    """A number in [-1, 1] that depends on every element: exact for integers, continuous in floats."""
    values = np.nan_to_num(np.asarray(argument, np.float64), nan=0.3, posinf=1.0, neginf=-1.0)
    weights = 1.0 + np.arange(values.size, dtype=np.float64).reshape(values.shape) % 3
    if np.asarray(argument).dtype.kind in "iub":
        return float(np.sum(values * weights) % 8) / 8
    return float(np.tanh(np.sum(values * weights)))
