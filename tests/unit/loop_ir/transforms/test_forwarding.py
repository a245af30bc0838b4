"""What has just been written is not read again."""

from __future__ import annotations

from tempo.loop_ir.ir import Assign, Branch, Loop, PointIndex, Read, WindowIndex, Write
from tempo.loop_ir.transforms.forwarding import forwarded
from tempo.symbolic import const, dim, size

T = dim("t")
(SYMBOL,) = T.symbols()


def read(result: str, at: object = T, fresh: bool = False) -> Read:
    return Read(result, 1, (PointIndex(at),), fresh)  # type: ignore[arg-type]


def write(value: str, at: object = T) -> Write:
    return Write(1, (at,), value)  # type: ignore[arg-type]


def test_a_read_at_the_place_just_written_takes_the_value() -> None:
    assert forwarded((write("a"), read("b"))) == (write("a"), Assign("b", "a"))


def test_other_places_and_copies_are_read() -> None:
    window = Read("b", 1, (WindowIndex(T, const(2), exact=True),))
    for other in (read("b", T - 1), read("b", fresh=True), Read("b", 2, (PointIndex(T),)), window):
        assert forwarded((write("a"), other)) == (write("a"), other)


def test_another_write_to_the_buffer_may_be_to_the_same_place() -> None:
    block = (write("a"), write("c", T - 1), read("b"))
    assert forwarded(block) == block


def test_blocks_inside_know_what_was_written_before_them() -> None:
    condition = T.ge(1)
    block = (write("a"), Branch(condition, (read("b"),), (write("c"), read("b"))), read("d"))
    wanted = Branch(condition, (Assign("b", "a"),), (write("c"), Assign("b", "c")))
    assert forwarded(block) == (write("a"), wanted, read("d"))


def test_a_loop_may_have_written_before_its_body_reads() -> None:
    (inner,) = dim("s").symbols()
    loop = Loop(inner, const(0), size("s"), "forward", (read("b"), write("c")))
    assert forwarded((write("a"), loop)) == (write("a"), loop)
    reads = Loop(inner, const(0), size("s"), "forward", (read("b"),))
    assert forwarded((write("a"), reads))[1].body == (Assign("b", "a"),)  # type: ignore[union-attr]
