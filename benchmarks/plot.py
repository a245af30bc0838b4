"""Rows as a picture: a panel per unit, a bar per figure from zero, its spread, and the goal as a dot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.harness import Row


def plot(path: Path, title: str, rows: Sequence[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(row.unit, []).append(row)
    heights = [len(panel) for panel in panels.values()]
    figure, all_axes = plt.subplots(
        len(panels), 1, figsize=(9, 1.5 + 0.22 * sum(heights) + 0.7 * len(panels)), squeeze=False, layout="constrained",
        height_ratios=[height + 2 for height in heights],
    )  # fmt: skip
    for axes, (unit, panel) in zip(all_axes[:, 0], panels.items(), strict=True):
        _bars(axes, unit, panel)
    figure.suptitle(title)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _bars(axes: Any, unit: str, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(row.what for row in rows))
    places = range(len(rows))
    spread = [[row.median - min(row.values) for row in rows], [max(row.values) - row.median for row in rows]]
    colors = [f"C{names.index(row.what) % 10}" for row in rows]
    axes.barh(places, [row.median for row in rows], xerr=spread, color=colors, error_kw={"elinewidth": 0.8})
    goals = [(row.goal, at) for at, row in enumerate(rows) if row.goal is not None]
    if goals:
        axes.scatter(*zip(*goals), marker="d", color="black", zorder=3, s=14, label="goal")
        axes.legend(loc="lower right")
    labels = [", ".join(part for part in (row.backend, row.case, row.what) if part) for row in rows]
    axes.set_yticks(list(places), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    medians = [row.median for row in rows if row.median > 0]
    if medians and max(medians) > 50 * min(medians):
        axes.set_xscale("log")
