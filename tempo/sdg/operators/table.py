"""The operator table: name to everything about the operator. No pass has a case per operator; they read this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from tempo.sdg.call import Call, StaticType
from tempo.sdg.composites.attention import ATTENTION, BANDED_ATTENTION
from tempo.sdg.composites.normalization import ACTIVATIONS, COMPOSITES
from tempo.sdg.graph import Edge, Node, TensorType
from tempo.sdg.operators.axes import Factors
from tempo.sdg.operators.convolution import CONV
from tempo.sdg.operators.creation import CREATION, NOMINAL, PLACEHOLDERS
from tempo.sdg.operators.elementwise import ELEMENTWISE
from tempo.sdg.operators.extents import EXTENTS
from tempo.sdg.operators.indexing import INDEXING
from tempo.sdg.operators.linalg import DOT, LINALG
from tempo.sdg.operators.movement import MOVEMENT
from tempo.sdg.operators.operator import Operator
from tempo.sdg.operators.reductions import ARGS, REDUCTIONS, SCANS
from tempo.symbolic import Expr

_ALL = (
    *ELEMENTWISE,
    *MOVEMENT,
    *EXTENTS,
    *REDUCTIONS,
    *ARGS,
    *SCANS,
    DOT,
    CONV,
    *LINALG,
    *COMPOSITES,
    *ACTIVATIONS,
    ATTENTION,
    BANDED_ATTENTION,
    *INDEXING,
    *CREATION,
    *NOMINAL,
    *PLACEHOLDERS,
)

OPERATORS: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in _ALL})


def factors_of(node: Node, seen: Callable[[Edge], TensorType]) -> Factors:
    """The indices that a node ranges over, by its operator's axis rule; `seen` is the type of what an edge shows."""
    return OPERATORS[node.op].axes(node.attributes, [seen(edge).shape for edge in node.operands], node.shape)


def call_for(
    op: str,
    attrs: Mapping[str, Any] | Iterable[tuple[str, Any]],
    operands: Iterable[StaticType],
    result: StaticType,
    resolve: Callable[[Expr], int],
) -> Call:
    """The call of `op` with a node's attributes, where `resolve` gives the value of every static expression."""
    return Call(op, OPERATORS[op].resolve_static(dict(attrs), resolve), tuple(operands), result)
