"""Algebraic rules to a fixed point: identities, movement in normal form, contractions, constants; canonical form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import Rewrite, rewrite_graph
from tempo.passes.rewrite.patterns import Rule, RuleTable
from tempo.passes.simplify.contraction import dot_of_cast, dot_of_movement, reduction_of_movement, sum_of_products
from tempo.passes.simplify.folding import FoldConstants
from tempo.passes.simplify.identities import IDENTITIES
from tempo.passes.simplify.movement import (
    late_broadcast,
    movement_after,
    normal_movement,
    pad_of_edges,
    slice_of_gather,
    slice_of_transposed,
)
from tempo.sdg.graph import Case, Graph, Node
from tempo.symbolic import TRUE, Context

RULES: tuple[Rule, ...] = IDENTITIES

STRUCTURE: tuple[Rewrite, ...] = (
    normal_movement,
    slice_of_transposed,
    slice_of_gather,
    late_broadcast,
    reduction_of_movement,
    sum_of_products,
    dot_of_cast,
    dot_of_movement,
    pad_of_edges,
    movement_after,
)
"""What is said of axes, for every operator at once."""


@dataclass(frozen=True)
class Simplify:
    """`extra` rules come from plugins, and are tried after those of the core; at most `fold_elements` are folded."""

    name: ClassVar[str] = "simplify"
    fold_elements: int = 1024
    extra: tuple[Rule, ...] = ()

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        rewrites: list[Rewrite] = [RuleTable(RULES + self.extra), *STRUCTURE]
        if self.fold_elements:
            rewrites.append(FoldConstants(self.fold_elements))
        return rewrite_graph(graph, context, rewrites)


@dataclass(frozen=True)
class Canonicalize:
    """What every sweep does (`passes.rewrite.driver`), and merges: a merge whose first case always holds is a copy."""

    name: ClassVar[str] = "canonicalize"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        return rewrite_graph(graph, context, merges=canonical_merge)


def canonical_merge(node: Node, context: Context) -> Node:
    """The merge without the cases that are unreachable because earlier ones hold, or because nothing fulfils them."""
    return replace(node, cases=possible_cases(node.cases, context) or node.cases)


def possible_cases(cases: tuple[Case, ...], here: Context) -> tuple[Case, ...]:
    """The cases that may hold in a context, up to one that does, without the parts of conditions that it decides."""
    found: list[Case] = []
    left = here  # what holds where no case so far does
    for case in cases:
        if left.excludes(case.condition):
            continue
        always = left.implies(case.condition)
        condition = TRUE if always and not found else here.simplify_condition(case.condition)
        found.append(replace(case, condition=condition))
        if always:
            break
        left = left.assume(~case.condition)
    return tuple(found)
