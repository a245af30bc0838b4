"""The names that statements make, and look at."""

from __future__ import annotations

from tempo.loop_ir.ir import Assign, Block, Branch, Compute, Read, Write, walk


def made(block: Block) -> frozenset[str]:
    """The names that the statements make."""
    return frozenset(each.result for each in walk(block) if isinstance(each, Read | Compute | Assign))


def used(block: Block) -> tuple[str, ...]:
    """The names that the statements look at, each once, in order."""
    found: dict[str, None] = {}
    for statement in walk(block):
        if isinstance(statement, Compute):
            found.update(dict.fromkeys(statement.operands))
        elif isinstance(statement, Assign | Write):
            found[statement.value] = None
    return tuple(found)


def leaving(branch: Branch) -> frozenset[str]:
    """The names that a choice makes: those that both of its sides do."""
    return made(branch.then) & made(branch.otherwise)
