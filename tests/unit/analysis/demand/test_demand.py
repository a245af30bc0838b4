import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tempo.analysis.demand.demand import certain_points, demand
from tempo.analysis.demand.instances import demanded
from tempo.analysis.demand.reads import RunSizes, reads_of_point
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Case, Edge, Graph, Node, Output, Point, Slice, TensorType
from tempo.sdg.parse import parse
from tempo.symbolic import TRUE, Dim, Symbol, const, maximum, minimum, size, var


def boxes(text):
    return {id: (str(found.box), found.exact) for id, found in demand(parse(text)).items()}


RECURRENCE = """
dims i: i.size
%0: float32[] over (i) = input {{layout: ($i,), name: "x", role: "input"}} @0
%1: float32[] = input {{layout: (), name: "z", role: "input"}} @1
%2: float32[] over (i) = merge {{name: "w", role: "recurrent"}} @2
  | i == 0 -> %1
  | True -> %4[i - 1]
%3: float32[] over (i) = add(%2[i], %0[i])
%4: float32[] over (i) = tanh(%3[i])
{output}
"""


@pytest.mark.parametrize(
    "output",
    ['output "w": float32[] over (i) = %2[i] as ($i,)', 'output "w": float32[] = %2[i.size - 1] as ()'],
)
def test_a_shifted_case_is_not_evaluated_beyond_the_last_point(output):
    found = boxes(RECURRENCE.format(output=output))
    assert found[2] == ("0 <= i < i.size", True)
    assert found[4] == found[3] == found[0] == ("0 <= i < i.size - 1", True)


def test_a_case_that_only_larger_sizes_reach():
    found = boxes(RECURRENCE.format(output='output "w": float32[] = %2[0] as ()'))
    assert found[2] == ("0 <= i < 1", True)
    assert found[4] == ("0 <= i < 0", True)


@pytest.mark.parametrize("operands", ["%5[l, t], %6[l, t]", "%6[l, t], %5[l, t]"])
def test_what_no_layer_needs_of_earlier_points_is_not_demanded(operands):
    """Keys are known before n. A bound that moves once is not widened with one that moves at every layer."""
    found = boxes(f"""
dims l: l.size, t: n.size + m.size + k.size, n: n.size, m: m.size, k: k.size
%0: float32[] over (t) = input {{layout: ($t,), name: "embedded", role: "input"}} @0
%1: float32[] over (l, n) = input {{layout: ($l, $n), name: "kept", role: "input"}} @1
%2: float32[] over (l, t) = merge {{name: "x", role: "recurrent"}} @2
  | l == 0 -> %0[t]
  | l >= 1 -> %7[l - 1, t]
%3: float32[] over (l, t) = tanh(%2[l, t])
%4: float32[] over (l, t) = merge {{name: "key", role: "cases"}} @3
  | t < n.size -> %1[l, t]
  | True -> %3[l, t]
%5: float32[] over (l, t) = reduce_sum(%4[l, 0 +: t + 1]) {{axes: (0,)}}
%6: float32[] over (l, t) = neg(%2[l, t])
%7: float32[] over (l, t) = add({operands})
%8: float32[] over (t) = neg(%7[l.size - 1, t])
%9: float32[] over (t) = merge {{name: "y", role: "recurrent"}} @4
  | t < n.size + m.size -> %0[t]
  | True -> %8[t - 1]
output "y": float32[] over (t) = %9[t] as ($t,)
""")
    assert found[4][0] == "0 <= l < l.size, 0 <= t < k.size + m.size + n.size - 1"
    for id in (2, 3, 5, 6, 7):
        assert found[id][0] == "0 <= l < l.size, n.size <= t < k.size + m.size + n.size - 1"


def test_prompt_and_generated_tokens():
    found = boxes("""
dims p: p.size, t: t.size
%0: int32[] over (p) = input {layout: ($p,), name: "prompt", role: "input"} @0
%1: int32[] over (t) = merge {name: "tok", role: "recurrent"} @2
  | t < p.size -> %0[t]
  | True -> %3[t - 1]
%2: int32[t + 1] over (t) = neg(%1[0 +: t + 1])
%3: int32[] over (t) = argmax(%2[t]) {axis: 0}
output "tok": int32[] over (t) = %1[t] as ($t,)
""")
    assert found[3] == ("p.size - 1 <= t < t.size - 1", True)
    assert found[0] == ("0 <= p < min(p.size, t.size)", True)
    assert found[1] == ("0 <= t < t.size", True)


