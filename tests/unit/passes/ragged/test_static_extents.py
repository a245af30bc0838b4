import pytest

from tempo.errors import UnsupportedError
from tempo.passes.composites import Compose
from tempo.passes.manager import PassContext
from tempo.passes.ragged.static_extents import StaticExtents
from tempo.sdg.parse import parse
from tests.unit.passes.equivalence import check

SIZES = tuple({"s": s, "t": t} for s, t in ((1, 1), (2, 2), (3, 5), (5, 3)))


def static(text, checks=True):
    """The evaluator fills every position behind a valid length with NaN, or with the greatest integer."""
    graph = parse(f"dims s: s.size, t: t.size\n{text}")
    after = check(StaticExtents(), graph, *SIZES, checks=checks)
    for node in after.nodes.values():
        seen = [after.seen_type(edge).shape for _, edge in node.reads()]
        assert not any(size.dims() for shape in [*seen, *(type.shape for type in node.results)] for size in shape)
    return after


def over_prefixes(nodes, result="%9", shape="", dtype="float32"):
    """Tests `nodes` on prefixes %1, of 3 features, and %2, of scalars; the result at every point is an output."""
    axes = "".join(f", {axis}" for axis, _ in enumerate(filter(None, shape.split(","))))
    return static(f"""
%100: float32[3] over (t) = input {{layout: ($t, 0), name: "x", role: "input"}} @0
%200: float32[] over (t) = input {{layout: ($t,), name: "y", role: "input"}} @1
%300: float32[3] over (s) = input {{layout: ($s, 0), name: "z", role: "input"}} @2
%400: int32[4] over (t) = input {{layout: ($t, 0), name: "i", role: "input"}} @3
%1: float32[t + 1, 3] over (t) = neg(%100[0 +: t + 1])
%2: float32[t + 1] over (t) = abs(%200[0 +: t + 1])
{nodes}
output "out": {dtype}[{shape}] over (t) = {result}[t] as ($t{axes})
""")


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"])
def test_reductions_over_prefixes(op):
    over_prefixes(f"%9: float32[3] over (t) = {op}(%1[t]) {{axes: (0,)}}", shape="3")
    over_prefixes(f"%9: float32[] over (t) = {op}(%1[t]) {{axes: (0, 1)}}")


@pytest.mark.parametrize("op", ["reduce_any", "reduce_all"])
def test_quantifiers_over_prefixes(op):
    over_prefixes(
        f"""
%3: float32[] = constant {{value: array(float32, (), (0.5,))}}
%4: bool[t + 1] over (t) = lt(%2[t], %3)
%9: bool[] over (t) = {op}(%4[t]) {{axes: (0,)}}
""",
        dtype="bool",
    )


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions_of_extremes(op):
    over_prefixes(f"%9: int32[3] over (t) = {op}(%1[t]) {{axis: 0}}", shape="3", dtype="int32")


def test_a_running_mean():
    over_prefixes(
        """
%3: float32[3] over (t) = reduce_sum(%1[t]) {axes: (0,)}
%4: int32[] over (t) = index_value {expr: `t + 1`}
%5: float32[] over (t) = cast(%4[t]) {dtype: "float32"}
%9: float32[3] over (t) = div(%3[t], %5[t])
""",
        shape="3",
    )


def test_softmax_over_a_prefix_and_attention():
    over_prefixes(
        """
%3: float32[t + 1] over (t) = dot(%100[t], %1[t]) {lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (1,)}
%4: float32[] over (t) = reduce_max(%3[t]) {axes: (0,)}
%5: float32[t + 1] over (t) = sub(%3[t], %4[t])
%6: float32[t + 1] over (t) = exp(%5[t])
%7: float32[] over (t) = reduce_sum(%6[t]) {axes: (0,)}
%8: float32[t + 1] over (t) = div(%6[t], %7[t])
%9: float32[3] over (t) = dot(%8[t], %1[t]) {lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (0,)}
""",
        shape="3",
    )


