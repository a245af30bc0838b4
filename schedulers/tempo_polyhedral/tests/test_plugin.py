"""What the core's plugin manager sees of the scheduler."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from tempo_polyhedral import plugin

from tempo.errors import BrokenPluginError
from tempo.plugins.descriptors import API_VERSION
from tempo.plugins.manager import PluginManager


def test_the_descriptor_names_the_scheduler() -> None:
    descriptor = plugin.tempo_scheduler()
    assert (descriptor.name, descriptor.api_version) == ("polyhedral", API_VERSION)
    module, _, name = str(descriptor.factory).partition(":")
    assert hasattr(__import__(module, fromlist=[name]), name)


def test_the_module_of_the_entry_point_does_not_import_isl() -> None:
    code = "import sys, tempo_polyhedral.plugin; assert 'islpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_compiling_does_not_import_isl_here() -> None:
    code = "import sys, tempo_polyhedral.scheduler; assert 'islpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize(
    ("found", "told"), [(None, "islpy is not installed"), ("2018.2.1", "islpy 2018.2.1 is too old")]
)
def test_islpy_missing_or_too_old_is_said(monkeypatch: pytest.MonkeyPatch, found: str | None, told: str) -> None:
    def version(distribution: str) -> str:
        if found is None:
            raise PackageNotFoundError(distribution)
        return found

    monkeypatch.setattr(plugin, "version", version)
    manager = PluginManager()
    with pytest.raises(BrokenPluginError, match=told):
        manager.create("scheduler", "polyhedral")
    (listing,) = [each for each in manager.listings("scheduler") if each.name == "polyhedral"]
    assert told in str(listing.error)
