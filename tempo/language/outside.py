"""The outside world: Python functions as operators, what comes in, what goes out, and where a run ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tempo.errors import DTypeError, ProgramError, ShapeError, UnsupportedError, user_location
from tempo.keywords import RESERVED
from tempo.language.conversion import TensorLike, as_dtype, as_tensor, several, show, to_shape
from tempo.language.functions.elementwise import where
from tempo.language.indexing.expression import Dim
from tempo.language.program import Program, check_name, current_program
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Edge, Output, Port, TensorType
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

    Checkpoints of a run (`tp.Checkpoints`) hold what `resource.state_dict()` says; where the run goes on that is given
    to `load_state_dict(state)`. A call without resource and `ordered_by` is taken to keep nothing from call to call.
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


def input(name: str, shape: Any = (), dims: Any = (), dtype: Any = "float32") -> RecurrentTensor:
    """A tensor that the caller gives: an array with the dims in front, in canonical order, then the shape.

    It is cast to `dtype` from the same kind. The shape may name sizes, and may not vary along dims.

    Raises `ProgramError` for a name that is taken or reserved.

    >>> import tempo as tp
    >>> with tp.Program("example"):
    ...     t = tp.dim("t")
    ...     x = tp.input("x", shape=(3,), dims=(t,))
    >>> x
    RecurrentTensor(x, domain=(t,), shape=(3,), dtype=float32)
    """
    program, domain, type = _declared(f"the input {name!r}", name, shape, dims, dtype)
    attrs = {"name": name, "role": "input", "layout": (*domain, *range(len(type.shape)))}
    id = program.builder.inputs[name] = program.builder.nominal("input", domain, (type,), attrs=attrs, name=name)
    return RecurrentTensor(program, program.builder.identity(id))


def stream_input(name: str, shape: Any = (), dims: Any = (), dtype: Any = "float32") -> RecurrentTensor:
    """An input that an iterator gives while the program runs: one array per point of the outermost of `dims`.

    The arrays have the other dims in front, in canonical order, then `shape`; they are cast to `dtype` from the same
    kind, and copied. They are taken in order, and none after the last point that is needed. The program keeps only what
    is read later; a run may take some before it computes with them, a stream no more than its chunk. What has a length
    gives the size of the dim.

    Raises `ProgramError` for a name that is taken or reserved and where there is no dim; a run raises `InputError`,
    `DTypeError` and `HostCallError` (of what the iterator raised) with the point.

    >>> import numpy as np
    >>> import tempo as tp
    >>> with tp.Program("sums") as program:
    ...     i = tp.dim("i")
    ...     x = tp.stream_input("x", shape=(3,), dims=(i,))
    ...     tp.output("sum", x.sum())
    >>> tp.compile(program)(x=(np.full(3, n, np.float32) for n in range(4)), sizes={"i": 4})["sum"]
    array([0., 3., 6., 9.], dtype=float32)
    """
    program, domain, type = _declared(f"the stream {name!r}", name, shape, dims, dtype)
    if not domain:
        raise ProgramError(
            f"the stream {name!r} has no dim along which its arrays come",
            location=user_location(),
            hint="use tp.input for what is given once",
        )
    first, rows = domain[:1], domain[1:]
    whole = TensorType((*map(program.builder.size, rows), *type.shape), type.dtype)
    attrs = {"name": name, "stream": name, "ordered_by": first, "batched": rows, "resource": None}
    id = program.builder.inputs[name] = program.builder.nominal("host_call", first, (whole,), attrs=attrs, name=name)
    return at_rows(program, id, rows, 1)[0]


def _declared(
    what: str, name: str, shape: Any, dims: Any, dtype: Any
) -> tuple[Program, tuple[Symbol, ...], TensorType]:
    """The open program, and the dims and the type at a point of an input of it."""
    program = current_program()
    domain = program.check_dims(dims, f"the dims of {what}")
    type = TensorType(to_shape(program, shape), as_dtype(dtype))
    _check_same_everywhere(what, type)
    check_name(name, "an input")
    if name in RESERVED:
        raise ProgramError(
            f"{name!r} cannot name an input: it is a keyword of a call, or reserved for one",
            location=user_location(),
            hint=f"choose another name than {', '.join(RESERVED)}",
        )
    if name in program.builder.inputs:
        raise ProgramError(f"the program {program.name!r} has an input {name!r} already", location=user_location())
    return program, domain, type


def output(name: str, x: TensorLike, *, packed: bool = False) -> None:
    """Make `x` a result: an array with the dims of its domain in front, in canonical order, then its shape.

    `packed`: of rows with lengths of their own (`tp.dim("t", lengths=n)`; `x` varies along them and `t` alone) the
    result has `values`, an array of all their points, row by row, and `offsets`, int32 of NumPy's: where each row
    begins, and at last how many points there are. It unpacks as a pair. Steps of a stream show rows padded with zeros.

    Raises `ProgramError` for a name that is taken, and for `packed` of what has no such rows, `ShapeError` where the
    shape varies along a dim.

    >>> import numpy as np
    >>> import tempo as tp
    >>> with tp.Program("rows") as program:
    ...     b = tp.dim("b")
    ...     t = tp.dim("t", lengths=tp.input("n", shape=(), dims=(b,), dtype="int32"))
    ...     tp.output("twice", tp.input("x", shape=(), dims=(b, t)) * 2, packed=True)
    >>> values, offsets = tp.compile(program)(n=[2, 0, 1], x=np.arange(6, dtype=np.float32).reshape(3, 2))["twice"]
    >>> values.tolist(), offsets.tolist()
    ([0.0, 2.0, 8.0], [0, 2, 2, 3])
    """
    program = current_program()
    check_name(name, "an output")
    if Port("output", name) in program.builder.outputs:
        raise ProgramError(f"the program {program.name!r} has an output {name!r} already", location=user_location())
    tensor = as_tensor(x)
    type, domain = tensor.type, tensor.symbols
    _check_same_everywhere(f"the output {name!r}", type)
    layout = (*domain, *range(len(type.shape)))
    if packed and not any((*program.builder.rows(symbol), symbol) == domain for symbol in program.builder.lengths):
        raise ProgramError(
            f"the output {name!r} is packed, and varies along ({', '.join(symbol.name for symbol in domain)})",
            location=user_location(),
            hint='what is packed varies along t and its rows alone, tp.dim("t", lengths=n)',
        )
    made = Output(name, tensor.edge, domain, type, layout, location=user_location(), packed=packed)
    program.builder.add_output(made)


def _check_same_everywhere(what: str, type: TensorType) -> None:
    varying = sorted(symbol.name for size in type.shape for symbol in size.dims())
    if varying:
        raise ShapeError(
            f"{what} has shape {show(type.shape)}, which varies along {varying[0]}, so it is no one array",
            location=user_location(),
            hint="reduce it, or bring it to one shape at every point (write a recurrent tensor, or pad it)",
        )


def stop_when(t: Dim, condition: TensorLike, each: Dims = ()) -> None:
    """End the run along `t` after the first point where `condition` holds.

    `t` is the outermost ordered dim of all that varies along it. `condition` has shape `()` and dtype bool; where it
    varies along other dims, the run ends when it holds at all of their points. Outputs are truncated along `t` to the
    points that were kept, `outputs.sizes` says how many these are, and `outputs.state` holds parameters at the last of
    them. Effects happen at no other points.

    In such a program nothing along `t` may be read at a later point or at the end: what is not computed when the run
    ends has no value. `t.size` remains the number of points that there would be without the stop.

    `each`: a dim or several, whose points, the *rows*, end each by itself, after the first point where the condition
    holds for it; over dims not in `each` it must hold at all points. The run ends with its longest row. What varies
    along `t` and all of `each` has no points behind its row's end: outputs are zero there, `outputs.lengths["t"]` (an
    int32 array of NumPy's over `each`) says how many there are of each row, `outputs.state` holds a row's parameters at
    its last, and a fold over all rows (a sum, a maximum, `any`, `all`, a contraction) counts those that there are at
    its point. A row may read itself alone.

    Behind this line `t.last` is the last point that is kept, of each row where these end by themselves. What does not
    vary along `t` may read it, `x[b, t.last]`, when the loop over `t` has ended; `tp.as_tensor(t.last)` is its value.

    Raises `ProgramError` for a second stop along the same dim, for `each` with `t` or with a dim that the condition
    does not vary along, `ShapeError` and `DTypeError` where the condition is no scalar or not bool; when compiled,
    `UnsupportedError` for a read of what is later, and where rows end by themselves for other reads of several rows
    (means, too), gradients, and calls of the host at each of their points; for what varies along `t` and is made of
    what was read at `t.last`, and for a gradient through that.

    >>> import numpy as np
    >>> import tempo as tp
    >>> with tp.Program("halving") as program:
    ...     b, t = tp.dim("b"), tp.dim("t", 100)
    ...     start = tp.input("start", (), (b,))
    ...     x = tp.recurrent("x", shape=(), dims=(b, t))
    ...     x[b, 0] = start
    ...     x[b, t + 1] = x / 2
    ...     tp.output("x", x)
    ...     tp.stop_when(t, x < 0.3, each=b)
    >>> outputs = tp.compile(program)(start=np.array([1, 0.5], np.float32))
    >>> outputs["x"].tolist(), outputs.lengths["t"].tolist()
    ([[1.0, 0.5, 0.25], [0.5, 0.25, 0.0]], [3, 2])
    """
    program = current_program()
    if getattr(t, "symbol", None) in program.builder.lengths:
        raise UnsupportedError(
            f"a stop along {t.name}, along which rows have lengths of their own",
            location=user_location(),
            hint="stop a dim that has a size of its own",
        )
    (symbol,) = program.check_dims(t, "the dim of a stop")
    rows = program.check_dims(each, "each= of a stop")
    if Port("stop", symbol.name) in program.builder.outputs:
        raise ProgramError(
            f"there is a stop along {symbol.name} already",
            location=user_location(),
            hint="write one stop with both conditions: tp.stop_when(t, a | b)",
        )
    if symbol in rows:
        raise ProgramError(
            f"the stop along {symbol.name} names it in each=, too",
            location=user_location(),
            hint="each= is for the dims whose points end by themselves along it",
        )
    kept = where(_everywhere(as_tensor(condition), symbol, rows), as_tensor(t + 1), 0)
    domain = program.builder.canonical((symbol, *rows))
    stop = Output(symbol.name, kept.edge, domain, kept.type, rows, "stop", location=user_location())
    program.builder.add_output(stop)


def _everywhere(condition: RecurrentTensor, dim: Symbol, rows: tuple[Symbol, ...]) -> RecurrentTensor:
    """Whether the condition holds at all points of the dims that are neither the stop's nor rows."""
    if condition.type.dtype != "bool":
        raise DTypeError(
            f"the condition of a stop is {condition.type.dtype}, it must be bool",
            location=user_location(),
            hint="compare: x < 0.1",
        )
    if condition.type.shape:
        raise ShapeError(
            f"the condition of a stop has shape {condition.shape}, it must be a scalar",
            location=user_location(),
            hint="reduce it: condition.all() or condition.any()",
        )
    same = [symbol.name for symbol in rows if symbol not in condition.symbols]
    if same:
        raise ProgramError(
            f"the condition of the stop does not vary along {same[0]}, so all points of {same[0]} end together",
            location=user_location(),
            hint=f"leave {same[0]} out of each=",
        )
    others = {symbol.name: slice(None) for symbol in condition.symbols if symbol not in (dim, *rows)}
    if not others:
        return condition
    return condition.at(**others).all(axis=tuple(range(len(others))))
