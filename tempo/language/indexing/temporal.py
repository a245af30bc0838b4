"""Temporal indexing: reading a tensor at points and slices of its dims, and at the values of integer tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Any

from tempo import dtypes
from tempo.errors import DomainError, IndexExpressionError, ShapeError, user_location
from tempo.language.conversion import as_tensor, cast, index_value, integers
from tempo.language.functions import elementwise, movement
from tempo.language.indexing.expression import (
    Dim,
    IndexCondition,
    IndexExpression,
    fail,
    is_integer,
    lasts,
    show,
    to_expr,
)
from tempo.language.tensor import RecurrentTensor, apply, open_program
from tempo.sdg.graph import Edge, Node, Point, Slice
from tempo.symbolic import LARGEST_SIZE, Context, Expr, Symbol, const, maximum, minimum, var

Index = Mapping[Symbol, Point | Slice]

_WHOLE_ROW = "leave it out: a slice ends where the row does"


def positions(x: RecurrentTensor, key: Any, what: str = "an index") -> tuple[tuple[Symbol, Any], ...]:
    """The dims of `x` with what the user wrote for each, in the order of the dims; dims not named are left out."""
    domain = x.symbols
    given = key if isinstance(key, tuple) else (key,)
    dots = [position for position, item in enumerate(given) if isinstance(item, EllipsisType)]
    if len(dots) > 1:
        fail("an index has more than one ...", "write it once")
    named = len(given) - len(dots)
    if named > len(domain):
        raise DomainError(
            f"{what} names {named} dims, and {x.label} has {_domain_text(domain)}",
            location=user_location(),
            hint="x[...] indexes temporal dims; the axes of the shape are indexed with x.spatial[...]",
        )
    before = dots[0] if dots else named
    dims = (*domain[:before], *domain[len(domain) - (named - before) :])
    return tuple(zip(dims, (item for item in given if not isinstance(item, EllipsisType))))


def _domain_text(domain: Sequence[Symbol]) -> str:
    return f"the domain ({', '.join(symbol.name for symbol in domain)})" if domain else "no dims"


def read(x: RecurrentTensor, key: Any) -> RecurrentTensor:
    """Index temporal dims, in the order of the domain; a slice becomes a spatial axis in front."""
    return _read_positions(x, positions(x, key))


def read_named(x: RecurrentTensor, /, **named: Any) -> RecurrentTensor:
    """Index temporal dims by name: `x.at(t=t - 1)`. Raises `DomainError` for a dim that `x` has not."""
    known = {symbol.name: symbol for symbol in x.symbols}
    for name in named:
        if name not in known:
            raise DomainError(
                f"{x.label} has no dim {name!r}: it has {_domain_text(x.symbols)}", location=user_location()
            )
    return _read_positions(x, [(known[name], item) for name, item in named.items()])


def _read_positions(x: RecurrentTensor, given: Iterable[tuple[Symbol, Any]]) -> RecurrentTensor:
    """Where a row ends is a number at each point of its dims: a read there is one at an index. It is made in each row,
    before other rows are read, and behind all else."""
    index = {symbol: _position(x, symbol, item) for symbol, item in given}
    at_last = {symbol: item.index for symbol, item in index.items() if isinstance(item, Point) and lasts(item.index)}
    if not at_last:
        return read_at(x, index)
    builder = x.program.builder
    rows = {row for expr in at_last.values() for each in lasts(expr) for row in builder.rows(each.of_kind("dim"))}
    moved = {symbol: item for symbol, item in index.items() if symbol in rows and item != Point(var(symbol))}
    for symbol, expr in at_last.items():
        if meeting := sorted(each.name for each in expr.dims() & moved.keys()):
            fail(
                f"the index at {symbol.name} is {expr}, and {', '.join(meeting)} is read at another point",
                f"name what is read in each row first: y = x[..., {expr}]",
            )
    x = read_at(x, {symbol: item for symbol, item in index.items() if symbol not in moved and symbol not in at_last})
    for symbol, expr in at_last.items():
        x = _read_at_last(x, symbol, expr)
    return read_at(x, moved)


def _read_at_last(x: RecurrentTensor, symbol: Symbol, expr: Expr) -> RecurrentTensor:
    builder = x.program.builder
    data = read_at(x, {symbol: Slice(const(0), builder.size(symbol))})
    if builder.ends_early(symbol):
        _check_is_last(symbol, expr)
        name = f"{x.name}[{expr}]" if x.name else str(expr)
        return RecurrentTensor(x.program, builder.at_end(symbol, data.edge, name), x.weak)
    if symbol not in builder.lengths:
        return movement.gather(data, index_value(expr), 0)
    if unknown := [each for each in lasts(expr) if each.of_kind("dim") not in builder.lengths]:
        fail(
            f"the index at {symbol.name} is {expr}, and {unknown[0]} is known when a loop has ended",
            f"read at its value: x.gather({symbol.name}, tp.as_tensor({expr}))",
        )
    found = movement.gather(data, index_value(expr), 0, in_row=True)
    builder.last_reads[found.edge.node] = expr
    return found


def _check_is_last(symbol: Symbol, expr: Expr) -> None:
    if expr != var(symbol.of_kind("last")):
        fail(
            f"the index at {symbol.name} is {expr}, and of what ends early along {symbol.name} the last point alone is "
            "known when it has ended",
            f"name what is before it at each point, y = tp.cases(({symbol.name} > 0, x.at({symbol.name}={symbol.name} "
            f"- 1)), 0), and read y at {symbol.name}.last",
        )


def _position(x: RecurrentTensor, symbol: Symbol, item: Any) -> Point | Slice:
    size = x.program.builder.size(symbol)
    if isinstance(item, slice):
        return slice_of(x.program.builder.context, *bounds(x, item, size, symbol.name))
    _check_index(item, symbol.name)
    return Point(point_of(x, symbol, item, f"the index at {symbol.name}"))


def point_of(x: RecurrentTensor, symbol: Symbol, item: Any, what: str) -> Expr:
    """The point of a dim that is meant. Raises `IndexExpressionError` where it counts from the end of the arrays, and
    rows end before it."""
    size = x.program.builder.size(symbol)
    expr = from_end(to_expr(item, x.program, what, last=True), item, size)
    if symbol in x.program.builder.lengths:
        _check_not_from_end(symbol.name, what, item, expr, size)
    return expr


def from_end(expr: Expr, item: Any, size: Expr) -> Expr:
    """A negative number counts from the size, as in NumPy; an expression means what it says."""
    return size + expr if is_integer(item) and item < 0 else expr


def _check_index(item: Any, name: str) -> None:
    if item is None:
        fail("None is no index of a dim", "to add an axis write tp.expand_dims(x, axis) or x.spatial[None]")
    if isinstance(item, IndexCondition):
        fail(f"the condition {item} is no index", "select by cases: tp.cases((condition, a), b)")
    if hasattr(item, "edge"):
        fail(
            f"a tensor is no index at {name}",
            f"read at a tensor's values with x.gather({name}, index, within=slice(0, {name}.size))",
        )


def bounds(x: RecurrentTensor, item: slice, size: Expr, name: str) -> tuple[Expr, Expr]:
    """Start and stop of a slice with step 1."""
    if item.step is not None and not (is_integer(item.step) and item.step == 1):
        fail(
            f"a slice along {name} has step {item.step}",
            f"its step is 1: reverse with tp.flip(x, 0) or x[{name}.size - 1 - {name}], thin out with .spatial[::2]",
        )
    for bound in (item.start, item.stop):
        if bound is not None:
            _check_index(bound, name)
    what = f"a bound of the slice at {name}"
    for bound in (item.start, item.stop):
        if isinstance(bound, IndexExpression) and lasts(bound.expr):
            early = any(x.program.builder.ends_early(each.of_kind("dim")) for each in lasts(bound.expr))
            hint = "sum up while the loop runs, and read the sum at the last point" if early else _WHOLE_ROW
            fail(f"{what} is {bound}, which differs from row to row", hint)
    start = const(0) if item.start is None else from_end(to_expr(item.start, x.program, what), item.start, size)
    stop = size if item.stop is None else from_end(to_expr(item.stop, x.program, what), item.stop, size)
    if Symbol(name, "dim") in x.program.builder.lengths:
        for bound, expr in ((item.start, start), (item.stop, stop)):
            _check_not_from_end(name, what, bound, expr, size)
        # No row has points behind the arrays.
        start, stop = (x.program.builder.context.simplify(minimum(each, size)) for each in (start, stop))
    return start, stop


def _check_not_from_end(name: str, what: str, given: Any, expr: Expr, size: Expr) -> None:
    """Raises for a point that counts from the end of the arrays, where rows end before it."""
    if given is None or expr == size or not ((is_integer(given) and given < 0) or expr.sizes() & size.sizes()):
        return
    fail(
        f"{what} is {given}, which counts from the end of the arrays, and rows end before it along {name}",
        f"the last point of a row is {name}.last: read at it, or select by a case on it",
    )


def slice_of(context: Context, start: Expr, stop: Expr) -> Slice:
    """`start:stop`, of length `max(0, stop - start)`.

    The length is negative where `stop` is: a slice that is empty because its stop is not in the domain must still be
    found to be out of range.
    """
    if context.implies(stop.ge(start)) or start == const(0):
        return Slice(start, context.simplify(stop - start))
    least = const(0) if context.implies(stop.ge(0)) else minimum(0, stop)
    return Slice(start, context.simplify(maximum(least, stop - start)))


def read_at(x: RecurrentTensor, index: Index) -> RecurrentTensor:
    """`x` with the dims in `index` replaced. The axes of slices come in front, in the order of the dims."""
    program = open_program(x)
    changed = {symbol: item for symbol, item in index.items() if item != Point(var(symbol))}
    if not changed:
        return x
    _check_not_ragged(x, changed)
    if not x.is_identity:  # where it has no value the new read has none, so simplification composes the two
        copy = Node(x.edge.node, "copy", (), (x.type,), (x.edge,), name=x.spelled, location=user_location())
        return read_at(RecurrentTensor(program, program.builder.typed(copy), x.weak), changed)
    map = tuple(changed.get(symbol, Point(var(symbol))) for symbol in x.symbols)
    return RecurrentTensor(program, Edge(x.edge.node, map, x.edge.result), x.weak)


def gather(x: RecurrentTensor, dim: Dim | str, index: Any, within: slice | None = None) -> RecurrentTensor:
    """Read along `dim` at the values of the integer tensor `index`.

    Result: the domain of `index` with the other dims of this tensor, shape `index.shape + self.shape`. `within` is
    the promise that the values lie in `lo:hi` (default `0:dim.size`); one outside raises `IndexOutOfRangeError`
    when the program runs with checks, and is clamped otherwise. Along a dim of which rows have lengths of their own
    they lie in the row as well; without checks what is read of a row of none is 0.
    """
    # A slice read over `within`, gathered along its axis at `index - lo`.
    symbol = _named_symbol(x, dim)
    given = slice(None) if within is None else within
    if not isinstance(given, slice):
        raise IndexExpressionError(
            f"within is {show(given)}", location=user_location(), hint=f"write within=slice(0, {symbol.name}.size)"
        )
    start, stop = bounds(x, given, x.program.builder.size(symbol), symbol.name)
    part = slice_of(x.program.builder.context, start, stop)
    rows = _points_along(x, symbol, part)
    positions = integers(as_tensor(index))
    said = None if within is None else (start, stop)
    if symbol in x.program.builder.lengths and not _goes_before(x, symbol, part):
        return _gather_in_row(x, rows, symbol, part, positions, said)
    if start == const(0):
        return movement.gather(rows, positions, 0, within=said)
    return movement.gather(rows, _counted_from(positions, start), 0, within=said)


def _counted_from(index: RecurrentTensor, start: Expr) -> RecurrentTensor:
    if dtypes.kind(index.dtype) == "uint" or dtypes.itemsize(index.dtype) < 4:
        index = cast(index, "int32")  # the difference may be negative
    return index - index_value(start)


def _points_along(x: RecurrentTensor, symbol: Symbol, part: Slice) -> RecurrentTensor:
    """`x` at points of a dim, in front: of a row that is read at another place, `h[b, l - 1]`, that row's."""
    places = dict(zip(x.node.domain, x.edge.map))
    others = [index for each, index in places.items() if each != symbol]
    is_row = places.get(symbol) == Point(var(symbol)) and all(isinstance(each, Point) for each in others)
    if not is_row or any(symbol in each.index.dims() for each in others if isinstance(each, Point)):
        return read_at(x, {symbol: part})
    _check_not_ragged(x, {symbol: part})
    map = tuple(part if each == symbol else index for each, index in places.items())
    return RecurrentTensor(open_program(x), replace(x.edge, map=map), x.weak)


