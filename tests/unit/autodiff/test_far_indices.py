"""The gradient of a read at pairs of indices counts all elements: of many, in 64 bits."""

from __future__ import annotations

import pytest

import tempo as tp


@pytest.mark.parametrize(("rows", "dtype"), [(7, "int32"), (2**15, "int32"), (2**16, "int64")])
def test_positions_among_all_elements(rows: int, dtype: str) -> None:
    with tp.Program() as program:
        x = tp.input("x", (rows, 2**16), ())
        i, j = (tp.input(name, (3,), (), dtype=tp.int32) for name in "ij")
        tp.output("y", tp.grad(x.spatial[i, j].sum(), x))
    graph = program.graph()
    (scatter,) = (node for node in graph.nodes.values() if node.op == "scatter_add")
    assert graph.nodes[scatter.operands[1].node].dtype == dtype
