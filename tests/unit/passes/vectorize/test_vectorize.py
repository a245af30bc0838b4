import pytest

from tempo.passes.manager import PassContext
from tempo.passes.vectorize.search import Lift
from tempo.sdg.operators import OPERATORS
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol
from tests.unit.passes.equivalence import check

SIZES = (
    {"b": 1, "t": 1, "s": 1},
    {"b": 3, "t": 4, "s": 2},
    {"b": 2, "t": 5, "s": 3},
    {"b": 7, "t": 3, "s": 1},
)


def lifted_dims(before, after):
    """The names of the dims that no node of `after` has any more."""
    had = {symbol.name for node in before.nodes.values() for symbol in node.domain}
    has = {symbol.name for node in after.nodes.values() for symbol in node.domain}
    return had - has


def lift(text, *, lifts="b", exclude=(), checks=True):
    graph = parse(f"dims b: b.size, t: t.size, s: s.size\n{text}")
    after = check(Lift(frozenset(Symbol(name, "dim") for name in exclude)), graph, *SIZES, checks=checks)
    assert lifted_dims(graph, after) == set(lifts)
    return after


X = '%0: float32[3] over (b, t) = input {layout: ($b, $t, 0), name: "x", role: "input"} @0'
Y = '%1: float32[3] over (t) = input {layout: ($t, 0), name: "y", role: "input"} @1'
Z = '%2: float32[3] over (b) = input {layout: ($b, 0), name: "z", role: "input"} @2'
W = '%3: float32[3, 2] = input {layout: (0, 1), name: "w", role: "input"} @3'
B = '%4: float32[] over (b) = input {layout: ($b,), name: "v", role: "input"} @4'


def test_a_batched_recurrence_keeps_its_time_loop():
    after = lift(f"""
{X}
{W}
{Z}
%10: float32[2] over (b, t) = dot(%0[b, t], %3) {{lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (0,)}}
%11: float32[] over (b, t) = reduce_sum(%10[b, t]) {{axes: (0,)}}
%12: float32[3] over (b, t) = add(%11[b, t], %13[b, t])
%13: float32[3] over (b, t) = merge {{name: "h", role: "recurrent"}} @5
  | t == 0 -> %2[b]
  | True -> %14[b, t - 1]
%14: float32[3] over (b, t) = tanh(%12[b, t])
output "h": float32[3] over (b, t) = %13[b, t] as ($b, $t, 0)
output "last": float32[3] over (b) = %13[b, t.size - 1] as ($b, 0)
state "state": float32[3] over (b) = %14[b, t.size - 1] as ($b, 0)
""")
    assert {output.layout for output in after.outputs} == {(0, Symbol("t", "dim"), 1), (0, 1)}


def test_reads_of_prefixes_and_of_the_whole_dim():
    lift(
        f"""
{X}
%10: float32[t + 1, 3] over (b, t) = neg(%0[b, 0 +: t + 1])
%11: float32[3] over (b, t) = reduce_max(%10[b, t]) {{axes: (0,)}}
%12: float32[b.size, t + 1, 3] over (t) = exp(%0[0 +: b.size, 0 +: t + 1])
%13: float32[t + 1, 3] over (t) = reduce_sum(%12[t]) {{axes: (0,)}}
%14: float32[3] over (t) = reduce_sum(%13[t]) {{axes: (0,)}}
%15: float32[3] over (b, t) = add(%11[b, t], %14[t])
output "y": float32[3] over (b, t) = %15[b, t] as ($b, $t, 0)
output "first": float32[3] over (t) = %15[0, t] as ($t, 0)
output "all": float32[b.size, 3] over (t) = %15[0 +: b.size, t] as ($t, 0, 1)
output "swapped": float32[t.size, 3] over (b) = %15[b, 0 +: t.size] as ($b, 0, 1)
""",
        lifts="bt",  # t in blocks: nobody knows what all of its points hold
    )


def test_both_dims_of_independent_points_are_lifted_in_canonical_order():
    after = lift(
        f"""
{X}
{Y}
%10: float32[3] over (b, t) = add(%0[b, t], %1[t])
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
""",
        lifts="bt",
    )
    assert after.outputs[0].layout == (0, 1, 2)


def test_excluded_dims_stay():
    lift(
        f"""
{X}
%10: float32[3] over (b, t) = exp(%0[b, t])
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
""",
        lifts="b",
        exclude="t",
    )