def test_batched_contractions_of_prefixes():
    over_prefixes(
        f"""
%3: float32[3, t + 1] over (t) = transpose(%1[t]) {{axes: (1, 0)}}
%4: float32[t + 1, 3, 3] over (t) = dot(%1[t], %3[t]) {dot((0,), (), (1,), ())}
%9: float32[3, 3] over (t) = reduce_sum(%4[t]) {{axes: (0,)}}
""",
        shape="3, 3",
    )


def test_windows_with_clamps():
    static("""
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0
%1: float32[min(t + 1, 3), 3] over (t) = tanh(%0[max(t - 2, 0) +: min(t + 1, 3)])
%2: float32[3] over (t) = reduce_max(%1[t]) {axes: (0,)}
%3: float32[min(-t + t.size, 2), 3] over (t) = exp(%0[t +: min(-t + t.size, 2)])
%4: float32[3] over (t) = reduce_sum(%3[t]) {axes: (0,)}
%5: float32[3] over (t) = add(%2[t], %4[t])
output "y": float32[3] over (t) = %5[t] as ($t, 0)
""")


def test_sorts_with_infinity_and_nan_in_what_is_sorted():
    over_prefixes(
        """
%3: float32[t + 1] over (t) = log(%2[t])
%4: float32[t + 1] over (t) = sub(%3[t], %3[t])
%5: float32[t + 1] over (t) = div(%3[t], %4[t])
%6: float32[t + 1] over (t) = sort(%5[t]) {axis: 0}
%7: int32[t + 1] over (t) = argsort(%2[t]) {axis: 0}
%8: float32[t + 1] over (t) = cast(%7[t]) {dtype: "float32"}
%20: float32[t + 1] over (t) = iota {axis: 0, dtype: "float32", shape: (`t + 1`,)}
%21: float32[t + 1] over (t) = mul(%8[t], %20[t])
%22: float32[t + 1] over (t) = sort(%2[t]) {axis: 0}
%23: float32[t + 1] over (t) = mul(%22[t], %21[t])
%24: bool[t + 1] over (t) = isfinite(%6[t])
%25: float32[t + 1] over (t) = cast(%24[t]) {dtype: "float32"}
%26: float32[t + 1] over (t) = add(%25[t], %23[t])
%9: float32[] over (t) = reduce_sum(%26[t]) {axes: (0,)}
"""
    )


def test_integers_sort_behind_padding_of_the_greatest():
    over_prefixes(
        """
%3: int32[t + 1, 4] over (t) = neg(%400[0 +: t + 1])
%4: int32[t + 1, 4] over (t) = sort(%3[t]) {axis: 0}
%5: int32[t + 1, 4] over (t) = cumsum(%4[t]) {axis: 0}
%9: int32[4] over (t) = reduce_max(%5[t]) {axes: (0,)}
""",
        shape="4",
        dtype="int32",
    )


def test_scans():
    over_prefixes(
        """
%3: float32[t + 1, 3] over (t) = cumsum(%1[t]) {axis: 0}
%9: float32[3] over (t) = reduce_max(%3[t]) {axes: (0,)}
""",
        shape="3",
    )


WEIGHTED = """
%30: float32[{length}] over (t) = iota {{axis: 0, dtype: "float32", shape: (`{length}`,)}}
%31: float32[{length}] over (t) = cos(%30[t])
%9: float32[{rest}] over (t) = dot(%31[t], {read}) {attrs}
"""


def dot(lhs_batch, lhs_contract, rhs_batch, rhs_contract):
    sides = f"lhs_batch: {lhs_batch}, lhs_contract: {lhs_contract}"
    return f"{{{sides}, rhs_batch: {rhs_batch}, rhs_contract: {rhs_contract}}}"


def weighted(length, read, rest=""):
    """A sum in which every position has its own weight, so that an element that is moved shows."""
    nodes = WEIGHTED.format(length=length, read=read, rest=rest, attrs=dot((), (0,), (), (0,)))
    if "t" in length.replace("t.size", ""):
        return nodes
    return (
        nodes.replace("over (t) = iota", "= iota")
        .replace("over (t) = cos(%30[t])", "= cos(%30)")
        .replace("%31[t]", "%31")
    )


