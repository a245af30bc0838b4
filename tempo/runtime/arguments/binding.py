"""What a call is given, held to what the program declares: arrays by name, sizes, seed, iterators for streams."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.analysis.reports import point_text
from tempo.backends.by_point import ByPoint
from tempo.errors import NO_POINTS, AtUserLine, DTypeError, HostCallError, InputError, Location, SizeError, nearest
from tempo.keywords import RESERVED
from tempo.plugins.descriptors import BackendPlugin
from tempo.plugins.manager import get_backend, list_backends
from tempo.sdg.graph import Graph, Node, Role
from tempo.symbolic import LARGEST_SIZE, Expr, Symbol, var

Array = np.ndarray[Any, Any]
Sizes = dict[Symbol, int]
Native = Callable[[Any], str | None]


@dataclass(frozen=True)
class SizeClaim:
    """A value for a size, and who says so."""

    value: int
    source: str
    location: Location | None = None  # of the declaration of what says so


class SizeTable:
    """Collects what is said of sizes; two sources that disagree are a `SizeError`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.claims: dict[Symbol, SizeClaim] = {}
        self._made_of_others: list[tuple[str, Expr, SizeClaim]] = []

    def claim_named(self, sizes: Mapping[str, Any] | None, source: str) -> None:
        names = {dim.symbol.name: dim for dim in self.graph.dims}
        for name, value in by_name(sizes, source, '{"t": 10}').items():
            if name not in names:
                raise InputError(f"{source} names {name!r}, which is no dim of the program", hint=nearest(name, names))
            self.claim(names[name].size, SizeClaim(_as_size(name, value), f"{source} ({name}={value})"), name)

    def claim(self, size: Expr, claim: SizeClaim, name: str = "") -> None:
        """`size` has a value; used where it is a number or a lone symbol, checked at the end where it is neither."""
        symbols = size.sizes()
        if not symbols:
            self._agree(name, SizeClaim(size.as_int(), "the program"), claim)
            return
        symbol = next(iter(symbols))
        if len(symbols) > 1 or not (size - var(symbol)).is_const:
            if name:  # that of a spatial axis is held to the shape
                self._made_of_others.append((name, size, claim))
            return
        found = replace(claim, value=claim.value - (size - var(symbol)).as_int())
        if symbol in self.claims:
            self._agree(symbol.name, self.claims[symbol], found)
            return
        if found.value < 1:
            raise SizeError(
                f"the size of the dim {symbol.name!r} is {found.value} by {found.source}; it must be at least 1",
                location=found.location,
                hint=NO_POINTS,
            )
        self.claims[symbol] = found

    @staticmethod
    def _agree(name: str, known: SizeClaim, claim: SizeClaim) -> None:
        if known.value != claim.value:
            raise SizeError(
                f"the size of the dim {name!r} is {known.value} by {known.source}, but {claim.value} by {claim.source}",
                location=claim.location,
            )

    def missing(self) -> tuple[str, ...]:
        needed = {symbol for dim in self.graph.dims for symbol in dim.size.sizes()}
        return tuple(sorted(symbol.name for symbol in needed - set(self.claims)))

    def complete(self) -> Sizes:
        """The value of every size symbol. Raises `SizeError` naming a dim whose size is unknown or less than 1."""
        if missing := self.missing():
            raise SizeError(
                f"the size of the dim {missing[0]!r} is unknown",
                hint=f'give it: sizes={{"{missing[0]}": ...}} in tp.compile or in the call',
            )
        sizes = {symbol: claim.value for symbol, claim in self.claims.items()}
        for name, size, claim in self._made_of_others:
            self._agree(name, SizeClaim(int(size.evaluate(sizes)), f"the program ({size})"), claim)
        for dim in self.graph.dims:
            if (value := int(dim.size.evaluate(sizes))) < 1:
                name = dim.symbol.name
                raise SizeError(
                    f"the size of the dim {name!r}, {dim.size}, is {value}; it must be at least 1", hint=NO_POINTS
                )
            if value > LARGEST_SIZE:
                raise SizeError(f"the size of the dim {dim.symbol.name!r} is {value}; it must be at most 2**30")
        return sizes


