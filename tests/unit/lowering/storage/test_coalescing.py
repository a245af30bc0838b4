"""Pieces of a definition that are made at once, or in a loop of their own, are made in the definition's buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tempo as tp
from tempo.loop_ir.ir import Compute, Read, walk
from tests.unit.lowering.planned import check, plan_of, storage

WIDTH = 3
Array = np.ndarray[Any, Any]


def arrays(**shapes: tuple[int, ...]) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def kept(run: tp.Executable) -> dict[str, tuple[int, ...]]:
    """The internal buffers with more than one point of something."""
    return {b.name: b.shape for b in run.memory.buffers if b.role == "internal" and len(b.shape) > 1}


def agrees(program: tp.Program, sizes: dict[str, int], given: dict[str, Array], **options: Any) -> tp.Executable:
    """The executable of NumPy with NaN in all that is not written yet, after it gave what the reference gives."""
    run = tp.compile(program, backend="numpy", sizes=sizes, options=tp.Options(poison=True, **options))
    expected = tp.compile(program, backend="reference", sizes=sizes)(**given)
    found = run(**given)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    return run


def declared() -> tuple[tp.Dim, tp.Dim, tp.RecurrentTensor, tp.RecurrentTensor, tp.RecurrentTensor]:
    """`t`, `p`, the points that are given, the tensor to define and its features."""
    t, p = tp.dims("t p")
    given = tp.input("given", (WIDTH,), (p,))
    w = tp.input("w", (WIDTH, WIDTH))
    x = tp.recurrent("x", (WIDTH,), (t,))
    return t, p, given, x, tp.tanh(x @ w)


def known_prefix(window: int | None = None) -> tp.Program:
    """What follows is told by the features of all before, or of the last ones; the first points are given."""
    with tp.Program() as program:
        t, p, given, x, feature = declared()
        first = 0 if window is None else tp.max(t + 1 - window, 0)
        x[t < p.size] = given[t]
        x[t + 1] = tp.sin(x * tp.abs(feature[first : t + 1] @ x).max(axis=0))
        tp.output("x", x)
    return program


@pytest.mark.parametrize(("size", "known"), [(9, 4), (6, 1), (5, 5), (6, 5), (4, 6), (1, 3)])
@pytest.mark.parametrize("mapping", [None, "sequential"])
def test_a_known_prefix_is_made_in_the_buffer_of_the_whole(size: int, known: int, mapping: str | None) -> None:
    given = arrays(given=(known, WIDTH), w=(WIDTH, WIDTH))
    run = agrees(known_prefix(), {"t": size, "p": known}, given, mapping=mapping)
    assert list(kept(run).values()) == [(size, WIDTH)]


@pytest.mark.parametrize("known", [2, 4, 7])
def test_of_a_circular_buffer_the_last_points_are_copied(known: int) -> None:
    """A piece longer than the window does not fit into its buffer."""
    given = arrays(given=(known, WIDTH), w=(WIDTH, WIDTH))
    run = agrees(known_prefix(window=4), {"t": 12, "p": known}, given)
    assert (4, WIDTH) in kept(run).values()
    assert (12, WIDTH) not in kept(run).values()


@pytest.mark.parametrize(("size", "known"), [(9, 4), (7, 6)])
def test_a_known_suffix_is_made_in_the_buffer_of_the_whole(size: int, known: int) -> None:
    """Backwards in time, and not from the first point of the buffer."""
    with tp.Program() as program:
        t, p, given, x, feature = declared()
        start = t.size - p.size
        x[t >= start] = given[t - start]
        x[t - 1] = tp.sin(x * tp.abs(feature[t : t.size] @ x).max(axis=0))
        tp.output("x", x)
    values = arrays(given=(known, WIDTH), w=(WIDTH, WIDTH))
    run = agrees(program, {"t": size, "p": known}, values)
    assert list(kept(run).values()) == [(size, WIDTH)]


def in_layers() -> tp.Program:
    with tp.Program() as program:
        b, l, t, p = tp.dims("b l t p")
        given = tp.input("given", (WIDTH,), (b, p))
        w = tp.input("w", (WIDTH, WIDTH), (l,))
        token = tp.recurrent("token", (WIDTH,), (b, t))
        x = tp.recurrent("x", (WIDTH,), (b, l, t))
        x[b, 0, t] = token
        feature = (x @ w).reshape(1, WIDTH)
        seen = feature[b, l, 0 : t + 1]
        y = tp.sin(x + tp.softmax(seen @ x, axis=0).reshape(-1) @ seen.reshape(-1, WIDTH))
        x[b, l + 1, t] = y
        token[t < p.size] = given[b, t]
        token[b, t + 1] = y[b, l.size - 1, t]
        tp.output("y", y[b, l.size - 1, t])
    return program


@pytest.mark.parametrize(("size", "known"), [(7, 4), (5, 4), (4, 4), (4, 6)])
def test_rows_whose_axes_lie_in_another_order(size: int, known: int) -> None:
    sizes = {"b": 2, "l": 3, "t": size, "p": known}
    run = agrees(in_layers(), sizes, arrays(given=(2, known, WIDTH), w=(3, WIDTH, WIDTH)))
    assert [shape for shape in kept(run).values() if len(shape) > 3] == [(3, size, 2, 1, WIDTH)]


# The first points of `h` are a row, of which every step reads the whole. It is in the buffer of `h` alone, its axes in
# another order.
READ_LATER = """\
dims t: t.size, p: p.size
%0: float32[2, p.size, 3] = input {layout: (0, 1, 2), name: "x", role: "input"} @0 "x"
%1: float32[2, min(p.size, t.size), 3] = slice(%0) {lengths: (`2`, `min(p.size, t.size)`, `3`), \
starts: (`0`, `0`, `0`), steps: (1, 1, 1)}
%2: float32[2, min(p.size, t.size), 3] = tanh(%1) "row"
%3: float32[2, 1, 3] over (t) = slice(%2) {lengths: (`2`, `1`, `3`), starts: (`0`, `t`, `0`), steps: (1, 1, 1)}
%4: float32[2, 3] over (t) = reshape(%3[t]) {shape: (`2`, `3`)}
%5: float32[2, 3] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | t < p.size -> %4[t]
  | True -> %9[t - 1]
