"""Prove the packages from outside: wheels in a fresh environment, with no checkout in sight.

    python tests/outsider/run.py

Builds wheels of every local distribution and of the examples for third parties, installs the core, the greedy
scheduler and both examples in one pip call, and runs the conformance suite on each example and the examples' own tests
in an empty folder. Then puts distributions beside them that are broken, incomplete, too old or claim a taken name, and
checks that they disturb nobody. Ends with the status 1 when anything fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from neighbours import NEIGHBOURS

ROOT = Path(__file__).resolve().parents[2]
BACKEND, SCHEDULER = "examples/third_party_backend", "examples/third_party_scheduler"
INSTALLED = (".", "schedulers/tempo_greedy", BACKEND, SCHEDULER)
FRAMEWORKS = ("backends/tempo_jax", "backends/tempo_torch")
OF_THE_CORE = ("pyproject.toml", "README.md", "LICENSE", "tempo")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "tests", "benchmarks")
TOOLS = ("pytest", "hypothesis", "pytest-xdist", "safetensors")


@dataclass(frozen=True)
class Outside:
    """A folder far from the checkout, with a virtual environment in it."""

    folder: Path
    jobs: str

    @property
    def python(self) -> Path:
        scripts = "Scripts" if os.name == "nt" else "bin"
        return self.folder / "venv" / scripts / "python"

    def run(self, *arguments: object, **environment: str) -> int:
        """The status of Python with these arguments, in a folder where nothing can be imported from."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TEMPO", "PYTEST"))}
        cwd = self.folder / "cwd"
        cwd.mkdir(exist_ok=True)
        command = [str(self.python), *map(str, arguments)]
        print("$", *environment, *command[1:], flush=True)
        return subprocess.run(command, cwd=cwd, env={**kept, **environment}, check=False).returncode

    def pip(self, *arguments: object) -> None:
        if self.run("-m", "pip", *arguments):
            raise SystemExit(f"pip {' '.join(map(str, arguments))} failed")

    def pytest(self, *arguments: object, **environment: str) -> int:
        return self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, **environment)


def build_wheels(outside: Outside, sources: Iterable[Path], name: str) -> list[Path]:
    """Wheels of the projects, in the folder `name`."""
    folder = outside.folder / name
    outside.pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *sources)
    return sorted(folder.glob("*.whl"))


def copied(outside: Outside, path: str) -> Path:
    """A project's sources without what earlier builds left there, which would end up in the wheel."""
    source, target = ROOT / path, outside.folder / "sources" / path.replace("/", "_").replace(".", "core")
    if path != ".":
        return Path(shutil.copytree(source, target, ignore=LEFT_OUT))
    target.mkdir(parents=True)
    for name in OF_THE_CORE:
        place = source / name
        copy = shutil.copy if place.is_file() else lambda a, b: shutil.copytree(a, b, ignore=LEFT_OUT)
        copy(place, target / name)
    return target


def suite(outside: Outside, title: str, chosen: Sequence[str], **environment: str) -> bool:
    """The conformance suite, as a stranger runs it."""
    print(f"\n== the conformance suite on {title}", flush=True)
    plugin = ("-p", "tempo.conformance.plugin", "--pyargs", "tempo.conformance")
    return outside.pytest("-n", outside.jobs, *plugin, *chosen, **environment) == 0


def own_tests(outside: Outside, path: str) -> bool:
    """What an example tests itself, in a copy that lies beside nothing else."""
    folder = outside.folder / "own" / path
    shutil.copytree(ROOT / path / "tests", folder)
    print(f"\n== {path}/tests", flush=True)
    return outside.pytest(folder) == 0


def is_outside(outside: Outside) -> bool:
    """Whether the packages come from the environment alone."""
    code = "import sys, tempo, tempo_greedy, tempo_plain, tempo_unfused as u; print(tempo.__file__, u.__file__)"
    check = f"; assert all({str(ROOT)!r} not in each for each in (*sys.path, tempo.__file__, u.__file__)), sys.path"
    return outside.run("-c", code + check) == 0


def neighbours_disturb_nobody(outside: Outside, frameworks: list[Path]) -> bool:
    """Real distributions that are broken in every way, installed beside the good ones."""
    sources = [each.write(outside.folder / "neighbours" / each.distribution) for each in NEIGHBOURS]
    wheels = build_wheels(outside, sources, "bad_wheels")
    outside.pip("install", "--quiet", "--no-deps", *wheels, *frameworks)  # the project's own without their frameworks
    tests = outside.folder / "disturbance" / "test_disturbance.py"
    tests.parent.mkdir()
    for name in ("neighbours.py", "disturbance.py"):
        shutil.copy(Path(__file__).parent / name, tests.parent / name)
    (tests.parent / "disturbance.py").rename(tests)
    print("\n== beside broken, incomplete, outdated and duplicate distributions", flush=True)
    if outside.pytest(tests):
        return False
    outside.pip("uninstall", "--quiet", "--yes", *(each.distribution for each in NEIGHBOURS if each.name == "plain"))
    print("\n== after the duplicate is gone", flush=True)
    return outside.run("-c", "import tempo.plugins as plugins; plugins.get_backend('plain')") == 0


def prove(outside: Outside) -> list[str]:
    """What failed."""
    subprocess.run([sys.executable, "-m", "venv", str(outside.folder / "venv")], check=True)
    sources = {path: copied(outside, path) for path in (*INSTALLED, *FRAMEWORKS)}
    wheels = build_wheels(outside, [sources[path] for path in INSTALLED], "wheels")
    frameworks = build_wheels(outside, [sources[path] for path in FRAMEWORKS], "framework_wheels")
    outside.pip("install", "--quiet", "--constraint", ROOT / "constraints.txt", *wheels, *TOOLS)
    checked = {"TEMPO_VERIFY": "1"}
    results = {
        "the packages come from wheels": is_outside(outside),
        "the example of a backend": suite(outside, "the example of a backend", ["--tempo-backend=plain"]),
        "the example of a scheduler": suite(
            outside, "the example of a scheduler, every tree verified", ["--tempo-scheduler=unfused"], **checked
        ),
        "both together": suite(outside, "both", ["--tempo-backend=plain", "--tempo-scheduler=unfused"], **checked),
        "the backend's own tests": own_tests(outside, BACKEND),
        "the scheduler's own tests": own_tests(outside, SCHEDULER),
        "bad neighbours": neighbours_disturb_nobody(outside, frameworks),
    }
    return [title for title, passed in results.items() if not passed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default="auto", help="processes for the suite")
    parser.add_argument("--keep", type=Path, help="an empty folder to work in, which is kept")
    options = parser.parse_args()
    started = time.perf_counter()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="outsider-"))
    try:
        failed = prove(Outside(folder.resolve(), options.jobs))
    finally:
        if options.keep is None:
            shutil.rmtree(folder)
    print(f"\n{time.perf_counter() - started:.0f} s; failed: {', '.join(failed) or 'nothing'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
