"""Storage under orders that no greedy scheduler makes: peeled, unrolled, negated and skewed loops, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import tempo as tp
from tempo.compiler.plan import Plan
from tempo.passes.manager import needed
from tempo.passes.pipeline import default_passes
from tempo.runtime.executable import Executable
from tempo.schedule import For, If, Run, ScheduleTree, SchedulingProblem, Sequence, verify
from tempo.symbolic import Expr, Symbol, const, dim, maximum, minimum, size
from tests.unit.lowering.planned import random_arguments, symbols

T = size("t")
Build = Callable[[dict[str, str]], ScheduleTree]


@dataclass(frozen=True)
class Fixed:
    """Gives one tree; `build` is told the statements' names by the names of their tensors."""

    build: Build

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        return self.build({name.rpartition("_")[0]: name for name in problem.by_name})


def compiled(program: tp.Program, build: Build) -> Executable:
    passes = {each.name for each in default_passes() if needed(each) is None}  # the statements are the program's
    options = tp.Options(poison=True, debug=True, disable=tuple(passes))
    run: Executable = tp.compile(program, scheduler=Fixed(build), options=options)
    return run


def plan_of(run: Executable) -> Plan:
    plan: Plan = run._engine.plan()  # type: ignore[union-attr]
    return plan


def kept(run: Executable) -> dict[str, str]:
    plan = plan_of(run)
    found = {buffer.name: buffer.storage for buffer in plan.loops.buffers.values() if buffer.role == "internal"}
    return {**found, **{buffer.name: "register" for buffer in plan.loops.registers}}


def agrees(run: Executable, program: tp.Program, *sizes: dict[str, int]) -> None:
    for each in sizes:
        plan = plan_of(run)
        verify(plan.problem, plan.tree, symbols(**each))
        arrays = random_arguments(program.graph(), symbols(**each)).arrays
        inputs = {port.name: array for port, array in arrays.items() if port.role == "input"}
        wanted = tp.compile(program, "reference")(sizes=each, **inputs)
        found = run(sizes=each, **inputs)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, err_msg=f"{name} at {each}")


def loop(symbol: str, lo: Expr | int, hi: Expr | int, *body: ScheduleTree, backward: bool = False) -> For:
    direction = "backward" if backward else "forward"
    lo, hi = (const(bound) if isinstance(bound, int) else bound for bound in (lo, hi))
    return For(Symbol(symbol, "dim"), lo, hi, direction, Sequence(body))  # type: ignore[arg-type]


def run(names: dict[str, str], name: str, *point: Expr | int) -> Run:
    return Run(names[name], tuple(const(index) if isinstance(index, int) else index for index in point))


# -- a consumer that runs behind ---------------------------------------------------------------------------------------

LAG = 4


def trailing() -> tp.Program:
    """`late` at t needs `act` at t, ..., t + 4; `acc` sums it up."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,))
        act = tp.recurrent("act", (2,), (t,))
        act[0] = x
        act[t + 1] = tp.tanh(act + x)
        late = tp.recurrent("late", (2,), (t,))
        late[t] = act[t : tp.min(t + LAG + 1, t.size)].sum(axis=0)
        acc = tp.recurrent("acc", (2,), (t,))
        acc[0] = late
        acc[t + 1] = acc + late[t + 1]
        tp.output("end", acc[-1])
    return program


def acting(names: dict[str, str], at: Expr) -> ScheduleTree:
    return Sequence((If(at.ge(1), run(names, "tanh", at - 1)), run(names, "act", at)))


def learning(names: dict[str, str], at: Expr) -> ScheduleTree:
    return Sequence((run(names, "late", at), If(at.ge(1), run(names, "add", at - 1)), run(names, "acc", at)))


def in_one_loop(names: dict[str, str]) -> ScheduleTree:
    t = dim("t")
    body = If(t.lt(T), acting(names, t)), If(t.ge(LAG), learning(names, t - LAG))
    return Sequence((loop("t", 0, T + LAG, *body), run(names, "end")))


def peeled(names: dict[str, str]) -> ScheduleTree:
    t = dim("t")
    first = loop("t", 0, minimum(T, LAG), acting(names, t))
    both = loop("t", LAG, T, acting(names, t), learning(names, t - LAG))
    rest = loop("t", maximum(T, LAG), T + LAG, learning(names, t - LAG))
    return Sequence((first, both, rest, run(names, "end")))


def peeled_and_renamed(names: dict[str, str]) -> ScheduleTree:
    """The loops' variable is no dim, and a host of one-iteration loops stands before and after."""
    c = dim("c7")
    alone = [loop("c7", at, at + 1, If(T.gt(at), acting(names, c))) for at in range(LAG)]
    both = loop("c7", LAG, T, acting(names, c), learning(names, c - LAG))
    rest = loop("c7", maximum(T, LAG), T + LAG, learning(names, c - LAG))
    return Sequence((*alone, both, rest, run(names, "end")))


