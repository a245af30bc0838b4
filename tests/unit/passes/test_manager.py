import io
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tempo.errors import InternalError, ShapeError, TempoError
from tempo.passes.manager import Pass, PassContext, PassManager, PassRecord, operator_table
from tempo.passes.pipeline import PassRegistry, default_passes
from tempo.passes.rewrite.driver import DeadCodeElimination
from tempo.passes.rewrite.patterns import Rule
from tempo.passes.simplify.simplify import Simplify
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol, dim, parse_condition, size

GRAPH = parse("""
dims t: t.size
%0: float32[] over (t) = input {layout: ($t,), name: "x", role: "input"} @0 "x"
%1: float32[] over (t) = neg(%0[t])
%2: float32[] over (t) = exp(%0[t])
output "y": float32[] over (t) = %1[t] as ($t)
""")


@dataclass(frozen=True)
class Change:
    name: str
    change: Callable[[Graph], Graph] = lambda graph: graph

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        return self.change(graph)


def _rename(graph: Graph) -> Graph:
    return replace(graph, outputs=tuple(replace(output, name=output.name + "!") for output in graph.outputs))


def _break(graph: Graph) -> Graph:
    return replace(graph, nodes={id: node for id, node in graph.nodes.items() if id != 0})


def _fail(graph: Graph) -> Graph:
    raise KeyError("nobody")


def _refuse(graph: Graph) -> Graph:
    raise ShapeError("the user's mistake")


def _run(*passes: Pass, environment: dict[str, str] | None = None, **options: object) -> tuple[Graph, list[str]]:
    manager = PassManager.configured(passes, environment=environment or {}, **options)  # type: ignore[arg-type]
    graph, records = manager.run(GRAPH, PassContext())
    return graph, [record.name for record in records]


def test_passes_run_in_order_and_are_recorded() -> None:
    graph, records = PassManager((Change("a", _rename), DeadCodeElimination())).run(GRAPH, PassContext())
    assert graph.outputs[0].name == "y!"
    assert set(graph.nodes) == {0, 1}
    assert [(r.name, r.nodes_before, r.nodes_after) for r in records] == [("a", 3, 3), ("dce", 3, 2)]
    assert all(record.seconds >= 0 for record in records)


def test_the_table_of_operators_has_what_changed() -> None:
    constants = {"constant": 1}
    records = (
        PassRecord("a", 0.0, {"add": 3, "dot": 2, **constants}, {"add": 2, "dot": 1, **constants}),
        PassRecord("b", 0.0, {"add": 2, "dot": 1, **constants}, {"add": 2, "dot": 1, **constants}),
        PassRecord("c", 0.0, {"add": 2, "dot": 1, **constants}, {"dot": 1, **constants}),
    )
    assert [line.split() for line in operator_table(records).splitlines()] == [
        ["as", "written", "a", "c"],
        ["dot", "2", "1", "1"],
        ["add", "3", "2", "0"],
    ]
    assert operator_table(()) == "no pass ran"


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_pass_is_disabled_by_name(by: str) -> None:
    passes = (Change("a", _rename), Change("b", _rename))
    if by == "argument":
        graph, ran = _run(*passes, disable=["a"])
    else:
        graph, ran = _run(*passes, environment={"TEMPO_DISABLE_PASSES": "a, "})
    assert ran == ["b"]
    assert graph.outputs[0].name == "y!"


def test_nothing_runs_after_the_one_to_stop_after() -> None:
    graph, ran = _run(Change("a", _rename), Change("b", _rename), environment={"TEMPO_STOP_AFTER": "a"})
    assert ran == ["a"]
    assert graph.outputs[0].name == "y!"


def test_a_pass_is_printed_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    _run(Change("a", _rename), Change("b", _rename), environment={"TEMPO_PRINT": "b"})
    printed = capsys.readouterr().err
    before, after = printed.split("# after b\n")
    assert before.startswith("# before b\n")
    assert 'output "y!"' in before
    assert 'output "y!!"' in after
    assert parse(before).nodes == GRAPH.nodes


def test_it_prints_to_a_stream() -> None:
    stream = io.StringIO()
    PassManager((Change("a"),), printed=frozenset({"a"}), stream=stream).run(GRAPH, PassContext())
    assert stream.getvalue().count(str(GRAPH)) == 2


@pytest.mark.parametrize("variable", ["TEMPO_PRINT", "TEMPO_STOP_AFTER", "TEMPO_DISABLE_PASSES"])
def test_a_name_that_is_no_pass_is_refused(variable: str) -> None:
    with pytest.raises(TempoError, match="no pass is named 'lfit'"):
        _run(Change("lift"), environment={variable: "lfit"})


def test_debug_validates_what_a_pass_makes() -> None:
    broken = Change("breaks", _break)
    _run(broken)
    for options in ({"debug": True}, {"environment": {"TEMPO_DEBUG": "1"}}):
        with pytest.raises(InternalError, match="%0, which is read, does not exist") as caught:
            _run(broken, **options)  # type: ignore[arg-type]
        assert "after the pass 'breaks'" in caught.value.__notes__[0]


def test_a_pass_that_fails_is_named_with_its_graph() -> None:
    with pytest.raises(InternalError, match="the pass 'fails' failed: KeyError: 'nobody'") as caught:
        _run(Change("fails", _fail))
    assert str(GRAPH) in caught.value.__notes__[0]


def test_errors_of_the_user_come_through() -> None:
    with pytest.raises(ShapeError, match="the user's mistake"):
        _run(Change("refuses", _refuse))


def test_a_context_knows_the_domain_and_the_facts() -> None:
    context = PassContext(facts=parse_condition("t.size >= 4"))
    over = context.over(GRAPH, (Symbol("t", "dim"),))
    assert over.implies(dim("t").ge(0))
    assert over.implies(size("t").ge(4))
    assert not over.implies(dim("t").ge(1))
    assert context.over(GRAPH, (Symbol("t", "dim"),)) is over


def test_plugins_add_passes_where_they_want() -> None:
    registry = PassRegistry([Change("a"), Change("b")])
    registry.add(Change("last"))
    registry.add(Change("first"), before="a")
    registry.add(Change("middle"), after="a")
    assert [chosen.name for chosen in registry.passes] == ["first", "a", "middle", "b", "last"]
    with pytest.raises(TempoError, match="no pass is named 'c'"):
        registry.add(Change("d"), before="c")


def test_plugins_add_rules() -> None:
    registry, rule = PassRegistry(), Rule("exp(log(x)) = x")
    registry.add_rules(rule)
    added = [chosen.extra for chosen in registry.passes if isinstance(chosen, Simplify)]
    assert added == [(rule,)] * 3


def test_the_default_pipeline_is_one_list() -> None:
    names = [chosen.name for chosen in default_passes()]
    first = [
        "decompose",
        "canonicalize",
        "decide",
        "simplify",
        "cse",
        "dce",
        "pipelining",
        "recurrences",
        "accumulate",
        "recompute",
        "fold_blocks",
        "simplify",
    ]
    assert names == [
        *first,
        "split",
        "lift",
        "simplify",
        "compose",
        "static_extents",
        "materialise_outputs",
        "element_reads",
    ]
    assert [chosen.name for chosen in PassRegistry().passes] == names
