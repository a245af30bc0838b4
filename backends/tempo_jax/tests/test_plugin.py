"""The package from outside: its descriptor, what importing it costs, the 64-bit switch, the benchmark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
from tempo_jax.plugin import PLUGIN, tempo_backend
from tempo_jax.precision import x64, x64_for

from tempo.plugins.descriptors import API_VERSION

FOLDER = Path(__file__).resolve().parents[1]


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plugin_module_imports_no_jax():
    assert python("-c", "import sys, tempo_jax.plugin; print('jax' in sys.modules)").strip() == "False"


def test_listing_backends_finds_jax_without_importing_it():
    listing = "import sys, tempo.cli; tempo.cli.main(['backends', '--json']); print('jax' in sys.modules)"
    found = python("-c", f"try:\n {listing}\nexcept SystemExit:\n print('jax' in sys.modules)")
    assert '"jax"' in found
    assert found.strip().endswith("False")


def test_the_descriptor_fits_the_core():
    descriptor = tempo_backend()
    assert descriptor is PLUGIN
    assert (descriptor.name, descriptor.api_version) == ("jax", API_VERSION)


def test_64_bits_are_there_within_the_switch_and_gone_after_it():
    with x64():
        assert jnp.arange(2, dtype="int64").dtype == "int64"
    with x64_for("float32", "float64"):
        assert jnp.ones((), "float64").dtype == "float64"
    with x64_for("float32", "int8"):
        assert jnp.ones((), "float32").dtype == "float32"
        assert jnp.asarray(1.5).dtype == "float32"
    assert jnp.asarray(1).dtype == "int32"


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(path.name for path in (FOLDER / "benchmarks").glob("*.py")))
def test_benchmarks_run(script: str):
    assert "chosen" in python(str(FOLDER / "benchmarks" / script), "--repeats", "1")
