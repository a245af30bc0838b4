"""Family 10, random numbers: the same bits under every schedule, lifting, size and backend; moments."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target


def draws() -> tp.Program:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        for width in (8, 16, 32, 64):
            wide = tp.random.bits((2, 3), dims=(b, t), dtype=f"uint{width}")
            tp.output(f"bits{width}", (wide >> (width - 8)).astype(tp.uint8))
        whole = tp.random.bits((3,), dims=(t,))
        tp.output("bits", whole)
        tp.output("bits_reversed", whole[t.size - 1 - t])
        tp.output("bits_of_the_past", tp.bitwise_xor(tp.cases((t >= 1, whole[t - 1]), whole), whole))
        tp.output("scalar", tp.random.bits())
        tp.output("uniform", tp.random.uniform((2,), dims=(b, t)))
        tp.output("uniform64", tp.random.uniform((2,), -1.0, 3.0, dims=(t,), dtype=tp.float64))
        tp.output("normal", tp.random.normal((3,), dims=(b, t)))
        tp.output("bernoulli", tp.random.bernoulli(0.3, (5,), dims=(t,)))
        tp.output("permutation", tp.random.permutation(7, dims=(t,)))
        tp.output("categorical", tp.random.categorical(tp.constant([0.0, 1.0, 2.0]), dims=(b, t)))
        walk = tp.recurrent("walk", (), (t,))
        walk[0] = 0.0
        walk[t + 1] = walk + tp.random.uniform((), -0.5, 0.5, dims=(t,))
        tp.output("walk", walk)
    return program


EXACT = ("bits8", "bits16", "bits32", "bits64", "bits", "bits_reversed", "bits_of_the_past", "scalar", "uniform")


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_same_numbers_as_the_reference(target: Target, seed: int) -> None:
    """Bits and uniforms bit for bit, also where a lifted draw meets one in a loop; normals within some ulp."""
    sizes = {"b": 3, "t": 5}
    found = target.agrees(draws(), sizes=sizes, seed=seed, tolerance=2)
    wanted = tp.compile(draws(), "reference")(sizes=sizes, seed=seed)
    for name in EXACT:
        np.testing.assert_array_equal(target.to_numpy(found[name]), wanted[name], err_msg=name)


@pytest.mark.few_configurations
def test_numbers_depend_on_the_point_and_not_on_sizes(target: Target) -> None:
    run = target.compile(draws())
    small, large = (target.arrays(run(sizes=sizes)) for sizes in ({"b": 2, "t": 3}, {"b": 5, "t": 7}))
    for name in ("bits32", "uniform", "normal"):
        np.testing.assert_array_equal(small[name], large[name][:2, :3], err_msg=name)
    np.testing.assert_array_equal(small["bits"], large["bits"][:3])
    other = target.arrays(run(sizes={"b": 2, "t": 3}, seed=1))
    assert (other["bits"] != small["bits"]).any()


@pytest.mark.few_configurations
def test_moments(target: Target) -> None:
    """Ten thousand draws: mean and variance within five standard errors."""
    count = 10_000
    with tp.Program() as program:
        t = tp.dim("t", 100)
        tp.output("uniform", tp.random.uniform((100,), dims=(t,)))
        tp.output("normal", tp.random.normal((100,), 2.0, 3.0, dims=(t,)))
        tp.output("bernoulli", tp.random.bernoulli(0.3, (100,), dims=(t,)))
        logits = tp.log(tp.constant([0.5, 0.3, 0.2]))
        tp.output("categorical", tp.random.categorical(tp.broadcast_to(logits, (100, 3)), dims=(t,)))
        tp.output("permutation", tp.random.permutation(11, dims=(t,)))
    found = target.arrays(target.compile(program)())
    for name, mean, variance in (("uniform", 0.5, 1 / 12), ("normal", 2.0, 9.0), ("bernoulli", 0.3, 0.21)):
        values = found[name].astype(np.float64)
        assert abs(values.mean() - mean) < 5 * np.sqrt(variance / count), name
        assert abs(values.var() / variance - 1) < 0.1, name
    assert (found["uniform"] >= 0).all()
    assert (found["uniform"] < 1).all()
    rates = np.bincount(found["categorical"].ravel(), minlength=3) / count
    np.testing.assert_allclose(rates, [0.5, 0.3, 0.2], atol=0.03)
    np.testing.assert_array_equal(np.sort(found["permutation"], axis=1), np.tile(np.arange(11), (100, 1)))
    assert len(np.unique(found["permutation"], axis=0)) > 90
    assert abs(np.corrcoef(found["uniform"][:, :2].T)[0, 1]) < 0.5


@pytest.mark.few_configurations
def test_draws_of_many_elements(target: Target) -> None:
    """Where array libraries have other kernels than for few."""
    with tp.Program() as program:
        tp.output("permutation", tp.random.permutation(50_000))
        tp.output("sorted", tp.sort(tp.random.bits((50_000,)), 0))
        tp.output("normal", tp.random.normal((50_000,)))
    found = target.compile(program)(seed=3)
    wanted = tp.compile(program, "reference")(seed=3)
    for name in ("permutation", "sorted"):
        np.testing.assert_array_equal(target.to_numpy(found[name]), wanted[name], err_msg=name)
    np.testing.assert_allclose(target.to_numpy(found["normal"]), wanted["normal"], rtol=1e-5)
