"""A program while it is drawn: every statement is tried out in the language, which says what shape it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tempo.conformance.random_programs.choices import Choices
from tempo.conformance.random_programs.description import RandomProgram, Statement
from tempo.conformance.random_programs.indices import substituted
from tempo.conformance.random_programs.recorder import Recorder, own_step
from tempo.errors import TempoError
from tempo.language.program import Program
from tempo.language.tensor import RecurrentTensor

FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Value:
    """A tensor by the name that the program gives it.

    `needs` are the conditions under which it may be read; `open` the recurrent tensors that it depends on and that are
    not yet defined; `exact` says that every backend makes the same bits, so that it may be compared or sorted by;
    `may_be_empty` that its first axis has no elements somewhere.
    """

    name: str
    tensor: RecurrentTensor
    needs: tuple[str, ...] = ()
    open: frozenset[str] = frozenset()
    exact: bool = True
    may_be_empty: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(symbol.name for symbol in self.tensor.symbols)

    @property
    def shape(self) -> tuple[str, ...]:
        return tuple(str(size) for size in self.tensor.type.shape)

    @property
    def ragged_axes(self) -> tuple[int, ...]:
        return tuple(axis for axis, size in enumerate(self.tensor.type.shape) if size.dims())

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        return self.dtype in ("int32", "int64", "int8", "uint8")

    @property
    def rank(self) -> int:
        return self.tensor.ndim


@dataclass(frozen=True)
class Pattern:
    """The order in which points of the open recurrent tensors can be made, which their definitions keep to.

    It is lexicographic by `order`, each dim from its start, or from its end where it is `backward`. Along `shifted`
    bodies are written `lag` points before the one that they define: `h[t + lag] = body`.
    """

    order: tuple[str, ...]
    backward: frozenset[str]
    shifted: str | None = None
    lag: int = 0

    def lag_of(self, dim: str) -> int:
        return self.lag if dim == self.shifted else 0


@dataclass
class Session:
    """The state of drawing. `refused` counts, by error, statements that the language refused."""

    choices: Choices
    program: Program
    dims: dict[str, int | None] = field(default_factory=dict)
    functions: list[Statement] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    pattern: Pattern | None = None
    opened: dict[str, Value] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    recurrences: int = 0
    gradients: int = 0
    _namespace: dict[str, Any] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._namespace["calls"] = Recorder()
        exec("import numpy as np\nimport tempo as tp", self._namespace)  # noqa: S102 - the preamble of every program
        self._namespace.update(own="numpy", own_step=own_step)

    def fresh(self, prefix: str) -> str:
        self._names[prefix] += 1
        return f"{prefix}{self._names[prefix] - 1}"

    def run(self, statement: Statement, function: bool = False) -> bool:
        """Add the statement; False (and nothing changes) where the language refuses it."""
        try:
            exec(statement.source, self._namespace)  # noqa: S102 - the source was made by the generator
        except TempoError as error:
            self.refused[f"{type(error).__name__}: {statement.source.split('=', 1)[-1].strip()[:18]}"] += 1
            return False
        (self.functions if function else self.statements).append(statement)
        return True

    def assign(
        self,
        source: str,
        operands: tuple[Value, ...] = (),
        *,
        prefix: str = "v",
        exact: bool = True,
        needs: tuple[str, ...] = (),
        may_be_empty: bool = False,
        keep_needs: bool = True,
    ) -> Value | None:
        """`v7 = source`. The value needs what its operands need, and is exact only if they are."""
        name = self.fresh(prefix)
        if not self.run(Statement(f"{name} = {source}", (name,))):
            return None
        inherited = tuple(need for operand in operands for need in operand.needs) if keep_needs else ()
        opened: frozenset[str] = frozenset().union(*(operand.open for operand in operands))
        value = Value(
            name,
            self._namespace[name],
            tuple(dict.fromkeys((*inherited, *needs))),
            opened & frozenset(self.opened),
            exact and all(operand.exact for operand in operands),
            may_be_empty,
        )
        self.values.append(value)
        return value

    def lookup(self, name: str) -> RecurrentTensor:
        tensor: RecurrentTensor = self._namespace[name]
        return tensor

    def pick(self, wanted: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """One of the values so far; recent ones are more likely, so that programs grow deep."""
        found = [value for value in self.values if wanted(value)]
        if not found:
            return None
        if len(found) > 3 and self.choices.chance(60):
            found = found[-3:]
        return self.choices.choice(found)

    def discharged(self, value: Value) -> Value:
        """The value where it may be read, and a number elsewhere."""
        if not value.needs:
            return value
        condition = " & ".join(f"({need})" for need in value.needs)
        default = {"bool": "False"}.get(value.dtype, "0.5" if value.is_float else "1")
        others = [other for other in self.values if _stands_in(other, value)]
        if others and self.choices.chance(40):
            other = self.choices.choice(others)
            guarded = self.assign(
                f"tp.cases(({condition}, {value.name}), {other.name})", (value, other), keep_needs=False
            )
        else:
            guarded = self.assign(f"tp.cases(({condition}, {value.name}), {default})", (value,), keep_needs=False)
        return guarded or value

    def close(self) -> None:
        """What depended on open recurrent tensors may now be read anywhere."""
        self.opened.clear()
        self.pattern = None
        self.values = [
            Value(value.name, value.tensor, value.needs, frozenset(), value.exact, value.may_be_empty)
            for value in self.values
        ]

    def finished(self) -> RandomProgram:
        return RandomProgram(tuple(self.functions), tuple(self.statements)).without_dead_code()


def _stands_in(other: Value, value: Value) -> bool:
    same_type = other.shape == value.shape and other.dtype == value.dtype
    return same_type and not other.needs and other.open <= value.open and other.name != value.name


def shifted_needs(needs: tuple[str, ...], dim: str, replacement: str) -> tuple[str, ...]:
    return tuple(substituted(need, dim, replacement) for need in needs)
