"""What comes in and what goes out: `tp.input`, `tp.output`."""

from __future__ import annotations

from typing import Any

from tempo.errors import ProgramError, ShapeError, user_location
from tempo.language.apply import view
from tempo.language.conversion import TensorLike, as_dtype, as_tensor
from tempo.language.program import check_name, current_program
from tempo.language.shapes import show, to_shape
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Output, TensorType

RESERVED = ("seed", "sizes", "state", "progress")


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
    program = current_program()
    domain = program.check_dims(dims, f"the dims of the input {name!r}")
    type = TensorType(to_shape(program, shape), as_dtype(dtype))
    _check_same_everywhere(f"the input {name!r}", type)
    check_name(name, "an input")
    if name in RESERVED:
        raise ProgramError(
            f"{name!r} cannot name an input", location=user_location(), hint=f"{', '.join(RESERVED)} are reserved"
        )
    if any(
        node.op == "input" and node.attr("role") == "input" and node.name == name
        for node in program.builder.nodes.values()
    ):
        raise ProgramError(f"the program {program.name!r} has an input {name!r} already", location=user_location())
    attrs = {"name": name, "role": "input", "layout": (*domain, *range(len(type.shape)))}
    id = program.builder.nominal("input", domain, (type,), attrs=attrs, name=name)
    return view(program, program.builder.identity(id))


def output(name: str, x: TensorLike) -> None:
    """Make `x` a result: an array with the dims of its domain in front, in canonical order, then its shape.

    Raises `ProgramError` for a name that is taken, `ShapeError` where the shape varies along a dim.
    """
    program = current_program()
    check_name(name, "an output")
    if any(found.role == "output" and found.name == name for found in program.builder.outputs):
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
