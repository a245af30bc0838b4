"""Rewriting LoopIR: one walk, which puts other statements in the place of some and knows what is around each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tempo.loop_ir.analysis.names import leaving, operands, results
from tempo.loop_ir.ir import (
    Assign,
    Block,
    Branch,
    Compute,
    Guard,
    Loop,
    LoopProgram,
    Read,
    Segment,
    Statement,
    Write,
    nested,
    walk,
)


@dataclass(frozen=True)
class BlockScope:
    """Where a block stands. `path`: loops, guards and branches around it, outer first. `leaving`: those of its names
    that what comes after it looks at.
    """

    path: Block = ()
    leaving: frozenset[str] = frozenset()

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(each for each in self.path if isinstance(each, Loop))


Replace = Callable[[Statement, BlockScope], Iterable[Statement] | None]
Finish = Callable[[Block, BlockScope], Block]


def _stays(statement: Statement, scope: BlockScope) -> None:
    """Every statement does."""


def _as_it_is(block: Block, scope: BlockScope) -> Block:
    return block


def rewritten(
    block: Block, replace: Replace = _stays, finish: Finish = _as_it_is, scope: BlockScope = BlockScope()
) -> Block:
    """The block with other statements; the same object where none changes.

    `replace`, asked outer before inner, gives what stands in the place of a statement; None: the same, with its own
    blocks rewritten. What then has nothing left in it goes. `finish` is given every block after its statements, inner
    before outer, and has the last word.
    """
    found: list[Statement] = []
    for statement in block:
        new = replace(statement, scope)
        found.extend(_inside(statement, replace, finish, scope) if new is None else new)
    return finish(block if _same(block, found) else tuple(found), scope)


def _inside(statement: Statement, replace: Replace, finish: Finish, scope: BlockScope) -> Block:
    names = leaving(statement) if isinstance(statement, Branch) else frozenset[str]()
    inner = BlockScope((*scope.path, statement), names)
    new = with_blocks(statement, lambda block: rewritten(block, replace, finish, inner))
    return (new,) if new is statement or _does_something(new) else ()


def with_blocks(statement: Statement, change: Callable[[Block], Block]) -> Statement:
    """The statement with the blocks directly inside it changed; the same object where none is."""
    match statement:
        case Loop(body=body) | Guard(body=body):
            new = change(body)
            return statement if new is body else replace(statement, body=new)
        case Branch(then=then, otherwise=otherwise):
            sides = change(then), change(otherwise)
            if sides[0] is then and sides[1] is otherwise:
                return statement
            return replace(statement, then=sides[0], otherwise=sides[1])
    return statement


def with_names(block: Block, names: Mapping[str, str]) -> Block:
    """The block with other names for some, wherever they are made and looked at."""
    return rewritten(block, lambda statement, scope: _named(statement, names)) if names else block


def _named(statement: Statement, names: Mapping[str, str]) -> Block | None:
    def new(name: str) -> str:
        return names.get(name, name)

    if names.keys().isdisjoint((*operands(statement), *results(statement))):
        return None
    match statement:
        case Read(result=result):
            return (replace(statement, result=new(result)),)
        case Compute(result=result, operands=used):
            return (replace(statement, result=new(result), operands=tuple(map(new, used))),)
        case Assign(result=result, value=value):
            return (replace(statement, result=new(result), value=new(value)),)
        case Write(value=value):
            return (replace(statement, value=new(value)),)
    return None


def rewritten_program(program: LoopProgram, change: Replace = _stays, finish: Finish = _as_it_is) -> LoopProgram:
    """The program with its segments and its items rewritten; the same object where nothing changes."""
    made = with_segments(program, lambda each: replace(each, body=rewritten(each.body, change, finish)))
    items = rewritten(program.items, change, finish)
    return made if items is program.items else replace(made, items=items)


def with_segments(program: LoopProgram, change: Callable[[Segment], Segment]) -> LoopProgram:
    """The program with its segments changed; the same object where none is."""
    segments = tuple(map(change, program.segments))
    return program if segments == program.segments else replace(program, segments=segments)


def returning_what_it_writes(segment: Segment) -> Segment:
    """The segment, of which writes were taken out, without the results that it no longer writes."""
    written = {each.buffer for each in walk(segment.body) if isinstance(each, Write)}
    results = tuple(id for id in segment.results if id in written)
    return segment if results == segment.results else replace(segment, results=results)


def _does_something(statement: Statement) -> bool:
    return not isinstance(statement, Loop | Guard | Branch) or any(nested(statement))


def _same(old: Iterable[object], new: Iterable[object]) -> bool:
    old, new = tuple(old), tuple(new)
    return len(old) == len(new) and all(one is other for one, other in zip(old, new))
