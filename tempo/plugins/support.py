"""The table of what each backend supports, from what their descriptors declare; `docs/backends.md` is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tempo.dtypes import DTYPES
from tempo.plugins.descriptors import BackendPlugin

Row = tuple[str, ...]
CHECKS = "checks"


def support_table(backends: Sequence[BackendPlugin]) -> list[Row]:
    """A header, then a row each for the devices, dtypes, checks, meshes, and features that some backend excludes."""
    features = sorted({feature for each in backends for feature in each.capabilities.unsupported} - {CHECKS})
    rows = [("", *(each.name for each in backends))]
    rows.append(("devices", *(", ".join(each.capabilities.devices) for each in backends)))
    rows += [(dtype, *("yes" if dtype in each.dtypes else "no" for each in backends)) for dtype in DTYPES]
    rows.append((CHECKS, *map(_checks, backends)))
    rows.append(("meshes of devices", *("yes" if each.capabilities.meshes else "no" for each in backends)))
    for feature in features:
        rows.append((feature, *("no" if feature in each.capabilities.unsupported else "yes" for each in backends)))
    return [*rows, ("everything else", *("yes" for _ in backends))]


def _checks(backend: BackendPlugin) -> str:
    if CHECKS in backend.capabilities.unsupported:
        return "no"
    return "with `checks=True`" if backend.capabilities.clamps else "yes"


def exclusions(backends: Iterable[BackendPlugin]) -> list[Row]:
    """(backend, feature, reason) for everything that is declared as unsupported."""
    found: list[Row] = []
    for each in backends:
        found += [(each.name, dtype, f"it has no {dtype}") for dtype in DTYPES if dtype not in each.dtypes]
        found += [(each.name, feature, reason) for feature, reason in sorted(each.capabilities.unsupported.items())]
    return found


def markdown(backends: Sequence[BackendPlugin]) -> str:
    """Both tables as a page.

    >>> print(markdown([BackendPlugin("plain", "plain:Plain", dtypes=("float32",))]).splitlines()[2])
    | | plain |
    """
    header, *rows = support_table(backends)
    lines = ["# What backends support", "", _line(header), _line(["---"] * len(header)), *map(_line, rows)]
    reasons = exclusions(backends)
    if reasons:
        lines += ["", "## Why not", "", "| backend | feature | reason |", "| --- | --- | --- |", *map(_line, reasons)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
