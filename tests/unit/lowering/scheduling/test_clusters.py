from tempo.analysis.demand.demand import demand
from tempo.lowering.scheduling.clusters import Cluster, cluster
from tempo.sdg.graph import Edge, Graph, Node, Output, Point, TensorType
from tempo.sdg.parse import parse
from tempo.sdg.validate import validate
from tempo.symbolic import Dim, Symbol, dim, size

X = 'dims b: b.size, t: t.size\n%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"\n'


def _clusters(body: str) -> tuple[Cluster, ...]:
    graph = parse(X + body)
    validate(graph)
    return cluster(graph, demand(graph))


def _groups(body: str) -> list[tuple[int, ...]]:
    return [found.nodes for found in _clusters(body)]


def test_a_chain_at_one_point_is_one_statement() -> None:
    (found,) = _clusters("""
        %3: float32[] over (t) = add(%2[t], %1[t])
        %1: float32[] over (t) = neg(%0[t]) "first"
        %2: float32[] over (t) = exp(%1[t])
        output "y": float32[] over (t) = %3[t] as ($t)""")
    assert found == Cluster("add_3", (1, 2, 3), (Symbol("t", "dim"),), False)


def test_a_read_at_another_point_ends_a_statement() -> None:
    assert _groups("""
        %1: float32[] over (t) = neg(%0[t])
        %2: float32[] over (t) = exp(%1[min(t + 1, t.size - 1)])
        %3: float32[] over (t) = add(%2[t], %1[t])
        output "y": float32[] over (t) = %3[t] as ($t)""") == [(1,), (2, 3)]


def test_a_diamond_over_two_statements_is_not_closed() -> None:
    # %1 feeds %2 and %3, %2 is read shifted: %1 with %3 would need %2, and %2 needs %1
    assert _groups("""
        %1: float32[] over (t) = neg(%0[t])
        %2: float32[] over (t) = exp(%1[t])
        %3: float32[] over (t) = add(%1[t], %2[t.size - 1 - t])
        output "y": float32[] over (t) = %3[t] as ($t)""") == [(1,), (2,), (3,)]


def test_other_domains_are_other_statements() -> None:
    assert _groups("""
        %1: float32[] = neg(%0[3])
        %2: float32[] over (t) = add(%1, %0[t])
        output "y": float32[] over (t) = %2[t] as ($t)""") == [(1,), (2,)]


def test_a_recurrence_is_a_merge_and_what_it_reads() -> None:
    found = _clusters("""
        %1: float32[] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
          | t == 0 -> %0[t]
          | True -> %3[t - 1]
        %2: float32[] over (t) = exp(%1[t])
        %3: float32[] over (t) = add(%2[t], %0[t])
        output "y": float32[] over (t) = %1[t] as ($t)""")
    # %2 and %3 are needed up to the last step but one, %1 up to the last
    assert {item.nodes for item in found} == {(1,), (2, 3)}


def test_a_merge_joins_the_node_that_reads_it() -> None:
    assert _groups("""
        %1: float32[] over (t) = merge {name: "a", role: "cases"} @1 "a"
          | t % 2 == 0 -> %0[t]
          | True -> %0[t - 1]
        %2: float32[] over (t) = exp(%1[t])
        output "y": float32[] over (t) = %2[t] as ($t)""") == [(1, 2)]


def test_what_a_case_guards_is_not_run_elsewhere() -> None:
    assert _groups("""
        %1: float32[] over (t) = exp(%0[t])
        %2: float32[] over (t) = merge {name: "a", role: "cases"} @1 "a"
          | t % 2 == 0 -> %1[t]
          | True -> %0[t - 1]
        output "y": float32[] over (t) = %2[t] as ($t)""") == [(1,), (2,)]


def test_what_an_output_reads_is_not_run_only_where_a_case_needs_it() -> None:
    assert _groups("""
        %1: float32[] over (t) = exp(%0[t])
        %2: float32[] over (t) = neg(%1[t])
        %3: float32[] over (t) = merge {name: "a", role: "cases"} @1 "a"
          | t % 2 == 0 -> %2[t]
          | True -> %0[t - 1]
        output "x": float32[] over (t) = %1[t] as ($t)
        output "y": float32[] over (t) = %3[t] as ($t)""") == [(1,), (2,), (3,)]


def test_what_every_case_reads_runs_with_the_merge() -> None:
    assert _groups("""
        %1: float32[] over (t) = exp(%0[t])
        %2: float32[] over (t) = merge {name: "a", role: "cases"} @1 "a"
          | t == 0 -> %1[t]
          | True -> %1[t]
        output "y": float32[] over (t) = %2[t] as ($t)""") == [(1, 2)]


def test_host_calls_and_sinks_are_statements_of_their_own() -> None:
    found = _clusters("""
        %1: float32[] over (t) = neg(%0[t])
        %2: float32[], float32[] over (t) = host_call(%1[t]) {batched: (), fn: !f, ordered_by: ($t,), resource: None} @1
        %3: float32[] over (t) = exp(%2.1[t])
        %4: nothing over (t) = sink(%3[t]) {batched: (), fn: !g, ordered_by: ($t,), resource: None} @2
        sinks %4""")
    assert [(item.nodes, item.host) for item in found] == [((1,), False), ((2,), True), ((3,), False), ((4,), True)]
    assert [item.name for item in found] == ["neg_1", "host_call_2", "exp_3", "sink_4"]


def test_cases_that_read_each_other_at_one_point_stay_apart() -> None:
    found = _clusters("""
        %1: float32[] over (t) = merge {name: "a", role: "recurrent"} @1
          | t % 2 == 0 -> %0[t]
          | True -> %4[t]
        %2: float32[] over (t) = merge {name: "b", role: "recurrent"} @2
          | t % 2 == 1 -> %0[t]
          | True -> %3[t]
        %3: float32[] over (t) = exp(%1[t])
        %4: float32[] over (t) = neg(%2[t])
        %5: float32[] over (t) = add(%1[t], %2[t])
        output "y": float32[] over (t) = %5[t] as ($t)""")
    assert {item.nodes for item in found} == {(1,), (2,), (3,), (4,), (5,)}


def test_a_long_chain_takes_no_recursion() -> None:
    t, scalar = Symbol("t", "dim"), TensorType((), "float32")
    here = (Point(dim("t")),)
    nodes = {0: Node(0, "input", (t,), (scalar,), declaration=0)}
    nodes |= {id: Node(id, "neg", (t,), (scalar,), (Edge(id - 1, here),)) for id in range(1, 3001)}
    graph = Graph((Dim(t, size("t")),), nodes, (Output("y", Edge(3000, here), (t,), scalar, (t,)),))
    (found,) = cluster(graph, demand(graph))
    assert found.nodes == tuple(range(1, 3001))
