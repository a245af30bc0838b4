"""Programs as text: what the tests of passes share."""

from tempo.passes.manager import Pass, PassContext
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tempo.sdg.validate import validate
from tempo.symbolic import TRUE, Condition


def after(chosen: Pass, text: str, facts: Condition = TRUE) -> Graph:
    """The graph that the pass makes of a text, valid and without what nothing needs."""
    graph = parse(text)
    validate(graph)
    result = chosen.apply(graph, PassContext(facts=facts))
    validate(result)
    assert chosen.apply(result, PassContext(facts=facts)) == result, "not a fixed point"
    return without_dead_nodes(result)


def assert_becomes(chosen: Pass, text: str, expected: str, facts: Condition = TRUE) -> None:
    """The pass makes the graph `expected` of `text`: the same nodes with the same numbers."""
    result, wanted = after(chosen, text, facts), without_dead_nodes(parse(expected))
    validate(wanted)
    assert str(_sorted(result)) == str(_sorted(wanted))
    assert result == wanted


def _sorted(graph: Graph) -> Graph:
    return Graph(graph.dims, dict(sorted(graph.nodes.items())), graph.outputs, graph.sinks)
