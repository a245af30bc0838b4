"""Every pass on LoopIR, text in and text out: where it does something, and where it must not."""

from __future__ import annotations

import pytest

from tempo.loop_ir.passes import Narrow
from tempo.loop_ir.pipeline import at_sizes, for_all_sizes, for_streams
from tempo.loop_ir.transforms.array_shrinking import ArrayShrinking
from tempo.loop_ir.transforms.circular_reads import ChunkedOutputs, CircularReads
from tempo.loop_ir.transforms.concat_in_place import ConcatInPlace
from tempo.loop_ir.transforms.copy_propagation import CopyPropagation
from tempo.loop_ir.transforms.dead_stores import DeadStores
from tempo.loop_ir.transforms.dynamic_extent.versions import DynamicExtents
from tempo.loop_ir.transforms.forwarding import Forwarding
from tempo.loop_ir.transforms.fuse_segments import FuseSegments, PassThrough
from tempo.loop_ir.transforms.loop_unswitching import LoopUnswitching
from tempo.loop_ir.transforms.mask_elimination import MaskElimination
from tempo.loop_ir.transforms.offload.rewriting import Offload
from tempo.loop_ir.transforms.read_ahead import TakeAhead
from tempo.loop_ir.transforms.rematerialization import Rematerialization
from tempo.plugins.manager import get_backend
from tempo.symbolic import Symbol
from tests.unit.loop_ir.transforms import test_update_in_place
from tests.unit.loop_ir.transforms.texts import after, assert_becomes, assert_stays

NARROW = Narrow(("h",), Symbol("t", "dim"), 2)
BUFFERS = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "s": float32[3] internal
buffer b3 "k": float32[3] internal over (t@0: full t.size)
input "x" = b0
output "h" = b1
"""
COPIES = """
segment segment_0(t.size; b0, b1, b3) -> (b1, b3) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    write b3[t] = v1
    WRITE
    v2 = READ
    write b1[t] = v2
driver:
  run segment_0
"""
WINDOW = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "w": float32[3] internal over (t@0: window 2)
input "x" = b0
output "h" = b1
segment segment_0(t.size; b0, b1, b2) -> (b1, b2) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    write b2[t % 2] = v1
    v2 = read b2[READ +: 2 of min(t + 1, 2)EXACT]
    v3: float32[2, 3] = mask(v2: float32[2, 3], `min(t + 1, 2)`) {axis: 0, fill: 0.0, length: `min(t + 1, 2)`}
    v4: float32[3] = FOLD
    write b1[t] = v4
driver:
  run segment_0
"""
PAST = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "k": float32[3] internal over (t@0: full t.size)ZEROED
input "x" = b0
output "h" = b1
segment segment_0(t.size; b0, b1, b2) -> (b1, b2) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    write b2[t] = v1
    v2 = read b2[0 +: t.size of t + 1]
    MASK
    v4: float32[3] = reduce_sum(v3: float32[t.size, 3]) {axes: (0,)}
    write b1[t] = v4
driver:
  run segment_0
"""
MASK = "v3: float32[t.size, 3] = mask(v2: float32[t.size, 3], `LENGTH`) {axis: 0, fill: 0.0, length: `LENGTH`}"
STREAM = """
buffer b0 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b1 "x": float32[3] internal local (t)
output "h" = b0
host 0 = %0: float32[3] over (t) = host_call {batched: (), name: "x", ordered_by: ($t,), resource: None, STREAM} @1
offsets 0 (b0 0..0, b1 0..0)
"""
EACH = """
segment segment_0(t; b0, b1) -> (b0):
  v1 = read b1
  write b0[t] = v1
driver:
  for t in 0..t.size:
    call 0(t):
      write b1[] = y0
    run segment_0