HOST = """
dims b: b.size, i: i.size, t: t.size
%0: float32[] over (i, t) = input {{layout: ($i, $t), name: "x", role: "input"}} @0
%1: float32[] over (i, t) = host_call(%0[i, t]) {{batched: (), fn: !f, ordered_by: ($i, $t), resource: None}} @1
output "y": float32[] = %1[{point}] as ()
"""


@pytest.mark.parametrize(
    ("point", "box", "exact"),
    [
        ("0, 3", "0 <= i < 1, 0 <= t < min(t.size, 4)", False),
        ("0, t.size - 1", "0 <= i < 1, 0 <= t < t.size", True),
        ("i.size - 1, 0", "0 <= i < i.size, 0 <= t < t.size", False),
        ("i.size - 1, t.size - 1", "0 <= i < i.size, 0 <= t < t.size", True),
    ],
)
def test_host_calls_are_demanded_in_prefixes(point, box, exact):
    found = boxes(HOST.format(point=point))
    assert found[1][0] == box
    assert found[1][1] == exact or not found[1][1]
    assert exact == found[1][1]


def test_a_slice_that_is_always_empty_needs_nothing():
    found = boxes("""
dims a: a.size
%0: float32[] over (a) = neg(%1[a.size - 1 +: max(-a.size + 1, 0)])
%1: float32[] over (a) = host_call(%0[1]) {batched: (), fn: !f, ordered_by: (), resource: None} @0
output "y": float32[] = %1[0] as ()
""")
    assert found[1] == ("0 <= a < 1", True)


def test_neighbouring_slices_are_one_exact_interval():
    found = boxes("""
dims t: t.size
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[min(t + 1, 3)] over (t) = neg(%0[max(t - 2, 0) +: min(t + 1, 3)])
%2: float32[] over (t) = reduce_sum(%1[t]) {axes: (0,)}
output "y": float32[] over (t) = %2[t] as ($t,)
""")
    assert found[0] == ("0 <= t < t.size", True)


def test_strided_reads_are_not_exact():
    found = boxes("""
dims s: s.size, t: t.size
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[] over (s) = neg(%0[2 * s])
output "y": float32[] over (s) = %1[s] as ($s,)
""")
    assert found[0] == ("0 <= t < min(2*s.size - 1, t.size)", False)


def test_what_many_cases_leave_is_exact_only_with_all_of_their_conditions():
    """At the only t there is, the last case is for no point."""
    found = boxes("""
dims b: 3, t: 1
%0: float32[] = constant {value: array(float32, (), (0.0))}
%1: float32[] over (b, t) = merge {name: "h", role: "recurrent"} @0
  | b == 0 and t >= 2 -> %0
  | b == 0 or b == 2 -> %0
  | t == 0 -> %0
  | True -> %2[b, t]
%2: float32[] over (b, t) = tanh(%1[b, t - 1])
output "y": float32[] over (b, t) = %1[b, t] as ($b, $t)
""")
    assert found[2] == ("0 <= b < 0, 0 <= t < 0", True)


# Random graphs: reads and conditions of every kind, against exact demand at small sizes.

A, B = Symbol("a", "dim"), Symbol("b", "dim")
SCALAR = TensorType((), "float32")


