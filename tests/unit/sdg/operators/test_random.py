import numpy as np
import pytest

from tempo.errors import DTypeError, ShapeError
from tempo.sdg.threefry import threefry
from tempo.symbolic import dim
from tests.unit.sdg.operators.apply import apply, infer

SEED = np.uint32(11)


def bits(
    shape: tuple[int, ...], coordinates: tuple, scalars: tuple = (), bits: int = 32, seed=SEED, declaration: int = 4
):
    attrs = {"declaration": declaration, "coordinates": coordinates, "shape": shape, "bits": bits}
    return apply("random_bits", seed, scalars=scalars, **attrs)


def test_a_draw_is_the_block_of_its_coordinates_one_after_the_other():
    key = (11, 4)
    for position, coordinate in enumerate((7, 2, 3)):
        key = threefry(key, (coordinate, position))
    assert bits((4, 5), (dim("t"), 0, 1), (7,))[2, 3] == key[0]
    assert bits((4, 5), (dim("t"), 0, 1), (7,), bits=64)[2, 3] == key[0] << 32 | key[1]
    assert bits((4, 5), (dim("t"), 0, 1), (7,), bits=16)[2, 3] == key[0] & 0xFFFF
    assert bits((4, 5), (dim("t"), 0, 1), (7,), bits=8)[2, 3] == key[0] & 0xFF


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_a_coordinate_as_an_axis_gives_the_draws_of_each_coordinate(width: int):
    lifted = bits((30, 3), (0, dim("s"), 1), (5,), width)
    looped = np.stack([bits((3,), (dim("t"), dim("s"), 0), (point, 5), width) for point in range(30)])
    np.testing.assert_array_equal(lifted, looped)
    np.testing.assert_array_equal(bits((3, 30), (1, dim("s"), 0), (5,), width), lifted.T)


def test_a_draw_does_not_depend_on_a_size():
    np.testing.assert_array_equal(bits((50, 7), (0, 1))[:3, :2], bits((3, 2), (0, 1)))


def test_seeds_declarations_and_points_give_other_draws():
    draws = [bits((50,), (0,)), bits((50,), (0,), seed=np.uint32(12)), bits((50,), (0,), declaration=5)]
    draws += [bits((50,), (dim("t"), 0), (point,)) for point in (0, 1)]
    assert len({value for draw in draws for value in draw.tolist()}) == 5 * 50


def test_a_draw_without_coordinates_is_not_its_key():
    assert int(bits((), ())) not in (11, 4)


def test_every_bit_is_set_half_of_the_time():
    draws = bits((20_000,), (0,), bits=64)
    for bit in range(64):
        assert abs(((draws >> np.uint64(bit)) & np.uint64(1)).mean() - 0.5) < 0.02


def test_the_seed_is_one_uint32_and_every_axis_is_a_coordinate():
    attrs = {"declaration": 0, "coordinates": (0,), "shape": (3,), "bits": 32}
    for wrong in [((), "int32"), ((1,), "uint32")]:
        with pytest.raises(DTypeError, match="seed"):
            infer("random_bits", wrong, **attrs)
    with pytest.raises(DTypeError, match="33 bits"):
        infer("random_bits", ((), "uint32"), **{**attrs, "bits": 33})
    with pytest.raises(ShapeError, match="coordinate"):
        infer("random_bits", ((), "uint32"), **{**attrs, "shape": (3, 2)})
