"""Movement that makes no node where nothing moves, and says along one axis what it does."""

from __future__ import annotations

from typing import Any

from tempo.sdg.graph import Edge, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.making import Maker
from tempo.symbolic import Expr, const, size


class Made(Maker):
    """Types by number; the last is that of the last node."""

    def __init__(self, *shape: Expr | int) -> None:
        self.types = [TensorType(tuple(const(0) + each for each in shape), "float32")]
        self.attrs: list[dict[str, Any]] = []

    def seen(self, edge: Edge) -> TensorType:
        return self.types[edge.node]

    def apply(self, op: str, *operands: Edge, **attrs: Any) -> Edge:
        self.types.append(OPERATORS[op].infer(attrs, tuple(self.seen(each) for each in operands)))
        self.attrs.append(attrs)
        return Edge(len(self.types) - 1, ())


X = Edge(0, ())


def test_what_moves_nothing_is_the_edge_itself():
    made, n = Made(2, size("n")), size("n")
    assert made.reshape(X, (2, n)) is made.broadcast(X, (2, n)) is made.transpose(X, (0, 1)) is X
    assert made.cut(X, 1, const(0), n) is made.surrounded(X, 1, const(0), const(0)) is X
    assert not made.attrs


def test_a_cut_takes_positions_of_one_axis():
    made = Made(2, 5, 3)
    assert made.shape(made.cut(X, 1, const(1), const(4))) == (const(2), const(4), const(3))
    assert made.attrs[-1]["starts"] == (const(0), const(1), const(0))


def test_an_axis_is_surrounded_on_either_side():
    made = Made(2, size("n"))
    assert made.shape(made.surrounded(X, 1, const(1), const(2), value=7)) == (const(2), size("n") + 3)
    assert made.attrs[-1] == {"low": (const(0), const(1)), "high": (const(0), const(2)), "value": 7}
