"""Each rule: SDG text in, SDG text out."""

import numpy as np
import pytest

from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.passes.rewrite.patterns import Rule
from tempo.passes.simplify.simplify import RULES, Simplify
from tempo.sdg.parse import parse
from tempo.sdg.text import graph_text
from tests.unit.passes.texts import after, assert_becomes

READS = {
    "x": 'float32[2, 3] = input {layout: (0, 1), name: "x", role: "input"} @0 "x"',
    "y": 'float32[2, 3] = input {layout: (0, 1), name: "y", role: "input"} @1 "y"',
    "m": 'bool[2, 3] = input {layout: (0, 1), name: "m", role: "input"} @2 "m"',
    "n": 'bool[2, 3] = input {layout: (0, 1), name: "n", role: "input"} @3 "n"',
    "i": 'int32[2, 3] = input {layout: (0, 1), name: "i", role: "input"} @4 "i"',
    "h": 'float16[2, 3] = input {layout: (0, 1), name: "h", role: "input"} @5 "h"',
    "k": 'int32[] = input {layout: (), name: "k", role: "input"} @6 "k"',
    "b": 'bool[] = input {layout: (), name: "b", role: "input"} @7 "b"',
    "two": "float32[] = constant {value: array(float32, (), (2.0,))}",
    "one": "float32[] = constant {value: array(float32, (), (1.0,))}",
    "zero": "float32[] = constant {value: array(float32, (), (0.0,))}",
    "izero": "int32[] = constant {value: array(int32, (), (0,))}",
    "true": "bool[] = constant {value: array(bool, (), (True,))}",
    "false": "bool[] = constant {value: array(bool, (), (False,))}",
}
NUMBER = {name: number for number, name in enumerate(READS)}

