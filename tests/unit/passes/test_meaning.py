"""Passes keep the meaning of random programs, bit for bit but for how floats are summed; clusters make no cycle."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tempo.analysis.demand.demand import demand
from tempo.analysis.demand.instances import demanded
from tempo.analysis.demand.reads import RunSizes, reads_of_point
from tempo.lowering.scheduling.clusters import cluster
from tempo.passes.manager import Pass, PassContext, PassManager
from tempo.passes.pipeline import default_passes
from tempo.passes.recurrence.prefix import Recurrences
from tempo.passes.rewrite.driver import DeadCodeElimination
from tempo.passes.simplify.cse import CommonSubexpressions
from tempo.passes.simplify.resolve_cases import Decide
from tempo.passes.simplify.simplify import Canonicalize, Simplify
from tempo.passes.splitting.index_set_split import Split
from tempo.passes.vectorize.search import Lift
from tempo.reference.evaluator import Evaluator
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tempo.sdg.text import placeholders
from tempo.sdg.validate import validate
from tempo.symbolic import Symbol
from tests.unit.passes.programs import arrays, programs, recorded

SIZES = st.fixed_dictionaries({"i": st.integers(1, 3), "t": st.integers(1, 4)})
PIPELINES: tuple[tuple[Pass, ...], ...] = (
    (Canonicalize(),),
    (Decide(),),
    (Simplify(fold_elements=0),),
    (Simplify(),),
    (CommonSubexpressions(),),
    (Recurrences(),),
    (Split(),),
    (DeadCodeElimination(),),
    (Canonicalize(), Simplify(), DeadCodeElimination()),
    (Lift(), Simplify()),
    default_passes(),
)
CHECKED = settings(
    max_examples=settings.default.max_examples * 3 // 5, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def _values(graph: Graph, inputs: Mapping[int, np.ndarray], sizes: Mapping[Symbol, int]) -> dict[str, np.ndarray]:
    with np.errstate(all="ignore"):
        return Evaluator(graph, inputs, sizes).run().outputs


@pytest.mark.parametrize("passes", PIPELINES, ids=lambda passes: "-".join(chosen.name for chosen in passes))
@CHECKED
@given(graph=programs(), named=SIZES, seed=st.integers(0, 99))
def test_passes_keep_the_meaning(passes: tuple[Pass, ...], graph: Graph, named: dict[str, int], seed: int) -> None:
    changed, _ = PassManager(passes, debug=True).run(graph, PassContext())
    sizes = {Symbol(name, "size"): size for name, size in named.items()}
    inputs = arrays(graph, named, seed)
    sums = any(node.op == "reduce_sum" for node in graph.nodes.values())
    before, calls = _values(graph, inputs, sizes), recorded(graph, signed_zeros=not sums)
    after, calls_after = _values(changed, inputs, sizes), recorded(changed, signed_zeros=not sums)
    assert calls_after == {number: called for number, called in calls.items() if called or number in calls_after}
    assert before.keys() == after.keys()
    for name, wanted in before.items():
        np.testing.assert_allclose(after[name], wanted, rtol=1e-6 if sums else 0)
        if sums:  # The sign of a zero depends on the order, too.
            continue
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(after[name][numbers]), np.signbit(wanted[numbers]))


@CHECKED
@given(programs())
def test_passes_have_a_fixed_point(graph: Graph) -> None:
    for chosen in (Canonicalize(), Decide(), Simplify(), CommonSubexpressions(), Recurrences(), Split()):
        once = chosen.apply(graph, PassContext())
        assert chosen.apply(once, PassContext()) == once


@CHECKED
@given(programs())
def test_the_text_is_read_back(graph: Graph) -> None:
    validate(graph)
    assert parse(str(graph), placeholders(graph)) == graph


@CHECKED
@given(graph=programs(), named=SIZES)
def test_clusters_make_no_cycle_between_instances(graph: Graph, named: dict[str, int]) -> None:
    graph, _ = PassManager(PIPELINES[8]).run(graph, PassContext())
    found = cluster(graph, demand(graph))
    home = {id: item.nodes[-1] for item in found for id in item.nodes}
    assert len(home) == sum(len(item.nodes) for item in found)
    assert set(home) == {id for id, node in graph.nodes.items() if node.op not in ("input", "constant")}
    needs = _needs(graph, home, {Symbol(name, "size"): size for name, size in named.items()})
    while needs:
        free = {instance for instance, needed in needs.items() if needed.isdisjoint(needs)}
        assert free, f"a cycle: {needs}"
        needs = {instance: needed for instance, needed in needs.items() if instance not in free}


@CHECKED
@given(programs())
def test_a_cluster_runs_producers_first(graph: Graph) -> None:
    for item in cluster(graph, demand(graph)):
        assert {graph.nodes[id].domain for id in item.nodes} == {item.domain}
        for position, id in enumerate(item.nodes):
            read = {edge.node for _, edge in graph.nodes[id].reads() if graph.is_identity(edge)}
            assert read.isdisjoint(item.nodes[position:])


Instance = tuple[int, tuple[int, ...]]


def _needs(graph: Graph, home: Mapping[int, int], sizes: Mapping[Symbol, int]) -> dict[Instance, set[Instance]]:
    """Which instances of clusters an instance needs, by the reads of the points that are demanded."""
    known, needs = RunSizes.of(graph, sizes), {}
    for id, mask in demanded(graph, sizes).items():
        for point in map(tuple, np.argwhere(mask).tolist() if id in home else ()):
            own = (home[id], point)
            reads = reads_of_point(known, graph.nodes[id], point)
            needed = {
                (home[edge.node], read)
                for edge, ranges in reads
                if edge.node in home
                for read in itertools.product(*ranges)
            }
            needs[own] = needs.get(own, set()) | (needed - {own})
    return needs
