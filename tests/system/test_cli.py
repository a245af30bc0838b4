"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tempo import cli
from tempo.plugins import BackendPlugin, list_backends
from tempo.plugins.descriptors import DTYPES
from tempo.plugins.support import markdown

THING = """
from tempo.plugins import BackendPlugin, Capabilities, hookimpl

@hookimpl
def tempo_backend():
    capabilities = Capabilities(unsupported={"sort": "no kernel"})
    return BackendPlugin("thing", "nowhere:Thing", capabilities=capabilities, dtypes=("bool", "float32"))
"""

PROGRAM = """
import tempo as tp

with tp.Program("running_mean") as program:
    t = tp.dim("t")
    x = tp.input("x", shape=(3,), dims=(t,))
    tp.output("mean", x[0:t + 1].mean(axis=0))


def built():
    return program


def fails():
    return program / 0


number = 3
"""


@pytest.fixture
def program_file(tmp_path: Path) -> Path:
    path = tmp_path / "mean.py"
    path.write_text(PROGRAM)
    return path


def tempo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tempo", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
    )


def test_doctor_shows_versions_and_plugins() -> None:
    done = tempo("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("tempo-sdg", "numpy", "reference", "greedy", "ok"):
        assert word in done.stdout


def test_doctor_shows_a_broken_plugin_with_its_traceback(tmp_path: Path) -> None:
    info = tmp_path / "broken_thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-thing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tempo.backends]\nthing = broken_thing\n")
    (tmp_path / "broken_thing.py").write_text("raise RuntimeError('the device is on fire')\n")
    done = tempo("doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "broken: backend 'thing' of broken-thing 1.0" in done.stdout
    assert "RuntimeError: the device is on fire" in done.stdout
    assert "broken_thing.py" in done.stdout
    switched_off = tempo("doctor", PYTHONPATH=str(tmp_path), TEMPO_DISABLED_PLUGINS="thing")
    assert switched_off.returncode == 0
    assert "switched off" in switched_off.stdout


def test_backends_as_json() -> None:
    done = tempo("backends", "--json")
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert found["numpy"]["state"] == "ok"
    assert "float32" in found["numpy"]["dtypes"]
    assert "cpu" in found["reference"]["devices"]


def test_doctor_shows_broken_hooks_and_what_backends_exclude(tmp_path: Path) -> None:
    info = tmp_path / "things-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: things\nVersion: 1.0\n")
    points = "[tempo.backends]\nthing = thing\n\n[tempo.plugins]\nobserver = broken_observer\n"
    (info / "entry_points.txt").write_text(points)
    (tmp_path / "thing.py").write_text(THING)
    (tmp_path / "broken_observer.py").write_text("raise RuntimeError('the lens is dirty')\n")
    done = tempo("doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "broken: hook 'observer' of things 1.0" in done.stdout
    assert "RuntimeError: the lens is dirty" in done.stdout
    excluded = [
        line for line in done.stdout.splitlines() if "thing" in line and ("no kernel" in line or "has no" in line)
    ]
    assert len(excluded) == 1 + len(DTYPES) - 2
    page = tempo("backends", "--markdown", PYTHONPATH=str(tmp_path)).stdout
    assert "| thing | sort | no kernel |" in page
    (found,) = [
        each
        for each in json.loads(tempo("backends", "--json", PYTHONPATH=str(tmp_path)).stdout)
        if each["name"] == "thing"
    ]
    assert (found["dtypes"], found["unsupported"]) == (["bool", "float32"], {"sort": "no kernel"})


def test_the_page_of_backends_is_current() -> None:
    """`python -m tempo backends --markdown > docs/backends.md` makes it."""
    ours = [each.descriptor for each in list_backends() if each.distribution.startswith("tempo-sdg")]
    backends = [each for each in ours if isinstance(each, BackendPlugin)]
    if {each.name for each in backends} != {"jax", "numpy", "reference", "torch"}:
        pytest.skip("not all backends of the project are installed")
    page = Path(__file__).resolve().parents[2] / "docs" / "backends.md"
    assert page.read_text() == markdown(backends)


def test_backends_as_a_table_without_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert cli.main(["backends"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Backends"
    assert lines[2].split() == ["name", "distribution", "state", "devices", "summary"]


@pytest.mark.parametrize("name", ["program", "built"])
def test_explain(program_file: Path, name: str) -> None:
    done = tempo("explain", f"{program_file}:{name}", "--size", "t=5", "--backend", "numpy", "--scheduler", "greedy")
    assert done.returncode == 0, done.stderr
    assert "mean" in done.stdout


def test_explain_says_how_the_polyhedral_schedule_was_found(program_file: Path) -> None:
    pytest.importorskip("islpy")
    pytest.importorskip("tempo_polyhedral")
    done = tempo(
        "explain", f"{program_file}:program", "--scheduler", "polyhedral", "--section", "schedule", TEMPO_CACHE="0"
    )
    assert done.returncode == 0, done.stderr
    assert "# schedule\n# polyhedral: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{file}:nothing"], "there is no 'nothing' in {file}"),
        (["{file}:number"], "'number' is a int in {file}"),
        (["{file}:program", "--size", "t"], "--size t is not a size"),
        (["{file}:program", "--backend", "numpi"], "did you mean 'numpy'?"),
        (["{file}x:program"], "there is no file '{file}x'"),
        (["program"], "'program' names no program"),
    ],
)
def test_mistakes_are_told_without_a_traceback(program_file: Path, arguments: list[str], message: str) -> None:
    done = tempo("explain", *(each.format(file=program_file) for each in arguments))
    assert done.returncode == 2
    assert message.format(file=program_file) in done.stderr
    assert "Traceback" not in done.stderr


def test_exceptions_of_the_users_file_are_told_with_its_lines_only(program_file: Path) -> None:
    done = tempo("explain", f"{program_file}:fails")
    assert done.returncode == 2
    assert f"ProgramError: fails() of {program_file} failed: TypeError: unsupported operand" in done.stderr
    assert "return program / 0" in done.stderr
    program_file.write_text("1 / 0")
    done = tempo("explain", f"{program_file}:program")
    assert done.returncode == 2
    assert f"{program_file} failed: ZeroDivisionError" in done.stderr
    assert "importlib" not in done.stderr
    assert "cli.py" not in done.stderr


def test_output_may_be_cut_short() -> None:
    command = f"{sys.executable} -m tempo backends --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("shell", "arguments"), [("bash", ["-n"]), ("zsh", ["-n"]), ("tcsh", None)])
def test_shells_complete_the_commands(shell: str, arguments: list[str] | None) -> None:
    pytest.importorskip("shtab")
    done = tempo("completion", shell)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in ("doctor", "explain", "checkpoints", "backend"))
    if arguments is not None and (found := shutil.which(shell)):
        assert subprocess.run([found, *arguments], input=done.stdout, text=True, check=False).returncode == 0


def test_bash_completes_a_command_an_option_and_a_file(tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "model.py").write_text("")
    script = tempo("completion", "bash").stdout
    ask = (
        "ask() { COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _shtab_tempo_sdg; "
        'echo "${COMPREPLY[@]}"; }'
    )
    lines = ["tempo-sdg expl", "tempo-sdg explain --sche", "tempo-sdg explain mod"]
    text = "\n".join([script, ask, *(f"ask '{line}'" for line in lines)])
    done = subprocess.run([bash], input=text, capture_output=True, text=True, cwd=tmp_path, check=True)
    found = [line.split() for line in done.stdout.splitlines()]
    assert found == [["explain"], ["--scheduler"], ["model.py"]], done.stderr