# equation -> (lines in, lines out); %a, %b, ... are nodes, the last one (or the read after "->") is the output
CASES: dict[str, tuple[str, str]] = {
    "cast(x) = x": ('%a: float32[2, 3] = cast(x) {dtype: "float32"}', "-> x"),
    "reshape(x) = x": ("%a: float32[2, 3] = reshape(x) {shape: (`2`, `3`)}", "-> x"),
    "broadcast(x) = x": ("%a: float32[2, 3] = broadcast(x) {shape: (`2`, `3`)}", "-> x"),
    "slice(x) = x": ("%a: float32[2, 3] = slice(x) {lengths: (`2`, `3`), starts: (`0`, `0`), steps: (1, 1)}", "-> x"),
    "pad(x) = x": ("%a: float32[2, 3] = pad(x) {high: (0, 0), low: (0, 0), value: 0.0}", "-> x"),
    "flip(x) = x": ("%a: float32[2, 3] = flip(x) {axes: ()}", "-> x"),
    "concat(x) = x": ("%a: float32[2, 3] = concat(x) {axis: 1}", "-> x"),
    "q:reshape(p:reshape(x))": (
        "%a: float32[6] = reshape(x) {shape: (`6`,)}\n%b: float32[3, 2] = reshape(%a) {shape: (`3`, `2`)}",
        "%b: float32[3, 2] = reshape(x) {shape: (`3`, `2`)}",
    ),
    "q:flip(p:flip(x))": (
        "%a: float32[2, 3] = flip(x) {axes: (0, 1)}\n%b: float32[2, 3] = flip(%a) {axes: (1,)}",
        "%b: float32[2, 3] = flip(x) {axes: (0,)}",
    ),
    "q:slice(p:slice(x))": (
        "%a: float32[1, 2] = slice(x) {lengths: (`1`, `2`), starts: (`1`, `2`), steps: (1, -1)}\n"
        "%b: float32[1, 1] = slice(%a) {lengths: (`1`, `1`), starts: (`0`, `1`), steps: (1, 1)}",
        "%b: float32[1, 1] = slice(x) {lengths: (`1`, `1`), starts: (`1`, `1`), steps: (1, -1)}",
    ),
    "q:pad(p:pad(x))": (
        "%a: float32[3, 3] = pad(x) {high: (0, 0), low: (1, 0), value: 0.0}\n"
        "%b: float32[4, 5] = pad(%a) {high: (1, 2), low: (0, 0), value: 0.0}",
        "%b: float32[4, 5] = pad(x) {high: (`1`, `2`), low: (`1`, `0`), value: 0.0}",
    ),
    "cast(p:cast(x))": (
        '%a: float32[2, 3] = cast(h) {dtype: "float32"}\n%b: int32[2, 3] = cast(%a) {dtype: "int32"}',
        '%b: int32[2, 3] = cast(h) {dtype: "int32"}',
    ),
    "mul(x, 0) = 0": ("%a: int32[] = mul(k, izero)", "-> izero"),
    "mul(0, x) = 0": ("%a: int32[] = mul(izero, k)", "-> izero"),
    "mul(neg(x), neg(y)) = mul(x, y)": (
        "%a: float32[2, 3] = neg(x)\n%b: float32[2, 3] = neg(y)\n%c: float32[2, 3] = mul(%a, %b)",
        "%c: float32[2, 3] = mul(x, y)",
    ),
    "div(neg(x), neg(y)) = div(x, y)": (
        "%a: float32[2, 3] = neg(x)\n%b: float32[2, 3] = neg(y)\n%c: float32[2, 3] = div(%a, %b)",
        "%c: float32[2, 3] = div(x, y)",
    ),
    "pow(x, 1) = x": ("%a: float32[2, 3] = pow(x, one)", "-> x"),
    "pow(x, 2) = mul(x, x)": ("%a: float32[2, 3] = pow(x, two)", "%a: float32[2, 3] = mul(x, x)"),
    "sub(x, x) = 0": ("%a: int32[] = sub(k, k)", "%a: int32[] = constant {value: array(int32, (), (0,))}"),
    "add(neg(x), y) = sub(y, x)": (
        "%a: float32[2, 3] = neg(x)\n%b: float32[2, 3] = add(%a, y)",
        "%b: float32[2, 3] = sub(y, x)",
    ),
    "mul(x, 1) = x": ("%a: float32[2, 3] = mul(x, one)", "-> x"),
    "mul(1, x) = x": ("%a: float32[2, 3] = mul(one, x)", "-> x"),
    "div(x, 1) = x": ("%a: float32[2, 3] = div(x, one)", "-> x"),
    "sub(x, 0) = x": ("%a: float32[2, 3] = sub(x, zero)", "-> x"),
    "add(x, 0) = x": ("%a: int32[2, 3] = add(i, izero)", "-> i"),
    "add(0, x) = x": ("%a: int32[2, 3] = add(izero, i)", "-> i"),
    "neg(neg(x)) = x": ("%a: float32[2, 3] = neg(x)\n%b: float32[2, 3] = neg(%a)", "-> x"),
    "add(x, neg(y)) = sub(x, y)": (
        "%a: float32[2, 3] = neg(y)\n%b: float32[2, 3] = add(x, %a)",
        "%b: float32[2, 3] = sub(x, y)",
    ),
    "sub(x, neg(y)) = add(x, y)": (
        "%a: float32[2, 3] = neg(y)\n%b: float32[2, 3] = sub(x, %a)",
        "%b: float32[2, 3] = add(x, y)",
    ),
    "abs(neg(x)) = abs(x)": ("%a: float32[2, 3] = neg(x)\n%b: float32[2, 3] = abs(%a)", "%b: float32[2, 3] = abs(x)"),
    "abs(abs(x)) = abs(x)": ("%a: float32[2, 3] = abs(x)\n%b: float32[2, 3] = abs(%a)", "%a: float32[2, 3] = abs(x)"),
    "floor(floor(x)) = floor(x)": (
        "%a: float32[2, 3] = floor(x)\n%b: float32[2, 3] = floor(%a)",
        "%a: float32[2, 3] = floor(x)",
    ),
    "ceil(ceil(x)) = ceil(x)": (
        "%a: float32[2, 3] = ceil(x)\n%b: float32[2, 3] = ceil(%a)",
        "%a: float32[2, 3] = ceil(x)",
    ),
    "round(round(x)) = round(x)": (
        "%a: float32[2, 3] = round(x)\n%b: float32[2, 3] = round(%a)",
        "%a: float32[2, 3] = round(x)",
    ),
    "maximum(x, x) = x": ("%a: float32[2, 3] = maximum(x, x)", "-> x"),
    "minimum(x, x) = x": ("%a: float32[2, 3] = minimum(x, x)", "-> x"),
    "where(m, x, x) = x": ("%a: float32[2, 3] = where(m, x, x)", "-> x"),
    "where(1, x, y) = x": ("%a: float32[2, 3] = where(true, x, y)", "-> x"),
    "where(0, x, y) = y": ("%a: float32[2, 3] = where(false, x, y)", "-> y"),
    "logical_not(logical_not(x)) = x": ("%a: bool[2, 3] = logical_not(m)\n%b: bool[2, 3] = logical_not(%a)", "-> m"),
    "where(logical_not(m), x, y) = where(m, y, x)": (
        "%a: bool[2, 3] = logical_not(m)\n%b: float32[2, 3] = where(%a, x, y)",
        "%b: float32[2, 3] = where(m, y, x)",
    ),
    "where(m, where(m, x, y), z) = where(m, x, z)": (
        "%a: float32[2, 3] = where(m, x, y)\n%b: float32[2, 3] = where(m, %a, one)",
        "%b: float32[2, 3] = where(m, x, one)",
    ),
    "where(m, x, where(m, y, z)) = where(m, x, z)": (
        "%a: float32[2, 3] = where(m, x, y)\n%b: float32[2, 3] = where(m, one, %a)",
        "%b: float32[2, 3] = where(m, one, y)",
    ),
    "logical_and(x, 1) = x": ("%a: bool[2, 3] = logical_and(m, true)", "-> m"),
    "logical_and(1, x) = x": ("%a: bool[2, 3] = logical_and(true, m)", "-> m"),
    "logical_and(x, 0) = 0": ("%a: bool[] = logical_and(b, false)", "-> false"),
    "logical_and(0, x) = 0": ("%a: bool[] = logical_and(false, b)", "-> false"),
    "logical_or(x, 0) = x": ("%a: bool[2, 3] = logical_or(m, false)", "-> m"),
    "logical_or(0, x) = x": ("%a: bool[2, 3] = logical_or(false, m)", "-> m"),
    "logical_or(x, 1) = 1": ("%a: bool[] = logical_or(b, true)", "-> true"),
    "logical_or(1, x) = 1": ("%a: bool[] = logical_or(true, b)", "-> true"),
    "logical_and(x, x) = x": ("%a: bool[2, 3] = logical_and(m, m)", "-> m"),
    "logical_or(x, x) = x": ("%a: bool[2, 3] = logical_or(m, m)", "-> m"),
    "bitwise_not(bitwise_not(x)) = x": ("%a: int32[2, 3] = bitwise_not(i)\n%b: int32[2, 3] = bitwise_not(%a)", "-> i"),
    "bitwise_and(x, x) = x": ("%a: int32[2, 3] = bitwise_and(i, i)", "-> i"),
    "bitwise_or(x, x) = x": ("%a: int32[2, 3] = bitwise_or(i, i)", "-> i"),
}
_OPPOSITES = (("lt", "ge"), ("le", "gt"), ("gt", "le"), ("ge", "lt"), ("eq", "ne"), ("ne", "eq"))
CASES |= {
    f"logical_not({op}(x, y)) = {opposite}(x, y)": (
        f"%a: bool[2, 3] = {op}(i, izero)\n%b: bool[2, 3] = logical_not(%a)",
        f"%b: bool[2, 3] = {opposite}(i, izero)",
    )
    for op, opposite in _OPPOSITES
}