def some_sizes(table: SizeTable, nodes: Iterable[Node]) -> Sizes:
    """The sizes that are known, of which the shapes of `nodes` are made; others are 1. Raises `SizeError`."""
    missing = [Symbol(name, "size") for name in table.missing()]
    needed = {symbol for node in nodes for extent in _extents(table.graph, node) for symbol in extent.sizes()}
    for symbol in needed.intersection(missing):
        raise SizeError(
            f"the size of the dim {symbol.name!r}, of which a parameter has its shape, is unknown",
            hint=f'give it: sizes={{"{symbol.name}": ...}}',
        )
    return {**{symbol: claim.value for symbol, claim in table.claims.items()}, **dict.fromkeys(missing, 1)}


def by_name(given: Mapping[str, Any] | None, source: str, example: str) -> Mapping[str, Any]:
    """`given`, or nothing for None. Raises `InputError` for what is no mapping from names."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{source} is a {type(given).__name__}, and must map names to values", hint=f"write {example}")
    for name in given:
        if not isinstance(name, str):
            raise InputError(f"{source} names {name}, which is no string", hint=f"write {example}")
    return given


def _as_size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        hint = f"only the dim of run.stream({name!r}, ...) may have no end" if value is None else None
        raise SizeError(f"the size of the dim {name!r} must be an integer, not {value!r}", hint=hint)
    if value < 1:
        raise SizeError(f"the size of the dim {name!r} is {value}; it must be at least 1", hint=NO_POINTS)
    return int(value)


# -- arrays ------------------------------------------------------------------------------------------------------------


def input_nodes(graph: Graph, role: Role) -> dict[str, Node]:
    """The `input` nodes of one role ("input", "state", "seed"), by name."""
    nodes = (node for node in graph.nodes.values() if node.is_input and node.port.role == role)
    return {node.port.name: node for node in nodes}


def called(node: Node) -> str:
    """What an `input` node is to the user."""
    return f"{'the state of the parameter' if node.port.role == 'state' else 'the input'} {node.port.name!r}"


def as_declared(given: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """`given` with the names of `known`: Python passes a keyword in normal form (NFKC), so `µ` arrives as `μ`."""
    if given.keys() <= known.keys():
        return given
    same = {unicodedata.normalize("NFKC", name): name for name in known}
    return {name if name in known else same.get(name, name): value for name, value in given.items()}


def check_names(given: Mapping[str, Any], known: Mapping[str, Node], what: str) -> None:
    for name in given:
        if name not in known:
            hint = f"only a call as a whole takes {name}=" if name in RESERVED else nearest(name, known)
            raise InputError(f"the program has no {what} {name!r}", hint=hint)
    for name, node in known.items():
        if name not in given:
            raise InputError(f"the {what} {name!r} is missing", location=node.location, hint=f"pass {name}=...")


def as_input(value: Any, node: Node, native: Native) -> Array | ByPoint:
    """What the input `node` is given: an array, or arrays by point where these are in lists or tuples."""
    if isinstance(value, ByPoint) or _has_arrays(value, len(node.domain)):
        return _by_point(value, node, node.domain, called(node), native)
    return as_array(value, node, called(node), native)


def _has_arrays(value: Any, depth: int) -> bool:
    """Whether it is a list of arrays, or of such lists, at most `depth` within one another."""
    if depth == 0 or not isinstance(value, list | tuple) or not value:
        return False
    return bool(getattr(value[0], "shape", ())) or _has_arrays(value[0], depth - 1)


def _by_point(value: Sequence[Any], node: Node, dims: Sequence[Symbol], what: str, native: Native) -> ByPoint:
    """Raises `InputError` where the arrays are not of one shape."""
    parts: list[Array | ByPoint] = []
    for at, part in enumerate(value):
        here = f"{what} at {dims[0].name} = {at}"
        if isinstance(part, ByPoint) or _has_arrays(part, len(dims) - 1):
            parts.append(_by_point(part, node, dims[1:], here, native))
        else:
            parts.append(as_array(part, node, here, native))
        if parts[at].shape != parts[0].shape:
            raise InputError(
                f"{here} has shape {tuple(parts[at].shape)}, and at {dims[0].name} = 0 {tuple(parts[0].shape)}",
                location=node.location,
            )
    return ByPoint(parts)


def as_array(value: Any, node: Node, what: str, native: Native = lambda value: None) -> Array:
    """`value` as an array of the dtype of `node`, or itself where `native` says that the backend takes it as it is.

    Another kind is a `DTypeError`; Python numbers may go up to floats. Errors point at the declaration of `node`.
    """
    if native(value) == node.dtype:
        return value  # type: ignore[no-any-return]
    if isinstance(value, ByPoint):
        return value.joined(lambda part: as_array(part, node, what))
    with AtUserLine(node.location):
        return _cast(numbers(value, what), node.dtype, what, weak=not hasattr(value, "dtype"))


def numbers(value: Any, what: str) -> Array:
    """`value` as a NumPy array of the dtype that it has. Raises `InputError` for what is no array of numbers, and
    `DTypeError` for numbers that Tempo has not."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{what} is a masked array", hint="give what is masked a value first: x.filled(0)")
    array = _to_numpy(value, what)
    if array.dtype.names or array.dtype.kind in "OUSMm":
        given = "" if array.dtype == object else f" of dtype {array.dtype}"
        raise InputError(f"{what} is no array of numbers, but a {type(value).__name__}{given}")
    try:
        return array.astype(dtypes.to_numpy(dtypes.from_numpy(array.dtype)), copy=False)  # in the order of the machine
    except DTypeError as error:
        raise DTypeError(f"{what} has dtype {array.dtype}, which is not supported", hint=error.hint) from None


