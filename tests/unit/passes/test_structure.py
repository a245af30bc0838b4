"""What `simplify` says of axes: movement in normal form, late broadcasts, reductions and contractions seen through."""

import pytest

from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.passes.simplify.simplify import Simplify
from tempo.sdg.graph import Graph, Node
from tempo.sdg.parse import parse
from tests.unit.passes.texts import after, assert_becomes

READS = {
    "x": 'float32[2, 3] = input {layout: (0, 1), name: "x", role: "input"} @0 "x"',
    "y": 'float32[4, 2, 3] = input {layout: (0, 1, 2), name: "y", role: "input"} @1 "y"',
    "v": 'float32[3] = input {layout: (0,), name: "v", role: "input"} @2 "v"',
    "s": 'float32[] = input {layout: (), name: "s", role: "input"} @3 "s"',
    "w": 'float32[5, 3] = input {layout: (0, 1), name: "w", role: "input"} @4 "w"',
    "b": 'float32[2, 3, 1] = input {layout: (0, 1, 2), name: "b", role: "input"} @5 "b"',
    "h": 'float16[3] = input {layout: (0,), name: "h", role: "input"} @6 "h"',
    "q": 'int8[5, 3] = input {layout: (0, 1), name: "q", role: "input"} @7 "q"',
}
NUMBER = {name: number for number, name in enumerate(READS)}

