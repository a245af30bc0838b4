"""Definitions by cases as selections: where every case can be computed at every point, a mask chooses.

    c[t, x] = a[x] where x < t, else b[t]     is     where(x < t, a[x], b[t])

Conditions that pieces cannot tell (`x < t`, `x % 2 == 0`) keep a definition from being lifted; masks are values like
any other. Both sides are computed then, so it is done only where that lets a dim be lifted, and only with what is
demanded at all these points anyway or is made of it without a call that could fail. Where many devices have points of
the dim, pieces would not be divided among them: all is one, then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tempo.passes.splitting.stretches import Piece
from tempo.passes.vectorize.legality import Candidates, Cone, is_free
from tempo.sdg.graph import Case, Graph, Node
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Condition, Symbol, var


@dataclass(frozen=True)
class Selects:
    """Which definitions can be selections along the dim that `candidates` are looked for along. `is_cut`: devices have
    parts of it."""

    candidates: Candidates
    is_cut: bool = False

    @property
    def symbol(self) -> Symbol:
        return self.candidates.dim.symbol

    def apply(self) -> tuple[Graph, frozenset[int]]:
        """The graph with a selection in every piece that needs one, and the definitions that got one."""
        graph = self.candidates.graph
        new = Rewriter(graph)
        changed = set()
        for id, parts in self.candidates.parts.items():
            node = graph.nodes[id]
            open_pieces = [piece for piece in parts if piece.cases and not is_free(piece, self.symbol)]
            if self.is_cut and len(parts) > 1:
                open_pieces = [Piece(parts[0].lo, parts[-1].hi, node.cases)]
            if node.attr("role") == "parameter" or any(size.dims() for size in node.shape):
                continue
            if open_pieces and all(self._is_total(node, piece) for piece in open_pieces):
                tensors = Tensors(new, node.location)
                cases = (case for piece in open_pieces for case in self._cases(tensors, node, piece))
                new.nodes[node.id] = replace(node, cases=(*cases, *node.cases))
                changed.add(node.id)
        return replace(graph, nodes=new.nodes), frozenset(changed)

    def _cases(self, tensors: Tensors, node: Node, piece: Piece) -> Iterator[Case]:
        """Within the piece: the cases before the first that mentions the dim, and for all others one value."""
        first, others = self._parted(piece)
        within = self._within(piece)
        yield from (replace(case, condition=within & case.condition) for case in first)
        value = others[-1].edge  # where no other condition holds
        for case in reversed(others[:-1]):
            mask = tensors.apply("condition_value", condition=case.condition)
            value = tensors.apply("where", mask, case.edge, value)
        yield Case(within, value, node.location)

    def _parted(self, piece: Piece) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
        free = (self.symbol not in case.condition.symbols() for case in piece.cases)
        count = sum(1 for _ in itertools.takewhile(bool, free))
        return piece.cases[:count], piece.cases[count:]

    def _within(self, piece: Piece) -> Condition:
        here = var(self.symbol)
        return here.ge(piece.lo) & here.lt(piece.hi)

    def _is_total(self, node: Node, piece: Piece) -> bool:
        first, others = self._parted(piece)
        here = self.candidates.context(node).assume(self._within(piece), *(~case.condition for case in first))
        cone = Cone(self.candidates, here, node)
        return all(cone.is_there(case.edge) for case in others)
