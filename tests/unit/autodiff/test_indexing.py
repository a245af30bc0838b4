"""Every indexing form: its gradient against differences, compiled and by the reference evaluator."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.conformance.gradient_programs import READS, SIZES, reads
from tempo.conformance.target import typical
from tests.unit.autodiff.differences import check, numbers


@pytest.mark.parametrize("name", typical(READS, READS[::2]))
def test_a_read_sends_along_its_preimage(name: str):
    def declare():
        s, t = tp.dims("s t")
        x = tp.input("x", shape=(3,), dims=(s, t), dtype=tp.float64)
        return reads(s, t, x)[name], {"x": x}

    check(declare, {"x": numbers(5, 6, 3)}, sizes=SIZES)


@pytest.mark.parametrize("name", typical(READS, READS[1::2]))
def test_a_read_of_a_computed_tensor_sends_along_its_preimage(name: str):
    """Through operators on both sides, so that contributions have values at the points where they are demanded only."""

    def declare():
        s, t = tp.dims("s t")
        x = tp.input("x", shape=(3,), dims=(s, t), dtype=tp.float64)
        w = tp.input("w", shape=(3,), dims=(), dtype=tp.float64)
        hidden = tp.tanh(x * w)
        return tp.exp(reads(s, t, hidden)[name] * 0.1), {"x": x, "w": w}

    check(declare, {"x": numbers(5, 6, 3), "w": numbers(3, seed=1)}, sizes=SIZES)


@pytest.mark.parametrize("read", ["first", "fixed", "clamped", "remainder", "quotient"])
def test_a_read_of_what_has_other_shapes_elsewhere(read: str):
    """The parts of the adjoint have the shape that the tensor has where it is read."""

    def declare():
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=tp.float64)
        ragged = x[t : tp.min(t + 4, t.size)] ** 2 * x
        at = {"first": 0, "fixed": 3, "clamped": tp.min(t + 2, 4), "remainder": t % 3, "quotient": t // 2}[read]
        return tp.sin(ragged[at].sum()), {"x": x}

    check(declare, {"x": numbers(6)}, sizes={"t": 6})