def _program(lines: str) -> str:
    """The text of a whole graph: the reads above, the lines, an output that reads the last node."""
    text = lines
    for number, letter in enumerate("abcd"):
        text = text.replace(f"%{letter}", f"%{100 + number}")
    body, _, read = text.rpartition("-> ") if "-> " in text else (text, "", "")
    nodes = "\n".join(f"%{NUMBER[name]}: {line}" for name, line in READS.items())
    for name, number in NUMBER.items():
        body = body.replace(f"({name})", f"(%{number})").replace(f"({name},", f"(%{number},")
        body = body.replace(f" {name},", f" %{number},").replace(f" {name})", f" %{number})")
    last = body.strip().splitlines()[-1] if body.strip() else f"%{NUMBER[read]}: {READS[read]}"
    number, rest = last[1:].split(":", 1)
    type = rest.split("=")[0].strip()
    layout = ", ".join(str(axis) for axis in range(0 if "[]" in type else type.count(",") + 1))
    return f'dims\n{nodes}\n{body}\noutput "out": {type} = %{number} as ({layout})\n'


@pytest.mark.parametrize("equation", CASES)
def test_rule(equation: str) -> None:
    before, expected = CASES[equation]
    wanted = without_dead_nodes(parse(_program(expected)))
    assert_becomes(Simplify(fold_elements=0), _program(before), graph_text(wanted))


