"""Names in generated source: readable, and unique by construction."""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
import unicodedata
from collections.abc import Iterable, Iterator

from tempo.loop_ir.ir import Assign, Compute, LoopProgram, Read
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Symbol

ARRAY_FUNCTIONS = ("fresh", "clamped", "wrapped", "to_host", "host_write")
"""Functions that the source calls beside operators: a backend gives their meaning."""
_DRIVER = ("buffers", "tables", "marks", "pool", "in_strips", "renew", "take", "run")
_FIXED = ("start", "stop", *_DRIVER, *ARRAY_FUNCTIONS, *keyword.kwlist, *dir(builtins))


class Names:
    """The names of one program's source. No two are one to Python, which compares them in normal form (NFKC).

    What LoopIR names itself (values, buffers, segments) keeps its name. A dim is its own name, a size the upper-case
    name of its dim, its length in a bucket
    `t_length`, with underscores behind where that is taken; functions are numbered then.
    """

    def __init__(self, program: LoopProgram, symbols: Iterable[Symbol]) -> None:
        self._taken = {_same(name) for name in (*_FIXED, *_of_program(program))}
        self._symbols: dict[Symbol, str] = {}
        self._numbers: dict[str, Iterator[int]] = {}  # of each base those not tried yet
        for symbol in sorted(symbols, key=lambda each: (each.kind, each.name)):
            plain = _plain(symbol)
            behind = (plain + "_" * count for count in itertools.count())
            # Operators keep their names, though they are given them later.
            self._symbols[symbol] = self._first(name for name in behind if name not in OPERATORS)

    def __call__(self, symbol: Symbol) -> str:
        return self._symbols[symbol]

    def fresh(self, base: str) -> str:
        """A new name: `base`, or `base` with a number."""
        numbers = self._numbers.setdefault(base, itertools.count())
        return self._first(itertools.chain((base,), (f"{base}_{number}" for number in numbers)))

    def _first(self, candidates: Iterable[str]) -> str:
        name = next(each for each in candidates if _same(each) not in self._taken)
        self._taken.add(_same(name))
        return name


def _same(name: str) -> str:
    """What Python takes a name for."""
    return unicodedata.normalize("NFKC", name)


def _plain(symbol: Symbol) -> str:
    name = {"dim": symbol.name, "size": symbol.name.upper()}.get(symbol.kind, f"{symbol.name}_{symbol.kind}")
    base = re.sub(r"\W", "_", _same(name))
    return base if base.isidentifier() else f"d_{base}" if f"d_{base}".isidentifier() else "d"


def _of_program(program: LoopProgram) -> Iterable[str]:
    """What LoopIR and its drivers name."""
    yield from (each.result for each in program.statements() if isinstance(each, Read | Compute | Assign))
    yield from (buffer.label for buffer in program.buffers.values())
    yield from (segment.name for segment in program.segments)
    yield from (f"item_{number}" for number in range(len(program.items)))
    yield from (f"table_{number}" for segment in program.segments for number in segment.tables)
    for number, node in enumerate(program.hosts):
        yield f"host_{number}"
        yield from (f"y{result}" for result in range(len(node.results)))
