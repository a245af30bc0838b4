"""Executables are kept on disk for other processes; JAX's own settings are as they were before and after."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest
from tempo_jax.executables import cache

from tempo import caches
from tempo.conformance.target import typical

PROGRAM = """
import jax, numpy as np, tempo as tp
from jax import monitoring

compiled, hits = [], []
monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(1) if event.endswith("backend_compile_duration") else None
)
monitoring.register_event_listener(lambda event, **_: hits.append(1) if event.endswith("cache_hits") else None)
with tp.Program("kept") as program:
    t = tp.dim("t")
    h = tp.recurrent("h", shape=(8,), dims=(t,))
    h[0] = tp.constant(np.arange(8, dtype=np.float32))
    h[t + 1] = tp.tanh(h) + 1.0
    tp.output("h", h)
run = tp.compile(program, backend="jax", sizes={"t": 20})
total = float(np.asarray(run()["h"]).sum())
print(total, len(compiled) - len(hits), len(hits), jax.config.jax_compilation_cache_dir)
jax.jit(lambda x: x * 3 + 1)(np.ones(7)).block_until_ready()  # not Tempo's
assert jax.config.jax_persistent_cache_min_compile_time_secs == LEAST
"""


def process(*, before: str = "", **variables: str) -> list[str]:
    environment = {**os.environ, **variables}
    least = float(variables.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", 1.0))
    text = before + PROGRAM.replace("LEAST", str(least))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_second_process_takes_the_executable_from_disk(tmp_path: Path):
    first = process(TEMPO_CACHE_DIR=str(tmp_path))
    assert first[1:] == ["1", "0", "None"]
    assert len(list(tmp_path.rglob("*.executable"))) == 1
    assert process(TEMPO_CACHE_DIR=str(tmp_path)) == [first[0], "0", "0", "None"]
    assert not list(tmp_path.rglob("*-cache"))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system pins no process to a processor")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one processor")
def test_executables_are_of_a_number_of_processors(tmp_path: Path):
    """XLA cuts passes over arrays into as many parts as it has threads."""
    alone = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    first = process(TEMPO_CACHE_DIR=str(tmp_path))
    assert process(TEMPO_CACHE_DIR=str(tmp_path), before=alone)[1] == "1"
    assert process(TEMPO_CACHE_DIR=str(tmp_path)) == [first[0], "0", "0", "None"]


SETTINGS = [
    'import jax\njax.config.update("jax_default_matmul_precision", "bfloat16")\n',
    'import jax\njax.config.update("jax_enable_x64", True)\n',
    'import jax\nname = "jax_disable_most_optimizations"\njax.config.update(name, not jax.config.values[name])\n',
]


@pytest.mark.parametrize("before", typical(SETTINGS, SETTINGS[1:2], pytest.mark.sweep))
def test_executables_are_of_settings_of_jax(tmp_path: Path, before: str):
    process(TEMPO_CACHE_DIR=str(tmp_path))
    assert process(TEMPO_CACHE_DIR=str(tmp_path), before=before)[1] == "1"
    assert process(TEMPO_CACHE_DIR=str(tmp_path), before=before)[1] == "0"


def test_the_setting_of_the_user_comes_first(tmp_path: Path):
    theirs = tmp_path / "theirs"
    settings = {"TEMPO_CACHE_DIR": str(tmp_path / "ours"), "JAX_COMPILATION_CACHE_DIR": str(theirs)}
    found = [process(**settings, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0") for _ in range(2)]
    assert [each[1:] for each in found] == [["1", "0", str(theirs)], ["0", "1", str(theirs)]]
    assert list(theirs.rglob("*segment_0*-cache"))
    assert not list(tmp_path.rglob("ours/**/*-cache"))
    assert not list(tmp_path.rglob("*.executable"))


def test_who_keeps_no_executables_has_none_kept(tmp_path: Path):
    process(TEMPO_CACHE_DIR=str(tmp_path), JAX_ENABLE_COMPILATION_CACHE="false")
    assert not list(tmp_path.rglob("*.executable"))


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
    with pytest.warns(RuntimeWarning, match="executables are not kept"), cache.kept():
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


def test_what_may_have_been_read_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "made"))
    before = cache.off_since()
    with cache.kept():
        within = cache.off_since()
    after = cache.off_since()
    assert [before(), within(), after()] == [False, False, True]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners here")
def test_a_folder_that_others_may_write_to_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    theirs.chmod(0o777)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(theirs))
    with pytest.warns(RuntimeWarning, match="executables are not kept: others may write to"), cache.kept():
        assert jax.config.jax_compilation_cache_dir is None
    assert not list(theirs.iterdir())


def test_the_folder_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "theirs"))
    monkeypatch.setattr(os, "getuid", lambda: 12345, raising=False)
    with pytest.warns(RuntimeWarning, match="belongs to another user"), cache.kept():
        assert jax.config.jax_compilation_cache_dir is None


def test_our_folders_are_ours_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "made"))
    with cache.kept():
        assert jax.config.jax_compilation_cache_dir == str(cache.folder())
    found = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert len(found) == 4
    assert {oct(each.stat().st_mode & 0o777) for each in found} == {"0o700"}


@pytest.mark.slow
def test_what_is_damaged_is_compiled_again(tmp_path: Path):
    first = process(TEMPO_CACHE_DIR=str(tmp_path))
    (kept,) = tmp_path.rglob("*.executable")
    whole = kept.read_bytes()
    caches.write(kept, b"xyz")
    no_pickle = kept.read_bytes()
    for damaged in (b"", b"x" * 100, whole[:-20], no_pickle):
        kept.write_bytes(damaged)
        assert process(TEMPO_CACHE_DIR=str(tmp_path))[:2] == [first[0], "1"]
        assert kept.read_bytes() != damaged


@pytest.mark.parametrize("what", ["versions", "machine"])
def test_other_versions_and_processors_have_folders_of_their_own(monkeypatch: pytest.MonkeyPatch, what: str):
    monkeypatch.setenv(cache.CACHE_VARIABLE, "/somewhere")
    before = cache.folder()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert cache.folder() != before
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(cache, what, lambda *_: "another")
    cache._made_for.cache_clear()
    assert cache.folder() != before
    cache._made_for.cache_clear()
