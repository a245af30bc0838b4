"""LoopIR as text: what the tests of passes on it share."""

from __future__ import annotations

from typing import Any

from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.parse import parse
from tempo.loop_ir.passes import LoopContext, LoopPass
from tempo.loop_ir.verify import verify
from tempo.passes.manager import Decided
from tempo.symbolic import Symbol


def after(chosen: LoopPass, text: str, size: int = 8, **context: Any) -> LoopProgram:
    """What the pass makes of a program over `t`, right before and after."""
    program, sizes = parse(text), {Symbol("t", "size"): size}
    verify(program, sizes)
    made = chosen.apply(program, LoopContext(sizes, **context))
    result = made.program if isinstance(made, Decided) else made
    verify(result, sizes)
    return result


def assert_becomes(chosen: LoopPass, text: str, expected: str, size: int = 8, **context: Any) -> None:
    assert str(after(chosen, text, size, **context)) == str(parse(expected))


def assert_stays(chosen: LoopPass, text: str, size: int = 8, **context: Any) -> None:
    found = after(chosen, text, size, **context)
    assert (found.items, found.segments, found.buffers) == (
        parse(text).items,
        parse(text).segments,
        parse(text).buffers,
    )
