"""What an executable holds inside is there at its next call."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROCESS = """
import resource, sys
import numpy as np
import tempo as tp

with tp.Program() as program:
    x = tp.input("x", (3200, 8))
    tp.output("y", (x @ x.transpose(1, 0)) @ x)  # a matrix of 41 MB in between
run = tp.compile(program, "jax")
x = np.ones((3200, 8), np.float32)
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert (run(x=x)["y"] == 8 * 3200).all()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[2:]))
"""
PAGES = 3200 * 3200 * 4 // os.sysconf("SC_PAGE_SIZE")


def faults(folder: Path, **environment: str) -> int:
    """Pages that are new at a later call."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROCESS]
    settings = {**told, "TEMPO_CACHE_DIR": str(folder), **environment}
    return int(subprocess.run(command, env=settings, check=True, capture_output=True, text=True).stdout)


pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")


def test_pages_are_there_at_the_next_call(tmp_path: Path) -> None:
    assert faults(tmp_path) < PAGES / 4
    assert faults(tmp_path) < PAGES / 4, "where the executable is found on disk"


def test_they_are_without_a_cache_of_executables(tmp_path: Path) -> None:
    assert faults(tmp_path, TEMPO_CACHE_DIR="") < PAGES / 4


@pytest.mark.parametrize(
    "said", [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}]
)
def test_what_the_user_says_of_malloc_holds(tmp_path: Path, said: dict[str, str]) -> None:
    assert faults(tmp_path, **said) > PAGES / 2
