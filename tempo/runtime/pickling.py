"""Executables as bytes: what they were compiled from, to be compiled again where they are read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tempo.compiler.options import Options
from tempo.errors import Location, UnsupportedError

if TYPE_CHECKING:
    from tempo.language.program import Program


@dataclass(frozen=True)
class Recipe:
    """What `tp.compile` was given: names where names were given, those of environment variables too."""

    program: Program
    backend: Any
    scheduler: Any
    device: str | None
    sizes: Mapping[str, int] | None
    options: Options

    def portable(self) -> Recipe | bytes:
        """Itself, or bytes of it where a function of the program is known by its code alone (a lambda).

        Raises `UnsupportedError` with the line of a function that cannot be pickled.
        """
        wrong = next((each for each in _functions(self.program) if not _is_pickled(each[0])), None)
        if wrong is None:
            return self
        function, what, location = wrong
        try:
            import cloudpickle  # functions by their code: brought by many libraries of environments

            return bytes(cloudpickle.dumps(self))
        except Exception as error:
            raise UnsupportedError(
                f"{what} keeps the executable from being pickled: {_name(function)} is found in no module",
                location=location,
                hint="define it with def at the top of a module, or install cloudpickle, which pickles code",
            ) from error


def _functions(program: Program) -> Iterator[tuple[Any, str, Location | None]]:
    """The user's functions that a program holds, what they are for, and where."""
    for node in program.graph().nodes.values():
        if callable(function := node.attr("fn")):
            yield function, f"the function of {node.name or node.op}", node.location
    for parameter in program.declared_parameters.values():
        if callable(parameter.init):
            location = program.builder.nodes[parameter.node].location
            yield parameter.init, f"the initialiser of the parameter {parameter.name!r}", location


def _is_pickled(function: Any) -> bool:
    try:
        pickle.dumps(function)
    except Exception:  # noqa: BLE001 - functions and what they hold raise anything
        return False
    return True


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def compiled_again(recipe: Recipe | bytes) -> Any:
    """The executable of a recipe."""
    from tempo.runtime.compile import compile  # which makes executables

    if isinstance(recipe, bytes):
        recipe = pickle.loads(recipe)  # what stands in a pickle is trusted as the pickle is
    assert isinstance(recipe, Recipe)
    return compile(recipe.program, recipe.backend, recipe.scheduler, recipe.device, recipe.sizes, recipe.options)