def unrolled_at_the_ends(names: dict[str, str]) -> ScheduleTree:
    """No loop around the first points of `act`, nor around the last of what learns."""
    t = dim("t")
    alone = [If(T.gt(at), acting(names, const(at))) for at in range(LAG)]
    both = loop("t", LAG, T, acting(names, t), learning(names, t - LAG))
    middle = loop("t", maximum(T, LAG), T + LAG - 1, learning(names, t - LAG))
    return Sequence((*alone, both, middle, learning(names, T - 1), run(names, "end")))


SIZES = [{"t": length} for length in (1, 2, 4, 5, 6, 13)]


@pytest.mark.parametrize("build", [in_one_loop, peeled, peeled_and_renamed, unrolled_at_the_ends])
def test_a_loop_in_pieces_keeps_what_the_whole_one_keeps(build: Build) -> None:
    program = trailing()
    done = compiled(program, build)
    agrees(done, program, *SIZES)
    assert kept(done)["act"] == f"window({LAG + 1})"
    assert kept(done)["acc"] == kept(done)["tanh_3"] == "point"


def test_what_is_read_in_the_block_that_makes_it_is_no_buffer_in_several_pieces_either() -> None:
    done = compiled(trailing(), peeled)
    assert kept(done) == kept(compiled(trailing(), in_one_loop))
    assert kept(done)["add_2"] == "register"


def test_two_points_of_one_tensor_in_one_block_do_not_share_a_name() -> None:
    """In one block `a` is made at two points before the first is read, so its name holds the second."""
    with tp.Program() as program:
        t = tp.dim("t")
        a = tp.recurrent("a", (2,), (t,))
        a[t] = tp.tanh(tp.input("x", (2,), (t,)))
        total = tp.recurrent("total", (2,), (t,))
        total[0] = a
        total[t + 1] = total + a[t + 1]
        tp.output("end", total[-1])

    def build(names: dict[str, str]) -> ScheduleTree:
        t = dim("t")
        after = [run(names, "total", t), If(t.ge(1), run(names, "add", t - 1)), run(names, "total", t)]
        adds = Sequence((after[1], after[0]))
        ahead = If((t + 1).lt(T), run(names, "a", t + 1))
        return Sequence((run(names, "a", 0), loop("t", 0, T, ahead, adds), run(names, "end")))

    done = compiled(program, build)
    agrees(done, program, {"t": 1}, {"t": 2}, {"t": 7})
    assert kept(done)["a"] == "window(2)"


# -- several dims ------------------------------------------------------------------------------------------------------


