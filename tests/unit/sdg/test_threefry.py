import numpy as np
import pytest

from tempo.sdg.cache_blocks import BLOCK_BYTES
from tempo.sdg.threefry import fold, threefry

KNOWN = [  # key, counter, block: the known answers of the Random123 distribution for threefry2x32 with 20 rounds
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "block"), KNOWN)
def test_known_answers_of_integers(key, counter, block):
    assert threefry(key, counter) == block


@pytest.mark.parametrize("copies", [1, 5, 40])
@pytest.mark.parametrize(("key", "counter", "block"), KNOWN)
def test_known_answers_of_arrays(key, counter, block, copies: int):
    words = threefry(key, tuple(np.full(copies, word, np.uint32) for word in counter))
    assert [word.tolist() for word in words] == [[expected] * copies for expected in block]


@pytest.mark.parametrize("shape", [(3,), (1,), (0,), (30,), (2, 40), (2, 3)])
def test_arrays_give_what_integers_give(shape: tuple[int, ...]):
    counters = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape) * np.uint32(2654435761)
    keys = np.arange(shape[-1], dtype=np.uint32)  # of lower rank: broadcast
    found = threefry((keys, 7), (counters, 1))
    for word in (0, 1):
        assert found[word].shape == shape
        assert found[word].dtype == np.uint32
    for place in np.ndindex(shape):
        expected = threefry((int(keys[place[-1]]), 7), (int(counters[place]), 1))
        assert (int(found[0][place]), int(found[1][place])) == expected


def test_fold_is_one_block_per_coordinate():
    key = threefry(threefry((5, 9), (3, 0)), (4, 1))
    assert fold((5, 9), (3, 4)) == key


def test_without_coordinates_the_result_is_not_the_key():
    assert fold((5, 9), ()) == threefry((5, 9), (0, 0)) != (5, 9)


def test_arguments_are_not_changed():
    counter = np.arange(40, dtype=np.uint32)
    threefry((0, 0), (counter, 0))
    assert counter.tolist() == list(range(40))


@pytest.mark.parametrize("shape", [(BLOCK_BYTES,), (3, BLOCK_BYTES // 4 + 1), (BLOCK_BYTES, 2)])
def test_blocks_of_the_cache_give_what_elements_give(shape: tuple[int, ...]):
    """Of several blocks each: the numbers at their edges."""
    counters = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    keys = np.arange(shape[0], dtype=np.uint32).reshape(-1, *(1,) * (len(shape) - 1))
    found = threefry((keys, 7), (counters, 1))
    for at in [0, 1, BLOCK_BYTES // 4 - 1, BLOCK_BYTES // 4, BLOCK_BYTES // 4 + 1, counters.size - 1]:
        place = np.unravel_index(at, shape)
        expected = threefry((int(place[0]), 7), (at, 1))
        assert (int(found[0][place]), int(found[1][place])) == expected
