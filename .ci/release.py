"""Versions of all distributions, and their wheels.

python .ci/release.py version          tells the version; fails where distributions disagree
python .ci/release.py version 0.2.0    sets it everywhere, and the ranges that they ask of each other
python .ci/release.py wheels           builds sdists and wheels into dist/, checks them, and runs the README's
                                       program with them in an empty environment of each Python that is found
python .ci/release.py wheels --all     and once with every backend and scheduler, which takes the frameworks' wheels
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTIONS = (
    ".",
    "schedulers/tempo_greedy",
    "schedulers/tempo_polyhedral",
    "backends/tempo_jax",
    "backends/tempo_torch",
)
EXAMPLES = ("examples/third_party_backend", "examples/third_party_scheduler")  # whose ranges follow
PYTHONS = ("3.11", "3.12", "3.13")
CORE = ROOT / "tempo" / "__init__.py"
_VERSION = re.compile(r'^((?:__)?version(?:__)? = )"([^"]+)"$', re.MULTILINE)
_RANGE = re.compile(r"(tempo-sdg[a-z-]*)>=[\d.]+,<[\d.]+")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "build", "dist", "*.egg-info", "tests", "benchmarks")
_PROGRAM = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


# -- versions ------------------------------------------------------------------------------------------------------


def places() -> list[Path]:
    """Every file in which the version stands."""
    return [CORE, *(ROOT / each / "pyproject.toml" for each in DISTRIBUTIONS)]


def versions() -> dict[str, str]:
    """What each of them says."""
    return {path.relative_to(ROOT).as_posix(): _VERSION.findall(path.read_text())[0][1] for path in places()}


def ranges() -> dict[str, set[str]]:
    """What distributions, and the examples for others, ask of each other."""
    files = [ROOT / each / "pyproject.toml" for each in (*DISTRIBUTIONS, *EXAMPLES)]
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}
    return {name: {match[0].removeprefix(match[1]) for match in _RANGE.finditer(text)} for name, text in found.items()}


def range_of(version: str) -> str:
    """A minor version may change what distributions exchange, up to 1.0 and after."""
    major, minor = map(int, version.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"


def set_version(version: str) -> None:
    for path in places():
        path.write_text(_VERSION.sub(rf'\g<1>"{version}"', path.read_text(), count=1))
    for each in (*DISTRIBUTIONS, *EXAMPLES):
        path = ROOT / each / "pyproject.toml"
        path.write_text(_RANGE.sub(rf"\g<1>{range_of(version)}", path.read_text()))


def disagreeing() -> list[str]:
    found = versions()
    version = found["tempo/__init__.py"]
    wrong = [f"{name} has the version {other}, not {version}" for name, other in found.items() if other != version]
    wrong += [
        f"{name} asks for {other}, not {range_of(version)}"
        for name, asked in ranges().items()
        for other in sorted(asked - {range_of(version)})
    ]
    return wrong


# -- wheels --------------------------------------------------------------------------------------------------------


def run(*command: object, cwd: Path = ROOT) -> str:
    print("$", *command, flush=True)
    return subprocess.run(
        [str(each) for each in command], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def staged(folder: Path, path: str) -> Path:
    """A distribution's sources with the licence, without what earlier builds left there."""
    source, target = ROOT / path, folder / "sources" / (path.replace("/", "-") if path != "." else "core")
    if path == ".":
        target.mkdir(parents=True)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(source / name, target / name)
        shutil.copytree(source / "tempo", target / "tempo", ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copytree(source, target, ignore=_LEFT_OUT)
    shutil.copy(ROOT / "LICENSE", target / "LICENSE")
    return target


def build(folder: Path) -> list[Path]:
    """Sdists, and wheels that are made of them."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for path in DISTRIBUTIONS:
        run(sys.executable, "-m", "build", "--outdir", dist, staged(folder, path))
    made = sorted(dist.iterdir())
    print(run(sys.executable, "-m", "twine", "check", "--strict", *made))
    return made


def tried(folder: Path, python: str, wheels: list[Path], backends: tuple[str, ...]) -> None:
    """The README's program with nothing but the wheels, far from the checkout."""
    program, printed = _PROGRAM.findall((ROOT / "README.md").read_text())[0]
    home = folder / f"environment-{python}-{len(wheels)}"
    run(shutil.which(f"python{python}") or sys.executable, "-m", "venv", home)
    inside = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    start = time.perf_counter()
    run(inside, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *wheels)
    installed = time.perf_counter()
    for backend in backends:
        text = program.replace("tp.compile(program)", f"tp.compile(program, {backend!r})")
        begun = time.perf_counter()
        (home / "program.py").write_text(text)
        found = run(inside, "-I", "program.py", cwd=home)
        if numbers(found) != numbers(printed):
            raise SystemExit(f"the README's program on {backend} printed {found}, not {printed}")
        took = time.perf_counter() - begun
        print(f"Python {python}, {backend}: installed in {installed - start:.1f} s, result in {took:.1f} s")


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"\d+\.\d*", text)]


def wheels(every: bool) -> int:
    """How many of the environments fail."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = [path for path in build(folder) if path.suffix == ".whl"]
        core = [path for path in made if re.match(r"tempo_sdg(_greedy)?-", path.name)]
        asked = [(version, core, ("numpy",)) for version in PYTHONS if is_there(version)]
        asked += [(PYTHONS[0], made, ("numpy", "jax", "torch"))] if every else []
        failed = 0
        for version, chosen, backends in asked:
            try:
                tried(folder, version, chosen, backends)
            except subprocess.CalledProcessError as error:
                print(f"Python {version}: {error}")
                failed += 1
        return failed


def is_there(version: str) -> bool:
    """A name on the path may be that of a Python that is not installed."""
    python = shutil.which(f"python{version}")
    there = python is not None and not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode
    print("" if there else f"there is no Python {version} here\n", end="")
    return there


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("version").add_argument("to", nargs="?", metavar="X.Y.Z")
    commands.add_parser("wheels").add_argument("--all", action="store_true")
    asked = parser.parse_args()
    if asked.command == "version" and asked.to:
        set_version(asked.to)
    wrong = disagreeing()
    print(*(wrong or [versions()["tempo/__init__.py"]]), sep="\n")
    if asked.command == "wheels" and not wrong:
        return int(bool(wheels(asked.all)))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
