"""Every indexing form: its gradient against differences, compiled and by the reference evaluator."""

from __future__ import annotations

import pytest

import tempo as tp
from tests.unit.autodiff.differences import check, numbers

T, S = 6, 5


def reads(t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> dict[str, tp.RecurrentTensor]:
    """What reads `x`, of domain (s, t) and shape (3,), as a loss of shape ()."""

    def sum_of(value: tp.RecurrentTensor) -> tp.RecurrentTensor:
        scale = tp.sin(tp.as_tensor(t, dtype=tp.float64) * 2 + tp.as_tensor(s, dtype=tp.float64))
        return (value**2 * scale).sum() + value.sum()

    inner = (t >= 1) & (t < t.size - 1)
    return {
        "itself": sum_of(x),
        "constant": sum_of(x[0, 2]),
        "last": sum_of(x[s.size - 1, -1]),
        "earlier": tp.cases((t >= 1, sum_of(x[s, t - 1])), 0.0),
        "later": tp.cases((t < t.size - 2, sum_of(x[s, t + 2])), 0.0),
        "earlier and later": tp.cases((inner, sum_of(x[s, t - 1] * x[s, t + 1])), 0.0),
        "reversed": sum_of(x[s, t.size - 1 - t]),
        "whole": sum_of(x[s, 0 : t.size]),
        "both whole": sum_of(x[:, :]),
        "constant range": sum_of(x[s, 1:4]),
        "constant ranges": sum_of(x[2:4, 1:5]),
        "prefix": sum_of(x[s, 0 : t + 1]),
        "shorter prefix": sum_of(x[s, 0:t]),
        "suffix": sum_of(x[s, t : t.size]),
        "window": sum_of(x[s, tp.max(t - 2, 0) : t + 1]),
        "forward window": sum_of(x[s, t : tp.min(t + 3, t.size)]),
        "fixed window": tp.cases((t < t.size - 2, sum_of(x[s, t : t + 3])), 0.0),
        "blocks": sum_of(x[s, t // 2 * 2 : tp.min(t // 2 * 2 + 2, t.size)]),
        "stride": tp.cases((t < 3, sum_of(x[s, 2 * t])), 0.0),
        "stride from behind": tp.cases((t < 3, sum_of(x[s, 5 - 2 * t])), 0.0),
        "quotient": sum_of(x[s, t // 2]),
        "remainder": sum_of(x[s, t % 3]),
        "remainder of both": sum_of(x[s, (t + s) % 4]),
        "clamped": sum_of(x[s, tp.min(t + 2, t.size - 1)]),
        "clamped twice": sum_of(x[s, tp.max(tp.min(t + 2, t.size - 1) - 3, 0)]),
        "diagonal": tp.cases((t < s.size, sum_of(x[t, t])), 0.0),
        "two prefixes": tp.cases((t <= s, sum_of(x[0 : t + 1, 0 : t + 1])), 0.0),
        "triangle": tp.cases((t + s < t.size, sum_of(x[s, t + s])), 0.0),
        "axis": sum_of(x.spatial[1]),
        "axis at a dim": tp.cases((t < 3, x.spatial[t] * x.spatial[2 - t]), 0.0),
        "axis up to a dim": tp.cases((t < 3, sum_of(x.spatial[0 : t + 1])), 0.0),
        "axis from a dim": tp.cases((t < 2, sum_of(x.spatial[t : t + 2])), 0.0),
        "axis backwards": sum_of(x.spatial[::-1] * tp.constant(numbers(3), dtype=tp.float64)),
        "axis by twos": sum_of(x.spatial[::2]),
    }


def read(name: str, t: tp.Dim, s: tp.Dim, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    return reads(t, s, x)[name]


with tp.Program("names"):
    _s, _t = tp.dims("s t")
    NAMES = tuple(reads(_t, _s, tp.input("x", shape=(3,), dims=(_s, _t), dtype=tp.float64)))


@pytest.mark.parametrize("name", NAMES)
def test_a_read_sends_along_its_preimage(name: str):
    def declare():
        s, t = tp.dims("s t")
        x = tp.input("x", shape=(3,), dims=(s, t), dtype=tp.float64)
        return read(name, t, s, x), {"x": x}

    check(declare, {"x": numbers(S, T, 3)}, sizes={"s": S, "t": T})


@pytest.mark.parametrize("name", NAMES)
def test_a_read_of_a_computed_tensor_sends_along_its_preimage(name: str):
    """Through operators on both sides, so that contributions have values at the points where they are demanded only."""

    def declare():
        s, t = tp.dims("s t")
        x = tp.input("x", shape=(3,), dims=(s, t), dtype=tp.float64)
        w = tp.input("w", shape=(3,), dims=(), dtype=tp.float64)
        hidden = tp.tanh(x * w)
        return tp.exp(read(name, t, s, hidden) * 0.1), {"x": x, "w": w}

    check(declare, {"x": numbers(S, T, 3), "w": numbers(3, seed=1)}, sizes={"s": S, "t": T})