def _goes_before(x: RecurrentTensor, symbol: Symbol, part: Slice) -> bool:
    """Whether all points of the slice are of the reader's row and up to its own, so that a row that has this one has
    them."""
    last, builder = part.start + part.length - 1, x.program.builder
    is_own = all(_place(x, row) == Point(var(row)) for row in builder.rows(symbol))
    return is_own and symbol in last.dims() and builder.context.implies(last.le(var(symbol)))


def _place(x: RecurrentTensor, symbol: Symbol) -> Point | Slice:
    """Where a dim is read; one that the tensor's node has not, at itself."""
    return dict(zip(x.node.domain, x.edge.map)).get(symbol, Point(var(symbol)))


def _gather_in_row(
    x: RecurrentTensor,
    rows: RecurrentTensor,
    symbol: Symbol,
    part: Slice,
    index: RecurrentTensor,
    within: tuple[Expr, Expr] | None,
) -> RecurrentTensor:
    """Of a part of a row of `x`, which `rows` shows, what is before the row's end.

    j = i < n - lo ? i : i + size            out of range wherever i is not in the row
    x[lo + min(positions[j], n - lo - 1)]    in the row, where that has points
    """
    size = index_value(part.length)
    index = cast(elementwise.clip(_counted_from(index, part.start), -LARGEST_SIZE, LARGEST_SIZE - 1), "int32")
    lengths = cast(_lengths_of(x, rows, symbol), "int32")
    count = elementwise.clip(lengths - index_value(part.start), 0, size)
    outside = elementwise.where(index < count, index, index + size)
    line = apply("iota", attrs={"shape": (part.length,), "axis": 0, "dtype": "int32"})
    known = elementwise.minimum(movement.gather(line, outside, 0, within=within, row_of=x), count - 1)
    found = movement.gather(rows, known, 0, in_row=True)
    there = movement.expand_dims(count > 0, tuple(range(found.ndim))) if found.ndim else count > 0
    return elementwise.where(there, found, cast(as_tensor(0), found.dtype))


def _lengths_of(x: RecurrentTensor, rows: RecurrentTensor, symbol: Symbol) -> RecurrentTensor:
    """How many points the row has that `rows` shows, which `x` reads."""
    own = x.program.builder.lengths[symbol]
    if rows.edge.node != x.edge.node:  # a view of its own
        return RecurrentTensor(x.program, own)
    map = tuple(_place(x, row) for row in x.program.builder.rows(symbol))
    return RecurrentTensor(x.program, replace(own, map=map))


def _named_symbol(x: RecurrentTensor, dim: Any) -> Symbol:
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


def _check_not_ragged(x: RecurrentTensor, index: Index) -> None:
    for symbol in x.symbols:
        if isinstance(index.get(symbol), Slice) and any(symbol in size.dims() for size in x.type.shape):
            raise ShapeError(
                f"{x.label} has a shape that varies with {symbol.name}, so a slice over {symbol.name} has no shape",
                location=user_location(),
                hint=f"bring it to one shape at every {symbol.name} first, or read it at single points",
            )
