"""What the C library keeps of memory that was given back to it, for whoever asks next.

What goes back to the system is new at the next call: a fault for each page, 0.7 ms for each MB, a tenth of the time of
a prompt of 1,024 tokens. glibc learns what a process asks for again and again, up to 32 MB: a larger piece than before
that is given back says what it is to keep (mallopt(3), M_MMAP_THRESHOLD). XLA takes all that an executable holds inside
in one piece. Where that is larger glibc is told what it would have learned, as far as the heaps of threads go, 64 MB.
Other C libraries are left alone, and so is glibc where its user has said what it is to keep.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

_LEARNT, _MOST = 32 << 20, 63 << 20
_HEADER = 64 << 10
"""More than a piece has in front."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_SAID = ("glibc.malloc.mmap_threshold", "glibc.malloc.trim_threshold")
_told = _LEARNT


def trim() -> None:
    """Gives back what XLA's compiler is done with: a tenth of a gigabyte for a large loop, and arrays lie beside it."""
    call = _of_libc("malloc_trim")
    if call is not None:
        call(0)


def keep(size: int) -> None:
    """Has pieces of so many bytes kept for the next call, and of smaller ones."""
    global _told
    size += _HEADER
    call = _of_libc("mallopt")
    if not _told < size <= _MOST or call is None or _is_said():
        return
    _told = size
    call(_MMAP_THRESHOLD, size)
    call(_TRIM_THRESHOLD, 2 * size)  # in glibc's own proportion


@cache
def _of_libc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _is_said() -> bool:
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
    return any(name in os.environ for name in names) or any(
        name in os.environ.get("GLIBC_TUNABLES", "") for name in _SAID
    )