@pytest.mark.parametrize("axes", ["0", "0, 1", "1"])
def test_flips(axes):
    flip = f"%3: float32[t + 1, 3] over (t) = flip(%1[t]) {{axes: ({axes},)}}"
    over_prefixes(flip + weighted("t + 1", "%3[t]", "3"), shape="3")


def test_concatenation_of_prefixes_and_suffixes():
    over_prefixes(
        """
%3: float32[-t + t.size, 3] over (t) = exp(%100[t +: -t + t.size])
%4: float32[t.size + 1, 3] over (t) = concat(%1[t], %3[t]) {axis: 0}
%5: float32[2*t.size - t + 1, 3] over (t) = concat(%4[t], %3[t]) {axis: 0}
%6: float32[2*t.size + 2, 3] over (t) = concat(%5[t], %1[t]) {axis: 0}
%7: float32[t.size + 1, 6] over (t) = concat(%4[t], %4[t]) {axis: 1}
%8: float32[3] over (t) = reduce_sum(%6[t]) {axes: (0,)}
"""
        + weighted("t.size + 1", "%7[t]", "6"),
        shape="6",
    )


def test_concatenation_along_another_axis_of_hulls_that_differ():
    static("""
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[t + 1, 1] over (t) = reshape(%7[t]) {shape: (`t + 1`, `1`)}
%2: float32[t] over (t) = neg(%0[0 +: t])
%7: float32[t + 1] over (t) = neg(%0[0 +: t + 1])
%3: float32[t, 1] over (t) = reshape(%2[t]) {shape: (`t`, `1`)}
%4: float32[t, 2] over (t) = concat(%3[t], %1[t - 1]) {axis: 1}
%5: float32[2] over (t) = reduce_sum(%4[t]) {axes: (0,)}
%6: float32[2] over (t) = merge {name: "m", role: "recurrent"} @1
  | t >= 1 -> %5[t]
  | True -> %8
%8: float32[2] = constant {value: array(float32, (2,), (1.0, 2.0))}
output "y": float32[2] over (t) = %6[t] as ($t, 0)
""")


@pytest.mark.parametrize(
    ("low", "high", "length"), [("1", "`t`", "2*t + 2"), ("0", "`2*t.size - t`", "2*t.size + 1"), ("2", "0", "t + 3")]
)
def test_padding_behind(low, high, length):
    pad = f"%3: float32[{length}, 3] over (t) = pad(%1[t]) {{high: ({high}, 0), low: ({low}, 0), value: 2.5}}"
    over_prefixes(pad + weighted(length, "%3[t]", "3"), shape="3")


@pytest.mark.parametrize(("low", "high", "length"), [("`t.size - t`", "1", "t.size + 2"), ("`t`", "`t`", "3*t + 1")])
def test_padding_before(low, high, length):
    pad = f"%3: float32[{length}, 3] over (t) = pad(%1[t]) {{high: ({high}, 0), low: ({low}, 0), value: 2.5}}"
    over_prefixes(pad + weighted(length, "%3[t]", "3"), shape="3")


@pytest.mark.parametrize(
    ("start", "length", "step"),
    [("0", "t + 1", 1), ("1", "t", 1), ("t // 2", "t - t // 2 + 1", 1), ("t", "t + 1", -1), ("0", "t // 2 + 1", 2)],
)
def test_slices_of_prefixes(start, length, step):
    cut = (
        f"%3: float32[{length}, 2] over (t) = slice(%1[t]) "
        f"{{lengths: (`{length}`, `2`), starts: (`{start}`, `1`), steps: ({step}, 1)}}"
    )
    over_prefixes(cut + weighted(length, "%3[t]", "2"), shape="2")


def test_one_position_of_a_prefix():
    over_prefixes(
        """
%3: float32[1, 3] over (t) = slice(%1[t]) {lengths: (`1`, `3`), starts: (`t`, `0`), steps: (1, 1)}
%9: float32[3] over (t) = reshape(%3[t]) {shape: (`3`,)}
""",
        shape="3",
    )


