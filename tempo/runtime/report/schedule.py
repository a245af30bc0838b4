"""The schedule of a plan, with what its statements are of, and how dims are run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from tempo.compiler.plan import Plan
from tempo.lowering.scheduling.places import has_host
from tempo.passes.vectorize.search import Decision
from tempo.runtime.report.contents import NOWHERE, DimUse, StatementOf, Step
from tempo.runtime.report.sources import Sources
from tempo.schedule.tree import For, If, Run, ScheduleTree, Sequence, walk
from tempo.sdg.graph import Graph
from tempo.symbolic import Expr, Symbol

Sizes = Mapping[Symbol, int]


def statements_of(plan: Plan, sources: Sources) -> tuple[StatementOf, ...]:
    def told(nodes: tuple[int, ...]) -> tuple[str, int]:
        found = [plan.program.graph.nodes[id] for id in nodes]
        names = ", ".join(node.name or node.op for node in found)
        return names, next((place for node in found if (place := sources.place(node.location)) != NOWHERE), NOWHERE)

    return tuple(
        StatementOf(each.name, (of := told(each.nodes))[0], each.nodes, of[1]) for each in plan.program.clusters
    )


def steps_of(plan: Plan, sizes: Sizes) -> tuple[Step, ...]:
    """The tree as steps inside of each other."""
    numbers = {each.name: number for number, each in enumerate(plan.program.clusters)}
    hosts = frozenset(each.name for each in plan.program.clusters if each.host)
    return tuple(_steps(plan.tree, numbers, hosts, sizes))


def _steps(tree: ScheduleTree, numbers: Mapping[str, int], hosts: Collection[str], sizes: Sizes) -> Iterator[Step]:
    match tree:
        case Sequence(items):
            for item in items:
                yield from _steps(item, numbers, hosts, sizes)
        case For(var, lo, hi, direction, body):
            span = f"{lo}..{hi}" if direction == "forward" else f"{hi}..{lo} backwards"
            inner = tuple(_steps(body, numbers, hosts, sizes))
            here = has_host(tree, frozenset(hosts))
            yield Step("for", f"for {var.name} in {span}", here, _points(lo, hi, sizes), body=inner)
        case If(condition, body):
            yield Step("if", f"if {condition}", body=tuple(_steps(body, numbers, hosts, sizes)))
        case Run(statement, _):
            yield Step("run", str(tree), statement in hosts, statement=numbers.get(statement, NOWHERE))


def _points(lo: Expr, hi: Expr, sizes: Sizes) -> int | None:
    if not (lo.symbols() | hi.symbols()) <= sizes.keys():
        return None
    return max(0, int(hi.evaluate(sizes)) - int(lo.evaluate(sizes)))


def dims_of(plan: Plan, written: Graph, sizes: Sizes) -> tuple[DimUse, ...]:
    """How each dim of the program is run: as loops, as an axis of arrays, or both."""
    loops = Counter((each.var, each.direction) for each in walk(plan.tree) if isinstance(each, For))
    found = []
    own = {dim.symbol for dim in written.dims}
    for dim in sorted(plan.graph.dims, key=lambda dim: dim.symbol not in own):
        lifted = [each for each in plan.decisions if isinstance(each, Decision) and each.dim == dim.symbol]
        ways = [_loops(loops[dim.symbol, way], way) for way in ("forward", "backward") if loops[dim.symbol, way]]
        together = sum(len(each.nodes) for each in lifted if each.kind == "full")
        blocks = sum(len(each.nodes) for each in lifted if each.kind not in ("full", "sequential"))
        how = [*ways]
        if not ways:
            how.append("an axis, all points at once")
        elif together:
            how.append(f"an axis for {together} operators")
        if blocks:
            how.append(f"blocks of an axis for {blocks} operators")
        if dim.symbol not in own:
            how.append("which the compiler has made")
        found.append(DimUse(dim.symbol.name, str(dim.size), int(dim.size.evaluate(sizes)), ", ".join(how)))
    return tuple(found)


def _loops(count: int, direction: str) -> str:
    way = "" if direction == "forward" else " backwards"
    return f"a loop{way}" if count == 1 else f"{count} loops{way}"
