"""One walk rewrites LoopIR, and knows what is around a block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tempo.loop_ir.ir import Assign, Branch, Guard, Loop, LoopProgram, Segment, Statement, walk
from tempo.loop_ir.rewriter import Block, BlockScope, rewritten, rewritten_program, with_segments
from tempo.symbolic import const, dim, size

T = dim("t")
(SYMBOL,) = T.symbols()


def loop(*body: Statement) -> Loop:
    return Loop(SYMBOL, const(0), size("t"), "forward", body)


BRANCH = Branch(T.ge(1), (Assign("both", "x"), Assign("one", "x")), (Assign("both", "y"),))
BLOCK: Block = (loop(Assign("a", "x"), BRANCH), Guard(0, (const(0),), (Assign("b", "a"),)))


def without(*names: str) -> Block:
    def gone(statement: Statement, scope: BlockScope) -> Iterable[Statement] | None:
        return () if isinstance(statement, Assign) and statement.result in names else None

    return rewritten(BLOCK, gone)


def test_what_changes_nothing_gives_the_same_object() -> None:
    assert rewritten(BLOCK) is BLOCK
    assert rewritten(BLOCK, finish=lambda block, scope: block) is BLOCK
    assert without("nobody") is BLOCK


def test_a_program_in_which_nothing_changes_is_the_same_object() -> None:
    program = LoopProgram((), (Segment(0, BLOCK, ()),), {}, (), {}, {}, {}, {})
    assert with_segments(program, lambda each: replace(each, body=rewritten(each.body))) is program
    assert rewritten_program(program) is program
    assert rewritten_program(program, lambda statement, scope: ()).segments[0].body == ()


def test_one_statement_may_become_several_and_others_stay_the_same_objects() -> None:
    def doubled(statement: Statement, scope: BlockScope) -> Iterable[Statement] | None:
        twice = isinstance(statement, Assign) and statement.result == "b"
        return (statement, statement) if twice else None

    found = rewritten(BLOCK, doubled)
    assert found[0] is BLOCK[0]
    assert found[1].body == (Assign("b", "a"),) * 2  # type: ignore[union-attr]


def test_what_has_nothing_left_in_it_goes() -> None:
    assert without("b") == BLOCK[:1]
    assert without("both", "one") == (loop(Assign("a", "x")), BLOCK[1])
    assert without("a", "b", "both", "one") == ()


def test_blocks_come_inner_before_outer_with_what_is_around_them() -> None:
    seen: list[tuple[list[str], int, list[str]]] = []

    def look(block: Block, scope: BlockScope) -> Block:
        names = [each.result for each in block if isinstance(each, Assign)]
        seen.append((names, len(scope.loops), sorted(scope.leaving)))
        assert all(isinstance(each, Loop | Branch | Guard) for each in scope.path)
        return block

    rewritten(BLOCK, finish=look)
    assert seen == [
        (["both", "one"], 1, ["both"]),
        (["both"], 1, ["both"]),
        (["a"], 1, []),
        (["b"], 0, []),
        ([], 0, []),
    ]


def test_what_stands_in_the_place_of_a_statement_is_not_looked_at_again() -> None:
    def nested(statement: Statement, scope: BlockScope) -> Iterable[Statement] | None:
        return (loop(statement),) if isinstance(statement, Assign) else None

    assert sum(isinstance(each, Loop) for each in walk(rewritten(BLOCK, nested))) == 1 + 5