def test_broadcasts_and_iotas_need_no_mask():
    over_prefixes(
        """
%3: int32[t + 1] over (t) = iota {axis: 0, dtype: "int32", shape: (`t + 1`,)}
%4: int32[t + 1, 4] over (t) = broadcast(%400[t]) {shape: (`t + 1`, `4`)}
%5: int32[t + 1, 1] over (t) = reshape(%3[t]) {shape: (`t + 1`, `1`)}
%6: int32[t + 1, 4] over (t) = mul(%5[t], %4[t])
%7: int32[2, t + 1] over (t) = broadcast(%3[t]) {shape: (`2`, `t + 1`)}
%8: int32[t + 1] over (t) = reduce_sum(%7[t]) {axes: (0,)}
%20: int32[] over (t) = reduce_max(%8[t]) {axes: (0,)}
%21: int32[4] over (t) = reduce_sum(%6[t]) {axes: (0,)}
%9: int32[4] over (t) = add(%20[t], %21[t])
""",
        shape="4",
        dtype="int32",
    )


def test_a_dim_that_only_extents_used_is_dropped_and_brought_back_where_it_is_sliced():
    static("""
%1: float32[t + 1] over (t) = iota {axis: 0, dtype: "float32", shape: (`t + 1`,)}
%2: float32[1] over (t) = slice(%1[t]) {lengths: (`1`,), starts: (`0`,), steps: (1,)}
%3: float32[1] over (t) = exp(%2[t])
%4: float32[t + 1, 1] over (t) = neg(%3[0 +: t + 1])
%5: float32[1] over (t) = reduce_sum(%4[t]) {axes: (0,)}
output "y": float32[1] over (t) = %5[t] as ($t, 0)
output "z": float32[1] over (t) = %3[t] as ($t, 0)
output "w": float32[t.size, 1] = %3[0 +: t.size] as (0, 1)
""")


@pytest.mark.parametrize(
    ("shape", "then"),
    [
        ("3*t + 3", weighted("3*t + 3", "%3[t]")),
        ("1, t + 1, 3", "%9: float32[1, 3] over (t) = reduce_sum(%3[t]) {axes: (1,)}"),
        ("t + 1, 1, 3, 1", "%9: float32[1, 3, 1] over (t) = reduce_sum(%3[t]) {axes: (0,)}"),
        ("3, t + 1", "%9: float32[3] over (t) = reduce_sum(%3[t]) {axes: (1,)}"),
    ],
)
def test_reshapes_of_a_leading_extent(shape, then):
    wanted = ", ".join(f"`{size}`" for size in shape.split(", "))
    reshape = f"%3: float32[{shape}] over (t) = reshape(%1[t]) {{shape: ({wanted},)}}\n"
    result = then.split("float32[")[-1].split("]")[0] if "reduce" in then else ""
    over_prefixes(reshape + then, shape=result)


def test_reshapes_of_an_inner_extent():
    over_prefixes(
        """
%3: float32[3, t + 1] over (t) = transpose(%1[t]) {axes: (1, 0)}
%4: float32[3*t + 3] over (t) = reshape(%3[t]) {shape: (`3*t + 3`,)}
%5: float32[t + 1, 3] over (t) = reshape(%4[t]) {shape: (`t + 1`, `3`)}
%6: float32[3, t + 1] over (t) = reshape(%5[t]) {shape: (`3`, `t + 1`)}
%7: float32[3*t + 3] over (t) = reshape(%6[t]) {shape: (`3*t + 3`,)}
%8: float32[3*t + 3] over (t) = add(%4[t], %7[t])
"""
        + weighted("3*t + 3", "%8[t]")
    )


