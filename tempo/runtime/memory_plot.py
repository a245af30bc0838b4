"""A picture of what lives along a run."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from tempo.errors import package
from tempo.loop_ir.analysis.heap import Heap, Piece

_NAMED = 6
"""Of what lives at the peak, how many are named."""
_NARROW = 0.02
"""Of the axis: what is narrower has no name."""


def plot_memory(heap: Heap, path: Path) -> None:
    """Bytes over all that is made and let go of, with the segments and loops where that is, and what the peak is."""
    package("matplotlib", "memory.plot()", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    unit, name = _unit(heap.peak)
    live = [moment.bytes / unit for moment in heap.moments]
    axes.fill_between(range(len(live)), live, step="post", alpha=0.35)
    axes.step(range(len(live)), live, where="post", linewidth=1)
    axes.set(
        xlim=(0, max(1, len(live) - 1)), ylim=(0, None), xlabel="what is made and let go of, in order", ylabel=name
    )
    _places(axes, heap)
    _peak(axes, heap, unit, name)
    figure.savefig(path)


def _unit(bytes: int) -> tuple[int, str]:
    return next(
        (2**power, name)
        for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))
        if bytes >= 2**power or not power
    )


def _places(axes: Any, heap: Heap) -> None:
    """A stretch of the axis to each segment and loop."""
    at = 0
    for number, (place, moments) in enumerate(groupby(heap.moments, key=lambda moment: moment.place)):
        length = len(list(moments))
        if number % 2:
            axes.axvspan(at, at + length, color="black", alpha=0.04, linewidth=0)
        if length > _NARROW * len(heap.moments):
            named = " / ".join(each.partition(" in ")[0] for each in place)
            axes.text(at + length / 2, 1.01, named, transform=axes.get_xaxis_transform(), rotation=45, fontsize=7)
        at += length


def _peak(axes: Any, heap: Heap, unit: int, name: str) -> None:
    if not heap.at_peak:
        return
    first = max(range(len(heap.moments)), key=lambda at: heap.moments[at].bytes)
    largest = sorted(heap.at_peak, key=lambda piece: -piece.bytes)[:_NAMED]
    told = [f"peak {heap.peak / unit:.4g} {name}", *(_told(piece, unit) for piece in largest)]
    axes.plot([first], [heap.peak / unit], "o", color="C3")
    axes.text(
        0.99,
        0.97,
        "\n".join(told),
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=8,
        bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0},
    )


def _told(piece: Piece, unit: int) -> str:
    where = "" if piece.location is None else f", {Path(piece.location.path).name}:{piece.location.line}"
    return f"{piece.bytes / unit:.3g}: {piece.name} {list(piece.shape)}{where}"
