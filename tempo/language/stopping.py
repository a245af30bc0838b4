"""`tp.stop_when`: a run that ends early along a dim."""

from __future__ import annotations

from tempo.errors import DTypeError, ProgramError, ShapeError, user_location
from tempo.language.conversion import TensorLike, as_tensor
from tempo.language.functions.arithmetic import where
from tempo.language.indexing.expression import Dim
from tempo.language.program import current_program
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Output, Port


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
    layout: tuple[int, ...] = ()
    program.builder.add_output(
        Output(symbol.name, kept.edge, (symbol,), kept.type, layout, "stop", location=user_location())
    )


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
