"""Every benchmark runs and writes its results; what it measures is not asserted on."""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.versions import compared

ROOT = Path(__file__).resolve().parents[2]


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )


def on_numpy(*arguments: str) -> list[str]:
    return [*arguments, "--backend", "numpy"]


def slow(arguments: list[str], measured: str) -> Any:
    return pytest.param(arguments, measured, marks=pytest.mark.slow)


def dear(arguments: list[str], measured: str) -> Any:
    """That takes a quarter of a minute and more."""
    return pytest.param(arguments, measured, marks=(pytest.mark.slow, pytest.mark.sweep))


@pytest.mark.parametrize(
    ("arguments", "measured"),
    [
        (["import_time"], "tempo beyond numpy"),
        (on_numpy("numpy_loop", "--steps", "200"), "tempo / plain"),
        (on_numpy("scalar_loops", "--steps", "100"), "tempo / by hand"),
        dear(on_numpy("front_end"), "backend, 64 layers"),
        (on_numpy("models", "--quick", "--only", "batch 1,"), "tempo / by hand"),
        (on_numpy("device_loop", "--steps", "200"), "tempo / by hand"),
        (on_numpy("host_step", "--steps", "200"), "tempo, a step beyond the function"),
        slow(on_numpy("stream_input", "--steps", "20"), "beyond tp.input, a step"),
        slow(on_numpy("compile_time", "--quick"), "total"),
        slow(on_numpy("extents", "--lengths", "48", "--tiles", "16", "--quick"), "tempo, blocks 16"),
        dear(on_numpy("operators", "--sizes", "20"), "whole"),
        slow(on_numpy("attention", "--quick", "--lengths", "128"), "at the last tokens"),
        slow(
            on_numpy("dynamic", "--quick", "--widths", "8", "--trees", "2", "--dynet", "none"),
            "tempo / PyTorch by depth",
        ),
        slow(
            ["dynamic_models", "--quick", "--backend", "torch", "--models", "birnn", "drnn"],
            "tempo / PyTorch batched by hand",
        ),
        slow(["packed", "--quick", "--backend", "torch", "--tiles", "4"], "tempo / PyTorch, packed"),
        slow(["early_exit", "--quick", "--backend", "torch"], "tempo / compaction by hand, PyTorch"),
        dear(on_numpy("checkpoints", "--quick"), "a checkpoint / parameters and moments"),
        slow(on_numpy("profile", "--quick", "--only", "8 x 8"), "with a profile / without"),
        slow(["scheduling", "--quick"], "an order"),
        slow(
            ["llm", "--quick", "--backend", "torch", "--sizes", "2M", "--peers", "transformers, dynamic"],
            "tempo, peak of its own memory",
        ),
        dear(on_numpy("compile_scaling", "--quick", "--counts", "10", "20"), "20, doubled"),
        dear(["meshes", "--quick", "--only", "pipeline"], "bubble"),
        dear(on_numpy("n_step_memory", "--quick"), "observations kept, step by step"),
        dear(on_numpy("paper", "--quick"), "blocks, measured, inputs apart"),
        slow(
            ["ppo", "--quick", "--backend", "torch", "--sweep", "layers", "--threads", "1"], "tempo / by hand, memory"
        ),
        dear(
            [
                "ppo_gymnasium",
                "--quick",
                "--backend",
                "torch",
                "--only",
                "small",
                "--sb3",
                "none",
                "--torchrl",
                "none",
                "--threads",
                "1",
            ],
            "tempo / CleanRL-style loop",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_benchmark(arguments: list[str], measured: str, tmp_path: Path) -> None:
    for needed in ("tokenizers", "gymnasium", "tempo_torch"):
        pytest.importorskip(needed)
    done = run_benchmark(*arguments, "--repeats", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.glob(f"{arguments[0]}-cpu*.csv")
    with written.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert measured in {row["what"] for row in rows}
    assert all(float(row["least"]) <= float(row["median"]) <= float(row["most"]) for row in rows)
    table = written.with_suffix(".md").read_text()
    assert all(f"| {row['case']} | {row['what']} |" in table for row in rows)


def test_outputs_that_differ_are_not_timed() -> None:
    from benchmarks.harness import Session, close

    session = Session(options=argparse.Namespace(no_peers=False), repeats=1)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        session.compare("a", lambda: [1.0], {"peer": lambda: [1.1]}, close(1e-3, 1e-3))
    assert session.rows == []


def test_results_on_a_device_are_compared_on_the_host() -> None:
    pytest.importorskip("torch")
    from tempo_torch.backend import TorchBackend

    from benchmarks.harness import close, to_host

    found = TorchBackend().without_device("cuda").from_host(np.arange(3.0))
    assert to_host(found).tolist() == [0, 1, 2]
    close(0, 0)({"x": found}, {"x": np.arange(3.0)})


def test_an_unknown_name_lists_the_benchmarks() -> None:
    done = run_benchmark("nothing")
    assert done.returncode == 1
    for name in (
        "attention",
        "compile_time",
        "decode",
        "device_loop",
        "front_end",
        "host_step",
        "llm",
        "models",
        "n_step_memory",
        "numpy_loop",
        "operators",
        "ppo",
        "ppo_gymnasium",
        "scalar_loops",
        "scheduling",
        "stream_input",
    ):
        assert name in done.stderr


@pytest.mark.slow
def test_two_versions_are_measured_in_turn(tmp_path: Path) -> None:
    """The same checkout twice: every figure has its ratio, of as many rounds."""
    base = tmp_path / "base"
    base.mkdir()
    for each in ("tempo", "examples", "backends", "schedulers"):
        (base / each).symlink_to(ROOT / each)
    command = [sys.executable, "-m", "benchmarks.versions", str(base), "device_loop", "--backend", "numpy"]
    done = subprocess.run([*command, "--steps", "50"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "(7 samples)  numpy | 50 steps" in done.stdout


def test_a_rate_that_falls_is_told_as_a_time_that_grows() -> None:
    case = "jax", "CartPole", "tempo", "environment steps/s"
    seconds = "jax", "CartPole", "tempo", "s"
    found = compared({case: [200.0, 100.0], seconds: [1.0]}, {case: [100.0, 50.0], seconds: [3.0]})
    assert {each.case: each.ratio for each in found} == {case: 2.0, seconds: 3.0}


# -- the page and the picture of the documentation ---------------------------------------------------------------------


def test_the_page_is_what_the_figures_give() -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import figures

    assert (figures.DOCS / figures.PAGE).read_text() == figures.page(figures.read())


def test_the_picture_is_what_the_figures_give(tmp_path: Path) -> None:
    """Byte for byte, by the version of matplotlib that drew it."""
    matplotlib = pytest.importorskip("matplotlib")
    from benchmarks import figures

    kept = (figures.DOCS / figures.PICTURE).read_text()
    if f"Matplotlib v{matplotlib.__version__}," not in kept:
        pytest.skip(f"drawn by another version of matplotlib than {matplotlib.__version__}")
    figures.draw(figures.read(), tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").read_text() == kept


def test_a_run_for_the_documentation_replaces_its_own_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import figures
    from benchmarks.harness import run
    from benchmarks.numpy_loop import BENCHMARK

    docs = tmp_path / "docs"
    (docs / "images").mkdir(parents=True)
    before = figures.read()
    figures.write(before, docs)
    arguments = ["--steps", "200", "--repeats", "1", "--out", str(tmp_path / "out")]
    for title in (before[0].title, "Another title"):
        run("numpy_loop", replace(BENCHMARK, title=title), [*arguments, "--docs", str(docs)])
    (new,) = (each for each in figures.read(docs) if each not in before)
    assert new.command == "python -m benchmarks numpy_loop --steps 200 --repeats 1"
    assert {figure.what for figure in new.figures} == {"tempo / plain", "tempo / buffered"}
    assert [each for each in figures.read(docs) if each != new] == list(before)
    assert f"`{new.command}`" in (docs / figures.PAGE).read_text()
    assert (docs / figures.PICTURE).read_text() != (figures.DOCS / figures.PICTURE).read_text()


def test_ratios_above_one_are_told_as_losses() -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.figures import Figure, Measurement, page

    made = [("won", 0.5), ("even", 1.04), ("lost", 1.2), ("lost more", 3.0)]
    told = tuple(Figure("numpy", case, "tempo / by hand", "x", median) for case, median in made)
    other = Figure("numpy", "no peer", "a / b", "x", 9.0)
    losses = page([Measurement("A title", "a command", "a day", "a machine", (*told, other))])
    losses = losses.split("## Where it loses")[1].split("Beside these")[0]
    assert [line.split(" | ")[1] for line in losses.splitlines() if "numpy" in line] == ["lost more", "lost"]
