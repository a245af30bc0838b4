"""Runs of the examples, interrupted and resumed, with the same bits; processes killed while they write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import examples.decode
import examples.dqn
import examples.lstm
import examples.ppo
import tempo as tp
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


LEARNING = ppo, ppo_of_gymnasium, dqn
BRIEFLY = [(ppo, "jax"), (dqn, "jax"), (ppo_of_gymnasium, "torch")]
"""In `make test-all`, of what learns elsewhere than on NumPy."""
CASES = [
    *product(LEARNING, ["numpy"]),
    *product((lstm, decoding), ("numpy", "jax", "torch")),
    *(
        pytest.param(*each, marks=pytest.mark.slow if each in BRIEFLY else pytest.mark.sweep)
        for each in product(LEARNING, ("jax", "torch"))
    ),
]


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_checkpoint_of_ppo_holds_what_it_learns_and_its_environment(tmp_path: Path) -> None:
    outputs = ppo("numpy")(checkpoint=tp.Checkpoints(tmp_path, along="i", every=2))
    learned = sum(array.nbytes for array in outputs.state.values())  # moments are parameters, too
    environment = 4 * examples.ppo.Settings.environments * 5  # four numbers, and how long each episode is
    for path in tmp_path.glob("checkpoint-*"):
        assert path.stat().st_size <= 1.05 * (learned + environment) + (64 << 10)


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
import tempo as tp
from tempo.runtime.checkpoints.folder import Folder

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
size, drawn, last = 200 + 40 * kills, random.Random(0), -1
with tp.Program() as program:
    i = tp.dim("i")
    w = tp.parameter("w", (200, 200), init=np.ones((200, 200), np.float32), dims=(i,))
    w[i + 1] = 0.5 * w + tp.random.normal((200,), dims=(i,))
    tp.output("norm", (w * w).sum())
run = tp.compile(program)
wanted = run(sizes={"i": size})["norm"]
run(sizes={"i": 1}, checkpoint=tp.Checkpoints(folder / "ready", along="i"))  # so that no child takes long to begin


def go():
    checkpoints = tp.Checkpoints(folder, along="i", every=2, keep=2)
    return run(sizes={"i": size}, checkpoint=checkpoints, resume=True)["norm"]


def number(path):
    return int(path.stem.split("-")[1])


class Half:
    # A file of which half is written.
    def __init__(self, file, step):
        self.file, self.step = file, step

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.step()
        self.file.write(data[len(data) // 2 :])


def killed_after(steps):
    # The process kills itself after so many steps: files opened, half written, synchronized, renamed, removed.
    left = [steps]

    def step():
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(function):
        def call(*arguments, **keywords):
            step()
            return function(*arguments, **keywords)
        return call

    opened = Path.open
    os.fsync, Path.replace, Path.unlink = map(stepping, (os.fsync, Path.replace, Path.unlink))
    Path.open = lambda self, mode="r", *more, **options: (
        Half(stepping(opened)(self, mode), step) if mode == "xb" else opened(self, mode, *more, **options)
    )


def wait_for_more(child):
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if len([path for path in folder.glob("checkpoint-*") if number(path) > last]) >= 2:
            return
        time.sleep(0.001)
    raise AssertionError("it has ended by itself")


aimed = 0
for kill in range(kills):
    child = os.fork()
    is_aimed = kill % 5 > 0
    if not child:
        if is_aimed:
            killed_after(drawn.randrange(40, 80))
        go()
        os._exit(0)
    drawn.random()  # the next child draws another number
    if not is_aimed:
        wait_for_more(child)
        time.sleep(drawn.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, kill
    aimed += is_aimed
    there = Folder(folder).checkpoints()
    assert len(there) >= 2 and number(there[0]) >= last + 2, (there, last)
    last = number(there[0])
    opened = Folder(folder)
    assert opened.last().path == there[0] and not opened.damaged  # all of it is whole
assert np.array_equal(go(), wanted)
print(f"{kills} kills, {aimed} of them inside of the writing")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_nothing_is_lost_when_a_process_is_killed(tmp_path: Path) -> None:
    """Four of five at a step of the writing; `TEMPO_KILLS=250` kills more often."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "ckpt"), os.environ.get("TEMPO_KILLS", "20")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
