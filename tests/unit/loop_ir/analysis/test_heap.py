"""A heap without contents: who holds what, and when the most lives."""

from __future__ import annotations

from tempo.loop_ir.analysis.heap import Begin, Frame, Heap, Moment, Piece


def test_a_piece_lives_as_long_as_a_name_holds_it() -> None:
    heap = Heap()
    with Frame[str](heap) as one, Frame[str](heap) as other:
        a = Piece(8, "a")
        one["x"] = a
        other["y"] = a
        assert heap.live == 8
        one["x"] = None
        assert heap.live == 8
        other["y"] = None
        assert heap.live == 0
    assert heap.peak == 8


def test_what_a_name_held_goes_when_the_new_value_is_there() -> None:
    heap = Heap()
    with Frame[str](heap) as names:
        names["x"] = Piece(8, "a")
        names["x"] = Piece(4, "b")
        assert (heap.live, heap.peak) == (4, 12)
    assert [piece.name for piece in heap.at_peak] == ["a", "b"]
    assert heap.live == 0


def test_moments_say_where_the_program_was() -> None:
    heap = Heap()
    with Frame[str](heap) as names:
        with heap.within("segment_0"), heap.within("for t"):
            heap.begin(3)
            names["x"] = a = Piece(8, "a")
        names["y"] = Piece(0, "nothing")
    assert heap.moments == [Moment(("segment_0", "for t"), 8, a, True), Moment((), 0, a, False)]
    assert heap.begins == [Begin(0, ("segment_0", "for t"), 3)]


def test_a_piece_is_of_the_buffer_that_it_is_stored_in_first() -> None:
    heap = Heap()
    made, own = Piece(8, "a"), Piece(8, "b", buffer=1)
    for piece, buffer in ((made, 2), (made, 3), (own, 2), (None, 4)):
        heap.store(piece, buffer)
    assert heap.stored == {made: 2}


def test_a_frame_becomes_what_another_was() -> None:
    heap = Heap()
    with Frame[str](heap, {"x": Piece(8, "a")}) as names:
        before = names.held
        names["y"] = Piece(2, "b")
        names["x"] = None
        assert heap.live == 2
        names.become(before)
        assert (heap.live, list(names.held)) == (8, ["x"])