@st.composite
def expressions(draw, symbols, extent):
    base = draw(st.sampled_from([const(0), extent - 1, *map(var, symbols), *map(var, symbols)]))
    shifted = draw(st.sampled_from([1, 1, 1, -1, 2])) * base + draw(st.integers(-2, 2))
    bound = draw(st.sampled_from([None, maximum(shifted, 0), minimum(shifted, extent - 1), shifted // 2]))
    return shifted if bound is None else bound


@st.composite
def indices(draw, symbols, extent):
    start = draw(expressions(symbols, extent))
    if draw(st.booleans()):
        return Point(start)
    return Slice(start, maximum(draw(expressions(symbols, extent)) - start, 0))


@st.composite
def edges(draw, domain, domains):
    target = draw(st.integers(0, len(domains) - 1))
    extents = {A: size("a"), B: size("b")}
    index_map = tuple(draw(indices(domain, extents[symbol])) for symbol in domains[target])
    return Edge(target, index_map)


@st.composite
def conditions(draw, symbols):
    if not symbols:
        return TRUE
    symbol = draw(st.sampled_from(symbols))
    other = draw(st.sampled_from([const(0), const(2), size(symbol.name) - 1, size("a"), *map(var, symbols)]))
    compare = draw(st.sampled_from(["ge", "lt", "eq", "ne"]))
    condition = getattr(var(symbol), compare)(other)
    return draw(st.sampled_from([condition, ~condition, condition & var(symbol).ge(1)]))


@st.composite
def graphs(draw):
    count = draw(st.integers(2, 5))
    domains = [draw(st.sampled_from([(A,), (B,), (A, B), ()])) for _ in range(count)]
    nodes = {}
    for id, domain in enumerate(domains):
        if draw(st.booleans()):
            case = st.builds(Case, conditions(domain), edges(domain, domains))
            cases = tuple(draw(st.lists(case, min_size=1, max_size=3)))
            nodes[id] = Node(id, "merge", domain, (SCALAR,), cases=cases, declaration=id)
        else:
            ordered = domain if draw(st.booleans()) else ()
            op = draw(st.sampled_from(["neg", "neg", "host_call"]))
            read = tuple(draw(edges(domain, domains)) for _ in range(draw(st.integers(0, 2))))
            nodes[id] = Node(id, op, domain, (SCALAR,), read, (("ordered_by", ordered),), declaration=id)
    edge = draw(edges((), domains))
    return Graph((Dim(A, size("a")), Dim(B, size("b"))), nodes, (Output("y", edge, (), SCALAR, ()),))


def is_acyclic(graph, symbols):
    """Whether no instance at all, demanded or not, needs itself; calls need those before them."""
    sizes = RunSizes.of(graph, symbols)
    successors = {}
    for node in graph.nodes.values():
        for point in np.ndindex(sizes.shape(node.domain)):
            found = [
                (edge.node, other)
                for edge, ranges in reads_of_point(sizes, node, point)
                for other in itertools.product(*ranges)
            ]
            if node.op == "host_call" and node.attr("ordered_by"):
                found += [(node.id, other) for other in np.ndindex(sizes.shape(node.domain)) if other < point]
            successors[node.id, point] = found
    components = strongly_connected(successors, successors)
    return all(len(names) == 1 and names[0] not in successors[names[0]] for names in components)


SIZES = [
    {Symbol("a", "size"): first, Symbol("b", "size"): second}
    for first, second in itertools.product((1, 2, 5), (1, 3, 4))
]


def inside(box, sizes, shape):
    """The points of the box as a mask; it must not leave the domain."""
    bounds = box.evaluate(sizes)
    assert all(lo >= 0 and hi <= extent for (lo, hi), extent in zip(bounds, shape))
    mask = np.zeros(shape, bool)
    mask[tuple(slice(lo, max(hi, lo)) for lo, hi in bounds)] = True
    return mask


@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
@given(graphs())
def test_demand_contains_every_needed_point_and_no_other_where_it_is_exact(graph):
    found, certain = demand(graph), certain_points(graph)
    meaningful = all(is_acyclic(graph, sizes) for sizes in SIZES)
    for sizes in SIZES:
        for id, mask in demanded(graph, sizes).items():
            if id not in found:
                assert not mask.any()
                continue
            box = inside(found[id].box, sizes, mask.shape)
            assert not (mask & ~box).any(), f"node {id}: too small at {sizes}"
            if found[id].exact and meaningful:
                assert (mask == box).all(), f"node {id}: not exact at {sizes}"
            for part in certain[id] if meaningful else ():
                assert not (inside(part, sizes, mask.shape) & ~mask).any(), f"node {id}: not needed at {sizes}"


def test_points_that_are_no_box_are_certain_by_parts():
    """A state that goes on across episodes: what is made at the very last step is needed nowhere."""
    found = certain_points(
        parse("""
dims i: i.size, t: t.size
%0: float32[] = input {layout: (), name: "x", role: "input"} @0
%1: float32[] over (i, t) = merge {name: "state", role: "recurrent"} @1
  | i == 0 and t == 0 -> %0
  | t == 0 -> %2[i - 1, t.size - 1]
  | True -> %2[i, t - 1]
%2: float32[] over (i, t) = neg(%1[i, t])
output "state": float32[] over (i, t) = %1[i, t] as ($i, $t)
""")
    )
    assert [str(box) for box in found[1]] == ["0 <= i < i.size, 0 <= t < t.size"]
    assert sorted(str(box) for box in found[2]) == [
        "0 <= i < i.size - 1, t.size - 1 <= t < t.size",
        "0 <= i < i.size, 0 <= t < t.size - 1",
    ]


def test_sizes_that_are_numbers_are_used():
    found = demand(
        parse("""
dims t: 5
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0
%1: float32[] over (t) = neg(%0[min(t + 1, 4)])
output "y": float32[] over (t) = %1[t] as ($t,)
""")
    )
    assert found[0].box.evaluate({}) == ((1, 5),)
