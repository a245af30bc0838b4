"""What is added to at indices is added to where it lies, as long as nobody else may look at it."""

import pytest

from tempo.loop_ir.transforms.update_in_place import UpdateInPlace
from tests.unit.loop_ir.transforms.texts import assert_becomes, assert_stays

SUM = """
buffer b0 "x": float32[2, 3] input over (t@0: full t.size) as ($t, 0, 1)
buffer b1 "i": int32[2] input over (t@0: full t.size) as ($t, 0)
buffer b2 "zeros": float32[5, 3] input as (0, 1)
buffer b3 "s": float32[5, 3] internal
buffer b4 "h": float32[2, 3] output over (t@0: full t.size) as ($t, 0, 1)
buffer b5 "u": float32[5, 3] internal
buffer b6 "r": float32[3] internal
input "x" = b0
input "i" = b1
input "zeros" = b2
output "h" = b4
segment segment_0(t.size; b0, b1, b2, b3, b4, b5, b6) -> (RESULTS) loop:
  for t in 0..t.size:
    if t == 0:
      v1 = read b2FRESH
      v3 = FIRST
    else:
      v2 = read b3
      v3 = v2
    v4 = read b1[t]
    v5 = read b0[t]
    v6: float32[5, 3] = scatter_add(v3: float32[5, 3], v4: int32[2], v5: float32[2, 3]) {HOW}
    MORE
    write b3[] = v6
    v7: float32[2, 3] = gather(v6: float32[5, 3], v4: int32[2]) {axis: 0, batch: 0, checked: False}
    write b4[t] = v7
    LAST
driver:
  run segment_0
"""
HOW = "axis: 0, batch: 0, checked: False"
IN_PLACE = f"{HOW}, in_place: True"


def text(more: str = "", last: str = "", first: str = "v1", in_place: bool = False) -> str:
    told = {"MORE": more, "LAST": last, "FIRST": first}
    told |= {"FRESH": " fresh" if in_place else "", "HOW": IN_PLACE if in_place else HOW}
    told["RESULTS"] = ", ".join(["b3", "b4", *(name for name in ("b5", "b6") if f"write {name}" in more + last)])
    found = SUM
    for name, value in told.items():
        found = found.replace(name, value)
    return "\n".join(line for line in found.splitlines() if line.strip())


def test_a_sum_is_added_to_where_it_lies() -> None:
    """It begins with a copy: what it begins with is the caller's."""
    assert_becomes(UpdateInPlace(), text(), text(in_place=True))


def test_a_sum_that_has_begun_before_the_loop() -> None:
    """What is written there first was made for it as well."""
    begun = f"""
segment segment_1(; b0, b1, b2, b3) -> (b3):
  v8 = read b2
  v9 = read b1[0]
  v10 = read b0[0]
  v11: float32[5, 3] = scatter_add(v8: float32[5, 3], v9: int32[2], v10: float32[2, 3]) {{{HOW}}}
  write b3[] = v11
driver:
  run segment_1
  run segment_0
"""
    choice = text().splitlines()
    first, last = choice.index("    if t == 0:"), choice.index("      v3 = v2")
    alone = [*choice[:first], "    v3 = read b3", *choice[last + 1 : choice.index("driver:")]]
    before = "\n".join(alone).replace("for t in 0", "for t in 1") + begun
    line = next(each for each in alone if "scatter_add" in each)
    assert_becomes(UpdateInPlace(), before, before.replace(line, line.replace(HOW, IN_PLACE)))


def test_what_is_looked_at_where_something_else_is_added_to() -> None:
    behind = f"""
segment segment_1(; b1, b2, b3, b5) -> (b5):
  v8 = read b3
  v9 = read b1[0]
  v10: float32[2, 3] = gather(v8: float32[5, 3], v9: int32[2]) {{axis: 0, batch: 0, checked: False}}
  v11 = read b2
  v12: float32[5, 3] = scatter_add(v11: float32[5, 3], v9: int32[2], v10: float32[2, 3]) {{{HOW}}}
  write b5[] = v12
driver:
  run segment_0
  run segment_1
"""
    before, after = (text(in_place=each).replace("driver:\n  run segment_0", behind) for each in (False, True))
    assert_becomes(UpdateInPlace(), before, after)


def test_a_sum_that_begins_again_with_what_was_there_is_copied() -> None:
    """What is made once and written at every turn of an outer loop must be as it was at each."""
    lines = text().splitlines()
    first, last = lines.index("    if t == 0:"), lines.index("      v3 = v2")
    inner = ["    " + each[2:] for each in ["    v3 = read b3", *lines[last + 1 : lines.index("driver:")]]]
    outer = f"""
  v8 = read b2
  v9 = read b1[0]
  v10 = read b0[0]
  v11: float32[5, 3] = scatter_add(v8: float32[5, 3], v9: int32[2], v10: float32[2, 3]) {{{HOW}}}
  for i in 0..2:
    write b3[] = v11
    for t in 0..t.size:"""
    head = [each.replace(" loop:", ":") for each in lines[: first - 1]]
    inner = ["  " + each for each in inner]
    assert_stays(UpdateInPlace(), "\n".join([*head, *outer.splitlines()[1:], *inner, "driver:", "  run segment_0"]))


@pytest.mark.parametrize(
    "given",
    [
        text(more="write b5[] = v6"),  # another slot holds what is written over
        text(last="v8 = read b3\n    v9: float32[3] = reduce_sum(v8: float32[5, 3]) {axes: (0,)}\n    write b6[] = v9"),
        text(last="v8: float32[5, 3] = neg(v3: float32[5, 3])\n    write b5[] = v8"),  # what was there is needed again
        text(
            last="v8: float32[1, 3] = slice(v6: float32[5, 3], `t`, `0`) "
            "{lengths: (`1`, `3`), starts: (`t`, `0`), steps: (1, 1)}\n"
            "    v9: float32[3] = reshape(v8: float32[1, 3]) {shape: (`3`,)}\n    write b6[] = v9"  # part of it is kept
        ),
    ],
)
def test_what_somebody_else_may_look_at_is_copied(given: str) -> None:
    assert_stays(UpdateInPlace(), given)
