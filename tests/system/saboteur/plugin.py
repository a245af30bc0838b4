"""Registers the saboteurs: `pytest -p tests.system.saboteur.plugin -p tempo.conformance.plugin ...`."""

from __future__ import annotations

from tempo.plugins.manager import default_manager
from tests.system.saboteur import declarations, faults

for descriptor in (*faults.descriptors(), *declarations.descriptors()):
    default_manager().register(descriptor)