def grid() -> tp.Program:
    """Each point needs its left and its upper neighbour."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        top, left = tp.input("top", (2,), (t,)), tp.input("left", (2,), (i,))
        f = tp.recurrent("f", (2,), (i, t))
        f[0, t] = top
        f[i, 0] = left
        f[i, t] = tp.tanh(f[i - 1, t] - f[i, t - 1])
        tp.output("end", f[-1, -1])
    return program


GRID = [{"i": 1, "t": 1}, {"i": 1, "t": 4}, {"i": 5, "t": 1}, {"i": 4, "t": 6}, {"i": 6, "t": 3}]
I = size("i")


def step(names: dict[str, str], i: Expr, t: Expr) -> ScheduleTree:
    return Sequence((If(i.ge(1) & t.ge(1), run(names, "tanh", i, t)), run(names, "f", i, t)))


def rows_first(names: dict[str, str]) -> ScheduleTree:
    nest = loop("i", 0, I, loop("t", 0, T, step(names, dim("i"), dim("t"))))
    return Sequence((nest, run(names, "end")))


def columns_first_and_negated(names: dict[str, str]) -> ScheduleTree:
    """Loops over -t and -i, from their ends."""
    a, b = dim("a"), dim("b")
    nest = loop("a", 1 - T, 1, loop("b", 1 - I, 1, step(names, -b, -a), backward=True), backward=True)
    return Sequence((nest, run(names, "end")))


def skewed(names: dict[str, str]) -> ScheduleTree:
    """Along the diagonals i + t, with the bounds that a polyhedral code generator writes."""
    c, i = dim("c"), dim("i")
    nest = loop("c", 0, I + T - 1, loop("i", maximum(0, c - T + 1), minimum(I, c + 1), step(names, i, c - i)))
    return Sequence((nest, run(names, "end")))


def skewed_steeply(names: dict[str, str]) -> ScheduleTree:
    """Along i + 2 t: neither coordinate is a shift of a variable."""
    c, d = dim("c"), dim("d")
    inside = (c - 2 * d).ge(0) & (c - 2 * d).lt(I)
    nest = loop("c", 0, I + 2 * T - 2, loop("d", 0, T, If(inside, step(names, c - 2 * d, d))))
    return Sequence((nest, run(names, "end")))


def in_strips(names: dict[str, str]) -> ScheduleTree:
    c, t = dim("c"), dim("t")
    strip = loop("t", 2 * c, minimum(T, 2 * c + 2), step(names, dim("i"), t))
    return Sequence((loop("i", 0, I, loop("c", 0, (T + 1) // 2, strip)), run(names, "end")))


@pytest.mark.parametrize(
    ("build", "storage"),
    [
        (rows_first, "full"),  # one row: i needs no axis
        (columns_first_and_negated, "full"),  # one column
        (skewed, "full"),  # one diagonal
        (skewed_steeply, "full"),
        (in_strips, "full"),
    ],
)
def test_several_dims(build: Build, storage: str) -> None:
    program = grid()
    done = compiled(program, build)
    agrees(done, program, *GRID)
    assert kept(done)["f"] == storage


def test_a_loop_under_a_guard_beside_host_work_runs_as_a_whole() -> None:
    """The driver gives a start and a stop to the loops at the top alone."""
    with tp.Program() as program:
        t = tp.dim("t")
        (got,) = tp.host_call(lambda: np.float32(2.0), out=[((), tp.float32)])
        a = tp.recurrent("a", (), (t,))
        a[t] = got * tp.input("x", (), (t,))
        tp.output("a", a)

    def build(names: dict[str, str]) -> ScheduleTree:
        (host,) = [name for key, name in names.items() if key not in ("a", "index_value")]
        return If(T.ge(1), Sequence((Run(host), loop("t", 0, T, run(names, "a", dim("t"))))))

    agrees(compiled(program, build), program, {"t": 1}, {"t": 4})


def test_a_loop_that_hides_the_variable_of_another() -> None:
    """Both loops are over c; after the inner one, c is that of the outer one again."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        f = tp.recurrent("f", (2,), (i, t))
        f[i, t] = tp.tanh(tp.input("x", (2,), (i, t)))
        g = tp.recurrent("g", (2,), (i,))
        g[i] = f[i, 0 : t.size].sum(axis=0)
        tp.output("g", g)

    def build(names: dict[str, str]) -> ScheduleTree:
        c = dim("c")
        row = loop("r", c, c + 1, loop("c", 0, T, run(names, "f", dim("r"), c)))
        return loop("c", 0, I, row, run(names, "g", c))

    done = compiled(program, build)
    agrees(done, program, {"i": 3, "t": 2}, {"i": 1, "t": 4})


def test_a_loop_may_have_the_name_of_a_dim_that_it_negates() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        a = tp.recurrent("a", (), (t,))
        a[t] = tp.tanh(tp.input("x", (), (t,)))
        tp.output("y", a[0 : t + 1].sum(axis=0))

    def build(names: dict[str, str]) -> ScheduleTree:
        late = [Run(name, (-dim("t"),)) for key, name in names.items() if key not in ("a", "tanh")]
        early = [Run(name, (dim("t"),)) for key, name in names.items() if key in ("tanh", "a")]
        return Sequence((loop("t", 0, T, *early, backward=True), loop("t", 1 - T, 1, *late)))

    done = compiled(program, build)
    agrees(done, program, {"t": 1}, {"t": 6})
    assert kept(done)["a"] == "full"


def test_a_variable_that_no_loop_has_is_the_schedulers_mistake() -> None:
    with pytest.raises(tp.TempoError, match="uses q in the run act.*where no loop around has it"):
        plan_of(compiled(trailing(), lambda names: run(names, "act", dim("q"))))
