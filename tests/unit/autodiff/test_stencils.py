"""The gradient of a stencil: sums of shifted reads, and as the stencil itself one operation per step in time."""

from __future__ import annotations

import pytest

import tempo as tp
from tests.unit.autodiff.differences import check, numbers


def heated(steps: int) -> tuple[tp.RecurrentTensor, dict[str, tp.RecurrentTensor]]:
    """Heat on a plate whose edge is cold: what is left in the end."""
    t, y, x = tp.dim("t", steps), tp.dim("y"), tp.dim("x")
    start = tp.input("start", (), (y, x), dtype=tp.float64)
    u = tp.recurrent("u", (), (t, y, x), dtype=tp.float64)
    u[(y == 0) | (y == y.size - 1) | (x == 0) | (x == x.size - 1)] = 0
    u[t < 1] = start
    around = u[t - 1, y - 1, x] + u[t - 1, y + 1, x] + u[t - 1, y, x - 1] + u[t - 1, y, x + 1]
    u[t, y, x] = tp.tanh(u[t - 1, y, x] + 0.1 * (around - 4 * u[t - 1, y, x]))
    return (u[-1, 0 : y.size, 0 : x.size] ** 2).sum(), {"start": start}


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 3), (4, 6)], ids=str)
def test_the_gradient_of_a_stencil(sizes: tuple[int, int]) -> None:
    check(lambda: heated(3), {"start": numbers(*sizes)})


def test_neither_the_stencil_nor_its_gradient_goes_point_by_point() -> None:
    with tp.Program() as program:
        loss, wrt = heated(8)
        tp.output("gradient", tp.grad(loss, wrt["start"]))
    text = tp.compile(program, sizes={"y": 32, "x": 32}).explain("all")
    statements = text.split("# statements\n")[1].split("\n\n")[0].splitlines()
    arithmetic = [line for line in statements if "mul" in line]
    assert arithmetic
    assert not any("(t, " in line for line in arithmetic)
