"""Every example is profiled, and looked into: its traces and its pages open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tempo.conformance.target import typical
from tests.system.browser import narrow, opened, texts
from tests.unit.runtime.traces import checked

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import contextlib, itertools, pathlib, runpy, sys
import tempo as tp

folder, script, *arguments = sys.argv[1:]
numbers, plain, profiles, runs, code = itertools.count(), tp.compile, [], [], 0
with contextlib.ExitStack() as stack:
    def compiled(*given, **named):
        run = plain(*given, **named)
        runs.append(run)
        profiles.append(stack.enter_context(run.profile(f"{folder}/{next(numbers)}.json")))
        return run

    tp.compile = compiled
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(pathlib.Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        code = error.code
for profile in profiles:
    print(profile)
for number, run in enumerate(runs):
    if run.last_sizes is not None:
        run.report(f"{folder}/{number}.html")
sys.exit(code)
"""
"""Runs a script; everything that it compiles is profiled to the end, and has a page then."""
SMALL = ("--rows", 6, "--width", 8)
EXAMPLES: dict[str, tuple[str, tuple[object, ...]]] = {
    "cartpole_rollout": ("numpy", ("--batch", 3, "--episodes", 2, "--steps", 40)),
    "wave": ("torch", ("--steps", 20, "--size", 16)),
    "value_iteration": ("numpy", ("--size", 6, "--sweeps", 40)),
    "edit_distance": ("jax", ("--batch", 4, "--length", 12)),
    "kalman": ("torch", ("--objects", 4, "--steps", 30)),
    "linear_recurrence": ("numpy", ("--steps", 64)),
    "rnn": ("jax", ("--iterations", 20, "--batch", 4, "--steps", 6, "--hidden", 4)),
    "lstm": ("torch", ("--iterations", 5, "--batch", 4, "--steps", 6, "--hidden", 4)),
    "online_regression": ("numpy", ("--samples", 200)),
    "pipeline": ("jax", ("--layers", 2, "--microbatches", 3, "--batch", 2, "--length", 3, "--width", 4,
                         "--iterations", 4, "--mesh", "stage=2")),
    "ppo": ("jax", ("--iterations", 4)),
    "reinforce": ("jax", ("--returns", "td", "--iterations", 20)),
    "dqn": ("numpy", ("--steps", 200)),
    "decode": ("jax", ("--model", "MODEL", "--tokens", 12)),
    "train_llm": ("numpy", ("--layers", 2, "--hidden", 16, "--vocabulary", 300, "--positions", 16, "--rows", 4,
                            "--text", "this", "contextlib", "--prompt", "The", "--out", "OUT", "--steps", 5)),
    "lora": ("numpy", ("--model", "MODEL", "--text", "bisect", "--steps", 5, "--rows", 4)),
    "dynamic/treelstm": ("numpy", ("--steps", 20, "--width", 16)),
    "dynamic/mvrnn": ("numpy", ("--sentences", 2, "--batches", 1, "--width", 8)),
    "dynamic/birnn": ("torch", (*SMALL, "--steps", 5, "--longest", 7)),
    "dynamic/nestedrnn": ("numpy", (*SMALL, "--steps", 5, "--sentences", 3, "--words", 3)),
    "dynamic/stackrnn": ("jax", (*SMALL, "--steps", 5, "--operators", 3)),
    "dynamic/berxit": ("jax", ("--rows", 4, "--heads", 2, "--sequence", 9, "--layers", 4)),
    "dynamic/drnn": ("torch", (*SMALL, "--nodes", 9)),
}  # fmt: skip
NEEDS = {
    "cartpole_rollout": ("gymnasium",),
    "pipeline": ("torch",),
    "decode": ("transformers", "torch"),
    "train_llm": ("transformers", "torch"),
    "lora": ("transformers", "torch"),
    **{f"dynamic/{name}": ("torch",) for name in ("birnn", "nestedrnn", "stackrnn", "berxit", "drnn")},
}


def python(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiled") / "tiny"
    sizes = ("--layers", 3, "--hidden", 32, "--vocabulary", 300, "--steps", 5)
    python(ROOT / "examples" / "make_tiny_llama.py", folder, *sizes)
    return folder


def test_every_example_is_looked_into() -> None:
    folder = ROOT / "examples"
    paths = (each.relative_to(folder) for pattern in ("*.py", "dynamic/*.py") for each in folder.glob(pattern))
    scripts = {path.with_suffix("").as_posix() for path in paths}
    assert EXAMPLES.keys() == scripts - {"demo", "make_tiny_llama", "on_mesh"}


OPENED = ("wave", "dqn", "decode", "dynamic/drnn")
"""In `make test-all`: of each backend, of functions of the host, of draws, of tiles."""


@pytest.mark.slow
@pytest.mark.parametrize("name", typical(EXAMPLES, OPENED, pytest.mark.sweep))
def test_traces_and_pages_of_an_example_open(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    backend, arguments = EXAMPLES[name]
    for module in (*NEEDS.get(name, ()), *([] if backend == "numpy" else [f"tempo_{backend}"])):
        pytest.importorskip(module)
    model = request.getfixturevalue("model") if "MODEL" in arguments else None
    given = [{"MODEL": model, "OUT": tmp_path / "model"}.get(str(each), each) for each in arguments]
    said = python("-c", DRIVER, tmp_path, ROOT / "examples" / f"{name}.py", "--backend", backend, *given)
    found = [checked(path) for path in tmp_path.glob("*.json")]
    assert found
    assert any(each["pid"] == 1 for events in found for each in events)
    assert "seconds  share" in said
    pages = list(tmp_path.glob("*.html"))
    assert pages
    browser = request.getfixturevalue("driver")  # it is skipped from here on where there is none
    narrow(browser, 1440)
    for page in pages:
        opened(browser, page)
        assert texts(browser, ".track[data-track]")
        assert texts(browser, ".group")
