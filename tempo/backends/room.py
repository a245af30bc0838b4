"""How much memory there is, and how many processors."""

from __future__ import annotations

import os
from pathlib import Path


def host_room() -> int | None:
    """The bytes of memory that the machine has, what it swaps to included; None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") + _swap()
    except (AttributeError, OSError, ValueError):
        return None


def _swap() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("SwapTotal:"))


def processors() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
