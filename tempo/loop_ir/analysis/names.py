"""The names that statements make, and look at; and which large values a segment needs no more after a statement.

A local variable of Python holds its tensor until it is assigned anew, at the next iteration or never. What a lifted
body makes at once is large, and the most that lives at once is then all that the body makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import product

from tempo.loop_ir.ir import Assign, Block, Branch, Compute, Read, Segment, Statement, Write, nested, walk
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS


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


def results(statement: Statement) -> frozenset[str]:
    """The names that one statement makes for what comes after it."""
    if isinstance(statement, Read | Compute | Assign):
        return frozenset({statement.result})
    return leaving(statement) if isinstance(statement, Branch) else frozenset()


def made_anew(compute: Compute) -> bool:
    """Whether what it makes is in memory of its own: no view of an operand, and nothing that there was before."""
    operator = OPERATORS.get(compute.op)
    return operator is not None and not operator.views and operator.kind not in ("creation", "nominal")


def leaving(branch: Branch) -> frozenset[str]:
    """The names that a choice makes: those that both of its sides do."""
    return made(branch.then) & made(branch.otherwise)


Size = Callable[[TensorType], float]

LEAST = 1 << 16
"""Bytes: below it a name is not worth a statement."""


def releases(segment: Segment, size: Size, reads: Collection[str] = ()) -> Mapping[int, tuple[str, ...]]:
    """By the identity of a statement, the names that nothing after it needs: after a choice, and inside, after the last
    statement of a side that looks at them. `reads`: names of reads that are large.
    """
    every = tuple(walk(segment.body))
    makes = Counter(each.result for each in every if isinstance(each, Compute | Assign))
    large = _large(every, size, reads)
    found: dict[int, tuple[str, ...]] = {}

    def look(block: Block, leaving: frozenset[str]) -> None:
        left = set[str]()
        for statement in block:
            made = Counter(each.result for each in walk((statement,)) if isinstance(each, Compute | Assign))
            own = (name for name in results(statement) & large if made[name] == makes[name])
            left.update(name for name in own if name not in leaving)
            for inner in nested(statement):
                look(inner, leaving | results(statement))
        for statement in reversed(block):
            found[id(statement)] = tuple(name for name in used((statement,)) if name in left)
            left.difference_update(found[id(statement)])
        for branch in (each for each in block if isinstance(each, Branch)):
            inside(branch, found[id(branch)])

    def inside(branch: Branch, names: tuple[str, ...]) -> None:
        for side, name in product(nested(branch), names):
            last = next((each for each in reversed(side) if name in used((each,))), None)
            if last is not None:
                found[id(last)] = (*found.get(id(last), ()), name)
            if isinstance(last, Branch):
                inside(last, (name,))

    look(segment.body, frozenset())
    return {statement: names for statement, names in found.items() if names}


def _large(every: Block, size: Size, reads: Collection[str]) -> set[str]:
    """Names of tensors of `LEAST` bytes or more, and other names of the same."""
    found, named = set[str](), set(reads)
    for statement in every:
        if isinstance(statement, Compute) and size(statement.type) >= LEAST:
            found.add(statement.result)
        if isinstance(statement, Assign) and statement.value in found | named:
            found.add(statement.result)
    return found


def blocks(body: Block) -> Iterator[Block]:
    """Every block: statements that run equally often."""
    yield body
    for statement in body:
        for block in nested(statement):
            yield from blocks(block)
