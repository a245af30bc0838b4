import numpy as np
import pytest

from tempo.sdg.cache_blocks import BLOCK_BYTES, block_of, cache_blocks, empty


@pytest.mark.parametrize(
    "shape", [(), (7,), (100_000,), (3, 50_000), (100_000, 3), (2, 40_000, 2), (40, 30, 100), (0, 5)]
)
def test_every_element_is_in_one_block(shape: tuple[int, ...]):
    seen = np.zeros(shape, np.int64)
    for index in cache_blocks(shape, 8):
        seen[index] += 1
        assert seen[index].nbytes <= BLOCK_BYTES
    assert (seen == 1).all()


@pytest.mark.parametrize("operand", [(), (50_000,), (1,), (3, 1), (1, 50_000), (1, 1), (3, 50_000)])
def test_blocks_of_operands_are_broadcast_as_the_whole_is(operand: tuple[int, ...]):
    shape = (3, 50_000)
    values = np.arange(np.prod(operand)).reshape(operand)
    whole = np.broadcast_to(values, shape)
    for index in cache_blocks(shape, 8):
        part = np.broadcast_to(values[block_of(index, shape, operand)], whole[index].shape)
        np.testing.assert_array_equal(part, whole[index])


def test_a_result_lies_in_memory_as_its_operand_does() -> None:
    """So that later steps read whole rows, as they would of what NumPy's functions make."""
    plain = np.ones((3, 4, 5), np.float32)
    for operand in (plain, plain.transpose(1, 0, 2), plain.T, np.broadcast_to(plain[:1], (3, 4, 5))):
        made = empty(operand.shape, np.float64, operand)
        wanted = np.add(operand, 1.0, dtype=np.float64) if 0 not in operand.strides else np.empty(operand.shape)
        assert (made.shape, made.dtype, made.strides) == (operand.shape, np.float64, wanted.strides)
    assert empty((2, 3), np.int32).flags.c_contiguous
