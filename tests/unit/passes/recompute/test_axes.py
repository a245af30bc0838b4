"""Blocks along an axis that only folds remove: what they mean, what they keep, and which axes are none."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.passes.manager import PassContext
from tempo.passes.recompute.axes import FoldBlocks, regions
from tempo.passes.rewrite.driver import without_dead_nodes
from tests.unit.passes.equivalence import check


def network(batch: int) -> None:
    """Two layers, a loss and its gradients."""
    x, y = tp.input("x", (batch, 3), ()), tp.input("y", (batch,), ())
    w, v = tp.input("w", (3, 4), ()), tp.input("v", (4,), ())
    found = tp.tanh(x @ w) @ v
    loss = ((found - y) ** 2).mean()
    tp.output("loss", loss)
    gradients = tp.grad(loss, {"w": w, "v": v})
    tp.output("dw", gradients["w"])
    tp.output("dv", gradients["v"])


def centred(batch: int) -> None:
    """One fold waits for another."""
    x = tp.input("x", (batch, 3), ())
    h = tp.sin(x) * 2
    tp.output("y", ((h - h.mean(axis=0)) ** 2).sum(axis=0))


def greatest(batch: int) -> None:
    x = tp.input("x", (batch, 3), ())
    tp.output("y", tp.tanh(x * 2).max(axis=0) + tp.exp(-x).min(axis=0))


def over_time(batch: int) -> None:
    """A step of descent per point of a dim."""
    t = tp.dim("t", 3)
    x = tp.input("x", (batch, 3), (t,))
    w = tp.parameter("w", (3,), init=np.ones(3, np.float32), dims=(t,))
    loss = (tp.sin(x @ w) ** 2).sum()
    w[t + 1] = w - 0.1 * tp.grad(loss, {"w": w})["w"]
    tp.output("loss", loss)


PROGRAMS: dict[str, Callable[[int], None]] = {each.__name__: each for each in (network, centred, greatest, over_time)}


def program(make: Callable[[int], None], batch: int) -> tp.Program:
    with tp.Program(make.__name__) as made:
        make(batch)
    return made


@pytest.mark.parametrize("blocks", [1, 2, 3, 12])
@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_mean_the_same(name: str, blocks: int) -> None:
    graph = program(PROGRAMS[name], 12).graph()
    assert any(region.extent.as_int() == 12 for region in regions(without_dead_nodes(graph)))
    check(FoldBlocks(blocks), graph, {})


@pytest.mark.parametrize("batch", [2, 7, 13])
def test_the_last_block_may_be_shorter(batch: int) -> None:
    check(FoldBlocks(3), program(network, batch).graph(), {})


def test_what_lies_between_reads_and_folds_is_there_for_one_block() -> None:
    def peak(blocks: int | None) -> int:
        with tp.Program("wide") as made:
            x, w = tp.input("x", (4096, 8), ()), tp.input("w", (8, 64), ())
            tp.output("dw", tp.grad((tp.tanh(x @ w) ** 2).sum(), {"w": w})["w"])
        return tp.compile(made, "numpy", options=tp.Options(fold_blocks=blocks)).memory.working_bytes

    assert peak(16) < peak(None) / 8


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tp.output("y", tp.tanh(x)),  # an output has all of it
        lambda x: tp.output("y", tp.sort(tp.tanh(x), axis=0).sum(axis=0)),
        lambda x: tp.output("y", tp.tanh(x).argmax(axis=0)),
        lambda x: tp.output("y", tp.cumsum(tp.tanh(x), axis=0)),
    ],
)
def test_other_axes_stay(make: Callable[[tp.RecurrentTensor], object]) -> None:
    with tp.Program("other") as made:
        make(tp.input("x", (12, 3), ()))
    graph = made.graph()
    assert not any(
        region.extent.as_int() == 12 for region in regions(without_dead_nodes(graph)) if len(region.places) > 1
    )
    check(FoldBlocks(4), graph, {})


@pytest.mark.parametrize("blocks", [0, -1, "many", 1.5, True])
def test_what_is_no_number_of_blocks_is_refused(blocks: Any) -> None:
    with pytest.raises(tp.InputError, match="no number of blocks"):
        tp.Options(fold_blocks=blocks)


def test_by_default_nothing_is_cut() -> None:
    graph = program(network, 12).graph()
    assert FoldBlocks().apply(graph, PassContext()) is graph


def test_on_the_way_through_the_compiler() -> None:
    made = program(network, 50)
    random = np.random.default_rng(0)
    given = {
        "x": random.normal(size=(50, 3)),
        "y": random.normal(size=50),
        "w": random.normal(size=(3, 4)),
        "v": np.ones(4),
    }
    given = {name: array.astype(np.float32) for name, array in given.items()}
    wanted = tp.compile(made, "reference")(**given)
    for blocks in (2, 7, 50):
        run = tp.compile(made, "numpy", options=tp.Options(fold_blocks=blocks))
        assert "positions in blocks of" in run.explain("all")
        for name, array in run(**given).items():
            np.testing.assert_allclose(array, wanted[name], rtol=2e-5, atol=2e-6)
