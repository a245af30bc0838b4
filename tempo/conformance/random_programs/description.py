"""A random program as data: statements of Python source, which print as a runnable program and build one."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from typing import Any

from tempo.conformance.random_programs.recorder import Recorder
from tempo.language.program import Program

_NAME = re.compile(r"\b[a-z]+\d*\b")
_PREAMBLE = """\
import numpy as np
import tempo as tp
from tempo.conformance.random_programs import Recorder, own_step

calls = Recorder()
own = globals().get("own", "numpy")  # the backend whose functions are called
"""


@dataclass(frozen=True)
class Statement:
    """One line of the program.

    `defines` are the names that it assigns, `extends` the recurrent tensor to which it adds a case. With `effect` it
    is kept although nothing reads it (outputs, sinks).
    """

    source: str
    defines: tuple[str, ...] = ()
    extends: str | None = None
    effect: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(_NAME.findall(self.source))


@dataclass(frozen=True)
class Built:
    """A program of the language, and the recorder that its host functions write to."""

    program: Program
    calls: Recorder


@dataclass(frozen=True)
class RandomProgram:
    """`functions` stand before the program (host functions), `statements` inside `with tp.Program(...)`."""

    functions: tuple[Statement, ...]
    statements: tuple[Statement, ...]

    @property
    def source(self) -> str:
        """The Python source that makes the program; it runs as it stands."""
        before = [statement.source for statement in self.functions]
        inside = ["    " + statement.source for statement in self.statements]
        return "\n".join([_PREAMBLE.rstrip(), *before, 'with tp.Program("random") as program:', *inside, ""])

    def __str__(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return f"\n{self.source}"

    def build(self, own: str = "numpy") -> Built:
        """Run the source, with functions of the backend `own`. Raises what the language raises."""
        name = f"<random program {abs(hash(self.source)):x}>"
        source = self.source
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"own": own}
        exec(compile(source, name, "exec"), namespace)  # noqa: S102 - the source was made by the generator
        return Built(namespace["program"], namespace["calls"])

    def without_dead_code(self) -> RandomProgram:
        """Without what no output, sink or size of the program needs."""
        live: set[str] = set()
        kept: set[int] = set()
        while True:
            found = {
                position
                for position, statement in enumerate(self.statements)
                if statement.effect or statement.extends in live or live & set(statement.defines)
            }
            if found == kept:
                break
            kept = found
            live = {name for position in kept for name in self.statements[position].names}
        functions = tuple(statement for statement in self.functions if live & set(statement.defines))
        return RandomProgram(functions, tuple(self.statements[position] for position in sorted(kept)))
