"""Equality by structure, with the hash computed once: what expressions and conditions have in common. And answers
that an object remembers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from operator import attrgetter
from typing import Any, TypeVar, TypeVarTuple

Asked = TypeVar("Asked")
Question = TypeVarTuple("Question")
Answer = TypeVar("Answer")


def memoised(find: Callable[[Asked, *Question], Answer]) -> Callable[[Asked, *Question], Answer]:
    """A method that is asked once for each question, by position; the object does not change and keeps the answers."""
    name = f"answers of {find.__name__}"

    @wraps(find)
    def ask(asked: Asked, /, *question: *Question) -> Answer:
        try:
            return asked.__dict__[name][question]  # type: ignore[no-any-return]
        except KeyError:
            pass
        found = find(asked, *question)
        asked.__dict__.setdefault(name, {})[question] = found
        return found

    return ask


def cached(default: Any) -> Any:
    """A dataclass field that holds what is computed on demand, outside of equality and construction."""
    return field(default=default, init=False, repr=False, compare=False)


@cache
def _reader(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the fields of such an object."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda each: (read(each),)


@dataclass(frozen=True, eq=False, repr=False)
class Structural:
    """Equality by fields, with a hash that is computed once and never pickled (string hashes vary by process)."""

    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def _fields(self) -> tuple[Any, ...]:
        kind: Any = type(self)
        return _reader(kind)(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        kind: Any = type(self)
        fields = _reader(kind)
        return hash(self) == hash(other) and fields(self) == fields(other)

    def __hash__(self) -> int:
        return self._hash or self._hashed()

    def _hashed(self) -> int:
        object.__setattr__(self, "_hash", hash((type(self).__name__, self._fields())) or 1)
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._fields()

    def __repr__(self) -> str:
        return str(self)
