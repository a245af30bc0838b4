"""Rows as a picture: a panel per unit, a bar per figure from zero, its spread, and the goal as a dot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


BACKENDS = {"numpy": "C0", "jax": "C1", "torch": "C2", "": "C7"}


def ratios_by_workload(path: Path, found: Mapping[str, Sequence[tuple[str, float]]]) -> None:
    """A line to a workload, a point to a ratio, colored by backend; 1 is the peer. Equal figures give equal files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": "tempo"}):
        figure, axes = plt.subplots(figsize=(8, 1.2 + 0.3 * len(found)), layout="constrained")
        for place, points in enumerate(found.values()):
            for backend, ratio in points:
                axes.plot(ratio, place, "o", color=BACKENDS[backend], alpha=0.8, markersize=6)
        for backend, color in BACKENDS.items():
            axes.plot([], [], "o", color=color, label=backend or "several")
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        ticks = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(found)), list(found))
        axes.invert_yaxis()
        axes.grid(axis="x", linewidth=0.3)
        axes.set_xlabel("Tempo / peer: below 1 it takes less")
        axes.legend(loc="lower left", frameon=False)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
