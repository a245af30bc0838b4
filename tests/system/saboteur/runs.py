"""The conformance suite in a process of its own, on the backends and schedulers of this folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "tempo" / "conformance"


def suite(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(cwd), str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def sabotaged(family: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Of one file of the suite what runs most often, where this folder's backends and schedulers are registered."""
    plugins = ("-p", "tests.system.saboteur.plugin", "-p", "tempo.conformance.plugin")
    return suite(*plugins, "--tempo-passes=all", "--tempo-brief", "-m", "not slow", str(SUITE / family), *arguments)


def failed(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The names of the tests that failed."""
    return set(re.findall(r"^FAILED \S*?::(\w+)", done.stdout, re.MULTILINE))


def ran(done: subprocess.CompletedProcess[str], outcome: str) -> int:
    """How many tests ended so."""
    found = re.search(rf"(\d+) {outcome}", done.stdout.splitlines()[-1])
    return int(found.group(1)) if found else 0
