"""What a call is given, checked before anything runs: arrays by name, sizes, state, seed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.errors import DTypeError, InputError, SizeError
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import LARGEST_SIZE, Expr, Symbol, var

Array = np.ndarray[Any, Any]
Sizes = dict[Symbol, int]
Native = Callable[[Any], str | None]


@dataclass(frozen=True)
class SizeClaim:
    """A value for a size, and who says so."""

    value: int
    source: str


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
                raise InputError(f"{source} names {name!r}, which is no dim of the program", hint=_nearest(name, names))
            self.claim(names[name].size, _as_size(name, value), f"{source} ({name}={value})", name)

    def claim(self, size: Expr, value: int, source: str, name: str = "") -> None:
        """`size` has `value`; used where it is a number or a lone symbol, checked at the end where it is neither."""
        symbols = size.sizes()
        if not symbols:
            self._agree(name, size.as_int(), "the program", value, source)
            return
        symbol = next(iter(symbols))
        if len(symbols) > 1 or not (size - var(symbol)).is_const:
            if name:  # that of a spatial axis is held to the shape
                self._made_of_others.append((name, size, SizeClaim(value, source)))
            return
        found = value - (size - var(symbol)).as_int()
        if symbol in self.claims:
            known = self.claims[symbol]
            self._agree(symbol.name, known.value, known.source, found, source)
            return
        if found < 1:
            raise SizeError(f"the size of the dim {symbol.name!r} is {found} by {source}; it must be at least 1")
        self.claims[symbol] = SizeClaim(found, source)

    @staticmethod
    def _agree(name: str, known: int, known_source: str, value: int, source: str) -> None:
        if known != value:
            raise SizeError(f"the size of the dim {name!r} is {known} by {known_source}, but {value} by {source}")

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
            self._agree(name, int(size.evaluate(sizes)), f"the program ({size})", claim.value, claim.source)
        for dim in self.graph.dims:
            if (value := int(dim.size.evaluate(sizes))) < 1:
                name = dim.symbol.name
                raise SizeError(f"the size of the dim {name!r}, {dim.size}, is {value}; it must be at least 1")
            if value > LARGEST_SIZE:
                raise SizeError(f"the size of the dim {dim.symbol.name!r} is {value}; it must be at most 2**30")
        return sizes


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
        raise SizeError(f"the size of the dim {name!r} must be an integer, not {value!r}")
    if value < 1:
        raise SizeError(f"the size of the dim {name!r} is {value}; it must be at least 1")
    return int(value)


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    listed = f"there are: {', '.join(names) or 'none'}"
    return f"did you mean {near[0]!r}? {listed}" if near else listed


# -- arrays ------------------------------------------------------------------------------------------------------------


def input_nodes(graph: Graph, role: str) -> dict[str, Node]:
    """The `input` nodes of one role ("input", "state", "seed"), by name."""
    nodes = (node for node in graph.nodes.values() if node.op == "input" and node.attr("role", "input") == role)
    return {node.attr("name", "") or node.name: node for node in nodes}


def check_names(given: Mapping[str, Any], known: Mapping[str, Node], what: str) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"the program has no {what} {name!r}", hint=_nearest(name, known))
    for name, node in known.items():
        if name not in given:
            raise InputError(f"the {what} {name!r} is missing", location=node.location, hint=f"pass {name}=...")


def as_array(value: Any, dtype: str, what: str, native: Native = lambda value: None) -> Array:
    """`value` as a NumPy array of `dtype`, or itself where `native` says that the backend takes it as it is.

    Another kind is a `DTypeError`; Python numbers may go up to floats.
    """
    if native(value) == dtype:
        return value  # type: ignore[no-any-return]
    array, weak = _to_numpy(value, what), not hasattr(value, "dtype")
    if array.dtype.kind in "OUSV" and array.dtype != dtypes.to_numpy("bfloat16"):
        raise InputError(f"{what} is no array of numbers, but {type(value).__name__}")
    source = dtypes.from_numpy(array.dtype)
    fits = dtypes.can_cast(source, dtype) if weak else dtypes.same_kind(source, dtype)
    if not fits:
        raise DTypeError(f"{what} has dtype {source}, which is of another kind than {dtype}", hint="cast it first")
    if source == dtype:
        return array
    try:
        cast = dtypes.rounded(array, dtype)
    except InputError as error:
        raise InputError(f"{what}: {error.message}", hint=error.hint) from None
    if dtypes.is_integer(dtype) and not np.array_equal(cast, array):
        raise DTypeError(f"{what} has values that {dtype} cannot hold")
    return cast


def _to_numpy(value: Any, what: str) -> Array:
    try:
        if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
            return np.asarray(value)
        return np.from_dlpack(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} is no array: {error}") from error


def claim_shape(table: SizeTable, node: Node, array: Array, what: str) -> None:
    """Take the sizes that the array's axes say; its rank must fit."""
    extents = expected_shape(table.graph, node)
    if array.ndim != len(extents):
        raise InputError(
            f"{what} has shape {array.shape}, expected are {len(extents)} axes: {shape_text(table.graph, node)}",
            location=node.location,
        )
    names = [symbol.name for symbol in node.domain] + [""] * len(node.shape)
    for extent, found, name in zip(extents, array.shape, names, strict=True):
        if name or extent.sizes():
            table.claim(extent, found, f"the shape {array.shape} of {what}", name)


def check_shape(graph: Graph, node: Node, array: Array, sizes: Sizes, what: str) -> None:
    expected = tuple(int(extent.evaluate(sizes)) for extent in expected_shape(graph, node))
    if array.shape != expected:
        raise InputError(
            f"{what} has shape {array.shape}, expected is {expected}: {shape_text(graph, node)}", location=node.location
        )


def expected_shape(graph: Graph, node: Node) -> tuple[Expr, ...]:
    return tuple(dim.size for dim in graph.domain_dims(node)) + node.shape


def shape_text(graph: Graph, node: Node) -> str:
    dims = [f"{dim.symbol.name}={dim.size}" for dim in graph.domain_dims(node)]
    return "(" + ", ".join([*dims, *map(str, node.shape)]) + ")"


def seed_array(seed: Any) -> Array:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise InputError(f"seed must be an integer from 0 to 2**32 - 1, not {seed!r}")
    return np.asarray(seed, np.uint32)
