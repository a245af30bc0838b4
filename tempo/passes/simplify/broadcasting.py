"""Elementwise operators repeat what they compute as late as possible: they broadcast by themselves."""

from __future__ import annotations

from tempo.passes.rewrite.driver import Draft, Sweep, Term
from tempo.sdg.graph import Edge
from tempo.sdg.operators import OPERATORS


def late_broadcast(draft: Draft, sweep: Sweep) -> Term | None:
    """f(broadcast(x), y) = f(x, y), broadcast to the shape of the result where x and y together do not have it."""
    if OPERATORS[draft.op].kind != "elementwise":
        return None
    operands = tuple(_source(edge, sweep) for edge in draft.operands)
    if operands == draft.operands:
        return None
    inferred = OPERATORS[draft.op].infer(dict(draft.attrs), tuple(map(sweep.type_of, operands)))
    found = Term(draft.op, operands, dict(draft.attrs))
    return found if inferred.shape == draft.type.shape else Term("broadcast", (found,), {"shape": draft.type.shape})


def _source(edge: Edge, sweep: Sweep) -> Edge:
    draft = sweep.view(edge)
    if draft is None or draft.op != "broadcast" or dict(draft.attrs).get("batch", 0):
        return edge
    return draft.operands[0]
