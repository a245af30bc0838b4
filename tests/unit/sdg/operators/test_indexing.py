import numpy as np
import pytest

from tempo.errors import DTypeError, IndexOutOfRangeError, ShapeError
from tempo.symbolic import const, size
from tests.unit.sdg.operators.apply import apply, infer

F32 = "float32"
DATA = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_gather_is_take():
    index = np.array([[2, 0], [1, 1]], np.int32)
    for axis in range(3):
        np.testing.assert_array_equal(
            apply("gather", DATA, index % DATA.shape[axis], axis=axis, checked=True),
            np.take(DATA, index % DATA.shape[axis], axis),
        )


def test_gather_with_batch_reads_row_by_row():
    index = np.array([[2, 0, 1], [1, 1, 3]], np.int32)
    found = apply("gather", DATA, index, axis=2, batch=1, checked=True)
    np.testing.assert_array_equal(found, [DATA[b][:, index[b]] for b in range(2)])
    assert apply("gather", DATA[0], np.array([3, 0, 2]), axis=1, batch=1).tolist() == [3, 4, 10]


def test_gather_pairs_is_advanced_indexing():
    i, j = np.array([0, 2, 1]), np.array([3, 0, 0])
    np.testing.assert_array_equal(apply("gather_pairs", DATA, i, j, axis=1, count=2, checked=True), DATA[:, i, j])


@pytest.mark.parametrize("wrong", [-1, 3, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("shape", [(), (1,), (2, 2)])
def test_an_index_out_of_range_raises_when_checked_and_is_clamped_otherwise(wrong: int, shape: tuple[int, ...]):
    index = np.ones(shape, np.int32)
    index[(0,) * len(shape)] = wrong
    with pytest.raises(IndexOutOfRangeError, match=f"index {wrong} is out of range for an axis of size 3"):
        apply("gather", DATA, index, axis=1, checked=True)
    clamped = np.clip(index, 0, 2)
    np.testing.assert_array_equal(apply("gather", DATA, index, axis=1, checked=False), np.take(DATA, clamped, 1))
    with pytest.raises(IndexOutOfRangeError):
        apply("gather_pairs", DATA, index, np.zeros(shape, np.int32), axis=1, count=2, checked=True)
    with pytest.raises(IndexOutOfRangeError):
        apply("scatter_add", DATA, index, np.take(DATA, clamped, 1), axis=1, checked=True)


def test_a_gathered_value_does_not_alias_the_data():
    for index in (np.int32(1), np.array([1])):
        data = np.zeros((3, 2), np.float32)
        found = apply("gather", data, index, axis=0, checked=True)
        data[:] = 1
        assert not found.any()
    data = np.zeros((3, 2, 2), np.float32)
    found = apply("gather_pairs", data, np.int32(1), np.int32(0), axis=0, count=2)
    data[:] = 1
    assert not found.any()


def test_unsigned_indices_and_empty_ones():
    assert apply("gather", DATA, np.array([1], np.uint32), axis=0, checked=True).shape == (1, 3, 4)
    assert apply("gather", DATA, np.zeros((0,), np.int32), axis=0, checked=True).shape == (0, 3, 4)
    assert apply("gather", np.zeros((0, 3)), np.zeros((0,), np.int32), axis=0, checked=False).shape == (0, 3)
    with pytest.raises(IndexOutOfRangeError):
        apply("gather", np.zeros((0, 3)), np.zeros((1,), np.int32), axis=0, checked=False)


def test_a_great_unsigned_index_is_not_a_negative_one():
    great = np.array([2**64 - 1, 0], np.uint64)
    assert apply("gather", np.arange(3), great, axis=0, checked=False).tolist() == [2, 0]
    with pytest.raises(IndexOutOfRangeError):
        apply("gather", np.arange(3), great, axis=0, checked=True)


def test_shapes_and_dtypes():
    T = size("t")
    assert infer("gather", ((5, T), F32), ((3, T), "int32"), axis=0).shape == (const(3), T, T)
    with pytest.raises(DTypeError, match="index of float32"):
        infer("gather", ((5,), F32), ((3,), F32), axis=0)
    with pytest.raises(ShapeError, match="first 1 axes"):
        infer("gather", ((5, 4), F32), ((3,), "int32"), axis=1, batch=1)
    with pytest.raises(ShapeError, match="indices of shapes"):
        infer("gather_pairs", ((5, 4), F32), ((3,), "int32"), ((2,), "int32"), axis=0, count=2)
    with pytest.raises(ShapeError, match="updates of shape"):
        infer("scatter_add", ((5, 4), F32), ((3,), "int32"), ((4, 3), F32), axis=0)


def test_scatter_add_adds_what_falls_together_and_leaves_its_base():
    base = np.ones((3, 2), np.float32)
    index = np.array([2, 0, 2], np.int32)
    updates = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert apply("scatter_add", base, index, updates, axis=0).tolist() == [[3, 4], [1, 1], [5, 7]]
    assert (base == 1).all()


def test_scatter_add_is_the_adjoint_of_gather():
    random = np.random.default_rng(0)
    index = random.integers(0, 4, (2, 5)).astype(np.int32)
    read = apply("gather", DATA, index, axis=2, batch=1, checked=True)
    weights = random.integers(-2, 3, read.shape).astype(np.float32)
    spread = apply("scatter_add", np.zeros_like(DATA), index, weights, axis=2, batch=1)
    assert (read * weights).sum() == (DATA * spread).sum()
