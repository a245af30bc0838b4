"""Holds a pass to the meaning of the graph: the reference evaluator before and after it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tempo.dtypes import to_numpy
from tempo.passes.manager import Decided, PassContext
from tempo.reference.evaluator import Evaluated, Evaluator
from tempo.sdg.graph import Graph
from tempo.sdg.validate import validate
from tempo.symbolic import Symbol


def random_inputs(graph: Graph, sizes: Mapping[Symbol, int], seed: int = 0) -> dict[int, np.ndarray]:
    """Arrays for every input of `graph`, in the layout of the user, with NaN-free values of every dtype."""
    random = np.random.default_rng(seed)
    arrays = {}
    for node in graph.nodes.values():
        if node.op != "input" or node.attr("role") == "seed":
            continue
        extents = {dim.symbol: int(dim.size.evaluate(sizes)) for dim in graph.dims}
        shape = [extents[s] for s in node.domain] + [int(size.evaluate(sizes)) for size in node.shape]
        dtype = to_numpy(node.dtype)
        if dtype.kind in "iu":
            arrays[node.id] = random.integers(0, 3, shape).astype(dtype)
        elif dtype.kind == "b":
            arrays[node.id] = random.integers(0, 2, shape).astype(bool)
        else:
            arrays[node.id] = random.standard_normal(shape).astype(dtype)
    return arrays


def assert_equal(before: Evaluated, after: Evaluated) -> None:
    assert before.outputs.keys() == after.outputs.keys()
    for name, wanted in {**before.outputs, **before.state}.items():
        found = {**after.outputs, **after.state}[name]
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6, err_msg=name)
        assert found.dtype == wanted.dtype


def graph_of(made: Graph | Decided[Graph]) -> Graph:
    return made.program if isinstance(made, Decided) else made


def check(
    chosen, graph: Graph, *all_sizes: Mapping[str, int], checks: bool = True, context: PassContext | None = None
) -> Graph:
    """The graph after the pass: valid, and of the same meaning at all of the sizes."""
    validate(graph)
    changed = graph_of(chosen.apply(graph, context or PassContext()))
    validate(changed)
    for named in all_sizes:
        sizes = {Symbol(name, "size"): value for name, value in named.items()}
        arrays = random_inputs(graph, sizes)
        before = Evaluator(graph, arrays, sizes, seed=7, checks=checks).run()
        after = Evaluator(changed, arrays, sizes, seed=7, checks=checks).run()
        assert_equal(before, after)
    return changed
