"""Range, coverage, emptiness and cycles: proven for all sizes where that is possible, else exact at known sizes.

What fails at every size is raised by `check_symbolic`, when a program is compiled. `check_at` settles at known sizes
what was left open, exactly: it raises if and only if a demanded point is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tempo.analysis.demand.demand import Demand, certain_points, demand
from tempo.analysis.demand.images import Readers
from tempo.analysis.demand.instances import demanded, find_cycle
from tempo.analysis.demand.reads import RunSizes
from tempo.analysis.dependence.acyclic import Need, definite_cycle, stuck_needs, witness
from tempo.analysis.obligations import ChosenCase, Obligation, obligations, written_cases
from tempo.analysis.reports import cycle_error, point_text, tensor_name
from tempo.errors import DefinitionError, DTypeError
from tempo.sdg.components import reached
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import TRUE, Box, Condition, Context, Expr, Symbol, as_expr, conjunction, var
from tempo.symbolic.widths import IntegerRange, bounds, exactly

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Verdict:
    """What is left to check at known sizes: conditions, and components of nodes that may hold a cycle."""

    unproven: tuple[Obligation, ...] = ()
    stuck: tuple[tuple[Need, ...], ...] = ()

    @property
    def proven(self) -> bool:
        """Whether the program is right at all sizes."""
        return not self.unproven and not self.stuck


def check_symbolic(graph: Graph, facts: Condition = TRUE, finds_order: Callable[[], bool] | None = None) -> Verdict:
    """Proves what it can for all sizes that satisfy `facts`.

    `finds_order` says whether a scheduler finds an order of all that is demanded: then nothing needs itself. It is
    asked only where that is not plain.

    Raises what fails for every such size: `DomainError`, `DefinitionError`, `ShapeError`, `CycleError`, with the
    tensor, the line and a point in sizes.
    """
    for chosen in written_cases(graph):
        _check_reachable(graph, chosen)
    readers = Readers(facts)
    demands = demand(graph, facts, readers)
    unproven = _unproven(graph, obligations(graph), demands, facts)
    stuck = tuple(stuck_needs(graph, demands, facts))
    if not unproven and not stuck:
        return Verdict()
    # Where a cycle may be what demands the points of a cycle, only what is demanded from outside is certain.
    doubtful = reached((need.target for needs in stuck for need in needs), graph.producers)
    certain = certain_points(graph, facts, readers, doubtful)
    for obligation in unproven:
        _check_possible(graph, obligation, certain, facts)
    if stuck and finds_order is not None and finds_order():
        return Verdict(unproven)
    for needs in stuck:
        cycle = definite_cycle(needs, certain, facts)
        if cycle:
            raise cycle_error(graph, cycle)
    return Verdict(unproven, stuck)


def check_at(graph: Graph, sizes: Mapping[Symbol, int], verdict: Verdict | None = None) -> None:
    """Checks at known sizes what `verdict` (of `check_symbolic`, called here unless given) leaves open.

    Raises `DomainError`, `DefinitionError`, `ShapeError` or `CycleError` with one offending point, where there is one.
    """
    left = _settled(graph, sizes, check_symbolic(graph) if verdict is None else verdict)
    if left.proven:
        return
    known = RunSizes.of(graph, sizes)
    masks = demanded(graph, sizes)
    for obligation in left.unproven:
        _check_everywhere(known, obligation, masks)
    if left.stuck:
        cycle = find_cycle(graph, sizes, masks)
        if cycle:
            raise cycle_error(graph, cycle)


def _check_reachable(graph: Graph, chosen: ChosenCase) -> None:
    """Sizes that the program fixes count as given: a case that only they leave without points is fine.

    A condition no longer tells such a size from a number: `t < t.size - 1` is `t < 0` where the size is 1. So nothing
    is assumed of dims of fixed sizes.
    """
    dims = graph.domain_dims(chosen.node)
    if not Context.of(dims).excludes(chosen.condition):
        return
    if not Context.of([dim for dim in dims if not dim.size.is_const]).excludes(chosen.condition):
        return
    raise DefinitionError(
        f"no point reaches a case of {tensor_name(chosen.node)}, at any sizes",
        location=chosen.case.location or chosen.node.location,
        hint=_why_unreachable(chosen),
    )


def _why_unreachable(chosen: ChosenCase) -> str:
    if chosen.case is not chosen.node.cases[0]:
        return f"It is for {chosen.case.condition}, and earlier cases take these points: the first that holds wins."
    return f"It is for {chosen.case.condition}, which holds nowhere in the domain."


def _unproven(
    graph: Graph, of: Iterable[Obligation], demands: Mapping[int, Demand], facts: Condition
) -> tuple[Obligation, ...]:
    """Those that are not proven; an output is demanded at every point of its domain."""
    return tuple(each for each in of if not _context(graph, each, demands, facts).implies(each.goal))


def _context(graph: Graph, obligation: Obligation, demands: Mapping[int, Demand], facts: Condition) -> Context:
    reader = obligation.reader
    box = demands[reader.id].box if reader.id in demands else _everywhere(graph, reader)
    return Context.of(graph.domain_dims(reader), facts, obligation.guard, box=box)


def _everywhere(graph: Graph, reader: Node) -> Box:
    return Box.full(graph.domain_dims(reader))


def _check_possible(
    graph: Graph, obligation: Obligation, certain: Mapping[int, Sequence[Box]], facts: Condition
) -> None:
    reader = obligation.reader
    for seed in certain.get(reader.id, ()) if reader.id in graph.nodes else [_everywhere(graph, reader)]:
        point = witness(seed, obligation.guard, obligation.goal, facts)
        if point is not None:
            raise obligation.error(point)


def _settled(graph: Graph, sizes: Mapping[Symbol, int], verdict: Verdict) -> Verdict:
    """What stays open when the same proofs know the sizes."""
    if verdict.proven:
        return verdict
    facts = conjunction(var(symbol).eq(value) for symbol, value in sizes.items())
    demands = demand(graph, facts)
    unproven = _unproven(graph, verdict.unproven, demands, facts)
    stuck = tuple(stuck_needs(graph, demands, facts)) if verdict.stuck else ()
    return Verdict(unproven, stuck)


def _check_everywhere(sizes: RunSizes, obligation: Obligation, masks: Mapping[int, Array]) -> None:
    """Looks at every demanded point."""
    reader = obligation.reader
    mask = masks.get(reader.id, np.ones(sizes.shape(reader.domain), np.bool_))
    points = np.nonzero(mask) if mask.ndim else ()
    env = {**sizes.symbols, **dict(zip(reader.domain, points))}
    failing = obligation.guard.evaluate(env) & np.logical_not(obligation.goal.evaluate(env))
    bad = np.flatnonzero(np.broadcast_to(failing, (int(np.count_nonzero(mask)),)))
    if not bad.size:
        return
    point: dict[Symbol, Expr] = {symbol: as_expr(int(values[bad[0]])) for symbol, values in zip(reader.domain, points)}
    known = {symbol: as_expr(value) for symbol, value in sizes.symbols.items()}
    raise obligation.error({**known, **point})


_LIMITS = np.iinfo(np.int32)


def check_index_values(graph: Graph, sizes: Mapping[Symbol, int]) -> None:
    """Raises `DTypeError` where an index expression is needed as a tensor at a point at which it exceeds int32."""
    suspects = _suspects(graph, sizes)
    masks = demanded(graph, sizes) if suspects else {}
    for node in suspects:
        expr: Expr = node.attr("expr")
        fits = expr.ge(_LIMITS.min) & expr.le(_LIMITS.max)
        _check_everywhere(RunSizes.of(graph, sizes), Obligation(node, TRUE, fits, partial(_too_large, node)), masks)


def surely_fit(graph: Graph, sizes: Mapping[Symbol, int]) -> bool:
    """Whether none exceeds int32, as far as bounds tell."""
    return not _suspects(graph, sizes)


def _suspects(graph: Graph, sizes: Mapping[Symbol, int]) -> list[Node]:
    extents = {dim.symbol: int(dim.size.evaluate(sizes)) for dim in graph.dims}
    ranges = {symbol: exactly(size) for symbol, size in sizes.items()}
    ranges.update((symbol, IntegerRange(0, extent - 1)) for symbol, extent in extents.items())
    values = (node for node in graph.nodes.values() if node.op == "index_value")
    return [node for node in values if not bounds(node.attr("expr"), ranges).fits(32)]


def _too_large(node: Node, where: Mapping[Symbol, Expr]) -> DTypeError:
    expr: Expr = node.attr("expr")
    point = (where[symbol] for symbol in node.domain)
    return DTypeError(
        f"the index expression {expr} is {expr.substitute(where)} at {point_text(node.domain, point)}: "
        "as a tensor it is int32",
        location=node.location,
        hint="make the tensor first and compute with it: tp.as_tensor(t, dtype=tp.int64) * 1000000",
    )