def test_every_rule_has_a_test() -> None:
    assert {rule.equation for rule in RULES} == set(CASES)


@pytest.mark.parametrize(
    "lines",
    [
        "%a: float32[2, 3] = add(x, zero)",  # -0.0 + 0.0 is 0.0
        "%a: float32[2, 3] = mul(x, zero)",  # NaN, infinity, the sign of zero
        "%a: float32[2, 3] = sub(x, x)",  # NaN
        '%a: float32[2, 3] = cast(i) {dtype: "float32"}',
        "%a: float32[2, 3] = slice(x) {lengths: (`2`, `3`), starts: (`0`, `2`), steps: (1, -1)}",
        "%a: float32[2, 3] = maximum(x, y)",
        "%a: bool[2, 3] = lt(x, y)\n%b: bool[2, 3] = logical_not(%a)",
        '%a: float16[2, 3] = cast(x) {dtype: "float16"}\n%b: float32[2, 3] = cast(%a) {dtype: "float32"}',
    ],
)
def test_what_does_not_hold_bit_for_bit_is_left_alone(lines: str) -> None:
    text = _program(lines)
    assert_becomes(Simplify(fold_elements=0), text, graph_text(without_dead_nodes(parse(text))))


def test_a_scalar_that_stands_for_an_array_is_broadcast() -> None:
    text = """
        dims
        %0: float32[] = input {layout: (), name: "x", role: "input"} @0 "x"
        %1: float32[3] = constant {value: array(float32, (3,), (1.0, 1.0, 1.0))}
        %2: float32[3] = mul(%0, %1)
        output "y": float32[3] = %2 as (0)
    """
    expected = """
        dims
        %0: float32[] = input {layout: (), name: "x", role: "input"} @0 "x"
        %2: float32[3] = broadcast(%0) {shape: (`3`,)}
        output "y": float32[3] = %2 as (0)
    """
    assert_becomes(Simplify(), text, expected)


def test_rules_look_through_index_maps() -> None:
    text = """
        dims t: t.size
        %0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
        %1: float32[] over (t) = neg(%0[t - 1])
        %2: float32[] over (t) = neg(%1[t + 3])
        %3: float32[t] over (t) = neg(%2[0 +: t])
        output "y": float32[] over (t) = %2[t] as ($t)
        output "z": float32[5] = %3[5] as (0)
    """
    expected = """
        dims t: t.size
        %0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
        %3: float32[t] over (t) = neg(%0[2 +: t])
        output "y": float32[] over (t) = %0[t + 2] as ($t)
        output "z": float32[5] = %3[5] as (0)
    """
    assert_becomes(Simplify(), text, expected)


