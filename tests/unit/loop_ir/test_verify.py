"""What is wrong in a program is told with the place where it is."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from tempo.errors import InternalError
from tempo.loop_ir.parse import parse
from tempo.loop_ir.verify import verify
from tempo.symbolic import LARGEST_SIZE, Symbol

TEXT = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "n": int32[] internal
input "x" = b0
output "h" = b1
segment segment_0(t.size; b0, b1) -> (b1) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    if t >= 1:
      v2: float32[3] = neg(v1: float32[3])
      v3 = v1
    else:
      v2 = v1
    write b1[t] = v2
driver:
  run segment_0
"""
WRONG = [
    ("    v1 = read b0[t]\n", "", "v1 is not defined here, in segment_0: v2"),
    ("= v2\n", "= v3\n", "v3 is not defined here"),
    ("      v2 = v1", "      v4 = v1", "v2 is not defined here"),
    ("      v3 = v1", "      v1 = v2", "v1 is defined again"),
    ("read b0[t]", "read b0[t, 0]", "b0 has 1 axes"),
    ("read b0[t]", "read b7[t]", "there is no buffer b7"),
    ("read b0[t]", "read b0[t + 1]", "t + 1 leaves the buffer, of which there are t.size"),
    ("read b0[t]", "read b0[t +: 2]", "t leaves the buffer"),
    ("read b0[t]", "read b0[s]", "s stands for nothing here"),
    ("write b1[t]", "write b0[t]", "b0, which is written, is an input"),
    ("write b1[t]", "write b1[t +: 2]", "v2 is float32[3], and its place float32[2, 3]"),
    ("neg(v1: float32[3])", "neg(v1: float32[2])", "v1 is float32[3], not float32[2]"),
    ("v2: float32[3] = neg", "v2: int32[3] = neg", "the operator's rule gives float32[3], not int32[3]"),
    ("neg(v1: float32[3])", "neg(v1: float32[3], `t`)", "too many or too few scalars"),
    ("-> (b1) loop", "-> () loop", "it does not return b1, in segment_0"),
    ("    write b1[t] = v2\n", "    run segment_0\n    write b1[t] = v2\n", "it cannot run here"),
    ("  run segment_0", "  run segment_3", "there is no segment 3, in the driver"),
    (
        "    write b1[t] = v2\n",
        "    stop if b2 != 0\n    write b1[t] = v2\n    stop if b2 != 0\n",
        "no loop is left here",
    ),
]


def test_what_nothing_writes_is_told_where_it_holds_for_all_sizes() -> None:
    """At known sizes what makes nothing is left out."""
    text = TEXT.replace("read b0[t]", "read b2").replace(
        "float32[3] = neg(v1: float32[3])", "int32[] = neg(v1: int32[])"
    )
    text = text.replace("b0, b1)", "b1, b2)").replace('b1 "h": float32[3]', 'b1 "h": int32[]')
    verify(parse(text), {Symbol("t", "size"): 4})
    with pytest.raises(InternalError, match="nothing writes b2"):
        verify(parse(text))


def test_what_is_right_passes() -> None:
    verify(parse(TEXT), {Symbol("t", "size"): 4})


def test_of_a_long_loop_the_ends_are_looked_at() -> None:
    sizes = {Symbol("t", "size"): LARGEST_SIZE}
    tracemalloc.start()
    verify(parse(TEXT), sizes)
    with pytest.raises(InternalError, match="leaves the buffer"):
        verify(parse(TEXT.replace("read b0[t]", "read b0[t + 1]")), sizes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_what_is_wrong_is_told(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(InternalError, match=re.escape(said)):
        verify(parse(TEXT.replace(old, new)), {Symbol("t", "size"): 4})