def _cast(array: Array, dtype: str, what: str, weak: bool) -> Array:
    source = dtypes.from_numpy(array.dtype)
    if not dtypes.same_kind(source, dtype) and not (weak and dtypes.can_cast(source, dtype)):
        given = f'np.asarray(..., "{dtype}")' if weak else f'.astype("{dtype}")'
        raise DTypeError(
            f"{what} has dtype {source}, which is of another kind than {dtype}",
            hint=f"cast it first, if that is meant: {given}",
        )
    if source == dtype:
        return array
    try:
        cast = dtypes.rounded(array, dtype)
    except InputError as error:
        raise InputError(f"{what}: {error.message}", hint=error.hint) from None
    if dtypes.is_integer(dtype) and not np.array_equal(cast, array):
        raise DTypeError(
            f"{what} has values that {dtype} cannot hold: {dtypes.first_of(array, cast != array)}",
            hint="correct the value, or declare the input with a wider dtype",
        )
    return cast


def _to_numpy(value: Any, what: str) -> Array:
    try:
        if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
            return np.asarray(value)
        return np.from_dlpack(value)
    except (TypeError, ValueError, RuntimeError) as error:
        array = _by_its_backend(value)
        if array is None:
            raise InputError(f"{what} is no array: {error}") from error
        return array


def _by_its_backend(value: Any) -> Array | None:
    """What NumPy cannot take itself (bfloat16, on a device), by the backend in this process whose array it is."""
    for listing in list_backends():
        factory = listing.descriptor.factory if isinstance(listing.descriptor, BackendPlugin) else None
        if not isinstance(factory, str) or factory.partition(":")[0] not in sys.modules:
            continue
        backend = get_backend(listing.name)
        if not getattr(backend, "interprets", False) and backend.native(value) is not None:
            made: Array = backend.to_host(value)
            return made
    return None


def claim_shape(table: SizeTable, node: Node, array: Array | ByPoint) -> None:
    """Take the sizes that the array's axes say; its rank must fit."""
    extents = _extents(table.graph, node)
    if array.ndim != len(extents):
        told = "a single number" if not extents else f"{len(extents)} axes: {_shape_text(table.graph, node)}"
        raise InputError(
            f"{called(node)} has shape {tuple(array.shape)}, expected {'is' if not extents else 'are'} {told}",
            location=node.location,
        )
    names = [symbol.name for symbol in node.domain] + [""] * len(node.shape)
    for axis, (extent, found, name) in enumerate(zip(extents, array.shape, names, strict=True)):
        if name or extent.sizes():
            source = f"the shape {tuple(array.shape)} of {called(node)} at axis {axis}"
            table.claim(extent, SizeClaim(found, source, node.location), name)