@pytest.mark.parametrize("where", ["where(%1, %4, %0)", "where(%2, %0, %4)"])
def test_an_index_that_is_checked_is_never_dropped(where: str) -> None:
    text = f"""
        dims
        %0: float32[] = input {{layout: (), name: "x", role: "input"}} @0 "x"
        %1: bool[] = constant {{value: array(bool, (), (False,))}}
        %2: bool[] = constant {{value: array(bool, (), (True,))}}
        %3: float32[4] = input {{layout: (0,), name: "d", role: "input"}} @1 "d"
        %5: int32[] = input {{layout: (), name: "i", role: "input"}} @2 "i"
        %6: float32[] = gather(%3, %5) {{axis: 0, batch: 0, checked: True}}
        %4: float32[] = neg(%6)
        %7: float32[] = {where}
        output "y": float32[] = %7 as ()
    """
    assert 6 in after(Simplify(), text).nodes
    unchecked = after(Simplify(), text.replace("True}\n        %4", "False}\n        %4"))
    assert 6 not in unchecked.nodes


@pytest.mark.parametrize("where", ["where(%1, %3, %0)", "where(%2, %0, %3)"])
def test_a_call_of_the_host_is_never_dropped(where: str) -> None:
    text = f"""
        dims
        %0: float32[] = input {{layout: (), name: "x", role: "input"}} @0 "x"
        %1: bool[] = constant {{value: array(bool, (), (False,))}}
        %2: bool[] = constant {{value: array(bool, (), (True,))}}
        %3: float32[] = host_call(%0) {{batched: (), fn: !f, ordered_by: (), resource: None}} @1
        %4: float32[] = {where}
        output "y": float32[] = %4 as ()
    """
    assert 3 in after(Simplify(), text).nodes


def test_constants_are_folded_up_to_a_size() -> None:
    text = """
        dims
        %0: float32[2] = constant {value: array(float32, (2,), (1.0, 2.0))}
        %1: float32[2] = add(%0, %0)
        %2: int32[] = index_value {expr: `7`}
        %3: float32[] = cast(%2) {dtype: "float32"}
        %4: float32[2] = mul(%1, %3)
        %5: float32[40, 2] = broadcast(%4) {shape: (`40`, `2`)}
        output "y": float32[40, 2] = %5 as (0, 1)
    """
    result = after(Simplify(fold_elements=10), text)
    assert sorted(node.op for node in result.nodes.values()) == ["broadcast", "constant"]
    constant = next(node for node in result.nodes.values() if node.op == "constant")
    np.testing.assert_array_equal(constant.attr("value").array, np.float32([14, 28]))


def test_what_depends_on_a_point_or_on_data_is_not_folded() -> None:
    text = """
        dims t: t.size
        %0: float32[2] = constant {value: array(float32, (2,), (1.0, 2.0))}
        %1: int32[] over (t) = index_value {expr: `t`}
        %2: int32[] = constant {value: array(int32, (), (5,))}
        %3: float32[] = gather(%0, %2) {axis: 0, batch: 0, checked: True}
        output "i": int32[] over (t) = %1[t] as ($t)
        output "y": float32[] = %3 as ()
    """
    assert_becomes(Simplify(), text, text)


def test_a_plugin_adds_a_rule() -> None:
    extra = Rule("exp(log(x)) = x")
    text = _program("%a: float32[2, 3] = log(x)\n%b: float32[2, 3] = exp(%a)")
    kept = without_dead_nodes(parse(_program("-> x")))
    assert_becomes(Simplify(extra=(extra,)), text, graph_text(kept))


