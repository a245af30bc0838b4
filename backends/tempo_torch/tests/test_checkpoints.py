"""Runs of several processes with checkpoints: one file of whole arrays, from which any number of processes goes on."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from tempo_torch.backend import TorchBackend

import tempo as tp

STEPS, ROWS, WIDTH, SECONDS = 7, 4, 8, 180


def training() -> tp.Program:
    """The batch lies in parts, and so does what is drawn for it; an average over its past is kept."""
    with tp.Program("training") as program:
        i, b = tp.dims("i b")
        x = tp.input("x", (WIDTH,), (b,))
        w = tp.parameter("w", (WIDTH, WIDTH), init=np.eye(WIDTH, dtype=np.float32) / 2, dims=(i,))
        kept = tp.recurrent("kept", (WIDTH,), (i, b))
        made = tp.tanh((x + 0.1 * tp.random.normal((WIDTH,), dims=(i, b))) @ w)
        kept[0, b] = tp.stop_gradient(made)
        kept[i, b] = 0.9 * kept[i - 1, b] + 0.1 * tp.stop_gradient(made)
        loss = ((made - kept) ** 2 + made**2)[i, 0 : b.size].mean()
        w[i + 1] = w - 0.1 * tp.grad(loss, w)
        tp.output("loss", loss)
        tp.output("kept", kept)
    return program


X = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)


def compiled(devices: int) -> Any:
    return tp.compile(training(), "torch", mesh=tp.Mesh({"data": devices}), shard={"b": "data"})


def checkpoints(folder: str) -> tp.Checkpoints:
    return tp.Checkpoints(folder, along="i", every=2)


def interrupt(done: int, total: int) -> None:
    if done >= 4:
        raise KeyboardInterrupt


def arrays(outputs: Any) -> dict[str, np.ndarray]:
    given = {**outputs, **{f"state {name}": each for name, each in outputs.state.items()}}
    return {
        name: (each.full_tensor() if hasattr(each, "full_tensor") else each).numpy() for name, each in given.items()
    }


def work(folder: str, kept: str, what: str) -> None:
    """One process of several: a run that is interrupted and gone on with, or one that another number began."""
    run = compiled(int(os.environ["WORLD_SIZE"]))
    if what == "begin":
        try:
            run(x=X, sizes={"i": STEPS}, seed=3, checkpoint=checkpoints(folder), progress=interrupt)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("it was to be interrupted")
    else:
        whole = arrays(run(x=X, sizes={"i": STEPS}, seed=3))
        found = arrays(run(x=X, checkpoint=checkpoints(folder), resume=True))
        if dist.get_rank() == 0:
            Path(kept).write_bytes(pickle.dumps((whole, found)))
    dist.barrier()


def in_processes(count: int, *arguments: str) -> None:
    command = TorchBackend.launched(count, [__file__, *arguments])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_in_two_and_in_four(tmp_path: Path) -> None:
    """In as many with the same bits; in more with sums in another order."""
    folder, kept = str(tmp_path / "checkpoints"), tmp_path / "kept"
    in_processes(2, folder, str(kept), "begin")
    assert len(list(Path(folder).glob("checkpoint*"))) >= 1
    for count, tolerance in ((4, 1e-5), (2, 0.0)):
        copy = f"{folder} {count}"
        subprocess.run(["cp", "-r", folder, copy], check=True)
        in_processes(count, copy, str(kept), "go on")
        whole, found = pickle.loads(kept.read_bytes())
        assert sorted(whole) == ["kept", "loss", "state w"] == sorted(found)
        assert whole["kept"].shape == (STEPS, ROWS, WIDTH)
        for name, wanted in whole.items():
            np.testing.assert_allclose(found[name], wanted, tolerance, tolerance, err_msg=name)
    before = tp.compile(training(), "torch")(x=X, sizes={"i": STEPS}, seed=3)
    np.testing.assert_allclose(found["loss"], before["loss"].numpy(), 1e-5)


if __name__ == "__main__":
    work(*sys.argv[1:])
    os._exit(0)  # a thread of gloo's that still holds a tensor aborts an interpreter that ends: pytorch#179291