# what -> (lines in, lines out)
CASES = {
    "concat of constants of one value around one part is pad": (
        "%a: float32[] = constant {value: array(float32, (), (0.0))}\n"
        "%b: float32[2, 2] = broadcast(%a) {shape: (`2`, `2`)}\n"
        "%c: float32[2, 1] = constant {value: array(float32, (2, 1), (0.0, 0.0))}\n"
        "%d: float32[2, 8] = concat(%b, x, %c, %b) {axis: 1}",
        "%d: float32[2, 8] = pad(x) {high: (`0`, `3`), low: (`0`, `2`), value: 0.0}",
    ),
    "pads along two axes are one": (
        "%a: float32[1, 3] = constant {value: array(float32, (1, 3), (2.0, 2.0, 2.0))}\n"
        "%b: float32[3, 1] = constant {value: array(float32, (3, 1), (2.0, 2.0, 2.0))}\n"
        "%c: float32[3, 3] = concat(%a, x) {axis: 0}\n"
        "%d: float32[3, 4] = concat(%c, %b) {axis: 1}",
        "%d: float32[3, 4] = pad(x) {high: (`0`, `1`), low: (`1`, `0`), value: 2.0}",
    ),
    "several numbers and -0.0 are no edges of one value": (
        "%a: float32[2, 1] = constant {value: array(float32, (2, 1), (0.0, 1.0))}\n"
        "%b: float32[2, 1] = constant {value: array(float32, (2, 1), (-0.0, -0.0))}\n"
        "%c: float32[2, 4] = concat(x, %a) {axis: 1}\n"
        "%d: float32[2, 5] = concat(%b, %c) {axis: 1}",
        "%a: float32[2, 1] = constant {value: array(float32, (2, 1), (0.0, 1.0))}\n"
        "%b: float32[2, 1] = constant {value: array(float32, (2, 1), (-0.0, -0.0))}\n"
        "%c: float32[2, 4] = concat(x, %a) {axis: 1}\n"
        "%d: float32[2, 5] = concat(%b, %c) {axis: 1}",
    ),
    "transpose(transpose(x))": (
        "%a: float32[3, 4, 2] = transpose(y) {axes: (2, 0, 1)}\n%b: float32[4, 3, 2] = transpose(%a) {axes: (1, 0, 2)}",
        "%b: float32[4, 3, 2] = transpose(y) {axes: (0, 2, 1)}",
    ),
    "a transposition that moves axes of size 1 is a reshape": (
        "%a: float32[1, 2, 3] = transpose(b) {axes: (2, 0, 1)}",
        "%a: float32[1, 2, 3] = reshape(b) {shape: (`1`, `2`, `3`)}",
    ),
    "broadcast(broadcast(x))": (
        "%a: float32[4, 2, 3] = broadcast(x) {shape: (`4`, `2`, `3`)}\n"
        "%b: float32[5, 4, 2, 3] = broadcast(%a) {shape: (`5`, `4`, `2`, `3`)}",
        "%b: float32[5, 4, 2, 3] = broadcast(x) {shape: (`5`, `4`, `2`, `3`)}",
    ),
    "transpose(broadcast(x))": (
        "%a: float32[4, 2, 3] = broadcast(x) {shape: (`4`, `2`, `3`)}\n"
        "%b: float32[2, 3, 4] = transpose(%a) {axes: (1, 2, 0)}",
        "%a: float32[2, 3, 1] = reshape(x) {shape: (`2`, `3`, `1`)}\n"
        "%b: float32[2, 3, 4] = broadcast(%a) {shape: (`2`, `3`, `4`)}",
    ),
    "transpose(reshape(x)) where ones are inserted": (
        "%a: float32[2, 1, 3] = reshape(x) {shape: (`2`, `1`, `3`)}\n"
        "%b: float32[3, 1, 2] = transpose(%a) {axes: (2, 1, 0)}",
        "%a: float32[3, 2] = transpose(x) {axes: (1, 0)}\n%b: float32[3, 1, 2] = reshape(%a) {shape: (`3`, `1`, `2`)}",
    ),
    "reshape(broadcast(x)) where ones are inserted": (
        "%a: float32[4, 3] = broadcast(v) {shape: (`4`, `3`)}\n"
        "%b: float32[4, 1, 3] = reshape(%a) {shape: (`4`, `1`, `3`)}",
        "%b: float32[4, 1, 3] = broadcast(v) {shape: (`4`, `1`, `3`)}",
    ),
    "a reshape that merges axes stays": (
        "%a: float32[3, 2] = transpose(x) {axes: (1, 0)}\n%b: float32[6] = reshape(%a) {shape: (`6`,)}",
        "%a: float32[3, 2] = transpose(x) {axes: (1, 0)}\n%b: float32[6] = reshape(%a) {shape: (`6`,)}",
    ),
    "f(broadcast(x)) = broadcast(f(x))": (
        "%a: float32[4, 3] = broadcast(v) {shape: (`4`, `3`)}\n%b: float32[4, 3] = exp(%a)",
        "%a: float32[3] = exp(v)\n%b: float32[4, 3] = broadcast(%a) {shape: (`4`, `3`)}",
    ),
    "f(broadcast(x), y) = f(x, y)": (
        "%a: float32[2, 3] = broadcast(s) {shape: (`2`, `3`)}\n%b: float32[2, 3] = mul(%a, x)",
        "%b: float32[2, 3] = mul(s, x)",
    ),
    "reduce(transpose(x))": (
        "%a: float32[3, 4, 2] = transpose(y) {axes: (2, 0, 1)}\n%b: float32[3, 2] = reduce_max(%a) {axes: (1,)}",
        "%a: float32[2, 3] = reduce_max(y) {axes: (0,)}\n%b: float32[3, 2] = transpose(%a) {axes: (1, 0)}",
    ),
    "reduce(reshape(x)) where ones are inserted": (
        "%a: float32[2, 1, 3] = reshape(x) {shape: (`2`, `1`, `3`)}\n%b: float32[2, 1] = reduce_prod(%a) {axes: (2,)}",
        "%a: float32[2] = reduce_prod(x) {axes: (1,)}\n%b: float32[2, 1] = reshape(%a) {shape: (`2`, `1`)}",
    ),
    "a reduction over axes of size 1": (
        "%a: float32[2, 3] = reduce_sum(b) {axes: (2,)}",
        "%a: float32[2, 3] = reshape(b) {shape: (`2`, `3`)}",
    ),
    "max(broadcast(x))": (
        "%a: float32[4, 3] = broadcast(v) {shape: (`4`, `3`)}\n%b: float32[3] = reduce_max(%a) {axes: (0,)}",
        "-> v",
    ),
    "sum(broadcast(x)) = n x": (
        "%a: float32[4, 3] = broadcast(v) {shape: (`4`, `3`)}\n%b: float32[] = reduce_sum(%a) {axes: (0, 1)}",
        "%a: float32[] = reduce_sum(v) {axes: (0,)}\n%c: int32[] = index_value {expr: `4`}\n"
        '%d: float32[] = cast(%c) {dtype: "float32"}\n%b: float32[] = mul(%a, %d)',
    ),
    "a product is not multiplied": (
        "%a: float32[4, 3] = broadcast(v) {shape: (`4`, `3`)}\n%b: float32[3] = reduce_prod(%a) {axes: (0,)}",
        "%a: float32[4, 3] = broadcast(v) {shape: (`4`, `3`)}\n%b: float32[3] = reduce_prod(%a) {axes: (0,)}",
    ),
    "halves hold no large count": (
        "%a: float16[4, 3] = broadcast(h) {shape: (`4`, `3`)}\n%b: float16[3] = reduce_sum(%a) {axes: (0,)}",
        "%a: float16[4, 3] = broadcast(h) {shape: (`4`, `3`)}\n%b: float16[3] = reduce_sum(%a) {axes: (0,)}",
    ),
    "a matrix times a vector": (
        "%a: float32[2, 3] = mul(x, v)\n%b: float32[2] = reduce_sum(%a) {axes: (1,)}",
        "%b: float32[2] = dot(x, v) {lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (0,)}",
    ),
    "an inner product": (
        "%a: float32[3] = mul(v, v)\n%b: float32[] = reduce_sum(%a) {axes: (0,)}",
        "%b: float32[] = dot(v, v) {lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (0,)}",
    ),
    "a matrix product of which the axes were inserted": (
        "%a: float32[2, 1, 3] = reshape(x) {shape: (`2`, `1`, `3`)}\n%b: float32[2, 5, 3] = mul(%a, w)\n"
        "%c: float32[2, 5] = reduce_sum(%b) {axes: (2,)}",
        "%c: float32[2, 5] = dot(x, w) {lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (1,)}",
    ),
    "a batched one, in another order": (
        "%a: float32[4, 2, 3] = mul(y, x)\n%b: float32[4, 3] = reduce_sum(%a) {axes: (1,)}",
        "%a: float32[3, 4] = dot(y, x) {lhs_batch: (2,), lhs_contract: (1,), rhs_batch: (1,), rhs_contract: (0,)}\n"
        "%b: float32[4, 3] = transpose(%a) {axes: (1, 0)}",
    ),
    "a product as large as its factors stays": (
        "%a: float32[2, 3] = mul(x, x)\n%b: float32[2] = reduce_sum(%a) {axes: (1,)}",
        "%a: float32[2, 3] = mul(x, x)\n%b: float32[2] = reduce_sum(%a) {axes: (1,)}",
    ),
    "a factor that does not vary along what is summed is no contraction": (
        "%a: float32[2, 3] = mul(x, s)\n%b: float32[2] = reduce_sum(%a) {axes: (1,)}",
        "%a: float32[2, 3] = mul(x, s)\n%b: float32[2] = reduce_sum(%a) {axes: (1,)}",
    ),
    "dot(transpose(x), y)": (
        "%a: float32[3, 2] = transpose(x) {axes: (1, 0)}\n"
        "%b: float32[2, 5] = dot(%a, w) {lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (1,)}",
        "%b: float32[2, 5] = dot(x, w) {lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (1,)}",
    ),
    "dot(x, cast(w)) = dot(x, w) where w is int8": (
        '%a: float32[5, 3] = cast(q) {dtype: "float32"}\n'
        "%b: float32[2, 5] = dot(x, %a) {lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (1,)}",
        "%b: float32[2, 5] = dot(x, q) {lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (1,)}",
    ),
    "dot(cast(w), cast(w)) keeps a float, whose dtype it has": (
        '%a: float32[5, 3] = cast(q) {dtype: "float32"}\n'
        "%b: float32[5, 5] = dot(%a, %a) {lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (1,)}",
        '%a: float32[5, 3] = cast(q) {dtype: "float32"}\n'
        "%b: float32[5, 5] = dot(q, %a) {lhs_batch: (), lhs_contract: (1,), rhs_batch: (), rhs_contract: (1,)}",
    ),
    "a batch axis that repeats on one side is free": (
        "%a: float32[4, 5, 3] = broadcast(w) {shape: (`4`, `5`, `3`)}\n"
        "%b: float32[4, 2, 5] = dot(y, %a) {lhs_batch: (0,), lhs_contract: (2,), rhs_batch: (0,), rhs_contract: (2,)}",
        "%b: float32[4, 2, 5] = dot(y, w) {lhs_batch: (), lhs_contract: (2,), rhs_batch: (), rhs_contract: (1,)}",
    ),
    "what repeats on both sides is computed once": (
        "%a: float32[7, 3] = broadcast(v) {shape: (`7`, `3`)}\n"
        "%b: float32[7] = dot(%a, %a) {lhs_batch: (0,), lhs_contract: (1,), rhs_batch: (0,), rhs_contract: (1,)}",
        "%a: float32[] = dot(v, v) {lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (0,)}\n"
        "%b: float32[7] = broadcast(%a) {shape: (`7`,)}",
    ),
}


