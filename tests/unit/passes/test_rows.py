"""Rows that end each by itself, as a stop of the whole run."""

import tempo as tp
from tempo.passes.rows import rows_masked
from tempo.sdg.parse import parse
from tempo.sdg.validate import validate


def test_a_stop_of_rows_becomes_one_of_the_run() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (3,), (b, t))
        w = tp.parameter("w", (), 0.0, (b, t))
        w[b, t + 1] = w + 1
        tp.output("x", x)
        tp.output("largest", x[:, t].max(axis=0))
        tp.output("first", x[:, 0])
        tp.stop_when(t, x.sum(axis=0) > 1, each=b)
    graph = program.graph()
    made = rows_masked(graph)
    validate(made)
    assert parse(str(made)) == made
    names = {(each.role, each.name): each for each in made.outputs}
    (stop,) = made.stops.values()
    assert [symbol.name for symbol in stop.domain] == ["t"]
    assert names["lengths", "t"].layout == graph.stops[stop.domain[0]].rows
    seen = {name: made.nodes[output.edge.node] for (role, name), output in names.items() if role == "output"}
    assert seen["x"].op == "where"
    assert seen["first"].is_input or seen["first"].op != "where"
    fold = seen["largest"]
    assert fold.op == "reduce_max"
    assert made.nodes[fold.operands[0].node].op == "where"
    assert made.nodes[names["state", "w"].edge.node].attr("name") == "w"
    assert rows_masked(made) is made


def test_a_graph_without_rows_stays_as_it_is() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b, t))
        tp.output("x", x)
        tp.stop_when(t, x > 1)
    assert rows_masked(program.graph()) is program.graph()


def test_what_is_read_at_the_last_point_is_held_and_given_again() -> None:
    with tp.Program() as program:
        b, t, s = tp.dims("b t s")
        x = tp.input("x", (3,), (b, t))
        tp.stop_when(t, x.sum(axis=0) > 1, each=b)
        tp.output("last", x[b, t.last] * tp.as_tensor(s))
        x[b, t.last] + 1  # nobody asks for it
        tp.as_tensor(t.last)
    graph = program.graph()
    validate(graph)
    assert parse(str(graph)) == graph
    assert sum(node.is_last for node in graph.nodes.values()) == 2
    made = rows_masked(graph)
    validate(made)
    assert parse(str(made)) == made
    (last,) = (each for each in made.outputs if each.role == "last")
    (given,) = (each for each in made.nodes.values() if each.is_input and each.port == last.port)
    assert last.last_along == t.symbol
    assert given.domain == last.layout[:1] == (b.symbol,)
    assert not any(node.is_last for node in made.nodes.values() if node.id in made.reachable())
