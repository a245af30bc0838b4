"""Loop unswitching, of guards: a loop in another one is entered only where something in it runs.

    for l in 0..L: if t >= P: a;  if t >= P - 1 and l == L - 1: b      becomes      if t >= P - 1: for l in 0..L: ...

A decoder's layers have nothing to do at the points of a prompt that is read at once: where loops are Python's, turns
of a loop that does nothing are what such points cost. Backends that compile loops split them instead
(`tempo.loop_ir.transforms.loop_splitting`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tempo.loop_ir.ir import Assign, Block, Branch, Loop, LoopProgram, Read, Statement
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.rewriter import BlockScope, rewritten_program
from tempo.symbolic import And, Condition, Context, Symbol, conjunction


@dataclass(frozen=True)
class LoopUnswitching:
    name: ClassVar[str] = "loop_unswitching"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        return rewritten_program(program, finish=_unswitched)


def _unswitched(block: Block, scope: BlockScope) -> Block:
    if not scope.loops or not any(isinstance(each, Loop) for each in block):
        return block
    found = tuple(_entered(each) if isinstance(each, Loop) else each for each in block)
    return block if all(new is old for new, old in zip(found, block)) else found


def _entered(loop: Loop) -> Statement:
    """The loop, behind what every statement of its body asks for whichever the iteration is."""
    acting = [each for each in loop.body if not isinstance(each, Read | Assign)]
    wanted = [_invariant(each, loop.var) for each in acting]
    if not wanted or not all(wanted):
        return loop
    facts = [Context.of((), *each) for each in dict.fromkeys(wanted)]
    asked = dict.fromkeys(condition for each in wanted for condition in each)
    shared = [each for each in asked if all(known.implies(each) for known in facts)]
    return Branch(conjunction(shared), (loop,)) if shared else loop


def _invariant(statement: Statement, variable: Symbol) -> tuple[Condition, ...]:
    """What holds where the statement does anything, and is the same in all iterations."""
    if not isinstance(statement, Branch) or statement.otherwise:
        return ()
    return tuple(each for each in _conjuncts(statement.condition) if variable not in each.dims())


def _conjuncts(condition: Condition) -> Iterator[Condition]:
    yield from condition.args if isinstance(condition, And) else (condition,)