def test_operands_of_lower_rank_and_those_that_do_not_vary():
    lift(
        f"""
{X}
{Y}
{B}
%10: float32[3] over (b, t) = mul(%0[b, t], %4[b])
%11: float32[3] over (b, t) = sub(%4[b], %1[t])
%12: bool[3] over (b, t) = lt(%10[b, t], %11[b, t])
%13: float32[3] over (b, t) = where(%12[b, t], %4[b], %1[t])
output "y": float32[3] over (b, t) = %13[b, t] as ($b, $t, 0)
""",
        exclude="t",
    )


def test_values_of_indices_and_conditions():
    lift(
        f"""
{X}
%10: int32[] over (b, t) = index_value {{expr: `2*b - t + min(b, t) + b // 2 + 3 * (b % 2) + 5`}}
%11: float32[] over (b, t) = cast(%10[b, t]) {{dtype: "float32"}}
%12: float32[3] over (b, t) = mul(%0[b, t], %11[b, t])
%13: bool[] over (b, t) = condition_value {{condition: ?`(b >= 1 and b + t != 3) or t == 2`}}
%14: float32[3] over (b, t) = where(%13[b, t], %12[b, t], %0[b, t])
output "y": float32[3] over (b, t) = %14[b, t] as ($b, $t, 0)
output "i": int32[] over (b, t) = %10[b, t] as ($b, $t)
""",
        exclude="t",
    )


def test_random_draws_are_the_same():
    lift(
        """
%0: uint32[] = input {layout: (), name: "seed", role: "seed"} @0
%1: uint32[2] over (b, t) = random_bits(%0) {bits: 32, coordinates: (`b`, `t`, 0), declaration: 1, shape: (2,)} @1
%2: float32[2] over (b, t) = cast(%1[b, t]) {dtype: "float32"}
output "y": float32[2] over (b, t) = %2[b, t] as ($b, $t, 0)
""",
        lifts="bt",
    )


def test_results_of_a_batched_call_are_taken_apart_by_a_transposition():
    after = lift(
        """
%0: float32[3, b.size] over (t) = input {layout: ($t, 0, 1), name: "x", role: "input"} @0
%10: float32[3, 1] over (b, t) = slice(%0[t]) {lengths: (`3`, `1`), starts: (`0`, `b`), steps: (1, 1)}
%11: float32[3] over (b, t) = reshape(%10[b, t]) {shape: (`3`,)}
output "y": float32[3] over (b, t) = %11[b, t] as ($b, $t, 0)
""",
        exclude="t",
    )
    assert not any(node.op in ("gather", "slice") for node in after.nodes.values())


@pytest.mark.parametrize("source", ["%5[t]", "%6[b, t]"])
@pytest.mark.parametrize(
    ("starts", "lengths", "steps", "shape"),
    [
        ("`b`, `0`", "`2`, `2`", "1, 1", "2, 2"),
        ("`b`, `0`", "`1`, `4`", "1, 1", "1, 4"),
        ("`4 - b`, `min(b, 2)`", "`2`, `2`", "-1, 1", "2, 2"),
        ("`1`, `b + 1`", "`2`, `1`", "2, 1", "2, 1"),
    ],
)
def test_slices_that_start_at_the_dim_are_gathered(source, starts, lengths, steps, shape):
    lift(
        f"""
%5: float32[5, 4] over (t) = input {{layout: ($t, 0, 1), name: "x", role: "input"}} @0
%6: float32[5, 4] over (b, t) = input {{layout: ($b, $t, 0, 1), name: "y", role: "input"}} @1
%7: float32[{shape}] over (b, t) = slice({source}) {{lengths: ({lengths}), starts: ({starts}), steps: ({steps})}}
%8: float32[5, 4] over (b, t) = neg(%6[b, t])
output "y": float32[{shape}] over (b, t) = %7[b, t] as ($b, $t, 0, 1)
output "z": float32[5, 4] over (b, t) = %8[b, t] as ($b, $t, 0, 1)
""",
        exclude="t",
    )


