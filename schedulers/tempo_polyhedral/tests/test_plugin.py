"""What the core's plugin manager sees of the scheduler."""

from __future__ import annotations

import subprocess
import sys

from tempo_polyhedral import plugin

from tempo.plugins.descriptors import API_VERSION


def test_the_descriptor_names_the_scheduler() -> None:
    descriptor = plugin.tempo_scheduler()
    assert (descriptor.name, descriptor.api_version) == ("polyhedral", API_VERSION)
    module, _, name = str(descriptor.factory).partition(":")
    assert hasattr(__import__(module, fromlist=[name]), name)


def test_the_module_of_the_entry_point_does_not_import_isl() -> None:
    code = "import sys, tempo_polyhedral.plugin; assert 'islpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
