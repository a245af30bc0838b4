"""Reads that move with a lifted dim: one hull for all points, valid by a predicate, and no tensor of all pairs of
points times what a point holds."""

import numpy as np
import pytest

from tempo.dtypes import to_numpy
from tempo.passes.manager import PassContext
from tempo.passes.simplify.simplify import Simplify
from tempo.passes.vectorize.search import Lift
from tempo.reference.evaluator import Evaluator
from tempo.sdg.parse import parse
from tempo.sdg.validate import validate
from tempo.symbolic import TRUE, Symbol, var

K = '%0: float32[3] over (t) = input {layout: ($t, 0), name: "k", role: "input"} @0'
Q = '%1: float32[3] over (t) = input {layout: ($t, 0), name: "q", role: "input"} @1'
V = '%2: float32[3] over (t) = input {layout: ($t, 0), name: "v", role: "input"} @2'
R = '%3: float32[] over (t) = input {layout: ($t,), name: "r", role: "input"} @3'
DOT = "{lhs_batch: (), lhs_contract: (%d,), rhs_batch: (), rhs_contract: (%d,)}"


def attention(start: str, length: str) -> str:
    return f"""
{K}
{Q}
{V}
%10: float32[{length}] over (t) = dot(%0[{start} +: {length}], %1[t]) {DOT % (1, 0)}
%11: float32[{length}] over (t) = exp(%10[t])
%12: float32[] over (t) = reduce_sum(%11[t]) {{axes: (0,)}}
%13: float32[{length}] over (t) = div(%11[t], %12[t])
%14: float32[3] over (t) = dot(%13[t], %2[{start} +: {length}]) {DOT % (0, 0)}
output "y": float32[3] over (t) = %14[t] as ($t, 0)
"""


CAUSAL = attention("0", "t + 1")
STRICT = f"""
{K}
{Q}
%10: float32[t] over (t) = dot(%0[0 +: t], %1[t]) {DOT % (1, 0)}
%11: float32[3] over (t) = dot(%10[t], %0[0 +: t]) {DOT % (0, 0)}
output "y": float32[3] over (t) = %11[t] as ($t, 0)
"""
SUFFIX = attention("t", "t.size - t")
WINDOW = attention("max(t - 2, 0)", "min(t + 1, 3)")
RETURNS = f"""
{R}
%10: int32[min(t.size - t, 2)] over (t) = iota {{axis: 0, dtype: "int32", shape: (`min(t.size - t, 2)`,)}}
%11: float32[min(t.size - t, 2)] over (t) = cast(%10[t]) {{dtype: "float32"}}
%12: float32[] over (t) = dot(%3[t +: min(t.size - t, 2)], %11[t]) {DOT % (0, 0)}
output "y": float32[] over (t) = %12[t] as ($t)
"""
ALL_RETURNS = RETURNS.replace("min(t.size - t, 2)", "t.size - t")
EXTREMES = f"""
{K}
%10: float32[3] over (t) = reduce_max(%0[0 +: t + 1]) {{axes: (0,)}}
%11: float32[3] over (t) = reduce_sum(%0[t +: t.size - t]) {{axes: (0,)}}
%12: float32[3] over (t) = add(%10[t], %11[t])
output "y": float32[3] over (t) = %12[t] as ($t, 0)
"""
ADJOINT = f"""
{K}
{Q}
%10: float32[t + 1] over (t) = dot(%0[0 +: t + 1], %1[t]) {DOT % (1, 0)}
%11: float32[t.size] over (t) = pad(%10[t]) {{high: (`t.size - t - 1`,), low: (`0`,), value: 0}}
%12: float32[t.size - t, 1] over (t) = slice(%11[t +: t.size - t]) """ + (
    "{lengths: (`t.size - t`, `1`), starts: (`0`, `t`), steps: (1, 1)}\n"
    f"%13: float32[1, 3] over (t) = dot(%12[t], %1[t +: t.size - t]) {DOT % (0, 0)}\n"
    'output "y": float32[1, 3] over (t) = %13[t] as ($t, 0, 1)\n'
)
FIXED = f"""
{K}
%10: float32[2, 3] over (t) = exp(%0[t +: 2])
%11: float32[2, 1] = constant {{value: array(float32, (2, 1), (1.0, 2.0))}}
%12: float32[2, 3] over (t) = mul(%10[t], %11)
%13: float32[3] over (t) = reduce_sum(%12[t]) {{axes: (0,)}}
%14: float32[t.size - 1, 3] = exp(%13[0 +: t.size - 1])
output "y": float32[t.size - 1, 3] = %14 as (0, 1)
"""
ELSEWHERE = f"""
{K}
%10: float32[1, 3] over (t) = exp(%0[t +: 1])
%11: float32[1, 3] over (t) = mul(%10[0], %0[t +: 1])
%12: float32[1, 3] over (t) = add(%10[t.size - 1], %11[t])
%13: float32[1, 3] over (t) = add(%10[t], %12[t])
output "y": float32[1, 3] over (t) = %13[t] as ($t, 0, 1)
"""
CONV = "{dilation: (1,), padding: ((%d, %d),), strides: (%d,)}"


