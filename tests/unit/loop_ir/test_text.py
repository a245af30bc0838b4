"""LoopIR is read back from its text, and every program that is made holds to what the verifier asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tempo as tp
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.parse import parse
from tempo.loop_ir.text import placeholders
from tempo.loop_ir.verify import verify
from tempo.sdg.parse import ParseError
from tempo.symbolic import Symbol
from tests.unit.loop_ir.programs import PROGRAMS, SIZE, WAYS, lowered

TEXT = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
input "x" = b0
output "h" = b1
segment segment_0(; b0, b1) -> (b1) loop:
  for t in t.size..0 backwards:
    v1 = read b0[t]
    choose t <= 3 and t >= 1:
      v2: float32[3] = neg(v1: float32[3]) "h"
    else:
      v2 = v1
    write b1[t] = v2
driver:
  run segment_0
"""


def test_what_stands_there_is_what_is_meant() -> None:
    program = parse(TEXT)
    assert str(program) == TEXT.lstrip()
    (loop,) = program.segments[0].body
    assert program.segments[0].loop is loop
    verify(program)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", PROGRAMS)
def test_text_is_read_back_and_holds(make: Callable[[], tp.Program], way: str) -> None:
    def check(program: LoopProgram, sizes: dict[Symbol, int]) -> None:
        read = parse(str(program), placeholders(program))
        assert read == program
        assert str(read) == str(program)
        verify(program, sizes)

    whole, special = lowered(make, way)
    check(whole, {})
    check(special, {Symbol("t", "size"): SIZE, Symbol("i", "size"): SIZE})


@pytest.mark.parametrize(
    "line", ["buffer b1 nothing", "what is this", "segment segment_0(t.size):", "stopped (x)", 'input "x" b0']
)
def test_what_cannot_be_read_says_the_line(line: str) -> None:
    with pytest.raises(ParseError, match="cannot read"):
        parse(line)
