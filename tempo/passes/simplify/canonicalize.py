"""Canonical form: simplified maps and conditions, no cases that no point takes, no copies, no needless dims."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import rewrite_graph
from tempo.sdg.graph import Case, Graph, Node
from tempo.symbolic import TRUE, Context


@dataclass(frozen=True)
class Canonicalize:
    """What every sweep does (`passes.rewrite.driver`), and merges: a merge whose first case always holds is a copy."""

    name: ClassVar[str] = "canonicalize"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        return rewrite_graph(graph, context, merges=canonical_merge)


def canonical_merge(node: Node, context: Context) -> Node:
    """The merge without the cases that are unreachable because earlier ones hold, or because nothing fulfils them."""
    cases: list[Case] = []
    left = context  # what holds where no case so far does
    for case in node.cases:
        if left.excludes(case.condition):
            continue
        always = left.implies(case.condition)
        condition = TRUE if always and not cases else context.simplify_condition(case.condition)
        cases.append(replace(case, condition=condition))
        if always:
            break
        left = left.assume(~case.condition)
    return replace(node, cases=tuple(cases)) if cases else node