@pytest.mark.parametrize("checked", ["True", "False"])
@pytest.mark.parametrize("checks", [True, False])
def test_gather_from_a_prefix_and_with_a_prefix_of_indices(checked, checks):
    static(
        f"""
%0: float32[3] over (t) = input {{layout: ($t, 0), name: "x", role: "input"}} @0
%1: int32[] over (t) = index_value {{expr: `t`}}
%2: int32[4] over (t) = input {{layout: ($t, 0), name: "i", role: "input"}} @1
%3: int32[4] over (t) = minimum(%2[t], %1[t])
%4: float32[t + 1, 3] over (t) = neg(%0[0 +: t + 1])
%5: float32[4, 3] over (t) = gather(%4[t], %3[t]) {{axis: 0, batch: 0, checked: {checked}}}
%6: int32[t + 1, 4] over (t) = neg(%2[0 +: t + 1])
%7: int32[t + 1, 4] over (t) = abs(%6[t])
%8: float32[t + 1, 4] over (t) = gather(%0[t], %7[t]) {{axis: 0, batch: 0, checked: {checked}}}
%9: float32[4] over (t) = reduce_sum(%8[t]) {{axes: (0,)}}
output "a": float32[4, 3] over (t) = %5[t] as ($t, 0, 1)
output "b": float32[4] over (t) = %9[t] as ($t, 0)
""",
        checks=checks,
    )


def test_an_unchecked_index_is_clamped_to_the_valid_part():
    static("""
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0
%2: int64[4] over (t) = input {layout: ($t, 0), name: "i", role: "input"} @1
%4: float32[t + 1, 3] over (t) = neg(%0[0 +: t + 1])
%5: float32[4, 3] over (t) = gather(%4[t], %2[t]) {axis: 0, batch: 0, checked: False}
output "a": float32[4, 3] over (t) = %5[t] as ($t, 0, 1)
""")


def test_scatter_of_a_prefix():
    zeros = f"array(float32, (5, 3), ({', '.join(['0.0'] * 15)}))"
    static(f"""
%0: float32[3] over (t) = input {{layout: ($t, 0), name: "x", role: "input"}} @0
%1: int32[] over (t) = input {{layout: ($t,), name: "i", role: "input"}} @1
%2: float32[5, 3] = constant {{value: {zeros}}}
%3: int32[t + 1] over (t) = neg(%1[0 +: t + 1])
%4: int32[t + 1] over (t) = abs(%3[t])
%5: float32[t + 1, 3] over (t) = exp(%0[0 +: t + 1])
%6: float32[5, 3] over (t) = scatter_add(%2, %4[t], %5[t]) {{axis: 0, batch: 0, checked: True}}
output "y": float32[5, 3] over (t) = %6[t] as ($t, 0, 1)
""")


def test_a_recurrent_tensor_whose_shape_grows():
    static("""
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0
%1: float32[t + 1, 3] over (t) = merge {name: "h", role: "recurrent"} @1
  | t == 0 -> %2
  | True -> %4[t - 1]
%2: float32[1, 3] = constant {value: array(float32, (1, 3), (1.0, 2.0, 3.0))}
%3: float32[1, 3] over (t) = reshape(%0[t]) {shape: (`1`, `3`)}
%4: float32[t + 2, 3] over (t) = concat(%1[t], %3[t]) {axis: 0}
%5: float32[3] over (t) = reduce_sum(%1[t]) {axes: (0,)}
output "y": float32[3] over (t) = %5[t] as ($t, 0)
""")


def test_a_shifted_read_of_a_prefix_meets_one_that_is_not():
    static("""
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[t + 1] over (t) = neg(%0[0 +: t + 1])
%2: float32[t] over (t) = mul(%1[t - 1], %0[1 +: t])
%3: float32[] over (t) = reduce_sum(%2[t]) {axes: (0,)}
%4: float32[] over (t) = merge {name: "m", role: "recurrent"} @1
  | t >= 1 -> %3[t]
  | True -> %0[t]
output "y": float32[] over (t) = %4[t] as ($t,)
""")


def test_a_window_read_at_one_point_has_no_padding():
    static("""
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[min(t + 2, t.size) - max(t - 2, 0)] over (t) = neg(%0[max(t - 2, 0) +: min(t + 2, t.size) - max(t - 2, 0)])
%2: float32[] = reduce_sum(%1[t.size - 1]) {axes: (0,)}
%3: float32[] over (t) = reduce_sum(%1[t]) {axes: (0,)}
output "last": float32[] = %2 as ()
output "sums": float32[] over (t) = %3[t] as ($t)
output "window": float32[min(t.size, 3)] = %1[t.size - 1] as (0)
""")