def check_shape(graph: Graph, node: Node, array: Array | ByPoint, sizes: Mapping[Symbol, int]) -> None:
    expected = expected_shape(graph, node, sizes)
    if array.shape == expected:
        return
    wrong = [axis for axis, sizes in enumerate(zip(array.shape, expected)) if sizes[0] != sizes[1]]
    axes = f"; axis {wrong[0]} differs" if wrong and len(array.shape) == len(expected) else ""
    raise InputError(
        f"{called(node)} has shape {tuple(array.shape)}, expected is {expected}: {_shape_text(graph, node)}{axes}",
        location=node.location,
    )


def expected_shape(graph: Graph, node: Node, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
    return tuple(int(extent.evaluate(sizes)) for extent in _extents(graph, node))


def _extents(graph: Graph, node: Node) -> tuple[Expr, ...]:
    return tuple(dim.size for dim in graph.domain_dims(node)) + node.shape


def _shape_text(graph: Graph, node: Node) -> str:
    dims = [f"{dim.symbol.name}={dim.size}" for dim in graph.domain_dims(node)]
    return "(" + ", ".join([*dims, *map(str, node.shape)]) + ")"


def seed_array(seed: Any) -> Array:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise InputError(f"seed must be an integer from 0 to 2**32 - 1, not {seed!r}")
    return np.asarray(seed, np.uint32)


# -- streams -----------------------------------------------------------------------------------------------------------


class StreamEndError(InputError):
    """An iterator has ended before the run. Where the run has no end of its own, that is its end."""


def stream_nodes(graph: Graph) -> dict[str, Node]:
    """The streamed inputs, by name."""
    return {node.attr("stream"): node for node in graph.nodes.values() if node.is_stream}


def claim_length(table: SizeTable, node: Node, given: Any, endless: Symbol | None = None) -> None:
    """What has a length has that of the dim, unless that is `endless`; raises `InputError` for what gives no values one
    after the other."""
    name = node.attr("stream")
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable) or not getattr(given, "shape", (1,)):
        raise InputError(
            f"the stream {name!r} is a {type(given).__name__}, which gives no arrays one after the other",
            location=node.location,
            hint="pass an iterator, a generator or a sequence of arrays, one for each point",
        )
    symbol = node.domain[0]
    if isinstance(given, Sized) and symbol != endless:
        claim = SizeClaim(len(given), f"the length of the stream {name!r}", node.location)
        table.claim(table.graph.dim(symbol).size, claim, symbol.name)


class StreamFeed:
    """Takes the next array of an iterator at every point; `taken`: how many so far.

    Nothing is taken after the last point, so that a call may go on where another has stopped.
    """

    def __init__(self, graph: Graph, node: Node, given: Any, sizes: Mapping[Symbol, int]) -> None:
        self.name, self.source, self.taken = str(node.attr("stream")), given, 0
        self._values, self._dim, self._node = iter(given), node.domain[0], node
        self._shape = tuple(int(extent.evaluate(sizes)) for extent in node.shape)
        self._size = int(graph.dim(self._dim).size.evaluate(sizes))

    def __call__(self, point: tuple[int, ...]) -> Array:
        """Raises `InputError` and `DTypeError` with the point, and `HostCallError` chained to what the iterator raised.

        The array is the run's own: an iterator may go on writing into what it gave.
        """
        node, where = self._node, f"the stream {self.name!r} at {point_text((self._dim,), point)}"
        array = np.array(as_array(self._next(where), node, where))
        if array.shape != self._shape:
            raise InputError(f"{where} has shape {array.shape}, declared is {self._shape}", location=node.location)
        return array

    def _next(self, where: str) -> Any:
        try:
            value = next(self._values)
        except StopIteration:
            raise StreamEndError(
                f"{where} has ended: it gave {self.taken} arrays, and the size of {self._dim.name} is {self._size}",
                location=self._node.location,
            ) from None
        except Exception as error:
            message = f"{where} failed: {type(error).__name__}: {error}"
            raise HostCallError(message, location=self._node.location) from error
        self.taken += 1
        return value

    def skip(self, count: int) -> None:
        """Take arrays that nobody looks at."""
        for _ in range(count):
            self._next(f"the stream {self.name!r}, going on behind {count} arrays,")

    def begin_again(self, taken: int) -> None:
        """What the arrays come from has been put where so many of them were taken."""
        self._values, self.taken = iter(self.source), taken