def _program(lines: str) -> str:
    """The text of a whole graph: the reads above, the lines, an output that reads the node %b, %c or the last one."""
    body, _, read = lines.partition("-> ")
    last = body.strip().splitlines()[-1] if body else f"%{NUMBER[read]}: {READS[read]}"
    for number, letter in enumerate("abcd"):
        body, last = (part.replace(f"%{letter}", f"%{100 + number}") for part in (body, last))
    for name, number in NUMBER.items():
        body = body.replace(f"({name})", f"(%{number})").replace(f"({name},", f"(%{number},")
        body = body.replace(f" {name},", f" %{number},").replace(f" {name})", f" %{number})")
    nodes = "\n".join(f"%{NUMBER[name]}: {line}" for name, line in READS.items())
    number, rest = last[1:].split(":", 1)
    type = rest.split("=")[0].strip()
    layout = ", ".join(str(axis) for axis in range(0 if "[]" in type else type.count(",") + 1))
    return f'dims\n{nodes}\n{body}\noutput "out": {type} = %{number} as ({layout})\n'


@pytest.mark.parametrize("what", CASES)
def test_structure(what: str) -> None:
    before, expected = CASES[what]
    found = after(Simplify(fold_elements=0), _program(before))
    wanted = after(Simplify(fold_elements=0), _program(expected))
    assert _outputs(found) == _outputs(wanted)
    assert str(wanted) == str(without_dead_nodes(parse(_program(expected)))), "what is expected is no normal form"


