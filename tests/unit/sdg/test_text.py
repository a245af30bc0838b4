import numpy as np
import pytest

from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, Slice, TensorType
from tempo.sdg.parse import ParseError, parse
from tempo.sdg.text import Placeholder, placeholders
from tempo.symbolic import Dim, Symbol, const, dim, size

PROGRAM = """\
dims b: 4, t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
%1: float32[t + 1, 3] over (t) = neg(%0[0 +: t + 1])
%2: float32[3] over (t) = reduce_sum(%1[t]) {axes: (0,)}
%3: float32[3] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | t == 0 -> %2[0]
  | t >= 1 and (t % 2 == 0 or t >= 7) -> %3[t - 1]
  | True -> %4[max(t - 3, 0)]
%4: float32[3] over (t) = add(%3[t], %2[min(t + 1, t.size - 1)])
%5: float32[], int32[2] over (b, t) = host_call(%3[t]) {batched: (), fn: !function0, ordered_by: ($b, $t)} @2
%6: int32[2] over (t) = neg(%5.1[3, t])
%7: float32[9, 3] over (t) = neg(%0[t - 4 +: t.size - 2 of 9])
%8: float32[2] = constant {value: array(float32, (2,), (0.1, -inf))}
%9: int32[] over (t) = index_value {expr: `2*t + 1`}
%10: bool[] over (t) = condition_value {condition: ?`t == 3`}
%11: nothing over (t) = sink(%9[t]) {batched: (), fn: !function1, ordered_by: ($t,), resource: "a, \\"b\\"]"} @3
output "y": float32[3] over (t) = %3[t] as ($t, 0)
state "w": float32[3] = %3[t.size - 1] as (0)
sinks %11
"""


def test_what_is_printed_is_read_back() -> None:
    graph = parse(PROGRAM)
    assert str(graph) == PROGRAM
    assert parse(str(graph)) == graph


def test_the_parts_mean_what_they_say() -> None:
    graph = parse(PROGRAM)
    t = Symbol("t", "dim")
    assert graph.dims == (Dim(Symbol("b", "dim"), const(4)), Dim(t, size("t")))
    assert graph.nodes[1].operands == (Edge(0, (Slice(const(0), dim("t") + 1),)),)
    assert graph.nodes[6].operands[0].result == 1
    assert graph.nodes[7].operands[0].map == (Slice(dim("t") - 4, size("t") - 2, const(9)),)
    assert graph.nodes[5].attr("ordered_by") == (Symbol("b", "dim"), t)
    assert graph.nodes[5].attr("fn") == Placeholder("function0")
    assert graph.nodes[11].results == ()
    assert graph.nodes[11].attr("resource") == 'a, "b"]'
    assert [case.condition.evaluate({t: 0}) for case in graph.nodes[3].cases] == [True, False, True]
    assert graph.outputs[1].role == "state"
    assert graph.outputs[0].layout == (t, 0)
    assert graph.nodes[3].name == "h"
    assert graph.nodes[3].declaration == 1
    assert graph.sinks == (11,)


def test_placeholders_are_given_back() -> None:
    def step(x: object) -> object:
        return x

    large, small = ArrayValue(np.arange(1000.0)), ArrayValue(np.array([1, 2], np.int8))
    scalar = TensorType((), "float32")
    graph = Graph(
        (),
        {
            0: Node(0, "constant", (), (TensorType((const(1000),), "float64"),), attrs=(("value", large),)),
            1: Node(1, "constant", (), (TensorType((const(2),), "int8"),), attrs=(("value", small),)),
            2: Node(2, "host_call", (), (scalar,), (Edge(0),), (("fn", step), ("ordered_by", ())), declaration=0),
        },
        (Output("y", Edge(2), (), scalar, ()),),
    )
    assert "array(int8, (2,), (1, 2))" in str(graph)
    assert set(placeholders(graph)) == {"array0", "function0"}
    assert parse(str(graph), placeholders(graph)) == graph
    assert parse(str(graph)) != graph


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint32", "bool"])
def test_inline_arrays_keep_every_bit(dtype: str) -> None:
    from tempo import dtypes

    bits = np.random.default_rng(0).bytes(12 * dtypes.itemsize(dtype))
    array = np.frombuffer(bits, np.uint8) % 2 if dtype == "bool" else np.frombuffer(bits, dtypes.to_numpy(dtype))
    value = ArrayValue(array.astype(dtypes.to_numpy(dtype), copy=False)[:12].reshape(3, 4))
    type = TensorType((const(3), const(4)), dtype)
    graph = Graph((), {0: Node(0, "constant", (), (type,), attrs=(("value", value),))}, ())
    assert parse(str(graph)) == graph


def test_not_a_number_keeps_its_bits() -> None:
    value = ArrayValue(np.array([0x7FC00001, 0xFFC00000, 0x80000000], np.uint32).view(np.float32))
    graph = Graph(
        (), {0: Node(0, "constant", (), (TensorType((const(3),), "float32"),), attrs=(("value", value),))}, ()
    )
    assert parse(str(graph)) == graph


@pytest.mark.parametrize(
    "line",
    ["%0: float32[ = neg(%1)", "%x: float32[] = neg", "hello", "%0: float32[] = neg(%1[t +])", "%0: x = a {b: c}"],
)
def test_what_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(ParseError, match="cannot read"):
        parse(f"dims t: t.size\n{line}\n")


@pytest.mark.parametrize(("first", "second"), [("µ", "μ"), ("and", "of"), ("size", "over"), ("as", "dims")])
def test_dims_keep_their_names(first: str, second: str) -> None:
    before, by = Symbol(first, "dim"), Symbol(second, "dim")
    type = TensorType((dim(first) + 1,), "float32")
    map = (Point(dim(first)), Slice(dim(by.name) - dim(first), dim(second) + 1, size(second)))
    declared = Node(0, "input", (before, by), (TensorType((), "float32"),), attrs=(("layout", (before, by)),))
    graph = Graph(
        (Dim(before, size(first)), Dim(by, size(second) + size(first))),
        {0: declared, 1: Node(1, "neg", (before, by), (type,), (Edge(0, map),))},
        (Output(first, Edge(1, (Point(dim(first)), Point(dim(second)))), (before, by), type, (before, by, 0)),),
    )
    assert parse(str(graph)) == graph