MOVEMENTS = [
    ("reshape", "2, 3", "3, 2", "{shape: (`3`, `2`)}"),
    ("transpose", "2, 3", "3, 2", "{axes: (1, 0)}"),
    ("broadcast", "3", "2, 3", "{shape: (`2`, `3`)}"),
    ("pad", "2, 3", "3, 5", "{high: (0, 2), low: (1, 0), value: 4.0}"),
    ("slice", "2, 3", "1, 2", "{lengths: (`1`, `2`), starts: (`1`, `2`), steps: (1, -1)}"),
    ("flip", "2, 3", "2, 3", "{axes: (1,)}"),
    ("cumsum", "2, 3", "2, 3", "{axis: 1}"),
    ("sort", "2, 3", "2, 3", "{axis: 0}"),
    ("reduce_max", "2, 3", "2", "{axes: (1,)}"),
    ("copy", "2, 3", "2, 3", ""),
]


@pytest.mark.parametrize(("op", "given", "result", "attrs"), MOVEMENTS, ids=[case[0] for case in MOVEMENTS])
def test_every_kind_of_operator_by_its_own_rule(op, given, result, attrs):
    axes = ", ".join(str(axis) for axis in range(len(given.split(","))))
    out = ", ".join(str(axis) for axis in range(len(result.split(","))))
    lift(
        f"""
%0: float32[{given}] over (b, t) = input {{layout: ($b, $t, {axes}), name: "x", role: "input"}} @0
%1: float32[{result}] over (b, t) = {op}(%0[b, t]) {attrs}
output "y": float32[{result}] over (b, t) = %1[b, t] as ($b, $t, {out})
""",
        exclude="t",
    )


@pytest.mark.parametrize(("left", "right"), [("%0[b, t]", "%1[t]"), ("%1[t]", "%0[b, t]"), ("%0[b, t]", "%0[b, t]")])
@pytest.mark.parametrize(
    ("op", "result"),
    [
        ("dot{c} {{lhs_batch: (0,), lhs_contract: (2,), rhs_batch: (0,), rhs_contract: (2,)}}", "2, 3, 3"),
        ("dot{c} {{lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (0,)}}", "3, 4, 3, 4"),
        ("concat{c} {{axis: 1}}", "2, 6, 4"),
    ],
)
def test_operators_of_two_operands_with_one_or_both_lifted(left, right, op, result):
    axes = ", ".join(str(axis) for axis in range(len(result.split(","))))
    lift(
        f"""
%0: float32[2, 3, 4] over (b, t) = input {{layout: ($b, $t, 0, 1, 2), name: "x", role: "input"}} @0
%1: float32[2, 3, 4] over (t) = input {{layout: ($t, 0, 1, 2), name: "y", role: "input"}} @1
%2: float32[{result}] over (b, t) = {op.format(c=f"({left}, {right})")}
output "y": float32[{result}] over (b, t) = %2[b, t] as ($b, $t, {axes})
""",
        exclude="t",
    )


@pytest.mark.parametrize(("data", "index"), [("%0[b, t]", "%2[b, t]"), ("%0[b, t]", "%3[t]"), ("%1[t]", "%2[b, t]")])
def test_gather_with_data_or_indices_or_both_lifted(data, index):
    lift(
        f"""
%0: float32[2, 3, 4] over (b, t) = input {{layout: ($b, $t, 0, 1, 2), name: "x", role: "input"}} @0
%1: float32[2, 3, 4] over (t) = input {{layout: ($t, 0, 1, 2), name: "y", role: "input"}} @1
%2: int32[5] over (b, t) = input {{layout: ($b, $t, 0), name: "i", role: "input"}} @2
%3: int32[5] over (t) = input {{layout: ($t, 0), name: "j", role: "input"}} @3
%4: float32[2, 5, 4] over (b, t) = gather({data}, {index}) {{axis: 1, batch: 0, checked: True}}
%5: float32[2, 3, 4] over (b, t) = neg(%0[b, t])
%6: float32[2, 5, 4] over (b, t) = abs(%4[b, t])
output "y": float32[2, 5, 4] over (b, t) = %6[b, t] as ($b, $t, 0, 1, 2)
output "n": float32[2, 3, 4] over (b, t) = %5[b, t] as ($b, $t, 0, 1, 2)
""".replace("over (t, b)", "over (b, t)"),
        exclude="t",
    ) if "b" in data + index else None


def test_a_case_that_does_not_vary_is_broadcast():
    lift(
        f"""
{X}
{Y}
{Z}
%10: float32[3] over (b, t) = merge {{name: "h", role: "recurrent"}} @5
  | t == 0 -> %1[0]
  | True -> %11[b, t - 1]
%11: float32[3] over (b, t) = tanh(%10[b, t])
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
"""
    )