"""


def test_every_pass_is_here() -> None:
    passes = (*for_all_sizes(), *for_streams(), *get_backend("numpy").loop_passes(at_sizes()))
    named = {*globals(), *vars(test_update_in_place)}
    assert all(type(each).__name__ in named for each in passes)


# -- forwarding -----------------------------------------------------------------------------------------------------


def copies(read: str = "read b3[t]", write: str = "") -> str:
    lines = (BUFFERS + COPIES).replace("READ", read).replace("WRITE", write)
    return "\n".join(line for line in lines.splitlines() if line.strip())


def test_what_was_just_written_is_not_read() -> None:
    assert_becomes(Forwarding(), copies(), copies("v1"))


@pytest.mark.parametrize("read", ["read b3[max(t - 1, 0)]", "read b3[t] fresh", "read b0[t]"])
def test_another_place_or_a_copy_is_read(read: str) -> None:
    assert_stays(Forwarding(), copies(read))


def test_a_write_to_what_may_be_the_same_place_makes_it_unknown() -> None:
    assert_stays(Forwarding(), copies(write="write b3[max(t - 1, 0)] = v1"))


# -- copy propagation -----------------------------------------------------------------------------------------------


NAMES = (
    BUFFERS
    + """
segment segment_0(t.size; b0, b1) -> (b1) loop:
  for t in 0..t.size:
    v0 = read b0[t]
    v1: float32[3] = tanh(v0: float32[3])
    BLOCK
    write b1[t] = v4
driver:
  run segment_0
"""
)
COPY = """
    v2 = v1
    v3 = v2
    v4: float32[3] = add(v2: float32[3], v3: float32[3])
"""
SIDES = """
    if t == 0:
      v3 = v1
      v4 = v3
    else:
      v4 = v1
"""


def names(block: str) -> str:
    return "\n".join(line for line in NAMES.replace("    BLOCK", block).splitlines() if line.strip())


def test_a_name_of_another_name_goes() -> None:
    wanted = names("    v4: float32[3] = add(v1: float32[3], v1: float32[3])")
    assert_becomes(CopyPropagation(), names(COPY), wanted)


def test_what_both_sides_of_a_branch_name_stays() -> None:
    assert_becomes(CopyPropagation(), names(SIDES), names(SIDES.replace("      v3 = v1\n", "").replace("= v3", "= v1")))


def test_a_read_stands_where_it_is_used() -> None:
    assert_stays(CopyPropagation(), copies("read b3[max(t - 1, 0)]", "v4 = v1"))


# -- outputs of streams ---------------------------------------------------------------------------------------------


def test_an_output_that_is_taken_as_it_comes_is_circular() -> None:
    narrow = (
        copies("v1")
        .replace("output over (t@0: full t.size)", "output over (t@0: window 2)")
        .replace("b1[t]", "b1[t % 2]")
    )
    assert_becomes(ChunkedOutputs(), copies("v1"), narrow, narrow=NARROW)


def test_an_output_that_is_read_stays_whole() -> None:
    text = copies("read b1[max(t - 1, 0)]")
    assert_stays(ChunkedOutputs(), text, narrow=NARROW)
    assert_stays(ChunkedOutputs(), copies("v1"))  # nobody takes it so


# -- the host pool --------------------------------------------------------------------------------------------------

KEPT = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "g": float32[3] output
buffer b2 "h": float32[3] internal over (t@0: full t.size)
input "x" = b0
output "g" = b1
offsets 0 (b2 0..0)
segment segment_0(t.size; b0, b2) -> (b2) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    write b2[t] = v1
segment segment_1(t.size; b1, b2) -> (b1) loop:
  for t in t.size..0 backwards:
    v2 = read b2[t]
    v3: float32[3] = neg(v2: float32[3])
    write b1[] = v3
driver:
  run segment_0
  run segment_1
"""
AWAY = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "g": float32[3] output
buffer b2 "h": float32[3] internal over (t@0: full 2) pooled 0 of 64
input "x" = b0
output "g" = b1
segment segment_0(t_chunk, t.size; b0, b2) -> (b2):
  for t in 2*t_chunk..min(2*t_chunk + 2, t.size):
    v1 = read b0[t]
    write b2[t - 2*t_chunk] = v1
