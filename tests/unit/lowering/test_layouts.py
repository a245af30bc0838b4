"""In which order the axes of a buffer lie in memory."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.lowering.extent_costs import Way
from tempo.lowering.layouts import layouts
from tempo.lowering.tiling import Tiling, tiled
from tempo.symbolic import Symbol


@pytest.mark.parametrize("extent", ["hull", "blocks", "specialise"])
def test_what_is_read_by_heads_lies_by_heads_masked_or_not(extent: Way) -> None:
    """Keys are read as they are, values with a mask; the numbers of the axes are (point, head, feature)."""
    with tp.Program("attention") as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (2, 3), (t,))
        k, v = tp.tanh(h), tp.exp(h)
        weights = tp.exp(tp.einsum("hd,shd->hs", h, k[0 : t + 1]))
        h[0] = tp.ones((2, 3))
        h[t + 1] = tp.tanh(tp.einsum("hs,shd->hd", weights, v[0 : t + 1]))
        tp.output("h", h)
    loops = tp.compile(program)._engine.plan().loops  # type: ignore[attr-defined]
    made = tiled(loops, {Symbol("t", "size"): 64}, Tiling(extent, 16))
    found = layouts(made)
    assert {made.buffers[id].name.split("_")[0]: order for id, order in found.items()} == {
        "tanh": (1, 0, 2),
        "exp": (1, 0, 2),
    }
