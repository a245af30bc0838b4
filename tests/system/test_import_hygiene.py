"""What imports what: `import tempo` brings in no framework and no plugin metadata, and modules stand in an order."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tempo.sdg.components import strongly_connected

ROOT = Path(__file__).resolve().parents[2]


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


def _imported(module: ast.Module, modules: Mapping[str, Path], *, inside: bool) -> set[str]:
    """The modules that a module imports to run, those that only types need left out; `inside`: of functions too."""
    found: set[str] = set()
    pending: list[ast.AST] = [module]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found.update(name if name in modules else node.module for name in names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif inside or not isinstance(node, ast.FunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return found & modules.keys()


def _circles(modules: Mapping[str, Path], *, inside: bool) -> list[list[str]]:
    parsed = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    imports = {name: sorted(_imported(tree, modules, inside=inside) - {name}) for name, tree in parsed.items()}
    return [sorted(circle) for circle in strongly_connected(imports, imports) if len(circle) > 1]


def _modules(*folders: str) -> dict[str, Path]:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if "conformance" not in path.parts]
    names = (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def test_every_folder_of_modules_is_a_package_that_says_what_it_owns() -> None:
    """One that is none is missing in wheels."""
    folders = {path.parent for path in (ROOT / "tempo").rglob("*.py")}
    found = {folder: folder / "__init__.py" for folder in folders}
    assert [folder for folder, path in found.items() if not path.exists()] == []
    said = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in found.values()}
    assert [path for path, docstring in said.items() if not docstring] == []


@pytest.mark.slow
def test_no_module_needs_itself_to_be_imported() -> None:
    assert _circles(_modules("tempo"), inside=False) == []


@pytest.mark.slow
def test_circles_through_imports_inside_of_functions_stay_within_five_files() -> None:
    assert [circle for circle in _circles(_modules("tempo"), inside=True) if len(circle) > 5] == []


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("examples/third_party_backend", ("tempo.backends",)),
        ("examples/third_party_scheduler", ("tempo.schedule",)),
    ],
)
def test_the_examples_for_third_parties_use_what_is_handed_to_them(folder: str, allowed: tuple[str, ...]) -> None:
    """As the import contracts hold our own backends and schedulers to it."""
    known = _modules("tempo")
    allowed += ("tempo", "tempo.dtypes", "tempo.errors", "tempo.plugins", "tempo.symbolic")
    for path in (ROOT / folder).glob("tempo_*/*.py"):
        for name in _imported(ast.parse(path.read_text(encoding="utf-8")), known, inside=True):
            assert name in allowed or name.startswith(tuple(f"{each}." for each in allowed[:1])), (path.name, name)
