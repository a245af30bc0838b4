"""How much of a buffer a statement touches, at known sizes."""

from __future__ import annotations

import pytest

from tempo.loop_ir.analysis.carried_values import reaches
from tempo.loop_ir.ir import Axis, Buffer, Loop, PointIndex, Read, Statement, WindowIndex, Write
from tempo.symbolic import Expr, Symbol, const, parse_expr, size

T, L, SIZE = Symbol("t", "dim"), Symbol("l", "dim"), Symbol("t", "size")
BUFFER = Buffer(0, "x", "float32", (Axis(L, 0, "full", const(3)), Axis(T, 1, "full", size("t"))), ())


def loop(var: Symbol, lo: str, hi: str, *body: Statement) -> Loop:
    return Loop(var, parse_expr(lo), parse_expr(hi), "forward", body)


def read(start: str, extent: str, exact: bool = True) -> Read:
    return Read("v", 0, (PointIndex(Expr(((L, 1),), 0)), WindowIndex(parse_expr(start), parse_expr(extent), exact)))


@pytest.mark.parametrize(
    ("statement", "layer", "point"),
    [
        (Write(0, (const(0), const(4)), "v"), 1, 5),
        (Write(0, (const(0), const(4)), "v", (None, const(3))), 1, 7),
        (loop(L, "0", "2", loop(T, "4", "8", Write(0, (parse_expr("l"), parse_expr("t")), "v"))), 2, 8),
        (loop(L, "0", "3", loop(T, "0", "t.size", Write(0, (parse_expr("l"), parse_expr("t")), "v"))), 3, 20),
        (loop(L, "0", "3", loop(T, "4", "8", read("0", "8"))), 3, 8),
        (loop(L, "0", "3", loop(T, "4", "8", read("t - 2", "3"))), 3, 8),
        (loop(L, "0", "3", loop(T, "4", "8", read("0", "8", exact=False))), 3, 20),  # it may be clamped anywhere
        (Write(0, (), "v"), 3, 20),
    ],
)
def test_reach(statement: Statement, layer: int, point: int) -> None:
    assert reaches(statement, {0: BUFFER}, {SIZE: 20}) == {(0, 0): layer, (0, 1): point}


def test_an_axis_of_unknown_size_has_no_reach() -> None:
    assert reaches(Write(0, (const(0), const(4)), "v"), {0: BUFFER}, {}) == {(0, 0): 1}
