import itertools

import numpy as np
import pytest

from tempo import dtypes
from tempo.errors import DTypeError, ShapeError
from tempo.symbolic import const, size
from tests.unit.sdg.operators.apply import apply, infer

F32 = "float32"
LETTERS = {"b": 2, "c": 3, "i": 4, "j": 1, "k": 5, "l": 3}


def array(letters: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, [LETTERS[letter] for letter in letters]).astype(np.float32)


def dot_attrs(lhs: str, rhs: str, out: str) -> dict[str, tuple[int, ...]]:
    batch = [letter for letter in out if letter in lhs and letter in rhs]
    contract = [letter for letter in lhs if letter in rhs and letter not in out]
    return {
        "lhs_batch": tuple(map(lhs.index, batch)),
        "rhs_batch": tuple(map(rhs.index, batch)),
        "lhs_contract": tuple(map(lhs.index, contract)),
        "rhs_contract": tuple(map(rhs.index, contract)),
    }


def cases() -> list[tuple[str, str, str]]:
    """Every order of the axes of both operands, for several patterns."""
    patterns = [("k", "k", ""), ("ik", "kj", "ij"), ("bik", "bk", "bi"), ("bk", "bk", "b"), ("bik", "bkj", "bij")]
    patterns += [
        ("bcik", "bck", "bci"),
        ("ik", "kl", "il"),
        ("ikc", "kcl", "il"),
        ("bi", "bl", "bil"),
        ("ib", "bck", "bick"),
    ]
    found = []
    for lhs, rhs, out in patterns:
        batch = "".join(letter for letter in out if letter in lhs and letter in rhs)
        for left, right in itertools.product(itertools.permutations(lhs), itertools.permutations(rhs)):
            free = [letter for letter in (*left, *right) if letter in out and letter not in batch]
            found.append(("".join(left), "".join(right), batch + "".join(free)))
    return found[:: max(1, len(found) // 150)]


def test_dot_is_einsum():
    for lhs, rhs, out in cases():
        a, b, spec = array(lhs, 0), array(rhs, 1), f"{lhs},{rhs}->{out}"
        np.testing.assert_array_equal(
            apply("dot", a, b, **dot_attrs(lhs, rhs, out)), np.einsum(spec, a, b), err_msg=spec
        )


def test_operands_need_not_be_contiguous():
    a, b = array("bik", 0)[:, ::2], array("bkl", 1)[..., ::-1]
    attrs = dot_attrs("bik", "bkl", "bil")
    np.testing.assert_array_equal(apply("dot", a, b, **attrs), np.einsum("bik,bkl->bil", a, b))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_contracted_in_float32(dtype: str):
    x = np.ones(3000, dtypes.to_numpy(dtype))
    assert float(apply("dot", x, x, **dot_attrs("k", "k", ""))) == float(np.array(3000).astype(x.dtype))


def test_integers_contract_and_bools_need_a_cast():
    x = np.array([[1, 2], [3, 4]], np.int32)
    assert apply("dot", x, x, **dot_attrs("ik", "kl", "il")).tolist() == [[7, 10], [15, 22]]
    with pytest.raises(DTypeError):
        infer("dot", ((2,), "bool"), ((2,), "bool"), **dot_attrs("k", "k", ""))


def test_sizes_of_contracted_and_batch_axes_must_be_equal():
    T = size("t")
    found = infer("dot", ((T, 3, 4), F32), ((T, 4), F32), **dot_attrs("bik", "bk", "bi"))
    assert found.shape == (T, const(3))
    with pytest.raises(ShapeError, match=r"axes \(1,\) of \(3, 4\) and axes \(0,\) of \(5, 2\) differ"):
        infer("dot", ((3, 4), F32), ((5, 2), F32), **dot_attrs("ik", "kl", "il"))
    with pytest.raises(ShapeError, match="differ"):
        infer("dot", ((T, 4), F32), ((T + 1, 4), F32), **dot_attrs("bk", "bk", "b"))
