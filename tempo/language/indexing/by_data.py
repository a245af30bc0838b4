"""`x.gather(n, index)`: reading a temporal dim at the values of an integer tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tempo import dtypes
from tempo.errors import DomainError, IndexExpressionError, user_location
from tempo.language.conversion import as_tensor, cast, index_value, integers
from tempo.language.functions import lookup
from tempo.language.indexing import temporal as indexing
from tempo.language.indexing.expression import show
from tempo.symbolic import Symbol, const

if TYPE_CHECKING:
    from tempo.language.tensor import RecurrentTensor


def gather(x: RecurrentTensor, dim: Any, index: Any, within: slice | None) -> RecurrentTensor:
    """See `RecurrentTensor.gather`: a slice read over `within`, gathered along its axis at `index - lo`."""
    symbol = _symbol(x, dim)
    given = slice(None) if within is None else within
    if not isinstance(given, slice):
        raise IndexExpressionError(
            f"within is {show(given)}", location=user_location(), hint=f"write within=slice(0, {symbol.name}.size)"
        )
    start, stop = indexing.bounds(x, given, x.program.builder.size(symbol), symbol.name)
    part = indexing.slice_of(x.program.builder.context, start, stop)
    rows = indexing.read_at(x, {symbol: part})
    positions = integers(as_tensor(index))
    said = None if within is None else (start, stop)
    if start == const(0):
        return lookup.gather(rows, positions, 0, within=said)
    if dtypes.kind(positions.dtype) == "uint" or dtypes.itemsize(positions.dtype) < 4:
        positions = cast(positions, "int32")  # the difference may be negative
    return lookup.gather(rows, positions - index_value(start), 0, within=said)


def _symbol(x: RecurrentTensor, dim: Any) -> Symbol:
    name = dim if isinstance(dim, str) else getattr(dim, "name", None)
    for symbol in x.symbols:
        if symbol.name == name:
            return symbol
    has = ", ".join(symbol.name for symbol in x.symbols) or "none"
    raise DomainError(
        f"{x.label} is gathered along {name or dim!r}, which is none of its dims ({has})",
        location=user_location(),
        hint="along an axis of the shape write tp.take(x, index, axis) or x.spatial[index]",
    )