def test_conditions_on_the_dim_are_lifted_piece_by_piece():
    after = lift(
        f"""
{X}
{Y}
%10: float32[3] over (b, t) = merge {{name: "h", role: "recurrent"}} @5
  | t == 0 -> %1[0]
  | True -> %0[b, t - 1]
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
""",
        lifts="bt",
    )
    assert "concat" in {node.op for node in after.nodes.values()}


STENCIL = f"""
{X}
{Y}
{Z}
%10: float32[3] over (b, t) = merge {{name: "u", role: "recurrent"}} @5
  | b == 0 or b == b.size - 1 -> %11
  | t == 0 -> %2[b]
  | True -> %12[b, t]
%11: float32[3] = constant {{value: array(float32, (3,), (0.0, 1.0, 2.0))}}
%12: float32[3] over (b, t) = add(%10[b - 1, t - 1], %10[b + 1, t - 1])
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
"""


def test_a_stencil_with_an_edge():
    """Both ends are held, which at sizes 1 and 2 is everything."""
    lift(STENCIL)


def test_the_ends_may_be_told_in_any_order():
    """At size 1 the first point is the last one: which case it takes is a condition on the size."""
    lift(STENCIL.replace("  | b == 0 or b == b.size - 1 -> %11", "  | b == b.size - 1 -> %11\n  | b == 0 -> %1[t]"))


def test_what_an_end_takes_of_an_input():
    lift(
        STENCIL.replace("  | b == 0 or b == b.size - 1 -> %11", "  | b == b.size - 1 or b < 1 -> %13[t]\n").replace(
            "%12:", "%13: float32[3] over (t) = sin(%1[t])\n%12:"
        )
    )


def test_an_empty_piece_may_not_ask_for_what_is_not_made():
    """%13 is made of a definition; at size 1 nothing takes it, so nothing says that it can be made."""
    lift(
        STENCIL.replace("  | b == 0 or b == b.size - 1 -> %11", "  | b == 0 -> %11").replace(
            "add(%10[b - 1, t - 1], %10[b + 1, t - 1])", "add(%10[b - 1, t - 1], %13[t])"
        )
        + """
%13: float32[3] over (t) = merge {name: "c", role: "recurrent"} @6
  | t == 0 -> %11
  | True -> %10[1, t - 1]
""",
        lifts="",
    )


def test_an_empty_span_may_ask_for_what_is_made_at_any_rate():
    """At size 1 %11 has no points; %12 is an output, so it is there for all at once."""
    lift(
        f"""
{X}
{Y}
%10: float32[3] over (b, t) = merge {{name: "c", role: "cases"}} @5
  | b < b.size - 1 -> %11[b, t]
  | True -> %0[b, t]
%11: float32[3] over (b, t) = mul(%0[b, t], %12[t])
%12: float32[3] over (t) = merge {{name: "h", role: "recurrent"}} @6
  | t == 0 -> %1[t]
  | True -> %13[t - 1]
%13: float32[3] over (t) = tanh(%12[t])
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
output "h": float32[3] over (t) = %12[t] as ($t, 0)
"""
    )


SELECTION = f"""
{X}
{Y}
{Z}
%10: float32[3] over (b, t) = merge {{name: "c", role: "cases"}} @5
  | CONDITION -> %11[b, t]
  | True -> %1[t]
%11: float32[3] over (b, t) = tanh(%0[b, t])
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
"""


@pytest.mark.parametrize("condition", ["b % 2 == 0", "b < t", "b >= 1 and t % 2 == 0 and b % 3 >= 1", "t == 2*b"])
def test_conditions_that_pieces_cannot_tell_select(condition):
    """Both sides can be computed at every point."""
    after = lift(SELECTION.replace("CONDITION", condition), lifts="bt")
    assert "where" in {node.op for node in after.nodes.values()}


@pytest.mark.parametrize(
    ("condition", "read", "lifts"),
    [
        ("b < t", "tanh(%0[b, t - b])", ""),  # out of range where b is greater
        ("b % 2 == 1", "tanh(%0[b - 1, t])", "t"),  # out of range at 0
        ("b < t", "tanh(%10[b, t - 1])", ""),  # out of range where t is 0
    ],
)
def test_what_is_not_there_at_every_point_is_not_selected(condition, read, lifts):
    lift(SELECTION.replace("CONDITION", condition).replace("tanh(%0[b, t])", read), lifts=lifts)


