"""What comes in, what goes out, and where a run ends: `tp.input`, `tp.stream_input`, `tp.output`, `tp.stop_when`."""

from __future__ import annotations

from typing import Any

from tempo.errors import DTypeError, ProgramError, ShapeError, user_location
from tempo.keywords import RESERVED
from tempo.language.conversion import TensorLike, as_dtype, as_tensor
from tempo.language.functions.elementwise import where
from tempo.language.host import at_rows
from tempo.language.indexing.expression import Dim
from tempo.language.program import Program, check_name, current_program
from tempo.language.shapes import show, to_shape
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Output, Port, TensorType
from tempo.symbolic import Symbol


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


def output(name: str, x: TensorLike) -> None:
    """Make `x` a result: an array with the dims of its domain in front, in canonical order, then its shape.

    Raises `ProgramError` for a name that is taken, `ShapeError` where the shape varies along a dim.
    """
    program = current_program()
    check_name(name, "an output")
    if Port("output", name) in program.builder.outputs:
        raise ProgramError(f"the program {program.name!r} has an output {name!r} already", location=user_location())
    tensor = as_tensor(x)
    type, domain = tensor.type, tensor.symbols
    _check_same_everywhere(f"the output {name!r}", type)
    layout = (*domain, *range(len(type.shape)))
    program.builder.add_output(Output(name, tensor.edge, domain, type, layout, location=user_location()))


def _check_same_everywhere(what: str, type: TensorType) -> None:
    varying = sorted(symbol.name for size in type.shape for symbol in size.dims())
    if varying:
        raise ShapeError(
            f"{what} has shape {show(type.shape)}, which varies along {varying[0]}, so it is no one array",
            location=user_location(),
            hint="reduce it, or bring it to one shape at every point (write a recurrent tensor, or pad it)",
        )


def stop_when(t: Dim, condition: TensorLike) -> None:
    """End the run along `t` after the first point where `condition` holds.

    `t` is the outermost ordered dim of all that varies along it. `condition` has shape `()` and dtype bool; where it
    varies along other dims, the run ends when it holds at all of their points. Outputs are truncated along `t` to the
    points that were kept, `outputs.sizes` says how many these are, and `outputs.state` holds parameters at the last of
    them. Effects happen at no other points.

    In such a program nothing along `t` may be read at a later point or at the end: what is not computed when the run
    ends has no value. `t.size` remains the number of points that there would be without the stop.

    Raises `ProgramError` for a second stop along the same dim, `ShapeError` and `DTypeError` where the condition is no
    scalar or not bool, `UnsupportedError` (when compiled) for a read of what is later.

    >>> import tempo as tp
    >>> with tp.Program("halving") as program:
    ...     t = tp.dim("t", 100)
    ...     x = tp.recurrent("x", shape=(), dims=(t,))
    ...     x[0] = 1.0
    ...     x[t + 1] = x / 2
    ...     tp.output("x", x)
    ...     tp.stop_when(t, x < 0.2)
    >>> tp.compile(program)()["x"].tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    program = current_program()
    (symbol,) = program.check_dims(t, "the dim of a stop")
    if Port("stop", symbol.name) in program.builder.outputs:
        raise ProgramError(
            f"there is a stop along {symbol.name} already",
            location=user_location(),
            hint="write one stop with both conditions: tp.stop_when(t, a | b)",
        )
    kept = where(_everywhere(as_tensor(condition), symbol.name), as_tensor(t + 1), 0)
    stop = Output(symbol.name, kept.edge, (symbol,), kept.type, (), "stop", location=user_location())
    program.builder.add_output(stop)


def _everywhere(condition: RecurrentTensor, dim: str) -> RecurrentTensor:
    """Whether the condition holds at all points of the other dims."""
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
    others = {symbol.name: slice(None) for symbol in condition.symbols if symbol.name != dim}
    if not others:
        return condition
    return condition.at(**others).all(axis=tuple(range(len(others))))
