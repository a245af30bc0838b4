"""Executables as bytes: what they were compiled from, to be compiled again where they are read."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tempo.errors import Location, UnsupportedError

if TYPE_CHECKING:
    from tempo.language.program import Program


def portable(recipe: Callable[[], Any], program: Program) -> Callable[[], Any] | bytes:
    """The call that compiles the program, or bytes of it where a function of the program is known by its code alone (a
    lambda).

    Raises `UnsupportedError` with the line of a function that cannot be pickled.
    """
    wrong = next((each for each in _functions(program) if not _is_pickled(each[0])), None)
    if wrong is None:
        return recipe
    function, what, location = wrong
    try:
        import cloudpickle  # functions by their code: brought by many libraries of environments

        return bytes(cloudpickle.dumps(recipe))
    except Exception as error:
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        raise UnsupportedError(
            f"{what} keeps the executable from being pickled: {name} is found in no module",
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


def compiled_again(recipe: Callable[[], Any] | bytes) -> Any:
    """The executable; what stands in a pickle is trusted as the pickle is."""
    return (pickle.loads(recipe) if isinstance(recipe, bytes) else recipe)()
