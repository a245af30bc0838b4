"""Executables are kept on disk for other processes; JAX's own settings are as they were before and after."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest
from tempo_jax import cache

PROGRAM = """
import jax, numpy as np, tempo as tp
from jax import monitoring

events = []
monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
with tp.Program("kept") as program:
    t = tp.dim("t")
    h = tp.recurrent("h", shape=(8,), dims=(t,))
    h[0] = tp.constant(np.arange(8, dtype=np.float32))
    h[t + 1] = tp.tanh(h) + 1.0
    tp.output("h", h)
run = tp.compile(program, backend="jax", sizes={"t": 20})
total = float(np.asarray(run()["h"]).sum())
misses, hits = events.count("cache_misses"), events.count("cache_hits")
jax.jit(lambda x: x * 3 + 1)(np.ones(7)).block_until_ready()  # not Tempo's
print(total, misses, hits, events.count("cache_misses") - misses, jax.config.jax_compilation_cache_dir)
"""


def process(**variables: str) -> list[str]:
    environment = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", **variables}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_second_process_takes_the_executable_from_disk(tmp_path: Path):
    first = process(TEMPO_CACHE_DIR=str(tmp_path))
    assert first[1:] == ["1", "0", "0", "None"]
    kept = sorted(tmp_path.rglob("*segment_0*-cache"))
    assert len(kept) == 1
    assert process(TEMPO_CACHE_DIR=str(tmp_path)) == [first[0], "0", "1", "0", "None"]


def test_the_setting_of_the_user_comes_first(tmp_path: Path):
    theirs = tmp_path / "theirs"
    found = process(TEMPO_CACHE_DIR=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR=str(theirs))
    assert found[1:] == ["1", "0", "1", str(theirs)]
    assert list(theirs.rglob("*segment_0*-cache"))
    assert not (tmp_path / "ours").exists() or not list(tmp_path.rglob("ours/**/*-cache"))


def test_an_empty_variable_keeps_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(cache.CACHE_VARIABLE, "")
    assert cache.folder() is None
    with cache.kept():
        assert jax.config.jax_compilation_cache_dir is None


def test_the_users_cache_folder_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv(cache.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() is not None
    assert str(cache.folder()).startswith(str(tmp_path / "tempo-sdg" / "jax"))


def test_a_folder_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="executables are not kept"), cache.kept():
        assert jax.config.jax_compilation_cache_dir is None


def test_threads_that_compile_at_once_share_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path))
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with cache.kept():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    with cache.kept():
        pass
    assert jax.config.jax_compilation_cache_dir == str(cache.folder())  # the other still compiles
    leave.set()
    thread.join()
    assert jax.config.jax_compilation_cache_dir is None
