"""How much memory there is."""

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
