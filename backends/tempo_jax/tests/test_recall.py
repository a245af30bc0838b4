"""Executables of earlier processes, within one: a second function that computes the same is not traced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tempo_jax.backend import JaxBackend
from tempo_jax.executables import Calls, JittedFunction, Meter, recall

import tempo as tp
from tempo.backends import SegmentRequest
from tempo.caches import CACHE_VARIABLE


@dataclass(frozen=True)
class AlwaysThere:
    """Stands for an `Identity` of which one file is all."""

    path: Path
    device: jax.Device

    def file(self, function: str, arguments: Any) -> Path:
        return self.path


class Traced:
    """A function that counts how often it was traced."""

    __name__ = "traced"

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, x: Any) -> Any:
        self.count += 1
        return (x * 2 + 1,)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[], tuple[Traced, JittedFunction]]:
    def make() -> tuple[Traced, JittedFunction]:
        traced, identity = Traced(), AlwaysThere(tmp_path / "kept.executable", jax.devices()[0])
        calls = Calls((), Meter(), identity=identity)  # type: ignore[arg-type]
        return traced, JittedFunction(traced, "traced", None, calls)

    return make


def test_what_was_kept_is_called_and_not_traced(made: Callable[[], tuple[Traced, JittedFunction]]):
    for count in (1, 0):
        traced, function = made()
        for _ in range(2):
            np.testing.assert_array_equal(function(jnp.arange(3.0))[0], [1, 3, 5])
        assert traced.count == count


def test_arrays_of_other_shapes_and_tracers_go_through_jit(made: Callable[[], tuple[Traced, JittedFunction]]):
    made()[1](jnp.arange(3.0))
    for other in (jnp.arange(2.0), jnp.arange(3)):
        traced, function = made()
        function(jnp.arange(3.0))
        assert traced.count == 0
        np.testing.assert_array_equal(function(other)[0], np.asarray(other) * 2 + 1)
        np.testing.assert_array_equal(function(jnp.arange(3.0))[0], [1, 3, 5])
    traced, function = made()
    function(jnp.arange(3.0))
    np.testing.assert_array_equal(jax.vmap(function)(jnp.ones((2, 3)))[0], np.full((2, 3), 3))
    assert jax.grad(lambda x: function(x)[0].sum())(jnp.ones(3)).tolist() == [2, 2, 2]


def test_nobody_is_kept_from_going_on_with_jit(made: Callable[[], tuple[Traced, JittedFunction]]):
    """Another thread has gone on to it while this one's executable refuses its arguments."""
    made()[1](jnp.arange(3.0))
    _, function = made()
    function(jnp.arange(3.0))
    executable = function._run

    def meanwhile(*arguments: Any) -> Any:
        function._run = function.function
        return executable(*arguments)

    function._run = meanwhile
    np.testing.assert_array_equal(function(jnp.arange(2.0))[0], [1, 3])


def test_a_weak_type_is_kept_as_one(made: Callable[[], tuple[Traced, JittedFunction]]):
    _, function = made()
    function(jnp.add(1.0, 2.0))
    assert function._described[0].weak_type


PROGRAMS = {
    "a library": (
        "x[t + 1] = tp.linalg.cholesky(x + e) + tp.linalg.solve(e, x)",
        "print(np.asarray(run(e=e)['x'])[-1])",
    ),
    "an index": (
        "x[t + 1] = x + tp.take(e, (x.spatial[0, 0] * 2).astype('int32'), axis=0)",
        """
for given in (e, e):
    try:
        run(e=given)
    except tp.TempoError as error:
        print(str(error).splitlines()[0])
""",
    ),
    "numbers that are none": (
        "x[t + 1] = tp.log(x) + e * 0",
        """
jax.config.update("jax_debug_nans", True)
try:
    run(e=-e)
except FloatingPointError as error:
    print(error)
""",
    ),
    "step by step": (
        "x[t + 1] = tp.tanh(x) + e",
        """
print(np.asarray(run(e=e)['x'])[-1].round(4))
with jax.disable_jit():
    print(np.asarray(run(e=e)['x'])[-1].round(4))
""",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_process_does_as_the_first(name: str, tmp_path: Path):
    step, calls = PROGRAMS[name]
    (tmp_path / "run.py").write_text(
        f"""
import jax, numpy as np, tempo as tp
with tp.Program() as program:
    t = tp.dim("t", 4)
    x, e = tp.recurrent("x", (3, 3), (t,)), tp.input("e", (3, 3))
    x[0] = e
    {step}
    tp.output("x", x)
e = (np.eye(3) * 2 + 0.1).astype(np.float32)
run = tp.compile(program, "jax", options=tp.Options(checks=True))
{calls}
"""
    )
    environment = {**os.environ, CACHE_VARIABLE: str(tmp_path)}
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "run.py")], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0] == told[1]
    assert told[0]


def program(factor: float = 0.5, steps: int = 5) -> tp.Program:
    with tp.Program() as made:
        t = tp.dim("t", steps)
        x = tp.recurrent("x", (3,), (t,))
        x[0], x[t + 1] = tp.ones((3,)), x * factor
        tp.output("x", x)
    return made


def files(program: tp.Program, monkeypatch: pytest.MonkeyPatch, *arguments: Any, costs: str = "") -> list[Path | None]:
    """Where the functions of its segments are kept."""
    found, compile_segment = list[Path | None](), JaxBackend.compile_segment

    def seen(self: JaxBackend, request: SegmentRequest) -> Any:
        found.append(recall.Identity(request, self.device, costs).file(request.segment.name, arguments))
        return compile_segment(self, request)

    with monkeypatch.context() as patched:
        patched.setattr(JaxBackend, "compile_segment", seen)
        tp.compile(program, "jax")()
    return found


def test_the_file_is_named_after_all_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    ways = [
        files(program(), monkeypatch, np.ones(3)),
        files(program(0.25), monkeypatch, np.ones(3)),
        files(program(steps=6), monkeypatch, np.ones(3)),
        files(program(), monkeypatch, np.ones(4)),
        files(program(), monkeypatch, np.ones(3, np.float32)),
        files(program(), monkeypatch, None),
        files(program(), monkeypatch, 3),
        files(program(), monkeypatch, jnp.asarray(3)),
        files(program(), monkeypatch, np.ones(3), costs="others"),
    ]
    with jax.default_matmul_precision("bfloat16"):  # in this thread alone
        ways.append(files(program(), monkeypatch, np.ones(3)))
    assert None not in ways[0]
    assert all(len(set(each)) == len(each) for each in ways)
    assert len({each[0] for each in ways}) == len(ways)
    assert files(program(), monkeypatch, np.zeros(3)) == ways[0]


def test_programs_with_functions_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    with tp.Program() as made:
        t = tp.dim("t", 3)
        x = tp.recurrent("x", (3,), (t,))
        (following,) = tp.host_call(lambda y: y + np.float32(1), x * 2, out=[((3,), "float32")], ordered_by=(t,))
        x[0], x[t + 1] = tp.ones((3,)), following
        tp.output("x", x)
    assert set(files(made, monkeypatch)) == {None}


def test_what_is_traced_is_seen_through():
    found = []
    jax.make_jaxpr(lambda x: found.append(recall.is_seen_through((x, 1))) or x)(1.0)
    assert [*found, recall.is_seen_through((np.ones(3), jnp.ones(3), 1))] == [True, False]


def test_a_backend_with_operators_of_its_own_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Other(JaxBackend):
        pass

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    for backend in (JaxBackend(), Other()):
        tp.compile(program(), backend)()
        assert len(list(tmp_path.rglob("*.executable"))) == 1