def convolved(start: str, length: str) -> str:
    """Along windows, with padding that begins where each of them ends."""
    return f"""
{K}
%10: float32[3, {length}] over (t) = transpose(%0[{start} +: {length}]) {{axes: (1, 0)}}
%11: float32[1, 3, {length}] over (t) = reshape(%10[t]) {{shape: (`1`, `3`, `{length}`)}}
%12: float32[1, 3, 2] = constant {{value: array(float32, (1, 3, 2), (1.0, 2.0, -3.0, 4.0, -5.0, 6.0))}}
%13: float32[1, 1, {length} + 1] over (t) = conv(%11[t], %12) {CONV % (1, 1, 1)}
%14: float32[1, 1] over (t) = reduce_max(%13[t]) {{axes: (2,)}}
%15: float32[1, 1, ({length}) // 2 + 1] over (t) = conv(%11[t], %12) {CONV % (2, 0, 2)}
%16: float32[1, 1] over (t) = reduce_sum(%15[t]) {{axes: (2,)}}
%17: float32[1, 1] over (t) = add(%14[t], %16[t])
output "y": float32[1, 1] over (t) = %17[t] as ($t, 0, 1)
"""


CHANNELS = f"""
{K}
%10: float32[1, t + 1, 3] over (t) = reshape(%0[0 +: t + 1]) {{shape: (`1`, `t + 1`, `3`)}}
%11: float32[t + 1, 1, 3] over (t) = reshape(%0[0 +: t + 1]) {{shape: (`t + 1`, `1`, `3`)}}
%12: float32[1, 1, 2] = constant {{value: array(float32, (1, 1, 2), (1.0, 2.0))}}
%13: float32[1, 1, 3] over (t) = conv(%10[t], %10[t]) {CONV % (1, 1, 1)}
%14: float32[t + 1, 1, 3] over (t) = conv(%11[t], %12) {CONV % (1, 0, 1)}
%15: float32[1, 3] over (t) = reduce_max(%14[t]) {{axes: (0,)}}
%16: float32[1, 1, 3] over (t) = add(%13[t], %15[t])
output "y": float32[1, 1, 3] over (t) = %16[t] as ($t, 0, 1, 2)
"""
PROGRAMS = {
    "causal": CAUSAL,
    "strictly causal": STRICT,
    "suffix": SUFFIX,
    "window": WINDOW,
    "returns": RETURNS,
    "returns to the end": ALL_RETURNS,
    "extremes and sums": EXTREMES,
    "adjoint": ADJOINT,
    "fixed lengths": FIXED,
    "fixed lengths at other points": ELSEWHERE,
    "convolved prefixes": convolved("0", "t + 1"),
    "convolved suffixes": convolved("t", "t.size - t"),
    "convolved windows": convolved("max(t - 2, 0)", "min(t + 1, 3)"),
    "channels and samples of convolutions": CHANNELS,
}


