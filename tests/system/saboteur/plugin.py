"""Registers the saboteurs: `pytest -p tests.system.saboteur.plugin -p tempo.conformance.plugin ...`."""

from __future__ import annotations

import pytest

from tempo.plugins.manager import default_manager
from tests.system.saboteur import declarations, faults


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Not on import: doctests import every module, in the process of all other tests."""
    for descriptor in (*faults.descriptors(), *declarations.descriptors()):
        default_manager().register(descriptor)