segment segment_1(t_chunk_, t.size; b1, b2) -> (b1):
  for t in min(2*t_chunk_ + 2, t.size)..2*t_chunk_ backwards:
    v2 = read b2[t - 2*t_chunk_]
    v3: float32[3] = neg(v2: float32[3])
    write b1[] = v3
driver:
  for t_chunk in 0..(t.size + 1)//2:
    run segment_0
    evict b2 max(2*t_chunk, 0)..min(2*t_chunk + 2, 64) from 2*t_chunk
  for t_chunk_ in (t.size + 1)//2..0 backwards:
    fetch b2 2*t_chunk_..2*t_chunk_ + 2 from 2*t_chunk_ ahead 2*t_chunk_ - 2..2*t_chunk_
    run segment_1
"""


def test_what_one_loop_keeps_for_another_goes_to_the_pool() -> None:
    assert_becomes(Offload(), KEPT, AWAY, size=64, offload=True)
    assert_stays(Offload(), KEPT, size=64)  # there is none


def test_what_no_loop_moves_over_is_a_chunk_by_itself() -> None:
    made = after(Offload(), KEPT.replace("read b2[t]", "read b2[5]"), 64, offload=True)
    assert "fetch b2 5..6 from 5\n" in str(made)
    assert "read b2[0]\n" in str(made)


@pytest.mark.parametrize(
    "text",
    [
        KEPT.replace('output "g" = b1', 'output "g" = b1\noutput "h" = b2').replace(
            "internal over (t@0: full t.size)", "output over (t@0: full t.size) as ($t, 0)"
        ),
        KEPT.replace("t in 0..t.size:", "t in 0..t.size:\n    v9 = read b2[0 +: t.size]"),
    ],
    ids=["an output", "read whole"],
)
def test_what_must_be_here_stays(text: str) -> None:
    assert text != KEPT
    assert_stays(Offload(), text, 64, offload=True)


# -- one segment ----------------------------------------------------------------------------------------------------

TWO = """
segment segment_0(t.size; b0, b3) -> (b3) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    write b3[t] = v1
segment segment_1(t.size; b1, b3) -> (b1) loop:
  for t in 0..t.size:
    v2 = read b3[t.size - 1 - t]
    write b1[t] = v2
driver:
  run segment_0
  run segment_1
"""
ONE = """
segment segment_0(t.size; b0, b1, b3) -> (b1):
  for t in 0..t.size:
    v1 = read b0[t]
    write b3[t] = v1
  for t in 0..t.size:
    v2 = read b3[t.size - 1 - t]
    write b1[t] = v2
driver:
  run segment_0