%6: float32[t.size, 2, 3] = sin(%5[0 +: t.size])
%7: float32[2, min(p.size, t.size)] over (t) = dot(%2, %5[t]) {lhs_batch: (0,), lhs_contract: (2,), rhs_batch: (0,), \
rhs_contract: (1,)}
%8: float32[2, 1] over (t) = reshape(%10[t]) {shape: (`2`, `1`)}
%9: float32[2, 3] over (t) = sub(%5[t], %8[t])
%10: float32[2] over (t) = reduce_max(%7[t]) {axes: (1,)}
output "all": float32[t.size, 2, 3] = %6 as (0, 1, 2)
"""


def test_a_row_is_read_where_it_lives() -> None:
    assert "row" not in storage(plan_of(READ_LATER))
    assert storage(plan_of(READ_LATER))["h"] == "full"
    for t, p in ((5, 3), (4, 4), (2, 5), (6, 1)):
        check(READ_LATER, t=t, p=p)


# Two cases take from one row; `h` keeps what the first takes, and the second is copied.
TAKEN_TWICE = """\
dims t: 2 * p.size, p: p.size
%0: float32[p.size, 3] = input {layout: (0, 1), name: "x", role: "input"} @0 "x"
%1: float32[p.size, 3] = tanh(%0) "row"
%2: float32[1, 3] over (t) = slice(%1) {lengths: (`1`, `3`), starts: (`t`, `0`), steps: (1, 1)}
%3: float32[3] over (t) = reshape(%2[t]) {shape: (`3`,)}
%4: float32[1, 3] over (t) = slice(%1) {lengths: (`1`, `3`), starts: (`p.size - 1 - t`, `0`), steps: (1, 1)}
%5: float32[3] over (t) = reshape(%4[t]) {shape: (`3`,)}
%6: float32[3] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | CONDITION -> %3[t]
  | t < p.size -> %5[t]
  | True -> %7[t - 1]
%7: float32[3] over (t) = sin(%6[t])
%8: float32[2 * p.size, 3] = sin(%6[0 +: 2 * p.size])
output "all": float32[2 * p.size, 3] = %8 as (0, 1)
"""


@pytest.mark.parametrize(("condition", "copied"), [("t < p.size", False), ("t < p.size and t >= 1", True)])
def test_only_what_no_other_case_writes_over_is_at_home(condition: str, copied: bool) -> None:
    """With the second condition the point 0 has another value than the first of the row."""
    text = TAKEN_TWICE.replace("CONDITION", condition)
    assert (storage(plan_of(text))["row"] != "register") == copied
    for p in (1, 2, 5):
        check(text, p=p)


def test_a_place_that_the_row_does_not_have_is_written_by_the_case() -> None:
    """A slice that starts before an axis is clamped into it, so the points before the row show its first."""
    text = (
        TAKEN_TWICE.replace("2 * p.size", "2 * p.size + 2")
        .replace("starts: (`t`", "starts: (`t - 2`")
        .replace("CONDITION", "t < p.size + 2")
    )
    for p in (1, 2, 5):
        check(text, p=p)


# The second case reads the row where it lives, backwards; the axes of the row lie in another order there.
READ_BACK = """\
dims t: 3 * p.size, p: p.size
%0: float32[p.size, 3] = input {layout: (0, 1), name: "x", role: "input"} @0 "x"
%1: float32[3, p.size] = transpose(%0) {axes: (1, 0)}
%2: float32[3, p.size] = tanh(%1) "row"
%3: float32[3, 1] over (t) = slice(%2) {lengths: (`3`, `1`), starts: (`0`, `t`), steps: (1, 1)}
%4: float32[3] over (t) = reshape(%3[t]) {shape: (`3`,)}
%5: float32[3, 1] over (t) = slice(%2) {lengths: (`3`, `1`), starts: (`0`, `2 * p.size - 1 - t`), steps: (1, 1)}
%6: float32[3] over (t) = reshape(%5[t]) {shape: (`3`,)}
%7: float32[3] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | t < p.size -> %4[t]
  | t < 2 * p.size -> %6[t]
  | True -> %8[t - 1]
