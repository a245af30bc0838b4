"""`import tempo` brings in neither a framework nor plugin metadata."""

from __future__ import annotations

import subprocess
import sys


def test_import_loads_no_framework_and_reads_no_entry_points() -> None:
    script = (
        "import importlib.metadata as metadata, sys\n"
        "def fail(*args, **kwargs): raise AssertionError('entry points were read')\n"
        "metadata.entry_points = fail\n"
        "import tempo\n"
        "heavy = {'jax', 'torch', 'islpy', 'gymnasium', 'transformers', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
