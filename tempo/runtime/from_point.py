"""`run(state=..., from_point={"i": 400})`: the arguments of a call whose run begins at a later point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tempo.analysis.checks.checks import check_at
from tempo.analysis.from_point import begins_with, starting_at
from tempo.backends.by_point import ByPoint
from tempo.compiler.once import Once
from tempo.errors import DefinitionError, DomainError, InputError, SizeError, UnsupportedError, nearest
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.engine import Engine
from tempo.symbolic import Symbol


class LateBeginnings:
    """The engines of one program that begin at later points."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._graph = engine, engine.graph
        self._engines: Once[tuple[Symbol, int], Engine] = Once()
        self._checked: Once[tuple[Symbol, int, frozenset[tuple[Symbol, int]]], None] = Once()

    def at(self, given: Any, arguments: Arguments, state: Any) -> tuple[Engine, Arguments, Mapping[Symbol, int]]:
        """The engine, what it is given, and where it begins.

        Raises `InputError` for what is no point of one dim, and for parameters that the state does not hold.
        """
        dim, point = self._point(given, arguments.sizes)
        if not point:
            return self._engine, arguments, {}
        self._check_parameters(given, dim)
        held = set(state or ())
        if missing := [node for node in begins_with(self._graph, dim) if node.attr("name") not in held]:
            names = ", ".join(repr(node.attr("name")) for node in missing)
            raise InputError(
                f"from_point={given} begins with the values of parameters there, and state= does not hold {names}",
                location=missing[0].location,
                hint="give the .state of a run whose last point that is",
            )
        if dim in self._graph.stops:
            raise UnsupportedError(
                f"from_point= is along {dim.name}, along which the run may end early",
                location=self._graph.stops[dim].location,
                hint="a run with checkpoint= goes on wherever it was",
            )
        engine = self._engines.get((dim, point), lambda: self._engine.of(starting_at(self._graph, dim, point)))
        size = Symbol(dim.name, "size")
        sizes = {**arguments.sizes, **({size: arguments.sizes[size] - point} if size in arguments.sizes else {})}
        try:
            self._checked.get((dim, point, frozenset(sizes.items())), lambda: check_at(engine.graph, sizes))
        except (DomainError, DefinitionError) as error:
            raise InputError(
                f"from_point={given} needs more than parameters: at the first point, {error.message}",
                location=error.location,
                hint="a run with checkpoint= keeps all that later points read",
            ) from error
        inputs = (node for node in self._graph.nodes.values() if node.is_input and dim in node.domain)
        axes = {node.port: node.attr("layout").index(dim) for node in inputs}
        cut = {port: _from(arguments.arrays[port], axis, point) for port, axis in axes.items()}
        arrays = {**arguments.arrays, **cut}
        made = replace(arguments, arrays=arrays, sizes=engine.sizes(sizes), donated=frozenset())
        return engine, made, {dim: point}

    def _check_parameters(self, given: Any, dim: Symbol) -> None:
        """Raises for those that are not handed on from point to point of the dim alone, or the outermost of several."""
        for node in begins_with(self._graph, dim):
            name = node.attr("name")
            outer = [each for each in node.domain[: node.domain.index(dim)] if node in begins_with(self._graph, each)]
            if outer:
                raise InputError(
                    f"from_point={given} is inside of every point of {outer[0].name}, which hands on {name!r}, too",
                    location=node.location,
                    hint=f"begin at a point of {outer[0].name}",
                )
            if not any(self._graph.nodes[case.edge.node].attr("role") == "state" for case in node.cases):
                raise InputError(
                    f"from_point={given} begins with the value of {name!r}, and its cases leave no point to a value "
                    "that is given",
                    location=node.location,
                    hint="leave the first point to init=",
                )

    def _point(self, given: Any, sizes: Mapping[Symbol, int]) -> tuple[Symbol, int]:
        dims = {dim.symbol.name: dim for dim in self._graph.dims}
        if not isinstance(given, Mapping) or len(given) != 1:
            raise InputError(f"from_point={given!r} is no point of one dim", hint='write from_point={"i": 400}')
        ((name, point),) = given.items()
        if name not in dims:
            raise InputError(f"from_point= names {name!r}, which is no dim", hint=nearest(str(name), dims, "dims"))
        if isinstance(point, bool) or not isinstance(point, int | np.integer):
            raise InputError(f"from_point={given!r}: {point!r} is no integer")
        size = int(dims[name].size.evaluate(sizes))
        if not 0 <= point < size:
            raise SizeError(f"from_point={given!r}, and {name} has the points 0 to {size - 1}")
        return dims[name].symbol, int(point)


def _from(value: Any, axis: int, point: int) -> Any:
    """The points of an axis from there on."""
    whole = value.joined() if isinstance(value, ByPoint) else value
    return whole[(slice(None),) * axis + (slice(point, None),)]