def _outputs(graph: Graph) -> list[str]:
    """Each output as one nested term, so that numbers of nodes do not matter."""
    return [_term(graph, graph.nodes[output.edge.node]) for output in graph.outputs]


def _term(graph: Graph, node: Node) -> str:
    operands = ", ".join(_term(graph, graph.nodes[edge.node]) for edge in node.operands)
    return f"{node.op}({operands}) {node.attrs} {node.shape} {node.dtype}"


def test_a_sum_over_what_may_be_empty_is_not_multiplied() -> None:
    text = """
        dims t: t.size
        %0: float32[] = input {layout: (), name: "x", role: "input"} @0 "x"
        %1: float32[t] over (t) = broadcast(%0) {shape: (`t`,)}
        %2: float32[] over (t) = reduce_sum(%1[t]) {axes: (0,)}
        output "y": float32[] over (t) = %2[t] as ($t)
    """
    assert_becomes(Simplify(), text, text)


def test_a_contraction_over_a_slice_is_found_before_anything_is_lifted() -> None:
    text = """
        dims t: t.size
        %0: float32[8] over (t) = input {layout: ($t, 0), name: "k", role: "input"} @0 "k"
        %1: float32[8] over (t) = input {layout: ($t, 0), name: "q", role: "input"} @1 "q"
        %2: float32[t + 1, 8] over (t) = mul(%0[0 +: t + 1], %1[t])
        %3: float32[t + 1] over (t) = reduce_sum(%2[t]) {axes: (1,)}
        %4: float32[t + 1, 1] over (t) = reshape(%3[t]) {shape: (`t + 1`, `1`)}
        %5: float32[t + 1, 8] over (t) = mul(%4[t], %0[0 +: t + 1])
        %6: float32[8] over (t) = reduce_sum(%5[t]) {axes: (0,)}
        output "y": float32[8] over (t) = %6[t] as ($t, 0)
    """
    found = after(Simplify(), text)
    assert [node.op for node in found.nodes.values()] == ["input", "input", "dot", "dot"]
