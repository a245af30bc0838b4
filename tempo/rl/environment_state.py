"""Where an environment of Gymnasium has come to: the attributes of all that it is made of.

Gymnasium has no such interface. What the attributes of an environment hold, of a vector of them and of its wrappers,
is its state, where they are numbers, texts, arrays, members of an Enum, and generators of random numbers; spaces,
specifications, metadata, functions and classes stay as they are, and so do attributes of classes. Arrays and generators
that are two attributes are so again. An environment that keeps anything else (a physics engine, a window, another
process) cannot be kept.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tempo.errors import UnsupportedError

_PLAIN = (bool, int, float, str, bytes, np.generic, np.ndarray, type(None))
_PARTS = ("env", "envs")
_FIXED = ("metadata", "spec")  # by Gymnasium's own interface
_BITS = {each.__name__: each for each in np.random.BitGenerator.__subclasses__()}
_GENERATOR, _MEMBER, _SAME = "numpy.random.Generator", "enum.Enum", "the same as"


def state_of(environment: Any) -> list[dict[str, Any]]:
    """Raises `UnsupportedError` for an attribute that is none of these."""
    seen: dict[int, list[Any]] = {}
    return [_attributes(at, part, seen) for at, part in enumerate(_parts(environment))]


def restore(environment: Any, state: list[Mapping[str, Any]]) -> None:
    """Put an environment that was made in the same way where `state_of` saw one."""
    parts = list(_parts(environment))
    for part, attributes in zip(parts, state, strict=True):
        for name, value in attributes.items():
            setattr(part, name, _restored(part, name, value, parts))


def _parts(environment: Any) -> Iterator[Any]:
    """The environment, what it wraps, and the environments of a vector of them."""
    yield environment
    # Wrappers answer for what they wrap, so only their own attributes are asked.
    own = vars(environment)
    for inner in (*own.get("envs", ()), *([own["env"]] if "env" in own else [])):
        yield from _parts(inner)


def _attributes(at: int, part: Any, seen: dict[int, list[Any]]) -> dict[str, Any]:
    """`seen`: where each array and generator was met first."""
    found: dict[str, Any] = {}
    for name, value in vars(part).items():
        leaves = list(_leaves(value))
        if name in _PARTS or name in _FIXED or (leaves and all(map(_is_fixed, leaves))):
            continue
        is_shared = isinstance(value, np.ndarray | np.random.Generator)
        if is_shared and id(value) in seen:
            found[name] = {_SAME: seen[id(value)]}
            continue
        if is_shared:
            seen[id(value)] = [at, name]
        if isinstance(value, np.random.Generator):
            found[name] = {_GENERATOR: value.bit_generator.state}
        elif isinstance(value, enum.Enum):
            found[name] = {_MEMBER: value.name}
        elif all(isinstance(each, _PLAIN) for each in leaves):
            found[name] = value
        else:
            raise UnsupportedError(
                f"the state of a {type(part).__name__} cannot be kept: its {name} is a {type(value).__name__}",
                hint="give the host calls a resource of your own, with state_dict() and load_state_dict(state)",
            )
    return found


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for pair in value.items():
            yield from _leaves(pair)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _is_fixed(value: Any) -> bool:
    """What no step changes."""
    import gymnasium

    functions = types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, type
    return isinstance(value, (gymnasium.Space, gymnasium.envs.registration.EnvSpec, *functions))


def _restored(part: Any, name: str, value: Any, parts: list[Any]) -> Any:
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    ((kind, held),) = value.items()
    if kind == _GENERATOR:
        bits = _BITS[held["bit_generator"]]()
        bits.state = held
        return np.random.Generator(bits)
    if kind == _MEMBER:
        return type(getattr(part, name))[held]
    return getattr(parts[held[0]], held[1]) if kind == _SAME else value
