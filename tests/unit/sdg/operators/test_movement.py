import numpy as np
import pytest

from tempo.errors import DTypeError, ShapeError
from tempo.sdg.operators import OPERATORS, Role
from tempo.symbolic import const, dim, size
from tests.unit.sdg.operators.apply import apply, infer

F32 = "float32"
T, t = size("t"), dim("t")
P, O, M = Role.PARALLEL, Role.OPAQUE, Role.MAJOR


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((T, 6), (T, 2, 3)),
        ((2 * T,), (2, T)),
        ((t + 1, 4), (4, t + 1)),
        ((t + 1, size("s")), (size("s"), t + 1)),
        ((4 * t + 4,), (t + 1, 2, 2)),
        ((), (1, 1)),
        ((0, 3), (T, 0)),
    ],
)
def test_reshape_keeps_the_number_of_elements_for_every_size(given, wanted):
    assert len(infer("reshape", (given, F32), shape=wanted).shape) == len(wanted)


@pytest.mark.parametrize(("given", "wanted"), [((T,), (T + 1,)), ((6,), (4,)), ((T, T), (T,)), ((2 * t,), (2, t + 1))])
def test_reshape_to_another_number_of_elements_raises(given, wanted):
    with pytest.raises(ShapeError, match="as many elements"):
        infer("reshape", (given, F32), shape=wanted)


@pytest.mark.parametrize(
    ("given", "wanted", "roles"),
    [
        ((t + 1, 6), (t + 1, 2, 3), (P, M)),
        ((6, t + 1), (2, 3, t + 1), (M, P)),
        ((2, t + 1, 6), (2, t + 1, 3, 2), (P, P, M)),
        ((t + 1, 6), (6, t + 1), (M, O)),
        ((t + 1,), (1, t + 1), (P,)),
    ],
)
def test_an_axis_that_a_reshape_leaves_in_place_is_parallel(given, wanted, roles):
    shapes = [tuple(const(s) if isinstance(s, int) else s for s in shape) for shape in (given, wanted)]
    factors = OPERATORS["reshape"].axes({"shape": wanted}, shapes[:1], shapes[1])
    assert [next(f.role for f in factors if f.operands == (axis,)) for axis in range(len(given))] == list(roles)


def test_transpose_takes_every_axis_once():
    assert infer("transpose", ((T, 3, 4), F32), axes=(2, 0, 1)).shape == (const(4), T, const(3))
    for axes in [(0, 1), (0, 0, 1), (0, 1, 3), (0, 1, -1)]:
        with pytest.raises(ShapeError):
            infer("transpose", ((T, 3, 4), F32), axes=axes)


def test_broadcast_keeps_leading_axes_that_correspond():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = np.broadcast_to(x[:, None, :], (2, 4, 3))
    assert (apply("broadcast", x, shape=(2, 4, 3), batch=1) == expected).all()
    with pytest.raises(ShapeError, match="does not broadcast"):
        infer("broadcast", ((2, 3), F32), shape=(2, 4, 3))
    with pytest.raises(ShapeError, match="does not broadcast"):
        infer("broadcast", ((2, 3), F32), shape=(3,))


def test_concat_adds_sizes_and_checks_the_others():
    assert infer("concat", ((T, 3), F32), ((t + 1, 3), F32), axis=0).shape == (T + t + 1, const(3))
    with pytest.raises(ShapeError, match="beside axis 0"):
        infer("concat", ((T, 3), F32), ((T, 4), F32), axis=0)
    with pytest.raises(DTypeError):
        infer("concat", ((T,), F32), ((T,), "int32"), axis=0)
    with pytest.raises(ShapeError, match="nothing"):
        infer("concat", axis=0)


def test_flip_reverses():
    assert apply("flip", np.arange(6).reshape(2, 3), axes=(1,)).tolist() == [[2, 1, 0], [5, 4, 3]]
