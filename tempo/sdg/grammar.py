"""Text that is written and read by one description, so that the two cannot differ.

A `Syntax` is a pair of functions, each the other's inverse. There are those of single values; `many`, `optional`,
`either`, `row` and `record` make others of them.

Source: Rendel and Ostermann, Invertible syntax descriptions: unifying parsing and pretty printing (2010).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tempo.errors import TempoError
from tempo.symbolic import Symbol, parse_condition, parse_expr
from tempo.symbolic.expr import SIZES

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_OPENING, _CLOSING = "([{", ")]}"


class ParseError(TempoError, ValueError):
    """The text is none that a graph or a program of loops prints as."""


@contextmanager
def reading(line: str) -> Iterator[None]:
    """Whatever goes wrong inside is a ParseError about the line, or about one within it."""
    try:
        yield
    except ParseError:
        raise
    except (ValueError, SyntaxError, LookupError, TypeError) as error:
        raise ParseError(f"cannot read {line!r}: {error}") from error


def masked(text: str) -> str:
    """The text with all that stands inside quotes, backticks and brackets blanked out."""
    found, depth = "", 0
    unquoted = _QUOTED.sub(lambda quoted: f"{quoted[0][0]}{'_' * (len(quoted[0]) - 2)}{quoted[0][0]}", text)
    if not any(bracket in unquoted for bracket in _OPENING + _CLOSING):
        return unquoted
    for char in unquoted:
        depth -= char in _CLOSING
        found += "_" if depth else char
        depth += char in _OPENING
    return found


def split(text: str, separator: str = ",") -> list[str]:
    """The parts between separators that stand outside brackets, strings and backticks; none for blank text."""
    parts, start = [], 0
    for found in re.finditer(re.escape(separator), masked(text)):
        parts.append(text[start : found.start()].strip())
        start = found.end()
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts  # a comma may trail


@dataclass(frozen=True)
class Syntax:
    """How values of one kind are written and read. Both functions are given what names of placeholders stand for.

    `pattern`: the regular expression of what is read, `masked`.
    """

    write: Callable[[Any, Any], str]
    read: Callable[[str, Any], Any]
    pattern: str = ".*?"


def plain(write: Callable[[Any], str], read: Callable[[str], Any], pattern: str = ".*?") -> Syntax:
    """Of what has no placeholders in it."""
    return Syntax(lambda value, names: write(value), lambda text, names: read(text), pattern)


def choice(values: Mapping[str, Any]) -> Syntax:
    """One of these texts, for one of these values."""
    texts = {value: text for text, value in values.items()}
    return plain(texts.__getitem__, values.__getitem__, "|".join(map(re.escape, values)))


def read_symbol(text: str) -> Symbol:
    name, _, last = text.lstrip("$").rpartition(".")
    kind = next((each for each in SIZES if each == last), None)
    return Symbol(text.lstrip("$"), "dim") if kind is None or not name else Symbol(name, kind)


NUMBER = plain(str, int, r"-?\d+")
WORD = plain(str, str, r"\w+")
STRING = plain(json.dumps, json.loads, '"_*"')
SYMBOL = plain(str, read_symbol)
EXPR = plain(str, parse_expr)
CONDITION = plain(str, parse_condition)


def many(
    item: Syntax,
    make: Callable[[Iterable[Any]], Any] = tuple,
    take: Callable[[Any], Iterable[Any]] = iter,
    between: str = ", ",
    none: str = "",
) -> Syntax:
    """Any number of them: what `make` makes of these, and `take` takes apart. `none` stands where there is none."""

    def write(values: Any, names: Any) -> str:
        return between.join(item.write(value, names) for value in take(values)) or none

    def read(text: str, names: Any) -> Any:
        parts = [] if text == none else split(text, between.rstrip())
        return make(item.read(part, names) for part in parts)

    return Syntax(write, read)


def optional(template: str, item: Syntax, absent: Any = None) -> Syntax:
    """The template with the item in it; nothing where the value is `absent`."""
    inner = row(template, item)

    def write(value: Any, names: Any) -> str:
        return "" if value == absent else inner.write((value,), names)

    def read(text: str, names: Any) -> Any:
        return inner.read(text, names)[0] if text else absent

    return Syntax(write, read, f"(?:{inner.pattern})?")


def flag(text: str) -> Syntax:
    """Whether the text is there."""
    return choice({"": False, text: True})


def either(forms: Mapping[Any, Syntax]) -> Syntax:
    """What is written has the form of its type, what is read the first that it could have."""

    def write(value: Any, names: Any) -> str:
        return next(form for type, form in forms.items() if isinstance(value, type)).write(value, names)

    def read(text: str, names: Any) -> Any:
        blank = masked(text)
        form = next((each for each in forms.values() if re.fullmatch(each.pattern, blank, re.DOTALL)), None)
        if form is None:
            raise ValueError("it has no form that is known")
        return form.read(text, names)

    return Syntax(write, read)


def row(template: str, *items: Syntax) -> Syntax:
    """A tuple: the template with an item in place of each `{}`."""
    literals = [re.escape(part.format()) for part in template.split("{}")]
    patterns = [each.pattern for each in items]
    captured = _interleaved(literals, (f"({each})" for each in patterns))

    def write(values: Iterable[Any], names: Any) -> str:
        return template.format(*(item.write(value, names) for item, value in zip(items, values, strict=True)))

    def read(text: str, names: Any) -> Any:
        found = re.fullmatch(captured, masked(text), re.DOTALL)
        if found is None:
            raise ValueError(f"expected {template}")
        return tuple(item.read(text[slice(*found.span(at))], names) for at, item in enumerate(items, 1))

    return Syntax(write, read, _interleaved(literals, (f"(?:{each})" for each in patterns)))


def _interleaved(literals: list[str], patterns: Iterable[str]) -> str:
    first, *others = literals
    return first + "".join(pattern + literal for pattern, literal in zip(patterns, others, strict=True))


def record(
    make: Callable[..., Any],
    template: str,
    take: Callable[[Any], Mapping[str, Any]] = vars,
    **fields: Syntax,
) -> Syntax:
    """A value that `make` makes of its parts: the template with a part in place of each name of one.

    `take` gives the parts of a value, those of a dataclass if nothing else is said.
    """
    order = re.findall(r"{(\w+)}", template)
    inner = row(re.sub(r"{\w+}", "{}", template), *map(fields.__getitem__, order))

    def write(value: Any, names: Any) -> str:
        parts = take(value)
        return inner.write([parts[name] for name in order], names)

    def read(text: str, names: Any) -> Any:
        return make(**dict(zip(order, inner.read(text, names))))

    return Syntax(write, read, inner.pattern)
