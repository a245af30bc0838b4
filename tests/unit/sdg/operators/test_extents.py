import numpy as np
import pytest

from tempo.errors import ShapeError
from tempo.sdg.operators import OPERATORS, Role
from tempo.symbolic import const, dim, size
from tests.unit.sdg.operators.apply import apply, infer

F32 = "float32"
t = dim("t")


def sliced(x: np.ndarray, *axes: tuple[int, int, int], moving: bool) -> np.ndarray:
    """`axes` are (start, length, step); the starts are run-time scalars, or constants where not `moving`."""
    starts = tuple(t if moving else const(start) for start, _, _ in axes)
    attrs = {"starts": starts, "lengths": tuple(a[1] for a in axes), "steps": tuple(a[2] for a in axes)}
    return apply("slice", x, scalars=tuple(a[0] for a in axes), **attrs)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_slices_read_start_and_then_every_step(size: int, moving: bool):
    x = np.arange(size)
    for start in range(size):
        for step in (-3, -2, -1, 1, 2, 3):
            for length in range(1 + len(range(start, size if step > 0 else -1, step))):
                expected = [start + step * i for i in range(length)]
                assert sliced(x, (start, length, step), moving=moving).tolist() == expected


def test_a_leading_slice_with_whole_other_axes():
    x = np.arange(12).reshape(4, 3)
    attrs = {"starts": (t, const(0)), "lengths": (2, 3), "steps": (1, 1)}
    assert (apply("slice", x, scalars=(1, 0), **attrs) == x[1:3]).all()
    assert (apply("slice", x, scalars=(3, 0), **attrs) == x[[3, 3]]).all()


def test_positions_outside_an_axis_are_clamped_when_the_start_is_known_at_run_time():
    x = np.arange(12).reshape(3, 4)
    assert sliced(x, (1, 3, 1), (2, 4, 1), moving=True).tolist() == x[[1, 2, 2]][:, [2, 3, 3, 3]].tolist()
    assert sliced(np.arange(3), (-1, 3, 1), moving=True).tolist() == [0, 0, 1]


def test_constant_slices_outside_an_axis_raise():
    attrs = {"steps": (1,)}
    for start, length in [(0, 4), (2, 2), (-1, 1)]:
        with pytest.raises(ShapeError, match="not within an axis of size 3"):
            infer("slice", ((3,), F32), starts=(const(start),), lengths=(length,), **attrs)
    assert infer("slice", ((3,), F32), starts=(const(3),), lengths=(0,), **attrs).shape == (const(0),)
    with pytest.raises(ShapeError, match="step of 0"):
        infer("slice", ((3,), F32), starts=(const(0),), lengths=(1,), steps=(0,))


def test_a_slice_of_all_leaves_positions_where_they_are():
    attrs = {"starts": (const(0), const(0), t, const(0)), "lengths": (t + 1, 2, 2, 2), "steps": (1, 1, 1, 2)}
    given, result = (t + 1, const(4), const(4), const(4)), (t + 1, const(2), const(2), const(2))
    roles = [factor.role for factor in OPERATORS["slice"].axes(attrs, [given], result)]
    assert roles == [Role.PARALLEL, Role.MOVING, Role.MOVING, Role.MOVING]


def test_starts_are_passed_at_run_time_and_lengths_are_static():
    slice = OPERATORS["slice"]
    attrs = {"starts": (t, const(2)), "lengths": (t + 1, 3), "steps": (1, 1)}
    assert slice.scalars(attrs) == (t, const(2))
    assert slice.static(attrs) == (t + 1, const(3))
    moved = slice.with_exprs(attrs, lambda expr: expr.substitute({next(iter(t.symbols())): 4}))
    assert moved == {"starts": (const(4), const(2)), "lengths": (const(5), 3), "steps": (1, 1)}


def test_pad_puts_the_value_around():
    found = apply("pad", np.ones((1, 2), np.int8), low=(1, 0), high=(0, 2), value=7)
    assert found.tolist() == [[7, 7, 7, 7], [1, 1, 7, 7]]
    assert infer("pad", ((t + 1,), F32), low=(size("s"),), high=(1,)).shape == (size("s") + t + 2,)
    with pytest.raises(ShapeError, match="-1 elements"):
        infer("pad", ((3,), F32), low=(-1,), high=(0,))
    with pytest.raises(ShapeError, match="every axis"):
        infer("pad", ((3,), F32), low=(1, 1), high=(0, 0))


@pytest.mark.parametrize("distance", [-5, -3, -2, 0, 1, 3, 4])
def test_shift_puts_zeros_where_nothing_comes_from(distance: int):
    x = np.arange(1, 7).reshape(2, 3)
    expected = [[row[i - distance] if 0 <= i - distance < 3 else 0 for i in range(3)] for row in x.tolist()]
    assert apply("shift", x, axis=1, distance=distance).tolist() == expected
    assert apply("shift", x.T, axis=0, distance=distance).T.tolist() == expected
    assert (x == np.arange(1, 7).reshape(2, 3)).all()


def test_a_shift_of_no_positions():
    assert apply("shift", np.zeros((0, 2)), axis=0, distance=1).shape == (0, 2)
    assert infer("shift", ((t + 1, 2), F32), axis=0, distance=3).shape == (t + 1, const(2))


def test_a_shift_says_how_far_it_goes():
    shape = (const(4), const(3))
    moving, staying = OPERATORS["shift"].axes({"axis": 0, "distance": -2}, [shape], shape)
    assert (moving.role, moving.distance, moving.result) == (Role.WINDOW, -2, 0)
    assert (staying.role, staying.distance, staying.result) == (Role.PARALLEL, None, 1)


@pytest.mark.parametrize("length", [-1, 0, 1, 3, 4])
def test_mask_fills_from_the_length_on_and_leaves_its_operand(length: int):
    x = np.full((2, 3), np.nan, np.float32)
    x[:, : max(length, 0)] = 1
    given = x.copy()
    found = apply("mask", x, scalars=(length,), axis=1, fill=0, length=t)
    assert found.sum() == 2 * min(max(length, 0), 3)
    np.testing.assert_array_equal(x, given)