@pytest.mark.parametrize("equation", ["x = neg(x)", "neg(x)", "neg(x) = x)", "a:x = x"])
def test_a_rule_that_cannot_be_read_is_refused(equation: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        Rule(equation).sides  # noqa: B018


def test_pads_of_zeros_of_two_signs_stay_two() -> None:
    text = """
        %0: float32[2] = input {layout: (0,), name: "x", role: "input"} @0 "x"
        %1: float32[3] = pad(%0) {high: (0,), low: (1,), value: 0.0}
        %2: float32[4] = pad(%1) {high: (0,), low: (1,), value: -0.0}
        output "y": float32[4] = %2 as (0)
    """
    assert [node.op for node in after(Simplify(), text).nodes.values()].count("pad") == 2


SLICE = "slice(%1) {lengths: (`3`, `1`, `4`), starts: (`0`, `t`, `2`), steps: (1, 1, 1)}"


def turned(axes: str, source: str, shape: str, slices: str) -> str:
    return f"""
        dims t: t.size
        %0: float32[{source}] = input {{layout: (0, 1, 2), name: "x", role: "input"}} @0 "x"
        %1: float32[3, 5, 6] = transpose(%0) {{axes: {axes}}}
        {slices}
        output "y": float32[{shape}] over (t) = %3[t] as ($t, 0, 1)
    """


def test_a_point_of_what_is_turned_is_read_where_it_lies() -> None:
    text = turned(
        "(1, 0, 2)",
        "5, 3, 6",
        "3, 4",
        f"""
        %2: float32[3, 1, 4] over (t) = {SLICE}
        %3: float32[3, 4] over (t) = reshape(%2[t]) {{shape: (`3`, `4`)}}
    """,
    )
    found = after(Simplify(), text)
    assert [node.op for node in found.nodes.values()].count("transpose") == 0
    (cut,) = (node for node in found.nodes.values() if node.op == "slice")
    assert [str(start) for start in cut.attr("starts")] == ["t", "0", "2"]


def test_what_stays_turned_is_turned_once() -> None:
    text = turned(
        "(2, 1, 0)",
        "6, 5, 3",
        "3, 4",
        f"""
        %2: float32[3, 1, 4] over (t) = {SLICE}
        %3: float32[3, 4] over (t) = reshape(%2[t]) {{shape: (`3`, `4`)}}
    """,
    )
    assert [node.op for node in after(Simplify(), text).nodes.values()].count("transpose") == 1


def gathered(slices: str, checked: bool = False, more: str = "") -> str:
    return f"""
        %0: float32[5, 6] = input {{layout: (0, 1), name: "x", role: "input"}} @0 "x"
        %1: int32[4] = input {{layout: (0,), name: "i", role: "input"}} @1 "i"
        %2: float32[4, 6] = gather(%0, %1) {{axis: 0, batch: 0, checked: {checked}}}
        %3: float32[2, 3] = slice(%2) {{{slices}}}
        output "y": float32[2, 3] = %3 as (0, 1)
        {more}
    """


CUT = "lengths: (`2`, `3`), starts: (`1`, `2`), steps: (1, 1)"
ALSO = 'output "z": float32[4, 6] = %2 as (0, 1)'


def test_what_is_not_looked_at_is_not_gathered() -> None:
    found = after(Simplify(), gathered(CUT))
    (gather,) = (node for node in found.nodes.values() if node.op == "gather")
    data, index = (found.nodes[edge.node] for edge in gather.operands)
    assert [list(map(str, node.shape)) for node in (gather, data, index)] == [["2", "3"], ["5", "3"], ["2"]]
    assert [str(start) for node in (data, index) for start in node.attr("starts")] == ["0", "2", "1"]


@pytest.mark.parametrize("other", [{"more": ALSO}, {"checked": True}])
def test_what_others_look_at_is_gathered_once(other: dict[str, str]) -> None:
    text = gathered(CUT, **other)
    assert [node.op for node in after(Simplify(), text).nodes.values()].count("slice") == 1
