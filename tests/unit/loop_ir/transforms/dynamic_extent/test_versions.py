"""Choices among extents: which operators a region goes through, and what its copies look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.costs import EAGER, FUSED, Costs, RegionWork, cheapest, sampled
from tempo.loop_ir.ir import Branch, Compute, Loop, LoopProgram, Read, WindowIndex, Write, walk
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.transforms.dynamic_extent.regions import FOLDED, tracked
from tempo.loop_ir.transforms.dynamic_extent.versions import DynamicExtents
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Expr, const, dim, size

T = size("t")
Planned = tuple[LoopProgram, dict[Any, int]]


def resolve(expr: Expr) -> int:
    return int(expr.evaluate(dict.fromkeys(expr.symbols(), 12)))


def compute(op: str, *shapes: tuple[Any, ...], **attrs: Any) -> Compute:
    types = tuple(
        TensorType(tuple(const(each) if isinstance(each, int) else each for each in shape), "float32")
        for shape in shapes
    )
    names = tuple(f"x{number}" for number in range(len(shapes)))
    return Compute("y", op, attrs, names, types, OPERATORS[op].infer(attrs, types))


@pytest.mark.parametrize(
    ("made", "axes", "axis"),
    [
        (compute("exp", (3, T)), [1], 1),
        (compute("add", (T,), (3, T)), [0, 1], 1),
        (compute("mul", (3, T, 4), (4,)), [1, None], 1),
        (compute("sub", (3, T), (T,)), [1, None], 1),  # the other is cut
        (compute("mask", (3, T), axis=1, fill=0.0, length=dim("t")), [1], 1),
        (compute("reduce_sum", (3, T, 4), axes=(1,)), [1], FOLDED),
        (compute("reduce_max", (3, T, 4), axes=(0,)), [1], 0),
        (compute("argmax", (T, 3), axis=0), [0], FOLDED),
        (compute("cumsum", (T, 3), axis=0), [0], 0),
        (compute("transpose", (T, 3, 4), axes=(1, 2, 0)), [0], 2),
        (compute("reshape", (2, 3, T), shape=(const(6), T)), [2], 1),
        (compute("broadcast", (T, 1), shape=(const(5), T, const(4))), [0], 1),
        (compute("dot", (3, T), (T, 4), lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=()), [1, 0], -1),
        (
            compute("dot", (3, T), (4, 3), lhs_contract=(0,), rhs_contract=(1,), lhs_batch=(), rhs_batch=()),
            [1, None],
            0,
        ),
        (
            compute("dot", (5, 3), (3, T), lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=()),
            [None, 1],
            1,
        ),
    ],
)
def test_the_axis_is_followed(made: Compute, axes: list[int | None], axis: int) -> None:
    found = tracked(made, axes, resolve)
    assert found is not None
    assert found.axis == axis
    *cuts, other = found.at(5)
    assert all(each.op == "slice" and 5 in map(resolve, each.type.shape) for each in cuts)
    sizes = [resolve(each) for each in other.type.shape]
    wanted = [resolve(each) for each in made.type.shape]
    assert sizes == (wanted if axis == FOLDED else [*wanted[:axis], 5, *wanted[axis + 1 :]])


def conv(data: tuple[Any, ...], kernel: tuple[Any, ...], stride: int = 1) -> Compute:
    return compute("conv", data, kernel, strides=(stride,), padding=((1, 0),), dilation=(1,))


def padded(low: int, high: int) -> Compute:
    zero = const(0)
    return compute("pad", (3, T), low=(zero, const(low)), high=(zero, const(high)), value=0)


@pytest.mark.parametrize(
    ("made", "axes", "axis", "wanted", "by_position"),
    [
        (padded(2, 1), [1], 1, (3, 8), False),
        (padded(0, 0), [1], 1, (3, 5), True),
        (conv((2, 3, T), (4, 3, 3)), [2, None], 2, (2, 4, 4), False),
        (conv((2, 3, T + 4), (4, 3, 3)), [2, None], 2, (2, 4, 8), False),
        (conv((T, 3, 6), (4, 3, 3)), [0, None], 0, (5, 4, 5), True),
        (conv((2, T, 6), (4, T, 3)), [1, 1], FOLDED, (2, 4, 5), True),
        (conv((2, 3, 6), (T, 3, 3)), [None, 0], 1, (2, 5, 5), True),
    ],
)
def test_what_is_added_at_an_end_is_followed(
    made: Compute, axes: list[int | None], axis: int, wanted: tuple[int, ...], by_position: bool
) -> None:
    found = tracked(made, axes, resolve, resolve(T))
    assert found is not None
    assert found.axis == axis
    assert found.by_position == by_position
    (other,) = found.at(5)
    assert tuple(map(resolve, other.type.shape)) == wanted
    assert OPERATORS[made.op].infer(other.attrs, other.operand_types).shape == other.type.shape


def test_what_looks_at_neighbours_needs_that_many() -> None:
    found = tracked(conv((2, 3, T), (4, 3, 5)), [2, None], resolve, resolve(T))
    assert found is not None
    assert found.least == 4
    assert resolve(found.at(4)[-1].type.shape[2]) == 1


@pytest.mark.parametrize(
    ("made", "axes"),
    [
        (conv((2, 3, T), (4, 3, 3), stride=2), [2, None]),
        (conv((2, 3, T), (4, 3, T)), [2, 2]),
        (conv((2, 3, T), (4, 3, T)), [None, 2]),
        (compute("add", (T, 1), (1, T)), [0, 1]),
        (compute("flip", (T, 3), axes=(0,)), [0]),
        (compute("concat", (T, 3), (T, 3), axis=0), [0, 0]),
        (compute("reshape", (T, 3), shape=(T * 3,)), [0]),
        (compute("slice", (T, 3), starts=(const(1), const(0)), lengths=(T - 1, const(3)), steps=(1, 1)), [0]),
        (compute("dot", (2, T), (2, T), lhs_contract=(0,), rhs_contract=(0,), lhs_batch=(), rhs_batch=()), [1, 1]),
    ],
)
def test_what_is_not_known_to_work_position_by_position_has_no_answer(made: Compute, axes: list[int | None]) -> None:
    assert tracked(made, axes, resolve, resolve(T)) is None


def planned(length: int, of_past: Callable[..., tp.RecurrentTensor]) -> Planned:
    with tp.Program("past") as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (4,), (t,))
        h[0] = tp.ones((4,))
        h[t + 1] = tp.tanh(of_past(h[0 : t + 1], h) * h)
        tp.output("h", h)
    made = tp.compile(program)._engine.plan().loops  # type: ignore[attr-defined]
    return made, dict.fromkeys(T.symbols(), length)


def loops(length: int) -> Planned:
    """Attention, of which no layer is a composite."""
    return planned(length, lambda past, h: tp.softmax(past @ tp.ones((4,)), axis=0) @ past)


def block_loops(program: LoopProgram) -> list[Loop]:
    found = (each for segment in program.segments for each in walk(segment.body))
    return [each for each in found if isinstance(each, Loop) and each.var.name != "t"]


def tiled(
    program: LoopProgram, sizes: dict[Any, int], extent: Any = None, tile: int | None = None, costs: Costs = FUSED
) -> LoopProgram:
    return DynamicExtents(extent, tile).apply(program, LoopContext(sizes, costs)).program


def choices(program: LoopProgram) -> list[Branch]:
    found = (each for segment in program.segments for each in walk(segment.body))
    return [each for each in found if isinstance(each, Branch) and each.is_choice]


def test_extents_double_up_to_the_hull() -> None:
    program, sizes = loops(100)
    found = choices(tiled(program, sizes, "specialise", 16))
    assert [str(each.condition) for each in found] == ["t <= 15", "t <= 31", "t <= 63"]
    for branch, extent in zip(found, (16, 32, 64)):
        windows = [entry for read in branch.then if isinstance(read, Read) for entry in read.index]
        assert [entry.extent for entry in windows if isinstance(entry, WindowIndex)] == [const(extent)] * 2
        assert all(entry.exact for entry in windows if isinstance(entry, WindowIndex))


def test_only_what_is_large_is_tiled_by_itself() -> None:
    small, large = loops(100), loops(100_000)
    assert tiled(*small).segments == small[0].segments
    for costs in EAGER, FUSED:
        made = tiled(*large, costs=costs)
        assert choices(made) or block_loops(made)
    assert not choices(tiled(*large, extent="hull"))
    assert choices(tiled(*large, extent="specialise"))


def test_each_fold_that_waits_for_another_has_loops_of_its_own() -> None:
    program, sizes = loops(100)
    found = block_loops(tiled(program, sizes, "blocks", 16))
    bounds = [f"{each.lo}..{each.hi}" for each in found]
    assert bounds == ["0..(t + 1)//16", "(t + 1)//16..t//16 + 1"] * 3
    names = [{each.op for each in loop.body if isinstance(each, Compute)} for loop in found]
    assert all("mask" not in each for each in names[::2]), "whole blocks need no masks"
    assert ["mask" in each for each in names[1::2]] == [True, False, True], "of the scores, once, and of the values"


def test_what_two_stages_need_is_kept_and_reads_are_read_again() -> None:
    program, sizes = planned(100, lambda past, h: ((past - past.mean(axis=0)) ** 2).sum(axis=0))
    made = tiled(program, sizes, "blocks", 16)
    assert not [each for loop in block_loops(made) for each in loop.body if isinstance(each, Write) and each.index]
    program, sizes = loops(100)
    made = tiled(program, sizes, "blocks", 16)
    kept = {each.buffer for loop in block_loops(made) for each in loop.body if isinstance(each, Write) and each.index}
    assert [made.buffers[id].extents(sizes) for id in sorted(kept)] == [(7, 16), (7, 16)]


def test_what_cannot_be_added_up_across_blocks_is_a_choice() -> None:
    program, sizes = planned(100, lambda past, h: tp.sort(past, axis=0).max(axis=0))
    made = tiled(program, sizes, "blocks", 16)
    assert not block_loops(made)
    assert len(choices(made)) == 3


def test_what_allows_no_other_extent_keeps_the_hull() -> None:
    program, sizes = planned(100, lambda past, h: tp.cumsum(tp.flip(past * h, 0), axis=0).max(axis=0))
    for extent in ("blocks", "specialise"):
        made = tiled(program, sizes, extent, 16)
        assert made.segments == program.segments


def test_a_convolution_is_a_choice_among_extents() -> None:
    def of_past(past: tp.RecurrentTensor, h: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.conv(past.T.spatial[None], tp.ones((1, 4, 3)), padding=((2, 0),)).max()

    program, sizes = planned(100, of_past)
    found = choices(tiled(program, sizes, "blocks", 16))
    assert [str(each.condition) for each in found] == ["t <= 15", "t <= 31", "t <= 63"]


def test_regions_that_share_no_axis_are_apart() -> None:
    program, sizes = planned(100, lambda past, h: tp.exp(past * h).sum(axis=0) + tp.sin(past + h).max(axis=0))
    assert len(choices(tiled(program, sizes, "specialise", 64))) == 2
    assert len(block_loops(tiled(program, sizes, "blocks", 64))) == 4


# -- what it is expected to cost ---------------------------------------------------------------------------------------


def work(hull: int, bytes: float, lengths: list[int], stages: int = 3, points: int = 10_000) -> RegionWork:
    return RegionWork(hull, hull, bytes, 10, 3, stages, np.array(lengths), points)


def test_what_is_small_takes_the_hull_and_what_is_large_does_not() -> None:
    for costs in EAGER, FUSED:
        assert cheapest(work(64, 64, [1, 32, 64]), costs, None, None)[0] == "hull"
        assert cheapest(work(16_384, 4096, [1, 8192, 16_384]), costs, None, None)[0] != "hull"


def test_what_is_nearly_always_full_takes_the_hull() -> None:
    """As a window does that a long loop slides."""
    assert cheapest(work(4096, 4096, [4096] * 64), FUSED, None, None)[0] == "hull"


def test_what_runs_once_is_not_worth_compiling_copies() -> None:
    assert cheapest(work(4096, 1024, [1, 2048, 4096], points=1), FUSED, None, None)[0] == "hull"


def test_what_is_forced_is_taken() -> None:
    some = work(4096, 4, [1, 2048])
    assert cheapest(some, EAGER, "blocks", 64) == ("blocks", 64)
    assert cheapest(some, EAGER, "specialise", 64) == ("specialise", 64)
    assert cheapest(some, EAGER, "hull", 64)[0] == "hull"
    assert cheapest(some, EAGER, None, 64)[1] == 64
    assert cheapest(some, EAGER, "blocks", 8192)[0] == "hull", "a block of more than there is"
    assert cheapest(work(4096, 4, [1, 2048], stages=0), EAGER, "blocks", 64) == ("specialise", 64)


def test_blocks_divide_the_hull_where_they_can() -> None:
    costs = Costs(byte=1e-9, launch=1e-6, choice=1.0, compiling=0.0, copies=False)
    way, tile = cheapest(work(3000, 4096, [1, 1500, 3000]), costs, None, None)
    assert way == "blocks" and 3000 % tile == 0


def test_lengths_are_those_at_the_points_of_the_loops() -> None:
    t, n = dim("t"), size("t")
    (variable,) = t.symbols()
    sizes = dict.fromkeys(n.symbols(), 101)
    found, points = sampled(t + 1, [(variable, const(0), n)], sizes, 101)
    assert (found.min(), found.max(), points) == (1, 101, 101)
    assert abs(found.mean() - 51) < 2
    found, _ = sampled(dim("other") + 1, [], {}, 10)
    assert (found.min(), found.max()) == (0, 10)