"""


def test_segments_become_one_that_returns_what_others_need() -> None:
    assert_becomes(FuseSegments(), BUFFERS + TWO, BUFFERS + ONE, fuses_segments=True)


def test_the_users_order_of_axes_is_brought_in_inside() -> None:
    turned = (BUFFERS + TWO).replace(
        "input over (t@0: full t.size) as ($t, 0)", "input over (t@0: full t.size) as (0, $t)"
    )
    read = "v1 = read b0[t]"
    whole = turned.replace(read, f"v3 = read b0[0 +: t.size]\n    {read}")
    found = after(FuseSegments(), whole, fuses_segments=True)
    assert str(found).count("moved_0: float32[t.size, 3] = transpose(given_4: float32[3, t.size]) {axes: (1, 0)}") == 1
    assert [found.buffers[id].axes for id in found.inputs.values()] == [()]
    found = after(FuseSegments(), turned, fuses_segments=True)
    assert "transpose" not in str(found)  # point by point it is read as it lies
    assert [len(found.buffers[id].axes) for id in found.inputs.values()] == [1]


def test_segments_stay_apart_for_chunks_and_around_the_host() -> None:
    assert_stays(FuseSegments(), BUFFERS + TWO)
    assert_stays(FuseSegments(), BUFFERS + TWO, fuses_segments=True, whole=False)
    assert_stays(FuseSegments(), STREAM.replace("STREAM", 'stream: "x"') + EACH, fuses_segments=True)


# -- circular buffers -----------------------------------------------------------------------------------------------


def window(fold: str, read: str = "max(t - 1, 0)", exact: str = " clamped") -> str:
    return WINDOW.replace("FOLD", fold).replace("READ", read).replace("EXACT", exact)


def test_a_sum_takes_a_circular_buffer_as_it_lies() -> None:
    fold = "reduce_sum(v3: float32[2, 3]) {axes: (0,)}"
    assert_becomes(CircularReads(), window(fold), window(fold, "0", ""))


def test_what_depends_on_the_order_reads_in_order() -> None:
    assert_stays(
        CircularReads(),
        window("cumsum(v3: float32[2, 3]) {axis: 0}")
        .replace("v4: float32[3]", "v4: float32[2, 3]")
        .replace(
            "write b1[t] = v4", "v5: float32[3] = reduce_max(v4: float32[2, 3]) {axes: (0,)}\n    write b1[t] = v5"
        ),
    )


# -- extents that vary ----------------------------------------------------------------------------------------------


def past(length: str = "t + 1", zeroed: str = "", mask: str = MASK) -> str:
    return PAST.replace("MASK", mask.replace("LENGTH", length)).replace("ZEROED", zeroed)


def test_a_region_becomes_choices_among_copies() -> None:
    text = str(after(DynamicExtents("specialise", 4), past()))
    copy = """
    choose t <= 3:
      v2_of_4 = read b2[0 +: 4 of t + 1]
      v3_of_4: float32[4, 3] = mask(v2_of_4: float32[4, 3], `t + 1`) {axis: 0, fill: 0.0, length: `t + 1`}
      v4: float32[3] = reduce_sum(v3_of_4: float32[4, 3]) {axes: (0,)}
    else:
      v2 = read b2[0 +: t.size of t + 1]
"""
    assert copy in text


def test_a_region_becomes_loops_over_blocks() -> None:
    text = str(after(DynamicExtents("blocks", 4), past()))
    assert text.count("    for v2.block in ") == 2
    whole, rest = text.split("    for v2.block in ")[1:]
    assert "mask(" not in whole
    assert "mask(" in rest
    assert "read b2[4*v2.block +: 4]" in whole


def test_the_hull_is_left() -> None:
    assert_stays(DynamicExtents("hull"), past())


# -- arrays of which a part is touched --------------------------------------------------------------------------------


LATER = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "k": float32[3] internal over (t@0: full EXTENT)
buffer b3 "y": float32[3] output as (0)
input "x" = b0
output "h" = b1
output "y" = b3
segment segment_0(t.size; b0, b1, b2, b3) -> (b1, b2, b3):
  for t in 0..t.size:
    v1 = read b0[t]
    if CONDITION:
      v2: float32[3] = tanh(v1: float32[3])
      write b2[WRITTEN] = v2
    write b1[t] = v1
  for t in t.size..4 backwards:
    v3 = read b2[READ]
    write b1[t] = v3
  v4 = read b2[ALL]
  v5: float32[3] = reduce_sum(v4: float32[t.size - 4, 3]) {axes: (0,)}
  write b3[] = v5
driver:
  run segment_0
"""


def later(
    condition: str = "t >= 4",
    written: str = "t",
    read: str = "t",
    window: str = "4 +: t.size - 4",
    extent: str = "t.size",
) -> str:
    text = LATER.replace("CONDITION", condition).replace("WRITTEN", written).replace("READ", read)
    return text.replace("ALL", window).replace("EXTENT", extent)


