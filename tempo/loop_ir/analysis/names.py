"""The names that statements make, and look at; and which large values a segment needs no more after a statement.

A local variable of Python holds its tensor until it is assigned anew, at the next iteration or never. What a lifted
body makes at once is large, and the most that lives at once is then all that the body makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from tempo.loop_ir.ir import Assign, Block, Branch, Compute, Read, Segment, Statement, Write, nested, walk
from tempo.sdg.graph import TensorType


def made(block: Block) -> frozenset[str]:
    """The names that the statements make."""
    return frozenset(each.result for each in walk(block) if isinstance(each, Read | Compute | Assign))


def used(block: Block) -> tuple[str, ...]:
    """The names that the statements look at, each once, in order."""
    return tuple(dict.fromkeys(name for statement in walk(block) for name in operands(statement)))


def operands(statement: Statement) -> tuple[str, ...]:
    """The names that one statement looks at itself."""
    if isinstance(statement, Compute):
        return statement.operands
    return (statement.value,) if isinstance(statement, Assign | Write) else ()


def leaving(branch: Branch) -> frozenset[str]:
    """The names that a choice makes: those that both of its sides do."""
    return made(branch.then) & made(branch.otherwise)


Size = Callable[[TensorType], float]

LEAST = 1 << 16
"""Bytes: below it a name is not worth a statement."""


def releases(segment: Segment, size: Size) -> Mapping[int, tuple[str, ...]]:
    """By the identity of a statement, the names that nothing after it needs."""
    every = tuple(walk(segment.body))
    uses = Counter(name for statement in every for name in operands(statement))
    made = Counter(each.result for each in every if isinstance(each, Compute | Assign))
    large = _large(every, size)
    found: dict[int, tuple[str, ...]] = {}
    for statement, name in (each for block in blocks(segment.body) for each in _last_uses(block, uses)):
        if name in large and made[name] == 1:
            found[id(statement)] = (*found.get(id(statement), ()), name)
    return found


def _large(every: Block, size: Size) -> set[str]:
    """Names of tensors of `LEAST` bytes or more, and other names of the same."""
    found: set[str] = set()
    for statement in every:
        if isinstance(statement, Compute) and size(statement.type) >= LEAST:
            found.add(statement.result)
        if isinstance(statement, Assign) and statement.value in found:
            found.add(statement.result)
    return found


def blocks(body: Block) -> Iterator[Block]:
    """Every block: statements that run equally often."""
    yield body
    for statement in body:
        for block in nested(statement):
            yield from blocks(block)


def _last_uses(block: Block, uses: Mapping[str, int]) -> Iterator[tuple[Statement, str]]:
    """What the block makes and nothing outside of it uses, with the last of its statements that does."""
    left: dict[str, int] = {}
    for statement in block:
        inside = (name for inner in walk((statement,)) for name in operands(inner))
        for name in filter(left.__contains__, inside):
            left[name] -= 1
            if not left[name]:
                yield statement, name
        if isinstance(statement, Compute | Assign):
            left[statement.result] = uses[statement.result]