def test_an_extreme_that_no_point_needs_does_not_stop_the_pass():
    static("""
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[] over (t) = reduce_max(%0[0 +: t + 1]) {axes: (0,)}
%2: float32[] over (t) = merge {name: "h", role: "recurrent"} @1
  | t == 0 -> %1[t]
%3: float32[] over (t) = merge {name: "g", role: "recurrent"} @2
  | t >= 1 and t <= 0 -> %2[t]
  | True -> %0[t]
output "y": float32[] over (t) = %3[t] as ($t)
""")


def test_empty_slices_sum_to_zero():
    static("""
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[t] over (t) = neg(%0[0 +: t])
%2: float32[] over (t) = reduce_sum(%1[t]) {axes: (0,)}
output "y": float32[] over (t) = %2[t] as ($t,)
""")


def test_effects_get_the_lengths_to_trim_to():
    graph = parse("""
dims t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0
%1: float32[t + 1, 3] over (t) = neg(%0[0 +: t + 1])
%2: nothing over (t) = sink(%1[t], %0[t], %0[t +: -t + t.size]) {batched: (), fn: !f, ordered_by: ($t,)} @1
sinks %2
""")
    after = StaticExtents().apply(graph, PassContext())
    trims = [[None if length is None else str(length) for length in axes] for axes in after.nodes[2].attr("trims")]
    assert trims == [["t + 1", None], [None], ["t.size - t", None]]