def test_an_array_begins_at_the_first_position_that_is_touched() -> None:
    shrunk = later(written="t - 4", read="t - 4", window="0 +: t.size - 4", extent="t.size - 4")
    assert_becomes(ArrayShrinking(), later(), shrunk)


def test_an_array_ends_at_the_last_position_that_is_touched() -> None:
    given = later("t < 4", read="t - 4").replace("t in t.size..4", "t in 8..4").replace("t.size - 4", "4")
    given = given.replace("4 +: 4", "0 +: 4")
    assert_becomes(
        ArrayShrinking(),
        given,
        given.replace('k": float32[3] internal over (t@0: full t.size)', 'k": float32[3] internal over (t@0: full 4)'),
        size=16,
    )


@pytest.mark.parametrize("condition", ["t >= 1", "t >= 4 or t == 0", "t % 2 == 0"])
def test_an_array_that_is_touched_nearly_everywhere_stays(condition: str) -> None:
    assert_stays(ArrayShrinking(), later(condition))


def test_arrays_of_loops_that_run_in_chunks_stay() -> None:
    assert_stays(ArrayShrinking(), later(), whole=False)


NOT_ALL = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "k": float32[3] internal over (t@0: full EXTENT)
input "x" = b0
output "h" = b1
segment segment_0(t.size; b0, b1, b2) -> (b1, b2):
  for t in 0..t.size:
    v1 = read b0[t]
    write b1[t] = v1
WRITTEN  for t in 4..t.size:
    v3 = read b0[t]
    write b2[t] = v3
  for t in 4..t.size:
    v2 = read b2[READ]
    write b1[t] = v2
driver:
  run segment_0
"""
ELSEWHERE = """  for t in 0..4:
    v4 = read b0[t]
    write b2[t] = v4
"""


def not_all(written: str = "", read: str = "t", extent: str = "t.size") -> str:
    return NOT_ALL.replace("WRITTEN", written).replace("READ", read).replace("EXTENT", extent)


def test_what_is_written_where_nobody_reads_is_not_written() -> None:
    left = ELSEWHERE.replace("    write b2[t] = v4\n", "")
    expected = not_all(left, "t - 4", "t.size - 4").replace("write b2[t]", "write b2[t - 4]")
    assert_becomes(ArrayShrinking(), not_all(ELSEWHERE), expected)


@pytest.mark.parametrize("read", ["t - 1", "t - 4"])
def test_what_is_written_where_somebody_reads_is(read: str) -> None:
    assert_stays(ArrayShrinking(), not_all(ELSEWHERE, read))


# -- views ----------------------------------------------------------------------------------------------------------

VIEWS = """
buffer b0 "x": float32[4] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[2, 2] output over (t@0: full t.size) as ($t, 0, 1)
buffer b2 "k": float32[4] internal over (t@0: KEPT)
buffer b3 "v": float32[2, 2] internal over (t@0: full t.size)
input "x" = b0
output "h" = b1
segment segment_0(t.size; b0, b1, b2, b3) -> (b1, b2RESULT):
  for t in 0..t.size:
    v1 = read b0[t]
    v2: float32[4] = tanh(v1: float32[4])
    write b2[tMODULO] = v2
    v3: float32[2, 2] = MADE
WRITE  for t in t.size..0 backwards:
READ    write b1[t] = v4
driver:
  run segment_0
"""
RESHAPED = "reshape(v2: float32[4]) {shape: (`2`, `2`)}"

SUMMED = """    v5 = read b3[0 +: t.size of t.size]
    v4: float32[2, 2] = reduce_sum(v5: float32[t.size, 2, 2]) {axes: (0,)}
