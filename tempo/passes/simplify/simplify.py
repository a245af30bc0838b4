"""Algebraic rules to a fixed point: identities, movement in normal form, contractions, constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import Rewrite, rewrite_graph
from tempo.passes.rewrite.patterns import Rule, RuleTable
from tempo.passes.simplify.broadcasting import late_broadcast
from tempo.passes.simplify.contraction import dot_of_movement, reduction_of_movement, sum_of_products
from tempo.passes.simplify.folding import FoldConstants
from tempo.passes.simplify.identities import IDENTITIES
from tempo.passes.simplify.movement import normal_movement
from tempo.passes.simplify.padding import pad_of_edges
from tempo.sdg.graph import Graph

RULES: tuple[Rule, ...] = IDENTITIES

STRUCTURE: tuple[Rewrite, ...] = (
    normal_movement,
    late_broadcast,
    reduction_of_movement,
    sum_of_products,
    dot_of_movement,
    pad_of_edges,
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
