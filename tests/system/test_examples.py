"""The examples at a small size, against their peers."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import typical

ROOT = Path(__file__).resolve().parents[2]
UNTOLD = ("mvrnn", "birnn", "nestedrnn", "stackrnn", "berxit", "drnn")  # examples that make no picture


def run_example(name: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_demo_tells_what_it_made_and_where(tmp_path: Path) -> None:
    pytest.importorskip("tempo_torch")
    printed = run_example("demo.py", "--only", "wave", "kalman", "--out", tmp_path)
    made = printed.split(f"2 pictures in {tmp_path}/")[1].splitlines()[1:]
    for line, name in zip(made, ["wave-torch.png", "kalman-torch.png"], strict=True):
        assert line.split()[0] == name
        assert line.endswith("equal to the NumPy loop to 1e-3")
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.slow
def test_the_demo_fails_where_an_example_does(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, ROOT / "examples" / "demo.py", "--only", "wave", "--out", tmp_path / "file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "it failed with 1" in done.stderr
    assert "pictures in" not in done.stdout


def test_both_demos_have_every_example() -> None:
    from examples.demo import long, short

    folder = ROOT / "examples"
    paths = [path.relative_to(folder) for each in ("*.py", "dynamic/*.py") for path in folder.glob(each)]
    untold = {"demo", "make_tiny_llama", "on_mesh", *(f"dynamic/{name}" for name in UNTOLD)}
    scripts = {path.with_suffix("").as_posix() for path in paths} - untold
    for demo in (short, long):
        assert {each.script for each in demo(Path())} == scripts


def test_both_demos_show_an_example_on_a_mesh() -> None:
    from examples.demo import long, short

    for demo in (short, long):
        shown = [each for each in demo(Path()) if each.mesh is not None]
        assert [each.picture for each in shown] == ["rnn-jax-mesh.png", "pipeline-jax-mesh.png"]
        assert shown[0].command(Path())[2:6] == ["--backend", "jax", "--mesh", "data=2"]


def on_mesh(name: str, mesh: str, *arguments: object) -> str:
    """What an example says, which tells how it lay on a mesh, and gathers nothing."""
    pytest.importorskip("tempo_jax")
    printed = run_example(f"{name}.py", "--backend", "jax", "--mesh", mesh, *arguments)
    found = re.search(
        rf"mesh {mesh}: (\d+) tensors lie in parts; each device holds \d+ B at most\n((?:  .*\n)+)", printed
    )
    assert found is not None, printed
    assert int(found[1]) > 5
    assert "all-gather" not in found[2]
    return printed


ON_MESH = {
    "rnn": ("--iterations", 3, "--batch", 4, "--steps", 6, "--hidden", 4),
    "ppo": ("--iterations", 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", typical(ON_MESH, ["rnn"], pytest.mark.sweep))
def test_an_example_lies_on_a_mesh_and_gathers_nothing(name: str) -> None:
    assert "x all-reduce over data" in on_mesh(name, "data=2", *ON_MESH[name])


PIPELINE = ("--layers", 2, "--microbatches", 3, "--batch", 2, "--length", 3, "--width", 4, "--iterations", 4)


@pytest.mark.slow
def test_an_example_goes_through_the_stages_of_a_mesh(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    said = on_mesh("pipeline", "stage=2", *PIPELINE)
    assert "pipeline of 2 stages of 1; 3 points of m in 4 waves, each way; bubble 1/4" in said
    assert "inside i, m_wave: 2 x permute over stage" in said
    picture = tmp_path / "pipeline.png"
    of_one = run_example("pipeline.py", *PIPELINE, "--check", "--plot", picture)
    assert "equal to PyTorch" in of_one
    assert picture.stat().st_size > 0
    losses = [re.findall(r"loss ([\d.]+) to ([\d.]+)", each)[0] for each in (said, of_one)]
    assert [float(each) for each in losses[0]] == pytest.approx([float(each) for each in losses[1]], abs=2e-3)


@pytest.mark.parametrize("stages", [1, 4])
def test_every_stage_works_on_every_microbatch_there_and_back(stages: int) -> None:
    from examples.pipeline import schedule

    waves = schedule(stages, 3)
    assert waves.shape == (stages, 2 * (3 + stages - 1))
    for works in waves:
        assert works[~np.isnan(works)].tolist() == [0, 1, 2, 2, 1, 0]


def stopped(name: str, *arguments: object) -> str:
    """What an example says that ends at once."""
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("dqn.py",), "each step learns from what was drawn out of all environments"),
        (("ppo.py", "--gymnasium"), "an axis of what it returns, no dim to lie along it"),
        pytest.param(("dynamic/treelstm.py",), "nodes, which wait for their children", marks=pytest.mark.slow),
    ],
)
def test_an_example_that_cannot_lie_on_a_mesh_says_why(arguments: tuple[str, ...], why: str) -> None:
    name, *more = arguments
    (line,) = stopped(name, *more, "--mesh", "data=2").splitlines()
    assert line.startswith("--mesh data=2: ")
    assert why in line


def test_a_mesh_that_is_none_is_refused() -> None:
    from examples.on_mesh import mesh

    assert str(mesh("data=2, model=3")) == "data=2, model=3"
    for text in ("", "data", "data=0", "data=x", "data=2,data=2", "2=2"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no mesh: write data=2"):
            mesh(text)
    assert "this example lies along 'data'" in stopped("rnn.py", "--backend", "jax", "--mesh", "model=2")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    run_example("make_tiny_llama.py", folder, "--layers", 3, "--hidden", 32, "--vocabulary", 300, "--steps", 5)
    return folder


@pytest.mark.parametrize("backend", typical(["numpy", "reference"], ["numpy"]))
def test_cartpole_equals_the_numpy_loop(tmp_path: Path, backend: str) -> None:
    pytest.importorskip("gymnasium")
    picture = tmp_path / "cartpole.png"
    sizes = ("--batch", 3, "--episodes", 2, "--steps", 40)
    printed = run_example("cartpole_rollout.py", "--backend", backend, *sizes, "--check", "--plot", picture)
    assert "equal to the NumPy loop" in printed
    assert picture.stat().st_size > 0


@pytest.mark.slow
def test_decoding_equals_transformers(checkpoint: Path, tmp_path: Path) -> None:
    picture = tmp_path / "decode.png"
    printed = run_example("decode.py", "--model", checkpoint, "--tokens", 12, "--check", "--plot", picture)
    assert "equal to transformers, token for token" in printed
    assert picture.stat().st_size > 0


@pytest.mark.slow
def test_decoding_on_the_reference_evaluator(checkpoint: Path) -> None:
    arguments = ("--prompt", "You may", "--tokens", 3, "--check", "--backend", "reference")
    assert "equal to transformers" in run_example("decode.py", "--model", checkpoint, *arguments)


@pytest.mark.slow
def test_decoding_a_prompt_of_one_token(checkpoint: Path) -> None:
    assert "equal to transformers" in run_example(
        "decode.py", "--model", checkpoint, "--prompt", "Y", "--tokens", 4, "--check"
    )


@pytest.mark.slow
def test_decoding_ends_with_the_text(checkpoint: Path) -> None:
    """Any token may be said to end it: here the third that the model generates."""
    from examples.decode import Config, decoder, read_weights

    config, prompt = Config.read(checkpoint), [5, 6, 7]
    given = {"prompt": np.array(prompt), **read_weights(checkpoint, config)}
    run = tp.compile(decoder(config), sizes={"l": config.layers, "p": len(prompt), "t": 12})
    every = run(**given)["token"].tolist()
    end = every[5]
    stopped = tp.compile(decoder(config, end), sizes={"l": config.layers, "p": len(prompt), "t": 12})(**given)
    kept = 1 + every.index(end, len(prompt))
    assert stopped["token"].tolist() == every[:kept]
    assert stopped.sizes["t"] == kept


LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.slow
def test_decoding_with_scaled_rotary_embedding_and_an_untied_head(checkpoint: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.LlamaConfig.from_pretrained(checkpoint)
    config.tie_word_embeddings = False
    config.num_key_value_heads = 1
    config.rope_parameters = {"rope_theta": 500.0, **LLAMA3_SCALING}
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    shutil.copy(checkpoint / "tokenizer.json", tmp_path)
    printed = run_example("decode.py", "--model", tmp_path, "--tokens", 20, "--check")
    assert "equal to transformers, token for token" in printed


def test_configurations_of_both_ages_mean_the_same(checkpoint: Path, tmp_path: Path) -> None:
    from examples.decode import Config, rotary_frequencies

    raw = json.loads((checkpoint / "config.json").read_text())
    del raw["rope_parameters"]
    older = {**raw, "rope_theta": 500.0, "rope_scaling": LLAMA3_SCALING}
    newer = {**raw, "rope_parameters": {"rope_theta": 500.0, **LLAMA3_SCALING}}
    found = []
    for content in (older, newer):
        (tmp_path / "config.json").write_text(json.dumps(content))
        found.append(rotary_frequencies(Config.read(tmp_path)).tolist())
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0])


@pytest.mark.parametrize(("returns", "points"), [("mc", 64), ("nstep", 17), ("td", 2)])
def test_reinforce_keeps_what_its_returns_need(tmp_path: Path, returns: str, points: int) -> None:
    picture = tmp_path / "reinforce.png"
    settings = ("--returns", returns, "--iterations", 3, "--sequential", "--plot", picture)
    assert f"keeps {points} of 64 steps" in run_example("reinforce.py", *settings)
    assert picture.stat().st_size > 0


@pytest.mark.parametrize("returns", typical(["mc", "nstep", "td"], ["td"]))
def test_reinforce_learns(returns: str) -> None:
    printed = run_example("reinforce.py", "--returns", returns, "--iterations", 150)
    found = re.search(r"mean return (\d+) of the first 100 episodes, (\d+) of the last", printed)
    assert found is not None, printed
    first, last = map(int, found.groups())
    assert first < 40 and last > 70


@pytest.mark.slow
def test_reinforce_in_gymnasiums_environment(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    picture = tmp_path / "reinforce.png"
    settings = ("--returns", "mc", "td", "--iterations", 3, "--gymnasium", "--seeds", 2, "--plot", picture)
    printed = run_example("reinforce.py", *settings)
    assert [line[:10] for line in printed.splitlines() if ", seed" in line] == [
        "mc, seed 0", "mc, seed 1", "td, seed 0", "td, seed 1",
    ]  # fmt: skip
    assert picture.stat().st_size > 0


@pytest.mark.parametrize("gymnasium", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dqn_learns(tmp_path: Path, gymnasium: bool) -> None:
    if gymnasium:
        pytest.importorskip("gymnasium")
    picture = tmp_path / "dqn.png"
    printed = run_example("dqn.py", "--steps", 3000, "--plot", picture, *["--gymnasium"] * gymnasium)
    found = re.search(r"mean return (\d+) of the first 100 episodes, (\d+) of the last", printed)
    assert found is not None, printed
    first, last = map(int, found.groups())
    assert first < 40 and last > 60
    assert picture.stat().st_size > 0


@pytest.mark.slow
def test_a_treelstm_learns_to_reckon() -> None:
    printed = run_example("dynamic/treelstm.py", "--steps", 150, "--width", 32)
    found = re.search(r"all nodes: mean error ([\d.]+) to ([\d.]+)", printed)
    assert found is not None, printed
    assert float(found[2]) < 0.3 * float(found[1])


SMALL = ("--rows", 6, "--width", 8)
DYNAMIC = {
    "birnn": (*SMALL, "--steps", 5, "--longest", 7),
    "nestedrnn": (*SMALL, "--steps", 5, "--sentences", 3, "--words", 3),
    "stackrnn": (*SMALL, "--steps", 5, "--operators", 3),
    "berxit": ("--rows", 4, "--heads", 2, "--sequence", 9, "--layers", 4),
    "drnn": (*SMALL, "--nodes", 9),
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", typical(["numpy", "torch", "jax"], ["numpy"]))
@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_structure_equals_pytorch_one_by_one(name: str, backend: str) -> None:
    pytest.importorskip("torch")
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    assert "equal to PyTorch" in run_example(f"dynamic/{name}.py", *DYNAMIC[name], "--backend", backend, "--check")


@pytest.mark.slow
def test_a_llama_is_trained_goes_on_and_is_adapted(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model, picture = tmp_path / "model", tmp_path / "loss.png"
    sizes = ("--layers", 2, "--hidden", 16, "--vocabulary", 300, "--positions", 16, "--rows", 4)
    common = (*sizes, "--text", "this", "contextlib", "--backend", "numpy", "--prompt", "The", "--out", model)
    printed = run_example("train_llm.py", *common, "--steps", 25, "--check", "--plot", picture)
    assert "equal to transformers" in printed
    found = re.search(r"loss ([\d.]+) at first, ([\d.]+) at last", printed)
    assert found is not None, printed
    assert float(found[2]) < float(found[1]) - 0.3
    assert picture.stat().st_size > 0
    assert "30 steps" in run_example("train_llm.py", *common, "--steps", 30, "--resume")

    settings = ("--text", "bisect", "--steps", 30, "--rows", 4, "--backend", "numpy")
    printed = run_example("lora.py", "--model", model, *settings, "--plot", picture)
    found = re.search(r"held out: ([\d.]+) before, ([\d.]+) after", printed)
    assert found is not None, printed
    assert float(found[2]) < float(found[1])
    assert {path.name for path in (tmp_path / "model-bisect").iterdir()} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
