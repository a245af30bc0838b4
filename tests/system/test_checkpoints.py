"""Runs of the examples, interrupted and resumed, with the same bits; processes killed while they write."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import examples.decode
import examples.dqn
import examples.lstm
import examples.ppo
import tempo as tp
from tempo.runtime.checkpoints.folder import Folder
from tempo.runtime.results.outputs import Outputs

Run = Callable[..., Outputs]


def ppo(backend: str, environment: Any = None) -> Run:
    settings = examples.ppo.Settings(iterations=6, epochs=2, minibatches=2, width=16)
    trainer = examples.ppo.trainer(environment or tp.rl.CartPole(), settings)
    return tp.compile(trainer, backend, sizes=examples.ppo.sizes(settings))


def ppo_of_gymnasium(backend: str) -> Run:
    pytest.importorskip("gymnasium")
    return ppo(backend, tp.rl.GymnasiumEnvs("CartPole-v1", examples.ppo.Settings.environments, seed=1))


def dqn(backend: str) -> Run:
    settings = examples.dqn.Settings(environments=2, steps=60, capacity=32, batch=8, start=20, width=16)
    return tp.compile(examples.dqn.trainer(tp.rl.CartPole(), settings), backend)


def lstm(backend: str) -> Run:
    """On sequences that generators give."""
    initial = examples.lstm.weights(8, seed=0)
    with tp.Program() as program:
        i, b, t = tp.dims("i b t")
        w = {name: tp.parameter(name, array.shape, init=array, dims=(i,)) for name, array in initial.items()}
        x, wanted = tp.stream_input("x", (2,), (i, b, t)), tp.stream_input("wanted", (), (i, b))
        h = examples.lstm.lstm(x, w["wx"], w["wh"], w["bias"], dims=(i, b, t))
        loss = ((h[i, b, -1] @ w["out"] - wanted) ** 2)[i, :].mean()
        tp.optim.Adam(0.01).minimize(loss, w)
        tp.output("loss", loss)
    run = tp.compile(program, backend, sizes={"i": 20, "b": 4, "t": 6})

    def with_data(**given: Any) -> Outputs:
        data = np.random.default_rng(0).normal(size=(20, 4, 6, 2)).astype(np.float32)
        return run(x=iter(data), wanted=(each[:, :, 0].sum(-1) for each in data), **given)

    return with_data


def decoding(backend: str) -> Run:
    config = examples.decode.Config(
        vocabulary=32, hidden=16, intermediate=24, layers=2, heads=4, kv_heads=2, head_dim=4, epsilon=1e-5, tied=False,
        rope={"rope_theta": 10000.0},
    )  # fmt: skip
    draw = np.random.default_rng(0)
    shapes = {"embedding": (32, 16), "norm": (16,), "head": (32, 16)}
    for name, shape in examples.decode.weight_shapes(config).items():
        shapes[examples.decode.input_name(name)] = (config.layers, *shape)
    weights = {name: draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    run = tp.compile(examples.decode.decoder(config), backend, sizes={"l": 2, "p": 5, "t": 24})
    return lambda **given: run(prompt=np.arange(5), **weights, **given)


CASES = [
    pytest.param(
        make, backend, marks=[pytest.mark.slow] if make in (ppo, ppo_of_gymnasium) and backend != "numpy" else []
    )
    for make in (ppo, ppo_of_gymnasium, dqn, lstm, decoding)
    for backend in ("numpy", "jax", "torch")
]


@pytest.mark.parametrize(("make", "backend"), CASES)
def test_examples_go_on_with_the_same_bits(make: Callable[[str], Run], backend: str, tmp_path: Path) -> None:
    if backend != "numpy":
        pytest.importorskip(f"tempo_{backend}")
    along, every = ("t", 11) if make in (dqn, decoding) else ("i", 2)
    checkpoints = tp.Checkpoints(tmp_path, along=along, every=every, keep=None)
    run = make(backend)
    whole = run(seed=3, checkpoint=checkpoints)
    for path in sorted(tmp_path.glob("checkpoint-*"))[1:]:
        path.unlink()
    again = (run if "ppo" in make.__name__ else make(backend))(checkpoint=checkpoints, resume=True)
    for wanted, found in ((whole, again), (whole.state, again.state)):
        assert wanted.keys() == found.keys()
        for name in wanted:
            assert np.asarray(wanted[name]).tobytes() == np.asarray(found[name]).tobytes(), name


def test_a_checkpoint_of_ppo_holds_what_it_learns_and_its_environment(tmp_path: Path) -> None:
    outputs = ppo("numpy")(checkpoint=tp.Checkpoints(tmp_path, along="i", every=2))
    learned = sum(array.nbytes for array in outputs.state.values())  # moments are parameters, too
    environment = 4 * examples.ppo.Settings.environments * 5  # four numbers, and how long each episode is
    for path in tmp_path.glob("checkpoint-*"):
        assert path.stat().st_size <= 1.05 * (learned + environment) + (64 << 10)


KILLED = """
import sys, time
import numpy as np
import tempo as tp

with tp.Program() as program:
    i = tp.dim("i")
    w = tp.parameter("w", (200, 200), init=np.ones((200, 200), np.float32), dims=(i,))
    w[i + 1] = 0.5 * w + tp.random.normal((200, 200), dims=(i,))
    tp.output("norm", (w * w).sum())
run = tp.compile(program)
print("begun", flush=True)
checkpoints = tp.Checkpoints(sys.argv[1], along="i", every=2, keep=2)
outputs = run(sizes={"i": int(sys.argv[3])}, checkpoint=checkpoints, resume=True)
np.save(sys.argv[2], outputs["norm"])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_nothing_is_lost_when_a_process_is_killed(tmp_path: Path) -> None:
    """Four of five while a file is written; `TEMPO_KILLS=250` kills more often."""
    folder, drawn, last = tmp_path / "ckpt", random.Random(0), -1
    kills = int(os.environ.get("TEMPO_KILLS", "5"))
    size = str(500 + 20 * kills)
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "norm.npy"), size]
    for kill in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        wait_for_more(folder, last, is_writing=kill % 5 > 0)
        time.sleep(drawn.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.wait()
        there = Folder(folder).checkpoints()
        assert len(there) >= 2
        assert number(there[0]) >= last
        last = number(there[0])
        for path in there:
            opened = Folder(folder, run=Folder(folder).open(path).about["run"])
            assert list(opened.points(opened.open(path).about["points"]))  # all of it is whole
    (tmp_path / "norm.npy").unlink(missing_ok=True)
    assert subprocess.run(command, check=False).returncode == 0
    whole = [sys.executable, "-c", KILLED, str(tmp_path / "whole"), str(tmp_path / "whole.npy"), size]
    assert subprocess.run(whole, check=False).returncode == 0
    assert (tmp_path / "norm.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def number(path: Path) -> int:
    return int(path.stem.split("-")[1])


def wait_for_more(folder: Path, last: int, is_writing: bool) -> None:
    """Until there are two checkpoints behind the last one, and, where it is wanted, another one is begun."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        names = [each.name for each in folder.iterdir()] if folder.exists() else []
        more = [name for name in names if name.startswith("checkpoint") and number(Path(name)) > last]
        if len(more) >= 2 and (not is_writing or any(name.startswith(".checkpoint") for name in names)):
            return
    raise AssertionError(f"no checkpoint in {folder} behind {last}")
