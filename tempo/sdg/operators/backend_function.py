"""Functions of a backend's own arrays as operators: what `tp.backend_call` declares, and what tables need for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tempo import dtypes
from tempo.errors import BackendCallError, Location
from tempo.sdg.call import Call


@dataclass(frozen=True, eq=False)
class BackendFunction:
    """A user's function, called with the backend's arrays (traced ones, where the backend traces its loops).

    It gives a tuple of `results` values. Raises `BackendCallError`, chained to what the function raised.
    """

    fn: Callable[..., Any]
    name: str
    results: int
    location: Location | None = field(default=None, repr=False)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        try:
            returned = self.fn(*arrays)
        except Exception as error:
            message = f"the backend call {self.name} failed: {type(error).__name__}: {error}"
            raise BackendCallError(message, location=self.location) from error
        values = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        if returned is None or len(values) != self.results:
            what = "None" if returned is None else f"{len(values)} result{'s' * (len(values) != 1)}"
            raise BackendCallError(
                f"the backend call {self.name} returned {what}, declared: {self.results}",
                location=self.location,
                hint="return one array per entry of out=: an array, or a tuple of arrays",
            )
        return values


def function_of(call: Call) -> Callable[..., tuple[Any, ...]]:
    """The builder of `backend_call`: a function of the backend's arrays to a tuple of what the user's returned."""
    function: BackendFunction = call.attrs["fn"]
    return function


def result_of(converted: Callable[..., Any]) -> Callable[[Call], Callable[[tuple[Any, ...]], Any]]:
    """The builder of `backend_result`: one of these values, held to what was declared.

    `converted(value)` is the backend's array of a value, `converted(value, dtype)` the same cast to a NumPy dtype.
    """

    def build(call: Call) -> Callable[[tuple[Any, ...]], Any]:
        function, at, declared = call.attrs["fn"], call.attrs["at"], call.result

        def pick(values: tuple[Any, ...]) -> Any:
            array = converted(values[at])
            found = str(array.dtype).removeprefix("torch.")
            if tuple(array.shape) != declared.shape or not _fits(found, declared.dtype, values[at]):
                raise BackendCallError(
                    f"result {at} of the backend call {function.name} is {found}{list(array.shape)}, "
                    f"declared is {declared}",
                    location=function.location,
                    hint="correct out=, or what the function returns",
                )
            return array if found == declared.dtype else converted(values[at], declared.numpy_dtype)

        return pick

    return build


def _fits(found: str, declared: str, value: Any) -> bool:
    """Values are cast within a kind; Python's numbers up to floats."""
    if found == declared:
        return True
    weak = not hasattr(value, "dtype")
    return found in dtypes.DTYPES and (dtypes.can_cast(found, declared) if weak else dtypes.same_kind(found, declared))
