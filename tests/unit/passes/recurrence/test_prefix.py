"""Reductions over slices that slide: which become recurrences, which scans, which stay, and how accurate they are."""

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.passes.recurrence.prefix import Recurrences
from tempo.sdg.parse import parse
from tests.unit.passes.equivalence import check
from tests.unit.passes.texts import after, assert_becomes

Tensor = tp.RecurrentTensor
STEPWISE: dict[str, Callable[[Tensor, tp.Dim], Tensor]] = {
    "maximum so far": lambda x, t: x[0 : t + 1].max(axis=0),
    "minimum to come": lambda x, t: x[t : t.size].min(axis=0),
    "product to come": lambda x, t: x[t : t.size].prod(axis=0),
    "all so far": lambda x, t: (x[0 : t + 1] > 0).all(axis=0),
    "any to come": lambda x, t: (x[t : t.size] > 0).any(axis=0),
    "sum before": lambda x, t: x[0:t].sum(axis=0),
    "sum of outer products": lambda x, t: tp.einsum("si,sj->ij", x[0 : t + 1], x[0 : t + 1]),
    "sum of what is made step by step": lambda x, t: _decayed(x, t)[0 : t + 1].sum(axis=0),
}
AT_ONCE: dict[str, Callable[[Tensor, tp.Dim], Tensor]] = {
    "sum so far": lambda x, t: x[0 : t + 1].sum(axis=0),
    "mean so far": lambda x, t: x[0 : t + 1].mean(axis=0),
    "sum to come": lambda x, t: x[t : t.size].sum(axis=0),
    "sum of an expression, over all axes": lambda x, t: (x[0 : t + 1] * tp.exp(x[0 : t + 1]) + 1).sum(),
}
LEFT: dict[str, Callable[[Tensor, tp.Dim], Tensor]] = {
    "a window": lambda x, t: x[tp.max(t - 2, 0) : t + 1].sum(axis=0),
    "a window of fixed length": lambda x, t: x[t : tp.min(t + 3, t.size)].mean(axis=0),
    "what depends on the point": lambda x, t: (x[0 : t + 1] * x).max(axis=0),
    "another axis": lambda x, t: x[0 : t + 1].max(axis=1)[3],
    "a position": lambda x, t: x[0 : t + 1].argmax(axis=0),
    "one point": lambda x, t: x[0 : t + 1].max(axis=0)[3],
    "the whole dim": lambda x, t: x[0 : t.size].max(axis=0),
}


def _decayed(x: Tensor, t: tp.Dim) -> Tensor:
    h = tp.recurrent("h", x.shape, (t,))
    h[0] = x
    h[t + 1] = h * 0.5 + x[t + 1]
    return h


def _graph(make: Callable[[Tensor, tp.Dim], Tensor], dtype: str = "float32") -> tp.Program:
    with tp.Program("sliding") as program:
        t = tp.dim("t")
        tp.output("y", make(tp.input("x", (2,), (t,), dtype=dtype), t))
    return program


def _merges(program: tp.Program) -> tuple[int, int, int]:
    """How many merges and scans the pass adds, and how many reductions over slices are left."""
    graph = program.graph()
    made = check(Recurrences(), graph, {"t": 5}, {"t": 4})
    ops = [node.op for node in made.nodes.values()]
    before = sum(node.op == "merge" for node in graph.nodes.values())
    slices = sum("+:" in line and "reduce" in line for line in str(made).splitlines())
    return ops.count("merge") - before, ops.count("cumsum"), slices


@pytest.mark.parametrize("what", STEPWISE)
def test_a_recurrence(what: str) -> None:
    assert _merges(_graph(STEPWISE[what])) == (1, 0, 0)


@pytest.mark.parametrize("what", AT_ONCE)
def test_a_scan_where_nothing_goes_step_by_step(what: str) -> None:
    assert _merges(_graph(AT_ONCE[what])) == (0, 1, 0)


@pytest.mark.parametrize("what", LEFT)
def test_what_does_not_slide_stays(what: str) -> None:
    assert _merges(_graph(LEFT[what]))[:2] == (0, 0)


def test_the_text_of_a_suffix() -> None:
    text = """
        dims i: i.size, t: t.size
        %0: float32[] over (i, t) = input {layout: ($i, $t), name: "x", role: "input"} @0 "x"
        %1: float32[] over (i, t) = reduce_max(%0[i, t +: t.size - t]) {axes: (0,)} "m"
        output "y": float32[] over (i, t) = %1[i, t] as ($i, $t)
    """
    result = check(Recurrences(), parse(text), {"i": 2, "t": 1}, {"i": 1, "t": 6})
    merge = next(node for node in result.nodes.values() if node.op == "merge")
    assert str(merge.cases[0].condition) == "t == t.size - 1"
    assert merge.name == "m"
    assert after(Recurrences(), text) == result


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize("what", [*STEPWISE, *AT_ONCE, *LEFT])
def test_compiled_programs_agree_with_the_reference(what: str, size: int, lift: bool) -> None:
    size = max(size, 4) if what in ("one point", "another axis") else size
    program = _graph({**STEPWISE, **AT_ONCE, **LEFT}[what])
    x = np.random.default_rng(size).standard_normal((size, 2)).astype(np.float32)
    wanted = tp.compile(program, backend="reference")(x=x)["y"]
    found = tp.compile(program, options=tp.Options(lift=lift, debug=True))(x=x)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize(
    ("what", "dtype"),
    [
        *((what, dtype) for what in ("sum so far", "sum to come", "sum before") for dtype in ("float32", "float16")),
        ("sum of what is made step by step", "float32"),
    ],
)
def test_sums_over_ten_thousand_steps_are_accurate(what: str, lift: bool, dtype: str) -> None:
    """Against sums in float64; a value in half precision is that sum rounded once."""
    program = _graph({**STEPWISE, **AT_ONCE}[what], dtype)
    x = np.random.default_rng(0).standard_normal((10_000, 2)).astype(dtype)
    wide = x.astype(np.float64)
    if what == "sum of what is made step by step":
        for step in range(1, len(wide)):
            wide[step] += 0.5 * wide[step - 1]
    found = tp.compile(program, options=tp.Options(lift=lift))(x=x)["y"]
    sums = {"sum to come": np.cumsum(wide[::-1], 0)[::-1], "sum before": np.cumsum(wide, 0) - wide}
    wanted = sums.get(what, np.cumsum(wide, 0))
    tolerance = 2e-3 if dtype == "float16" else 2e-5
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=300 * tolerance)


def test_nothing_is_changed_twice() -> None:
    text = """
        dims t: t.size
        %0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
        %1: float32[] over (t) = neg(%0[t - 1])
        output "y": float32[] over (t) = %1[t] as ($t)
    """
    assert_becomes(Recurrences(), text, text)
