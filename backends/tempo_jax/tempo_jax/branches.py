"""What a branch hands to the statements after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tempo.backends.loop_ir import Assign, Branch, Compute, Loop, Read, Statement, Write, walk
from tempo.backends.operators import OPERATORS
from tempo.symbolic import Expr

_MOVES = Read | Assign | Write | Branch
_PURE = _MOVES | Compute


@dataclass(frozen=True)
class BranchPlan:
    """What leaves a branch: names that both sides assign, whole buffers, and places of buffers."""

    names: tuple[str, ...]
    whole: tuple[int, ...]
    places: tuple[tuple[int, tuple[Expr, ...], tuple[Expr | None, ...]], ...]
    only_reads: bool
    only_operators: bool

    @staticmethod
    def of(then: tuple[Statement, ...], otherwise: tuple[Statement, ...], buffers: Mapping[int, Any]) -> BranchPlan:
        both = (*then, *otherwise)
        names = [name for name in _assigned(then) if name in _assigned(otherwise)]
        inside_loops = {
            each.buffer
            for loop in walk(both)
            if isinstance(loop, Loop)
            for each in walk(loop.body)
            if isinstance(each, Write)
        }
        writes = [each for each in walk(both) if isinstance(each, Write)]
        whole = sorted({each.buffer for each in writes if buffers[each.buffer].is_slot or each.buffer in inside_loops})
        places = dict.fromkeys((each.buffer, each.index, each.extents) for each in writes if each.buffer not in whole)
        only_reads = all(isinstance(each, _MOVES) for each in walk(both))
        only_operators = all(isinstance(each, _PURE) and not _is_foreign(each) for each in walk(both))
        return BranchPlan(tuple(names), tuple(whole), tuple(places), only_reads, only_operators)


def _is_foreign(statement: Statement) -> bool:
    """Whether it runs a function of the user's, of which nobody knows what it costs."""
    return isinstance(statement, Compute) and OPERATORS[statement.op].kind == "nominal"


def _assigned(statements: tuple[Statement, ...]) -> list[str]:
    """Names that a block assigns itself, or in both sides of a branch in it."""
    found: list[str] = []
    for statement in statements:
        if isinstance(statement, Read | Compute | Assign):
            found.append(statement.result)
        elif isinstance(statement, Branch):
            found += [name for name in _assigned(statement.then) if name in _assigned(statement.otherwise)]
    return found
