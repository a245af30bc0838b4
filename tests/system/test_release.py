"""What is published together has one version, and asks for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).resolve().parents[2] / ".ci" / "release.py"


@pytest.fixture
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_distributions_have_one_version(release: ModuleType) -> None:
    assert len(release.versions()) == 1 + len(release.DISTRIBUTIONS)
    assert release.disagreeing() == []


def test_setting_the_version_sets_it_everywhere(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in {*release.places(), *(release.ROOT / each / "pyproject.toml" for each in release.EXAMPLES)}:
        copy = tmp_path / path.relative_to(release.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "CORE", tmp_path / "tempo" / "__init__.py")
    release.set_version("3.14.1")
    assert set(release.versions().values()) == {"3.14.1"}
    assert set().union(*release.ranges().values()) == {">=3.14,<3.15"}
    (tmp_path / "backends" / "tempo_jax" / "pyproject.toml").write_text(
        'version = "3.14.0"\nx = "tempo-sdg>=3.13,<3.14"\n'
    )
    assert release.disagreeing() == [
        "backends/tempo_jax/pyproject.toml has the version 3.14.0, not 3.14.1",
        "backends/tempo_jax/pyproject.toml asks for >=3.13,<3.14, not >=3.14,<3.15",
    ]
