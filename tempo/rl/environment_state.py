"""Where an environment of Gymnasium has come to: the attributes of all that it is made of.

Gymnasium has no such interface. What the attributes of an environment hold, of a vector of them and of its wrappers,
is its state, where they are numbers, texts, arrays and generators of random numbers; spaces, specifications and
functions stay as they are. An environment that keeps anything else (a physics engine, a window, another process)
cannot be kept.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tempo.errors import UnsupportedError

_PLAIN = (bool, int, float, str, bytes, np.generic, np.ndarray, type(None))
_GENERATOR = "numpy.random.Generator"


def state_of(environment: Any) -> list[dict[str, Any]]:
    """Raises `UnsupportedError` for an attribute that is none of these."""
    return [_attributes(part) for part in _parts(environment)]


def restore(environment: Any, state: list[Mapping[str, Any]]) -> None:
    """Put an environment that was made in the same way where `state_of` saw one."""
    for part, attributes in zip(_parts(environment), state, strict=True):
        for name, value in attributes.items():
            setattr(part, name, _generator(value[_GENERATOR]) if _is_generator(value) else value)


def _parts(environment: Any) -> Iterator[Any]:
    """The environment, what it wraps, and the environments of a vector of them."""
    yield environment
    for inner in (*_own(environment, "envs", ()), *filter(None, (_own(environment, "env", None),))):
        yield from _parts(inner)


def _own(part: Any, name: str, default: Any) -> Any:
    """Wrappers answer for what they wrap, so only their own attributes are asked."""
    return vars(part).get(name, default)


def _attributes(part: Any) -> dict[str, Any]:
    found = {}
    for name, value in vars(part).items():
        if name in ("env", "envs") or any(map(_is_fixed, _leaves(value))):
            continue
        if isinstance(value, np.random.Generator):
            found[name] = {_GENERATOR: value.bit_generator.state}
        elif all(isinstance(each, _PLAIN) for each in _leaves(value)):
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

    fixed = gymnasium.Space, gymnasium.envs.registration.EnvSpec, enum.Enum, types.ModuleType, type
    return isinstance(value, fixed) or callable(value)


def _is_generator(value: Any) -> bool:
    return isinstance(value, Mapping) and list(value) == [_GENERATOR]


def _generator(state: Mapping[str, Any]) -> np.random.Generator:
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)