def lifted(text, facts=TRUE):
    graph = parse(f"dims t: t.size\n{text}")
    validate(graph)
    context = PassContext(facts=facts)
    after = Simplify().apply(Lift(mapping="full").apply(graph, context).program, context)
    validate(after)
    return graph, after


def outputs(graph, size, arrays):
    return Evaluator(graph, arrays, {Symbol("t", "size"): size}, seed=0, checks=True).run().outputs["y"]


def inputs(graph, size, special=None):
    random = np.random.default_rng(size)
    arrays = {}
    for node in graph.nodes.values():
        if node.op == "input":
            shape = (size, *(int(extent.evaluate({})) for extent in node.shape))
            arrays[node.id] = random.standard_normal(shape).astype(to_numpy(node.dtype))
            for place, value in special or ():
                arrays[node.id][place % size] = value
    return arrays


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_points_at_once_are_what_each_is_alone(name):
    before, after = lifted(PROGRAMS[name])
    assert not any(node.domain for node in after.nodes.values())
    for size in (1, 2, 3, 7):
        arrays = inputs(before, size)
        np.testing.assert_allclose(outputs(after, size, arrays), outputs(before, size, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("special", [((-1, np.nan),), ((0, np.nan),), ((3, np.inf),), ((1, -np.inf), (4, np.inf))])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_not_finite_stays_in_the_windows_that_hold_it(name, special):
    before, after = lifted(PROGRAMS[name])
    arrays = inputs(before, 6, special)
    wanted = outputs(before, 6, arrays)
    np.testing.assert_allclose(outputs(after, 6, arrays), wanted, rtol=1e-5, atol=1e-5)
    assert not np.isfinite(wanted).all()


@pytest.mark.parametrize("name", ["causal", "strictly causal", "suffix", "adjoint"])
def test_contractions_need_no_tensor_of_all_pairs_times_what_a_point_holds(name):
    _, after = lifted(PROGRAMS[name])
    size = {Symbol("t", "size"): 1000}
    elements = [np.prod([int(n.evaluate(size)) for n in node.shape]) for node in after.nodes.values()]
    assert 999 * 1000 <= max(elements) <= 1000 * 1000


def test_windows_hold_their_length_for_every_point():
    _, after = lifted(RETURNS)
    size = {Symbol("t", "size"): 1000}
    assert max(np.prod([int(n.evaluate(size)) for n in node.shape]) for node in after.nodes.values()) <= 2 * 1000


def test_scores_of_all_pairs_are_one_contraction_under_a_predicate():
    _, after = lifted(CAUSAL)
    (scores,) = [
        node
        for node in after.nodes.values()
        if node.op == "dot"
        and len(node.operands) == 2
        and not any(after.nodes[edge.node].op not in ("input",) for edge in node.operands)
    ]
    assert [str(size) for size in scores.shape] == ["t.size", "t.size"]
    assert {edge.node for edge in scores.operands} == {0, 1}


def test_a_sum_that_is_the_same_at_every_point_is_read_in_windows_of_any_length():
    both = f"""
{R}
%10: float32[] over (t) = reduce_sum(%3[t +: max(t.size - 2*t, 0)]) {{axes: (0,)}}
%11: float32[] over (t) = reduce_sum(%10[t +: max(t.size - 2*t, 0)]) {{axes: (0,)}}
output "y": float32[] over (t) = %11[t] as ($t)
"""
    size = Symbol("t", "size")
    before, after = lifted(both, facts=var(size).eq(1))
    np.testing.assert_array_equal(outputs(after, 1, inputs(before, 1)), outputs(before, 1, inputs(before, 1)))