def test_a_recurrence_selects_among_steps_before():
    lift(
        f"""
{X}
{Y}
%10: float32[3] over (b, t) = merge {{name: "h", role: "recurrent"}} @5
  | t == 0 -> %1[t]
  | b % 2 == 0 -> %11[b, t]
  | True -> %0[b, t]
%11: float32[3] over (b, t) = tanh(%10[b, t - 1])
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
"""
    )


def test_a_band_in_the_middle_and_pieces_that_may_be_empty():
    lift(
        f"""
{X}
{Z}
%10: float32[3] over (b, t) = merge {{name: "c", role: "cases"}} @5
  | b >= 2 and b < b.size - 2 -> %0[b - 2, t]
  | b >= 4 -> %2[b]
  | t == 0 -> %0[b, t]
  | True -> %2[0]
%11: float32[3] over (b, t) = neg(%10[b, t])
output "y": float32[3] over (b, t) = %11[b, t] as ($b, $t, 0)
""",
        lifts="bt",
    )


@pytest.mark.parametrize(
    "node",
    [
        "%10: float32[3] over (b, t) = neg(%0[b.size - 1 - b, t])",
        "%10: float32[3] over (b, t) = neg(%0[b, min(b, t)])",
    ],
)
def test_what_differs_between_points_is_not_lifted(node):
    lift(
        f"""
{X}
{Y}
{node}
output "y": float32[3] over (b, t) = %10[b, t] as ($b, $t, 0)
""",
        lifts="",
        exclude="t",
    )


def test_what_a_sink_is_given_point_by_point_is_lifted_where_the_sink_is_not():
    graph = parse(f"""
dims b: b.size, t: t.size
{X}
%10: float32[3] over (b, t) = neg(%0[b, t])
%11: nothing over (b, t) = sink(%10[b, t]) {{batched: (), fn: !f, ordered_by: ($t,), resource: None}} @5
sinks %11
""")
    after = Lift(frozenset({Symbol("t", "dim")})).apply(graph, PassContext()).program
    assert after.nodes[11].domain == graph.nodes[11].domain
    assert [symbol.name for symbol in after.nodes[10].domain] == ["t"]
    assert Lift(frozenset({Symbol("t", "dim")})).apply(after, PassContext()).program == after


@pytest.mark.parametrize(("point", "size"), [("0", "1"), ("0 +: b.size - b.size // 2", "b.size - b.size//2")])
def test_the_axis_has_the_part_of_a_dim_that_is_needed(point, size):
    shape = f"{size}, 3" if "+:" in point else "3"
    axes = "0, 1" if "+:" in point else "0"
    after = lift(
        f"""
{X}
%10: float32[3] over (b, t) = neg(%0[b, t])
output "y": float32[{shape}] over (t) = %10[{point}, t] as ($t, {axes})
""",
        exclude="t",
    )
    assert [str(extent) for extent in after.nodes[10].shape] == [size, "3"]


def test_a_batched_sink_gets_the_same_axes():
    graph = parse(f"""
dims b: b.size, t: t.size
{X}
%10: float32[3] over (b, t) = neg(%0[b, t])
%11: nothing over (t) = sink(%10[0 +: b.size, t]) {{batched: ($b,), fn: !f, ordered_by: ($t,), resource: None}} @5
sinks %11
""")
    after = Lift(frozenset({Symbol("t", "dim")})).apply(graph, PassContext()).program
    assert lifted_dims(graph, after) == {"b"}
    assert str(after.seen_type(after.nodes[11].operands[0]).shape) == str(
        graph.seen_type(graph.nodes[11].operands[0]).shape
    )


WITHOUT_A_RULE = {"constant", "iota", "index_value", "condition_value", "random_bits", "input", "merge"}
NEVER = {
    "all_gather",
    "exchange",
    "all_reduce",
    "host_call",
    "backend_call",
    "backend_result",
    "sink",
    "gradient",
    "stop_gradient",
    "custom_gradient",
    "cotangent",
}


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_is_lifted_by_its_rule_or_says_why_not(name):
    """`WITHOUT_A_RULE` are operators that the pass itself lifts, or that cannot vary along a dim."""
    operator = OPERATORS[name]
    assert bool(operator.lift_note) == (name in WITHOUT_A_RULE | NEVER)
