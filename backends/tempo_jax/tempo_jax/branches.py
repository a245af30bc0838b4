"""What a branch hands to the statements after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tempo.lowering.loop_ir import Assign, Branch, Compute, Loop, Read, Statement, Write, walk
from tempo.symbolic import Expr


@dataclass(frozen=True)
class BranchPlan:
    """What leaves a branch: names that both sides assign, whole buffers, and places of buffers."""

    names: tuple[str, ...]
    whole: tuple[int, ...]
    places: tuple[tuple[int, tuple[Expr, ...]], ...]
    only_reads: bool

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
        places = dict.fromkeys((each.buffer, each.index) for each in writes if each.buffer not in whole)
        only_reads = all(isinstance(each, Read | Assign | Write | Branch) for each in walk(both))
        return BranchPlan(tuple(names), tuple(whole), tuple(places), only_reads)


def _assigned(statements: tuple[Statement, ...]) -> list[str]:
    """Names that a block assigns itself, or in both sides of a branch in it."""
    found: list[str] = []
    for statement in statements:
        if isinstance(statement, Read | Compute | Assign):
            found.append(statement.result)
        elif isinstance(statement, Branch):
            found += [name for name in _assigned(statement.then) if name in _assigned(statement.otherwise)]
    return found
