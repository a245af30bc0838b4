"""`run.profile` on PyTorch: lines by samples, and its own profiler's events beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tempo as tp
from tempo.errors import UnsupportedError

WIDTH = 128


def uneven() -> tp.Program:
    """Of two tensors one takes a hundred times as long as the other."""
    with tp.Program("uneven") as program:
        t = tp.dim("t", 60)
        w = tp.input("w", (WIDTH, WIDTH))
        costly = tp.recurrent("costly", (WIDTH, WIDTH), (t,))
        cheap = tp.recurrent("cheap", (4,), (t,))
        costly[0], cheap[0] = tp.ones((WIDTH, WIDTH)), tp.ones(4)
        costly[t + 1] = costly @ w @ w @ w @ w
        cheap[t + 1] = cheap * 0.5
        tp.output("costly", costly[t.size - 1])
        tp.output("cheap", cheap[t.size - 1])
    return program


def given() -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH}


def test_lines_and_events_of_the_profiler(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = tp.compile(uneven(), "torch")
    plain = run(**given())
    with run.profile(tmp_path / "trace.json") as profile:
        for _ in range(20):
            found = run(**given())
    np.testing.assert_allclose(found["costly"], plain["costly"], rtol=1e-5)
    first = next(each for each in profile.lines if each.origin is not None)
    assert first.origin is not None
    assert first.origin.location is not None
    assert first.origin.location.text == "costly[t + 1] = costly @ w @ w @ w @ w"
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = [each for each in events if each["ph"] == "X" and each["name"] == "run uneven"]
    theirs = [each for each in events if each["ph"] == "X" and each["pid"] == 2]
    assert any(each["name"] in ("aten::mm", "aten::matmul") for each in theirs)
    end = max(each["ts"] + each["dur"] for each in calls)
    assert all(calls[0]["ts"] <= each["ts"] <= end for each in theirs)
    assert "profiler_start" not in capfd.readouterr().err


def test_a_profile_of_the_users_is_in_the_way(tmp_path: Path) -> None:
    run = tp.compile(uneven(), "torch")
    refused = pytest.raises(UnsupportedError, match="PyTorch's profiler is in use")
    with torch.profiler.profile(), refused, run.profile(tmp_path / "trace.json"):
        run(**given())
    with run.profile(tmp_path / "trace.json"):
        run(**given())
