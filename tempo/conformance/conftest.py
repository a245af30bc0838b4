"""The suite runs only where it was asked for: its tests need what `-p tempo.conformance.plugin` provides."""

from __future__ import annotations

from pathlib import Path

import pytest

PLUGIN = "tempo.conformance.plugin"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves the suite's tests out of a run without the plugin."""
    is_test = collection_path.parent == Path(__file__).parent and collection_path.name.startswith("test_")
    return True if is_test and not config.pluginmanager.has_plugin(PLUGIN) else None
