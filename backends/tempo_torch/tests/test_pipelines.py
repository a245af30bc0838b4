"""A pipeline of four processes: what they send to one another, and that they agree with one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from tempo_torch.backend import TorchBackend

import tempo as tp

STAGES, LAYERS, MICROBATCHES, ROWS, WIDTH = 4, 8, 6, 4, 8
WAVES = MICROBATCHES + STAGES - 1
BOUNDARY = ROWS * WIDTH * 4
"""Bytes of what a layer makes of one microbatch."""
SECONDS = 300.0


def normal(*shape: int, seed: int) -> np.ndarray:
    return (0.3 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


GIVEN = {"x": normal(MICROBATCHES, ROWS, WIDTH, seed=0), "w": normal(LAYERS, WIDTH, WIDTH, seed=1)}


def deep() -> tp.Program:
    with tp.Program("deep") as program:
        m, l = tp.dims("m l")
        x, w = tp.input("x", (ROWS, WIDTH), (m,)), tp.input("w", (WIDTH, WIDTH), (l,))
        h = tp.recurrent("h", (ROWS, WIDTH), (m, l))
        h[m, 0] = x
        h[m, l] = tp.tanh(h[m, l - 1] @ w)
        loss = (h[0 : m.size, l.size - 1] ** 2).mean()
        tp.output("loss", loss)
        tp.output("gradient", tp.grad(loss, w))
    return program


@dataclass
class Stage:
    """What one process has sent in a run, by receiver and bytes, what else all have exchanged, and what it has made."""

    number: int = 0
    sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    part: tuple[int, ...] = ()
    outputs: dict[str, np.ndarray] = field(default_factory=dict)


def listened(stage: Stage) -> None:
    exchange = dist.batch_isend_irecv

    def exchanged(calls: list[dist.P2POp]) -> list[dist.Work]:
        stage.sent.update((each.peer, each.tensor.nbytes) for each in calls if each.op is dist.isend)
        return exchange(calls)

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            stage.others[name] += 1
            return function(*arguments, **named)

        return call

    dist.batch_isend_irecv = exchanged
    for name in ("all_reduce", "all_gather"):
        setattr(dist, name, noted(name, getattr(dist, name)))


def work(kept: str) -> None:
    """One process of four; the first one keeps what all of them have found."""
    sizes, pipeline = {"l": LAYERS, "m": MICROBATCHES}, tp.Pipeline("l", over="stage", microbatches="m")
    run = tp.compile(deep(), "torch", sizes=sizes, mesh=tp.Mesh({"stage": STAGES}), pipeline=pipeline)
    stage = Stage(dist.get_rank())
    listened(stage)
    found = run(**GIVEN)
    stage.part = tuple(found["gradient"].to_local().shape)
    stage.outputs = {"loss": found["loss"].numpy(), "gradient": found["gradient"].full_tensor().numpy()}
    stages: list[Any] = [None] * STAGES
    dist.all_gather_object(stages, vars(stage))
    if stage.number == 0:
        Path(kept).write_bytes(pickle.dumps((stages, run.explain("all"))))
    dist.barrier()


@pytest.mark.slow
def test_stages_send_boundary_activations_alone(tmp_path: Path) -> None:
    """One in each wave but the first, in which nothing was made before, to each neighbour."""
    kept, environment = tmp_path / "kept", {**os.environ, "OMP_NUM_THREADS": "1"}
    command = TorchBackend.launched(STAGES, [__file__, str(kept)])
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    stages, explained = pickle.loads(kept.read_bytes())
    wanted = tp.compile(deep(), "numpy")(**GIVEN)
    for number, each in enumerate(stages):
        stage = Stage(**each)
        assert stage.number == number
        neighbours = [other for other in (number - 1, number + 1) if 0 <= other < STAGES]
        assert stage.sent == {(other, BOUNDARY): WAVES - 1 for other in neighbours}
        assert stage.others == {"all_reduce": 1}  # what the last stage has made
        assert stage.part == (LAYERS // STAGES, WIDTH, WIDTH)
        for name in wanted:
            np.testing.assert_allclose(stage.outputs[name], np.asarray(wanted[name]), 1e-5, 1e-6)
    assert f"pipeline of 4 stages of 2; 6 points of m in {WAVES} waves, each way; bubble 3/{WAVES}" in explained
    assert explained.count(f"permute over stage, {BOUNDARY} B, inside m_wave: shift") == 2
    assert "all-gather" not in explained


if __name__ == "__main__":
    work(*sys.argv[1:])
    os._exit(0)  # a thread of gloo's that still holds a tensor aborts an interpreter that ends: pytorch#179291
