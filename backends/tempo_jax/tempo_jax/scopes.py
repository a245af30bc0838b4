"""Scopes in the code that XLA compiles, by which its instructions are found to be of the user's tensors and lines.

An instruction has metadata that say in which scopes it was traced, and keeps them through XLA's passes. Scopes are
numbers: executables are found in the persistent cache by what they compute, without metadata, and a program that was
changed in its names and lines alone is to find its own. What the numbers stand for has to be the same in both, so the
name of an executable, which the cache does look at, has a digest of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import jax

from tempo.backends import SegmentRequest
from tempo.backends.loop_ir import Compute, LoopProgram, Statement, walk
from tempo.backends.tracing import Origin, origin_of
from tempo.caches import digest

_PREFIX = "tempo."
_SCOPE = re.compile(r'op_name="[^"]*tempo\.(\d+)[^"]*"')
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")


@dataclass(frozen=True)
class Scopes:
    """The origins of a segment's statements, each with its number."""

    program: LoopProgram
    numbers: Mapping[Origin, int]
    digest: str

    @staticmethod
    def of(request: SegmentRequest) -> Scopes:
        numbers, said = dict[Origin, int](), []
        for statement in walk(request.segment.body):
            origin = origin_of(statement, request.program)
            if origin is not None:
                number = numbers.setdefault(origin, len(numbers))
                said.append(f"{number} {statement.type if isinstance(statement, Compute) else ''} {origin.op}")
        return Scopes(request.program, numbers, digest(*said)[:8])

    def entered(self, statement: Statement) -> AbstractContextManager[None]:
        """Inside, what is traced is the statement's."""
        number = None if (origin := origin_of(statement, self.program)) is None else self.numbers.get(origin)
        return nullcontext() if number is None else jax.named_scope(f"{_PREFIX}{number}")

    def of_instructions(self, text: str) -> dict[str, Origin]:
        """What the instructions of a module of XLA's are of. A fusion is of the last operator in it, since that is what
        the others were fused into, and of a write where it has no operator."""
        origins = tuple(self.numbers)
        inside, found = dict[str, list[Origin]](), dict[str, Origin]()
        for computation, instruction, line in _instructions(text):
            own = _SCOPE.search(line)
            of = [] if own is None else [origins[int(own[1])]]
            for called in _CALLS.findall(line):
                of = [*inside.get(called, ()), *of]  # computations stand before their callers
            inside.setdefault(computation, []).extend(of)
            if of:
                operators = [each for each in of if each.op != "write"]
                found[instruction] = (operators or of)[-1]
        return found


def _instructions(text: str) -> Iterator[tuple[str, str, str]]:
    """Each with the computation that it is in, and its line."""
    computation = ""
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            computation = match[1]
        elif match := _INSTRUCTION.match(line):
            yield computation, match[1], line
