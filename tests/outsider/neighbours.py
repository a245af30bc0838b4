"""Distributions that are wrong, one in each way, as their authors could have written them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "9.0"

[project.entry-points."tempo.{kind}s"]
{name} = "{entry}"

[tool.setuptools]
py-modules = ["{module}"]
"""

_BACKEND = """\
from tempo.plugins import BackendPlugin, hookimpl

@hookimpl
def tempo_backend():
    return BackendPlugin({name!r}, "{factory}", api_version={version})
"""


@dataclass(frozen=True)
class Neighbour:
    """A distribution with one module and one entry point; `expected` is what asking for it says."""

    name: str
    source: str
    expected: str
    kind: str = "backend"
    entry: str = ""

    @property
    def distribution(self) -> str:
        return f"tempo-bad-{self.name}"

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    def write(self, folder: Path) -> Path:
        """The project's folder."""
        folder.mkdir(parents=True)
        names = {"distribution": self.distribution, "module": self.module, "kind": self.kind, "name": self.name}
        (folder / "pyproject.toml").write_text(_PROJECT.format(**names, entry=self.entry or self.module))
        (folder / f"{self.module}.py").write_text(self.source)
        return folder


def _backend(name: str, factory: str, version: int) -> str:
    return _BACKEND.format(name=name, factory=factory, version=version)


NEIGHBOURS = (
    Neighbour("broken", "raise RuntimeError('the device is on fire')\n", "RuntimeError: the device is on fire"),
    Neighbour("unfinished", "def tempo_backend(:\n", "SyntaxError"),
    Neighbour("absent", "", "ModuleNotFoundError", entry="tempo_bad_of_another_name"),
    Neighbour("incomplete", _backend("incomplete", "no_such_library:Backend", 1), "no_such_library"),
    Neighbour("old", _backend("old", "tempo.backends.numpy.backend:NumpyBackend", 0), "made for plugin API 0"),
    Neighbour("hookless", "", "does not implement tempo_backend()"),
    Neighbour("plain", _backend("plain", "tempo.backends.numpy.backend:NumpyBackend", 1), "uninstall all but one"),
    Neighbour("tangled", "raise RuntimeError('no order')\n", "RuntimeError: no order", kind="scheduler"),
)