"""


def views(
    kept: str = "full t.size", modulo: str = "", made: str = RESHAPED, read: str = "    v4 = read b3[t]\n"
) -> str:
    text = VIEWS.replace("KEPT", kept).replace("MODULO", modulo).replace("MADE", made).replace("READ", read)
    return text.replace("RESULT", ", b3").replace("WRITE", "    write b3[t] = v3\n")


def test_another_view_of_what_is_kept_is_made_where_it_is_read() -> None:
    again = "    v4_of = read b2[t]\n    v4: float32[2, 2] = " + RESHAPED.replace("v2", "v4_of") + "\n"
    expected = views(read=again).replace("    write b3[t] = v3\n", "").replace("b2, b3):", "b2):")
    assert_becomes(Rematerialization(), views(), expected.replace("b0, b1, b2, b3)", "b0, b1, b2)"))


@pytest.mark.parametrize(
    "text",
    [
        views("window 2", " % 2"),
        views().replace("write b3[t]", "write b3[0]"),
        views(read=SUMMED),
    ],
    ids=["of what is kept for a while", "at another point", "read at many points"],
)
def test_a_view_is_kept(text: str) -> None:
    assert_stays(Rematerialization(), text)


# -- masks ----------------------------------------------------------------------------------------------------------


def test_a_mask_of_what_nothing_has_written_goes() -> None:
    assert_becomes(MaskElimination(), past(), past(zeroed=" zeroed", mask="v3 = v2"))


@pytest.mark.parametrize("length", ["t", "max(t, 1)", "min(t + 1, 4)"])
def test_a_mask_of_what_was_written_stays(length: str) -> None:
    assert_stays(MaskElimination(), past(length))


# -- streams --------------------------------------------------------------------------------------------------------


def test_arrays_of_a_strip_are_taken_before_one_call() -> None:
    ahead = """
segment segment_0(; b0, b1, b2) -> (b0, b1) loop:
  for t in 0..t.size:
    taken___0___0 = read b2[t % 4]
    taken___0 = taken___0___0
    write b1[] = taken___0
    v1 = taken___0
    write b0[t] = v1
driver:
  for t in 0..t.size, calls of 4 ahead:
    call 0(t):
      write b2[t % 4] = y0
    run segment_0
"""
    text = STREAM.replace("STREAM", 'stream: "x"')
    staging = text.replace("local (t)\n", 'local (t)\nbuffer b2 "": float32[3] internal over (t@0: window 4)\n')
    assert_becomes(TakeAhead(), text + EACH, staging + ahead, fuses_segments=True, ahead=4)


def test_calls_that_are_no_streams_are_made_in_turn() -> None:
    assert_stays(TakeAhead(), STREAM.replace("STREAM", "stream: None") + EACH, fuses_segments=True)
    assert_stays(TakeAhead(), STREAM.replace("STREAM", 'stream: "x"') + EACH)


# -- what goes in and out -------------------------------------------------------------------------------------------


def test_a_slot_that_nobody_reads_later_does_not_leave() -> None:
    text = (
        BUFFERS
        + """
segment segment_0(t; b0, b1, b2) -> (b1, b2):
  v1 = read b0[t]
  write b2[] = v1
  v2 = read b2 fresh
  write b1[t] = v2
driver:
  for t in 0..t.size:
    run segment_0
"""
    )
    assert_becomes(PassThrough(), text, text.replace("-> (b1, b2)", "-> (b1)"))
    less = text.replace("-> (b1, b2)", "-> (b1) unread (b2)")
    assert_becomes(PassThrough(), text, less, allocates_inside=True)


def test_a_slot_that_the_next_iteration_reads_goes_in_and_out() -> None:
    text = (
        BUFFERS
        + """
segment segment_0(t; b0, b1, b2) -> (b1, b2):
  v1 = read b0[t]
  v2 = read b2 fresh
  write b2[] = v1
  write b1[t] = v2
driver:
  for t in 0..t.size:
    run segment_0
