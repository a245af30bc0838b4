"""What NumPy gives has the dtype of what it meets, and is rounded once: no number is lost before that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tempo as tp

Y = np.array([1.0, 3.0])
TENTH, PAIR = np.float64(0.1), np.array([0.1, 0.2])


def defined(y: tp.RecurrentTensor) -> tp.RecurrentTensor:
    t = tp.dim("t", 3)
    h = tp.recurrent("h", (2,), (t,), tp.float64)
    h[0] = TENTH
    h[t + 1] = h + PAIR
    return h[2]


def declared(y: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return tp.parameter("w", (2,), init=PAIR, dtype=tp.float64) + 0 * y


def differentiated(y: tp.RecurrentTensor) -> tp.RecurrentTensor:
    scaled = tp.custom_gradient(lambda x: (x * PAIR, lambda g: PAIR))
    return tp.grad((y * PAIR).sum() + scaled(y).sum(), y)


Case = tuple[Callable[[tp.RecurrentTensor], tp.RecurrentTensor], Any]
CASES: dict[str, Case] = {
    "a scalar on the right": (lambda y: y * TENTH, Y * 0.1),
    "a scalar on the left": (lambda y: TENTH * y, Y * 0.1),
    "an array on the right": (lambda y: y - PAIR, Y - PAIR),
    "an array on the left": (lambda y: PAIR / y, PAIR / Y),
    "an array without axes": (lambda y: y * np.array(0.1), Y * 0.1),
    "a list": (lambda y: y * [0.1, 0.2], Y * PAIR),
    "int64 beyond int32": (lambda y: y * np.int64(2**40 + 1), Y * (2**40 + 1)),
    "a power": (lambda y: y**TENTH, Y**0.1),
    "where": (lambda y: tp.where(y > 2, y, PAIR), np.where(Y > 2, Y, PAIR)),
    "cases": (lambda y: tp.cases((tp.dim("t", 2) < 1, PAIR), y)[0], PAIR),
    "a definition": (defined, TENTH + PAIR + PAIR),
    "a parameter": (declared, PAIR),
    "a gradient": (differentiated, 2 * PAIR),
    "clip of an array": (lambda y: tp.clip(PAIR, TENTH, y), PAIR),
    "clip by a scalar": (lambda y: y.clip(max=TENTH), [0.1, 0.1]),
    "maximum": (lambda y: tp.maximum(PAIR, 0 * y), PAIR),
    "logaddexp": (lambda y: tp.logaddexp(y, PAIR), np.logaddexp(Y, PAIR)),
    "full": (lambda y: tp.full((2,), TENTH, dtype=tp.float64) + 0 * y, [0.1, 0.1]),
    "full_like": (lambda y: tp.full_like(y, TENTH), [0.1, 0.1]),
    "astype": (lambda y: tp.astype(PAIR, tp.float64) + 0 * y, PAIR),
    "linspace": (lambda y: tp.linspace(TENTH, 0.7, 2, dtype=tp.float64) + 0 * y, [0.1, 0.7]),
    "concatenate": (lambda y: tp.concatenate([PAIR, y]), [0.1, 0.2, 1.0, 3.0]),
    "stack": (lambda y: tp.stack([y, PAIR]).spatial[1], PAIR),
    "pad": (lambda y: tp.pad(y, 1, constant_values=TENTH), [0.1, 1.0, 3.0, 0.1]),
    "outer": (lambda y: tp.outer(PAIR, y).spatial[:, 0], PAIR),
    "matmul": (lambda y: np.array([[0.1, 0.0]]) @ y.reshape(2, 1), [[0.1]]),
    "einsum": (lambda y: tp.einsum("i,i->i", PAIR, y), PAIR * Y),
    "nan_to_num": (lambda y: tp.nan_to_num(y * np.nan, TENTH), [0.1, 0.1]),
    "an epsilon": (lambda y: tp.layer_norm(y, epsilon=TENTH), (Y - 2) / np.sqrt(1.1)),
    "uniform": (lambda y: tp.random.uniform((2,), TENTH, TENTH, dims=(), dtype=tp.float64) + 0 * y, [0.1, 0.1]),
}


@pytest.mark.parametrize("name", CASES)
def test_float64_meets_float64(name: str, evaluate: Callable[..., Any]) -> None:
    build, expected = CASES[name]
    found = evaluate(build, Y)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_float64_value_takes_the_float_dtype_that_it_meets(dtype: str, evaluate: Callable[..., Any]) -> None:
    wanted = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for value in (TENTH, PAIR, np.array(0.1), [0.1, 0.2]):
        found = evaluate(lambda x, value=value: tp.where(x > 5, x, value), np.ones(2, wanted))
        assert found.dtype == wanted
        assert found.tobytes() == np.broadcast_to(np.asarray(value).astype(wanted), (2,)).tobytes()


def test_with_no_float_beside_it_float32() -> None:
    with tp.Program():
        x = tp.input("x", (2,), dtype=tp.int32)
        assert (x * TENTH).dtype == tp.sqrt(TENTH).dtype == tp.constant(PAIR).dtype == "float32"
        assert not (x * TENTH).weak and not tp.where(x > 0, PAIR, 0.5).weak
        assert (TENTH * tp.as_tensor(0.5) * tp.input("h", (), dtype=tp.float16)).dtype == "float32"


def test_bfloat16_is_rounded_once() -> None:
    """1 + 2**-8 is in the middle of two; float32 does not tell what lies a little above or below from it."""
    near = 1 + 2.0**-8 + np.array([2.0**-40, 0, -(2.0**-40)])
    with tp.Program():
        made = tp.constant(near, dtype=tp.bfloat16).node.attr("value").array
        alone = tp.as_tensor(float(near[0]), dtype=tp.bfloat16).node.attr("value").array
    assert made.astype(float).tolist() == [1 + 2.0**-7, 1, 1]
    assert alone == made[0]


def test_a_mask_is_asked_before_it_is_rounded(evaluate: Callable[..., Any]) -> None:
    assert evaluate(lambda y: tp.where(np.array([1e-300, 0]), y, -y), Y).tolist() == [1, -3]
    assert evaluate(lambda y: tp.any(np.array([1e-300, 0])) & (y > 0), Y).all()


WRITTEN = [np.inf, -np.inf, np.nan]


def test_what_is_written_infinite_passes(evaluate: Callable[..., Any]) -> None:
    found = evaluate(lambda x: tp.where(x > 5, x, np.array(WRITTEN)), np.ones(3, np.float16))
    np.testing.assert_array_equal(found, WRITTEN)
    assert np.isinf(evaluate(lambda x: x * float("inf"), np.ones(1, np.float16))).all()


LOST: dict[str, tuple[Callable[[tp.RecurrentTensor], Any], str]] = {
    "an array": (lambda x: x + np.array([[1.0, 2.0], [1e6, 3.0]]), r"1000000\.0 at \[1, 0\]"),
    "a scalar": (lambda x: x * np.float64(-1e6), r"-1000000\.0 would become infinite in float16"),
    "an integer": (lambda x: x * np.int64(10**6), "1000000 would"),
    "a Python number": (lambda x: x * 1e6, r"1000000\.0"),
    "a Python integer": (lambda x: x * 10**400, "an integer would"),
    "where": (lambda x: tp.where(x > 0, x, -1e9), "holds up to 65504"),
    "a pad": (lambda x: tp.pad(x, 1, constant_values=1e9), "float16"),
    "a constant": (lambda x: tp.constant(np.array([1.0, 1e300])), r"\[1\] would become infinite in float32"),
    "a parameter": (lambda x: tp.parameter("w", (2,), init=np.array([0, 1e300])), r"value of 'w': 1e\+300 at \[1\]"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_finite_value_does_not_become_infinite(name: str) -> None:
    build, message = LOST[name]
    with tp.Program():
        x = tp.input("x", (2,), dtype=tp.float16)
        with pytest.raises(tp.InputError, match=message) as caught:
            build(x)
    assert caught.value.location is not None and caught.value.location.path == __file__


def test_nor_does_an_input() -> None:
    with tp.Program() as program:
        tp.output("y", tp.input("x", (3,)))
    with pytest.raises(tp.InputError, match=r"'x': 1e\+300 at \[2\] would become infinite in float32"):
        tp.compile(program)(x=np.array([0.0, np.inf, 1e300]))


def test_a_pad_of_integers_takes_no_fraction(evaluate: Callable[..., Any]) -> None:
    assert evaluate(lambda x: tp.pad(x, 1, constant_values=np.float64(7)), np.ones(1, np.int32)).tolist() == [7, 1, 7]
    with tp.Program():
        x = tp.input("x", (1,), dtype=tp.int8)
        with pytest.raises(tp.DTypeError):
            tp.pad(x, 1, constant_values=0.5)
        with pytest.raises(tp.DTypeError, match="300 is out of the range of int8"):
            tp.pad(x, 1, constant_values=300)
