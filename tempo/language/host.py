"""The outside world: Python functions as operators, on the host and of the backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tempo.errors import ProgramError, ShapeError, user_location
from tempo.language.conversion import TensorLike, as_dtype, as_tensor
from tempo.language.indexing.expression import Dim
from tempo.language.program import Program, current_program
from tempo.language.shapes import several, to_shape
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators.creation import BackendFunction
from tempo.symbolic import Symbol

Dims = Dim | Sequence[Dim]


@dataclass(frozen=True)
class Resource:
    """What calls share: the same object, or an equal name or number."""

    key: Any = field(repr=False)
    value: Any = field(compare=False)

    @staticmethod
    def of(value: Any) -> Resource:
        return Resource((type(value), value) if isinstance(value, (str, int, tuple)) else id(value), value)


def host_call(
    fn: Callable[..., Any],
    *inputs: TensorLike,
    out: Sequence[tuple[Any, Any]],
    ordered_by: Dims = (),
    batched: Dims = (),
    resource: Any = None,
) -> tuple[RecurrentTensor, ...]:
    """A Python function as an operator; one recurrent tensor per `(shape, dtype)` of `out`.

    The domain is the union of the inputs' domains, `ordered_by` and `batched`. `fn` gets NumPy arrays, the `batched`
    dims in front (of inputs that have them), and returns one array or a tuple, likewise with the batched dims in front.
    Along `ordered_by` points are called in lexicographic order without holes. Calls that share a `resource` (the same
    object, or an equal name) are ordered among each other by the ordered dims that both have, then by declaration.
    """
    call = _Declaration(fn, inputs, out, ordered_by, batched)
    if not call.results:
        raise ShapeError("a host call without results", location=user_location(), hint="use tp.sink")
    if call.varying & set(call.batched):
        raise ShapeError(
            "a result of a host call has a shape that varies along a batched dim", location=user_location()
        )
    return at_rows(call.program, call.on_host("host_call", fn, resource), call.batched, len(call.results))


def sink(
    fn: Callable[..., Any],
    *inputs: TensorLike,
    ordered_by: Dims = (),
    batched: Dims = (),
    resource: Any = None,
) -> None:
    """A Python function that is called at every point of its domain for its effect; see `host_call`."""
    call = _Declaration(fn, inputs, (), ordered_by, batched)
    call.program.builder.add_sink(call.on_host("sink", fn, resource))


def _result(program: Program, entry: Any, batched: tuple[Symbol, ...]) -> TensorType:
    if not isinstance(entry, tuple) or len(entry) != 2:
        raise ShapeError(
            f"{entry!r} in out= is no pair of shape and dtype",
            location=user_location(),
            hint="write out=[((3,), tp.float32), ((), tp.bool)]",
        )
    shape, dtype = entry
    rows = tuple(program.builder.size(symbol) for symbol in batched)
    return TensorType((*rows, *to_shape(program, shape)), as_dtype(dtype))


def backend_call(
    fn: Callable[..., Any],
    *inputs: TensorLike,
    out: Sequence[tuple[Any, Any]],
    backend: str,
    batched: Dims = (),
) -> tuple[RecurrentTensor, ...]:
    """A pure function of a backend's own arrays as an operator; one recurrent tensor per `(shape, dtype)` of `out`.

    On JAX `fn` is traced into the compiled loop, so it may be anything that `jax.jit` takes; on PyTorch and NumPy it is
    called with tensors or arrays in the loop. Nothing else is known of it: it is called at every point of the union of
    the inputs' domains that something needs, and at others where that does no harm, in any order; it must not write to
    its arguments. It gets an array per input, the `batched` dims in front (of inputs that have them), and returns one
    array or a tuple, likewise with the batched dims in front. Values are cast within a kind.

    The program compiles for `backend` alone, and for `"reference"`, which converts arrays for that backend's function.
    Nothing is differentiated through it: wrap it in `tp.custom_gradient`, or what it gives in `tp.stop_gradient`.

    Raises `ShapeError` for shapes that vary along a dim; `UnsupportedError` from `tp.compile` for another backend;
    `BackendCallError`, when it is first called, where `fn` raises or returns something other than declared.

    >>> import numpy as np
    >>> import tempo as tp
    >>> with tp.Program("hypotenuse"):
    ...     t = tp.dim("t")
    ...     a, b = tp.input("a", shape=(), dims=(t,)), tp.input("b", shape=(), dims=(t,))
    ...     (c,) = tp.backend_call(np.hypot, a, b, out=[((), tp.float32)], backend="numpy")
    >>> c
    RecurrentTensor(hypot, domain=(t,), shape=(), dtype=float32)
    """
    if not isinstance(backend, str) or backend in ("", "reference"):  # type: ignore[redundant-expr]
        raise ProgramError(
            f"backend={backend!r} names no backend with arrays of its own",
            location=user_location(),
            hint='write the name of the backend that the function is for: backend="jax", "torch" or "numpy"',
        )
    call = _Declaration(fn, inputs, out, (), batched)
    if not call.results:
        raise ShapeError("a backend call without results", location=user_location(), hint="out= says what it returns")
    seen = map(call.program.builder.seen_type, call.operands)
    if call.varying or any(size.dims() for type in seen for size in type.shape):
        raise ShapeError(
            "a shape of a backend call varies along a dim",
            location=user_location(),
            hint="a function of the backend is compiled for one shape: pad what it takes, or reduce it first",
        )
    function = BackendFunction(fn, call.name, len(call.results), user_location())
    id = call.declare("backend_call", {"fn": function, "backend": backend})
    return at_rows(call.program, id, call.batched, len(call.results))


def at_rows(program: Program, id: int, batched: tuple[Symbol, ...], count: int) -> tuple[RecurrentTensor, ...]:
    """The results of a call, each at its row of the batched dims."""
    tensors = [RecurrentTensor(program, program.builder.identity(id, result)) for result in range(count)]
    at_row = tuple(program.dim_of(symbol) for symbol in batched)
    return tuple(tensor.spatial[at_row] if at_row else tensor for tensor in tensors)


class _Declaration:
    """A call while it is declared: its dims checked, its operands read over the whole of batched dims.

    `varying`: the dims along which the shape of a result varies.
    """

    def __init__(
        self, fn: Callable[..., Any], inputs: Sequence[TensorLike], out: Any, ordered_by: Dims, batched: Dims
    ) -> None:
        self.program = program = current_program()
        self.name = str(getattr(fn, "__name__", None) or type(fn).__name__)
        if not callable(fn):
            raise ProgramError(f"{fn!r} cannot be called", location=user_location())
        self.ordered_by = program.check_dims(ordered_by, "ordered_by")
        self.batched = program.check_dims(batched, "batched")
        both = set(self.ordered_by) & set(self.batched)
        if both:
            raise ProgramError(
                f"{', '.join(sorted(symbol.name for symbol in both))} is both ordered and batched",
                location=user_location(),
                hint="a batched dim is passed whole, in one call, so its points have no order",
            )
        tensors = [as_tensor(value) for value in inputs]
        self.operands = tuple(self._over_rows(tensor) for tensor in tensors)
        self.results = tuple(_result(program, entry, self.batched) for entry in several(out))
        self.varying = {symbol for type in self.results for size in type.shape for symbol in size.dims()}
        self.domain = {symbol for tensor in tensors for symbol in tensor.symbols} | set(self.ordered_by) | self.varying

    def _over_rows(self, x: RecurrentTensor) -> Edge:
        return x.at(**{symbol.name: slice(None) for symbol in x.symbols if symbol in self.batched}).edge

    def on_host(self, op: str, fn: Callable[..., Any], resource: Any) -> int:
        """The node of a call that is made on the host."""
        attrs = {
            "name": self.name,
            "fn": fn,
            "ordered_by": self.ordered_by,
            "batched": self.batched,
            "resource": None if resource is None else Resource.of(resource),
        }
        return self.declare(op, attrs)

    def declare(self, op: str, attrs: Mapping[str, Any]) -> int:
        domain = self.program.builder.canonical(self.domain - set(self.batched))
        return self.program.builder.nominal(op, domain, self.results, self.operands, attrs=attrs, name=self.name)