CONV = "{dilation: (%d,), padding: ((%d, %d),), strides: (%d,)}"
LINES = """
%0: float32[1, 2] over (t) = input {layout: ($t, 0, 1), name: "x", role: "input"} @0
%1: float32[t + 3, 1, 2] over (t) = pad(%0[0 +: t + 1]) {high: (`2`, `0`, `0`), low: (`0`, `0`, `0`), value: 0.5}
%2: float32[1, 2, t + 3] over (t) = transpose(%1[t]) {axes: (1, 2, 0)}
%3: float32[1, 2, 2] = constant {value: array(float32, (1, 2, 2), (1.0, 2.0, -3.0, 4.0))}
"""


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [(0, 0), (2, 0), (0, 1), (1, 3)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolutions_along_an_axis_that_varies(dilation, padding, stride):
    length = f"(t + {2 + sum(padding) - dilation}) // {stride} + 1"
    static(f"""{LINES}
%4: float32[1, 1, {length}] over (t) = conv(%2[t], %3) {CONV % (dilation, *padding, stride)}
%6: float32[1, 1] over (t) = reduce_max(%4[t]) {{axes: (2,)}}
output "y": float32[1, 1] over (t) = %6[t] as ($t, 0, 1)
""")


def test_convolutions_of_samples_channels_and_filters_that_vary():
    static(f"""{LINES}
%4: float32[t + 3, 1, 2] over (t) = conv(%1[t], %7) {CONV % (1, 1, 0, 1)}
%5: float32[1, 2] over (t) = reduce_max(%4[t]) {{axes: (0,)}}
%6: float32[1, 1, 2] over (t) = conv(%8[t], %8[t]) {CONV % (1, 1, 0, 1)}
%7: float32[1, 1, 2] = constant {{value: array(float32, (1, 1, 2), (1.0, 2.0))}}
%8: float32[1, t + 3, 2] over (t) = transpose(%1[t]) {{axes: (1, 0, 2)}}
%9: float32[1, t + 3, 2] over (t) = conv(%7, %1[t]) {CONV % (1, 1, 0, 1)}
%10: float32[1, 2] over (t) = reduce_max(%9[t]) {{axes: (1,)}}
output "samples": float32[1, 2] over (t) = %5[t] as ($t, 0, 1)
output "channels": float32[1, 1, 2] over (t) = %6[t] as ($t, 0, 1, 2)
output "filters": float32[1, 2] over (t) = %10[t] as ($t, 0, 1)
""")


def test_what_has_no_rule_is_named_with_its_place():
    graph = parse(f"""
dims t: t.size
{LINES}
%4: float32[1, 1, 1] over (t) = conv(%2[t], %2[t]) {CONV % (1, 0, 0, 1)}
output "y": float32[1, 1, 1] over (t) = %4[t] as ($t, 0, 1, 2)
""")
    with pytest.raises(UnsupportedError, match="a kernel of t \\+ 3 taps comes apart in the pass 'decompose'"):
        StaticExtents().apply(graph, PassContext())


def test_a_graph_without_extents_that_vary_is_left_alone():
    graph = parse("""
dims t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0
%1: float32[t.size, 3] = neg(%0[0 +: t.size])
output "y": float32[t.size, 3] = %1 as (0, 1)
""")
    assert StaticExtents().apply(graph, PassContext()) is graph


def test_gather_of_pairs_from_a_prefix():
    static("""
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0
%1: int32[] over (t) = index_value {expr: `t`}
%2: int32[4] over (t) = input {layout: ($t, 0), name: "i", role: "input"} @1
%3: int32[4] over (t) = minimum(%2[t], %1[t])
%4: float32[t + 1, 3] over (t) = neg(%0[0 +: t + 1])
%5: float32[4] over (t) = gather_pairs(%4[t], %3[t], %2[t]) {axis: 0, batch: 0, checked: True, count: 2}
output "y": float32[4] over (t) = %5[t] as ($t, 0)
""")


def test_a_scatter_and_a_gather_of_a_prefix_clamp_to_its_end():
    """Also at indices that hold no more than 255, of more positions."""
    over_prefixes(
        """
%3: uint8[4] over (t) = cast(%400[t]) {dtype: "uint8"}
%4: float32[t + 300] over (t) = pad(%2[t]) {high: (299,), low: (0,), value: 2}
%9: float32[4] over (t) = gather(%4[t], %3[t]) {axis: 0, batch: 0, checked: False}
""",
        shape="4",
    )
    over_prefixes(
        """
%3: float32[] = constant {value: array(float32, (), (3.0,))}
%4: float32[4] = broadcast(%3) {shape: (4,)}
%5: float32[t + 1] over (t) = scatter_add(%2[t], %400[t], %4) {axis: 0, batch: 0, checked: False}
%6: float32[1] over (t) = slice(%5[t]) {lengths: (1,), starts: (`t`,), steps: (1,)}
%9: float32[] over (t) = reshape(%6[t]) {shape: ()}
"""
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_softmax_over_a_prefix_has_one_mask(dtype):
    """What lies behind its weights is 0, through casts and movement: the contraction masks the values alone."""
    after = compose_and_static(
        f"""
%4: float32[] over (t) = reduce_max(%2[t]) {{axes: (0,)}}
%5: float32[t + 1] over (t) = sub(%2[t], %4[t])
%6: float32[t + 1] over (t) = exp(%5[t])
%7: float32[] over (t) = reduce_sum(%6[t]) {{axes: (0,)}}
%8: float32[t + 1] over (t) = div(%6[t], %7[t])
%12: {dtype}[t + 1] over (t) = cast(%8[t]) {{dtype: "{dtype}"}}
%10: float32[t + 1] over (t) = cast(%12[t]) {{dtype: "float32"}}
%11: float32[1, t + 1] over (t) = reshape(%10[t]) {{shape: (1, `t + 1`)}}
%9: float32[1, 3] over (t) = dot(%11[t], %1[t]) {{lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (0,)}}
output "out": float32[1, 3] over (t) = %9[t] as ($t, 0, 1)
"""
    )
    fills = [(node.attr("fill"), len(node.shape)) for node in after.nodes.values() if node.op == "mask"]
    assert sorted(fills) == [(float("-inf"), 1), (0, 2)]


def compose_and_static(nodes):
    """On prefixes, with values that are not finite among the valid ones, too."""
    graph = parse(f"""dims s: s.size, t: t.size
%100: float32[3] over (t) = input {{layout: ($t, 0), name: "x", role: "input"}} @0
%200: float32[] over (t) = input {{layout: ($t,), name: "y", role: "input"}} @1
%1: float32[t + 1, 3] over (t) = neg(%100[0 +: t + 1])
%2: float32[t + 1] over (t) = log(%200[0 +: t + 1])
{nodes}""")
    composed = check(Compose(), graph, *SIZES)
    return check(StaticExtents(), composed, *SIZES)