%8: float32[3] over (t) = sin(%7[t])
%9: float32[3 * p.size, 3] = sin(%7[0 +: 3 * p.size])
output "all": float32[3 * p.size, 3] = %9 as (0, 1)
"""


def test_every_name_is_made_once_where_an_element_is_taken_of_a_row_in_its_home() -> None:
    plan = plan_of(READ_BACK)
    assert "row" not in storage(plan)
    for segment in plan.loops.segments:
        names = [each.result for each in walk(segment.body) if isinstance(each, Read | Compute)]
        assert len(names) == len(set(names))
    for p in (1, 2, 5):
        check(READ_BACK, p=p)


def drawn_program(draw: st.DrawFn) -> tp.Program:
    """A sequence of which a stretch is given, in layers or not, read and shown in one way or another."""
    order = draw(st.permutations(["b", "l", "t", "p"]))
    backward, offset, layered = draw(st.booleans()), draw(st.integers(0, 2)), draw(st.booleans())
    window, shown = draw(st.sampled_from([None, None, 1, 3])), draw(st.sets(st.sampled_from(["feature", "sum", "y"])))
    names = "blt" if layered else "bt"
    with tp.Program() as program:
        dims = dict(zip(order, tp.dims(" ".join(order)), strict=True))
        b, l, t, p = (dims[name] for name in "bltp")

        def point(of: str, **changed: Any) -> tuple[Any, ...]:
            """A point of the dims in their order: where they are, but for some."""
            return tuple(changed.get(name, dims[name]) for name in order if name in of)

        known, w = tp.input("known", (WIDTH,), point("bp")), tp.input("w", (WIDTH, WIDTH), (l,))
        token = tp.recurrent("token", (WIDTH,), point("bt"))
        x = tp.recurrent("x", (WIDTH,), point("blt"))
        x[point("blt", l=0)] = token
        at = t.size - 1 - t if backward else t  # counted from where the sequence begins
        here, feature = (x, tp.tanh(x @ w)) if layered else (token, tp.tanh(token @ w[0]))
        first = 0 if window is None else tp.max(t + 1 - window, 0)
        stop = t.size if window is None else tp.min(t + window, t.size)
        seen = feature[point(names, t=slice(t, stop) if backward else slice(first, t + 1))]
        y = tp.sin(here * tp.abs(seen @ here).max(axis=0))
        x[point("blt", l=l + 1)] = y if layered else x
        last = y[point("blt", l=l.size - 1)] if layered else y
        if offset:
            token[at < offset] = 0.5
        token[(at >= offset) & (at < p.size + offset)] = known[point("bp", p=at - offset)]
        token[point("bt", t=t - 1 if backward else t + 1)] = last
        tp.output("token", token)
        if "feature" in shown:
            tp.output("feature", feature)
        if "sum" in shown:
            tp.output("sum", feature[point(names, t=slice(0, t.size))].sum(axis=0))
        if "y" in shown:
            tp.output("y", last)
    return program


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@drawn(
    st.composite(drawn_program)(),
    st.integers(1, 7),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from([None, None, "full", "sequential"]),
)
def test_drawn_programs_agree(program: tp.Program, size: int, known: int, layers: int, mapping: Any) -> None:
    values = arrays(known=(2, known, WIDTH), w=(layers, WIDTH, WIDTH))
    if [dim.symbol.name for dim in program.graph().dims if dim.symbol.name in "bp"] == ["p", "b"]:
        values["known"] = np.ascontiguousarray(values["known"].swapaxes(0, 1))
    agrees(program, {"b": 2, "l": layers, "t": size, "p": known}, values, mapping=mapping)