"""
    )
    assert_stays(PassThrough(), text)
    assert_stays(PassThrough(), text, allocates_inside=True)


# -- parts that are put in a row where they are kept -----------------------------------------------------------------

ROW = """
buffer b0 "x": float32[3] input over (t@0: full t.size, p@1: full 5) as ($t, $p, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "y": float32[2, 3] input over (t@0: full t.size) as ($t, 0, 1)
buffer b3 "k": float32[3] internal over (t@0: full t.size, p@1: KIND)
buffer b4 "s": float32[7, 3] internal
input "x" = b0
input "y" = b2
output "h" = b1
segment segment_0(t.size; b0, b1, b2, b3, b4) -> (b1, b3, b4) loop:
  for t in 0..t.size:
    v1 = read FIRST
    v2 = read b2[t]
BODY
    v4: float32[3] = reduce_sum(v3: float32[7, 3]) {axes: (0,)}
    write b1[t] = v4
    v5: float32[7, 3] = neg(v3: float32[7, 3])
    write b4[] = KEPT
driver:
  run segment_0
"""
IN_A_ROW = """
    v3: float32[7, 3] = concat(v1: float32[5, 3], v2: float32[2, 3]) {axis: 0}
    write b3[t, 0 +: 7] = v3
"""
IN_PLACE = """
    write b3[t, 0 +: 5] = v1
    write b3[t, 5 +: 2] = v2
    v3__placed = read b3[t, 0 +: 7]
    v3 = v3__placed
"""


def row(body: str = IN_A_ROW, first: str = "b0[t, 0 +: 5]", kind: str = "full 7", kept: str = "v5") -> str:
    text = ROW.replace("FIRST", first).replace("BODY", body).replace("KIND", kind).replace("KEPT", kept)
    return "\n".join(line for line in text.splitlines() if line.strip())


def test_parts_are_written_to_their_places() -> None:
    assert_becomes(ConcatInPlace(), row(), row(IN_PLACE))


def test_a_row_that_nobody_else_looks_at_is_not_read() -> None:
    def unread(text: str) -> str:
        gone = ("v3__placed", "v4", "v5: ")
        text = text.replace("write b1[t] = v4", "write b1[t] = v6").replace("KEPT", "v7")
        text = text.replace("    v2 = read b2[t]", "    v2 = read b2[t]\n    v6 = read b0[t, 0]\n    v7 = read b4")
        return "\n".join(line for line in text.splitlines() if not any(each in line for each in gone))

    assert_becomes(ConcatInPlace(), unread(row(kept="KEPT")), unread(row(IN_PLACE, kept="KEPT")))


@pytest.mark.parametrize(
    "text",
    [
        row(first="b3[t, 2 +: 5]"),  # what is moved within the buffer
        row(kept="v3"),  # another buffer takes it as it is
        row(IN_A_ROW + "    v6 = read b0[t, 0]\n    write b3[t, 0] = v6"),  # the places are written to again
        row(kind="window 7"),
        # a part that is a view is written over before it would be moved
        row(
            IN_A_ROW.replace(
                "    write b3", "    v6: float32[5, 3] = neg(v1: float32[5, 3])\n    write b5[] = v6\n    write b3"
            ),
            first="b5",
        )
        .replace('input "x"', 'buffer b5 "u": float32[5, 3] internal\ninput "x"')
        .replace("b3, b4", "b3, b4, b5"),
    ],
)
def test_a_row_is_made_first_where_its_places_are_not_free_or_its_memory_is_kept(text: str) -> None:
    assert_stays(ConcatInPlace(), text)


# -- loops that are entered where something in them runs -------------------------------------------------------------

LAYERS = """
buffer b0 "x": float32[3] input over (t@0: full t.size) as ($t, 0)
buffer b1 "h": float32[3] output over (t@0: full t.size) as ($t, 0)
buffer b2 "s": float32[3] internal
input "x" = b0
output "h" = b1
segment segment_0(t.size; b0, b1, b2) -> (b1, b2) loop:
  for t in 0..t.size:
    v1 = read b0[t]
    write b1[t] = v1
BODY
driver:
  run segment_0
"""


def layers(*lines: str) -> str:
    return LAYERS.replace("BODY\n", "".join(f"    {line}\n" for line in lines))


def test_a_loop_is_entered_only_where_something_in_it_runs() -> None:
    body = (
        "for l in 0..4:",
        "  if t - 5 >= 0:",
        "    v2: float32[3] = neg(v1: float32[3])",
        "    write b2[] = v2",
        "  if l - 3 >= 0 and t - 4 >= 0:",
        "    v3 = read b2",
        "    write b1[t] = v3",
    )
    entered = ("if t - 4 >= 0:", *(f"  {line}" for line in body))
    assert_becomes(LoopUnswitching(), layers(*body), layers(*entered))


@pytest.mark.parametrize(
    "body",
    [
        ("for l in 0..4:", "  write b2[] = v1"),
        ("for l in 0..4:", "  if t - 5 >= 0:", "    write b2[] = v1", "  if l - 3 >= 0:", "    write b1[t] = v1"),
        ("for l in 0..4:", "  if t - 5 >= 0:", "    write b2[] = v1", "  else:", "    write b1[t] = v1"),
        ("for l in 0..4:", "  if t - 5 >= 0:", "    write b2[] = v1", "  if 3 - t >= 0:", "    write b1[t] = v1"),
    ],
)
def test_a_loop_of_which_every_iteration_may_do_something_is_always_entered(body: tuple[str, ...]) -> None:
    assert_stays(LoopUnswitching(), layers(*body))


# -- what nothing reads is not written -------------------------------------------------------------------------------

STATES = """
buffer b0 "x": float32[300, 300] input
buffer b1 "h": float32[300, 300] output
buffer b2 "s": float32[300, 300] internal
buffer b3 "k": float32[300, 300] internal
input "x" = b0
output "h" = b1
segment segment_0(t.size; b0, b1, b2, b3) -> (b1, b2, b3):
  for t in 0..t.size:
BODY
LAST
driver:
  run segment_0
"""


def states(*body: str, last: tuple[str, ...] = ("v9 = read b2", "write b1[] = v9")) -> str:
    text = STATES.replace("BODY\n", "".join(f"    {line}\n" for line in body))
    return text.replace("LAST\n", "".join(f"  {line}\n" for line in last))


STEP = (
    "if t - 1 >= 0:",
    "  v1 = read b3",
    "  v2 = v1",
    "else:",
    "  v3 = read b0",
    "  v2 = v3",
)


def test_what_is_read_after_a_loop_is_written_in_its_last_iteration() -> None:
    new = ("v4: float32[300, 300] = neg(v2: float32[300, 300])", "write b3[] = v4")
    written = ("if t == t.size - 1:", "  write b2[] = v2")
    found = ("if t < t.size - 1:", f"  {new[1]}")
    assert_becomes(DeadStores(), states(*STEP, "write b2[] = v2", *new), states(*STEP, *written, new[0], *found))


@pytest.mark.parametrize("line", ["write b2[] = v4", "if t - 3 >= 0:\n      write b2[] = v4"])
def test_what_the_next_iteration_may_read_is_written(line: str) -> None:
    body = ("v1 = read b2", "v4: float32[300, 300] = neg(v1: float32[300, 300])", line)
    assert_stays(DeadStores(), states(*body).replace(" -> (b1, b2, b3)", " -> (b1, b2)").replace("b2, b3)", "b2)"))


def test_what_is_written_again_is_not_written_twice() -> None:
    first, second = ("v1 = read b0", "write b2[] = v1"), ("v4: float32[300, 300] = neg(v1: float32[300, 300])",)
    text = states(*first, *second, "write b2[] = v4").replace(" -> (b1, b2, b3)", " -> (b1, b2)")
    made = str(after(DeadStores(), text.replace("b2, b3)", "b2)")))
    assert "write b2[] = v1" not in made
    assert "write b2[] = v4" in made
