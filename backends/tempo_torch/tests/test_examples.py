"""The examples on PyTorch, against their peers. They need a checkout: a wheel brings no examples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def run_example(name: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_cartpole_equals_the_numpy_loop():
    pytest.importorskip("gymnasium")
    sizes = ("--batch", 3, "--episodes", 2, "--steps", 40)
    assert "equal to the NumPy loop" in run_example("cartpole_rollout.py", "--backend", "torch", *sizes, "--check")


@pytest.mark.slow
def test_decoding_equals_transformers(tmp_path: Path):
    pytest.importorskip("transformers")
    made = ("--layers", 3, "--hidden", 32, "--vocabulary", 300, "--steps", 5)
    run_example("make_tiny_llama.py", tmp_path, *made)
    printed = run_example("decode.py", "--model", tmp_path, "--tokens", 12, "--check", "--backend", "torch")
    assert "equal to transformers, token for token" in printed
