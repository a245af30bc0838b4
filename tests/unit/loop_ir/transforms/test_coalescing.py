"""What a running sum begins with lies where the sum will lie, if nobody needs both at once."""

import pytest

from tempo.loop_ir.transforms.coalescing import Coalescing
from tests.unit.loop_ir.transforms.texts import assert_becomes, assert_stays

SUM = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "i": int32[] input over (t@0: full t.size) as ($t)
buffer b2 "begun": float32[5, 3] internal
buffer b3 "sum": TYPE internal
buffer b4 "s": float32[5, 3] output as (0, 1)
buffer b5 "zeros": float32[5, 3] input as (0, 1)
input "x" = b0
input "i" = b1
input "zeros" = b5
output "s" = b4
segment segment_0(t.size; BUFFERS) -> (RESULTS):
  v0 = read b5
  v1: float32[5, 3] = exp(v0: float32[5, 3])
  write BEGUN[] = v1
  for t in 0..FIRST:
    v2 = read BEGUN
    v3 = v2
    v4 = read b1[t]
    v5 = read b0[t]
    v6: float32[5, 3] = scatter_add(v3: float32[5, 3], v4: int32[], v5: float32[3]) {axis: 0, batch: 0, checked: False}
    write b3[] = v6
  for t in min(1, t.size)..t.size:
    v2 = read b3
    v4 = read b1[t]
    v5 = read b0[t]
    v6: float32[5, 3] = scatter_add(v2: float32[5, 3], v4: int32[], v5: float32[3]) {axis: 0, batch: 0, checked: False}
    write b3[] = v6
  v7 = read b3
  MORE
  write b4[] = v7
driver:
  run segment_0
"""


def text(
    begun: str = "b2", first: str = "min(1, t.size)", more: str = "", type: str = "float32[5, 3]", results: str = ""
) -> str:
    told = {"BEGUN": begun, "FIRST": first, "MORE": more, "TYPE": type}
    told["BUFFERS"] = "b0, b1, b2, b3, b4, b5" if begun == "b2" else "b0, b1, b3, b4, b5"
    told["RESULTS"] = results or ("b2, b3, b4" if begun == "b2" else "b3, b4")
    found = SUM
    for name, value in told.items():
        found = found.replace(name, value)
    return "\n".join(line for line in found.splitlines() if line.strip())


def test_a_sum_lies_where_it_begins() -> None:
    assert_becomes(Coalescing(), text(), text("b3"))


@pytest.mark.parametrize(
    "other",
    [
        {"first": "t.size"},  # the second step would begin with the first one's sum
        {"more": "v8 = read b2"},
        {"more": "for s in 0..2:\n    v8 = read b2\n    write b3[] = v7"},
    ],
    ids=["more than one step", "read after the loop", "read in another loop"],
)
def test_what_is_needed_beside_the_sum_lies_apart(other: dict[str, str]) -> None:
    assert_stays(Coalescing(), text(**other))


def test_a_segment_that_is_called_again_keeps_what_it_holds() -> None:
    called = text().replace("  run segment_0", "  for r in 0..2:\n    run segment_0")
    assert_stays(Coalescing(), called)
