"""Executables as pickles: compiled again where they are read, and a reason where that cannot be."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tests.unit.runtime.programs import counter, running_sum

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def again(run: Any) -> Any:
    return pickle.loads(pickle.dumps(run))


def twice(x: Any) -> Any:
    return x * 2


def calling(*functions: Any) -> tp.Program:
    with tp.Program("calling") as program:
        t = tp.dim("t")
        y: Any = tp.input("x", shape=(3,), dims=(t,))
        for function in functions:
            (y,) = tp.host_call(function, y, out=[((3,), "float32")], ordered_by=(t,))
        tp.output("y", y)
    return program


def test_an_executable_runs_after_a_pickle() -> None:
    for run in (tp.compile(running_sum()), tp.compile(running_sum(), sizes={"t": 4}, options=tp.Options(lift=False))):
        copy = again(run)
        np.testing.assert_array_equal(copy(x=X)["s"], X.cumsum(0))
        assert repr(copy) == repr(run)
    np.testing.assert_array_equal(again(tp.compile(counter(), sizes={"i": 3}))().state["w"], [3, 4])
    np.testing.assert_array_equal(again(tp.compile(running_sum(), "reference"))(x=X)["s"], X.cumsum(0))


def test_an_instance_goes_into_the_pickle() -> None:
    np.testing.assert_array_equal(again(tp.compile(running_sum(), NumpyBackend()))(x=X)["s"], X.cumsum(0))


def test_the_default_is_kept_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_BACKEND", "reference")
    data = pickle.dumps(tp.compile(running_sum()))
    monkeypatch.delenv("TEMPO_BACKEND")
    assert 'backend="reference"' in repr(pickle.loads(data))


def test_functions_of_modules_are_pickled_by_name() -> None:
    np.testing.assert_array_equal(again(tp.compile(calling(twice)))(x=X)["y"], X * 2)


def test_lambdas_are_pickled_by_cloudpickle() -> None:
    """What functions share they share after it."""
    pytest.importorskip("cloudpickle")
    seen: list[int] = []
    run = tp.compile(calling(lambda x: seen.append(1) or x, lambda x: x + len(seen)))
    want = X + np.arange(1, 5, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(again(run)(x=X)["y"], want)
    assert not seen


@pytest.mark.parametrize("initialiser", [True, False])
def test_without_it_the_line_is_named(monkeypatch: pytest.MonkeyPatch, initialiser: bool) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    if initialiser:
        with tp.Program() as program:
            tp.output("w", tp.parameter("w", (2,), init=lambda shape, dims, dtype: np.ones(shape, dtype)))
    else:
        program = calling(twice, lambda x: x)
    with pytest.raises(tp.UnsupportedError, match="keeps the executable from being pickled: .*<lambda>") as caught:
        pickle.dumps(tp.compile(program))
    assert caught.value.location is not None
    assert caught.value.location.path == __file__
    assert "install cloudpickle" in str(caught.value)


def test_another_process_compiles_it(tmp_path: Path) -> None:
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(tp.compile(running_sum(), sizes={"t": 4})))
    script = "import pickle, sys; run = pickle.load(open(sys.argv[1], 'rb')); print(run(x=[[1.0] * 3] * 4)['s'][3, 0])"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4.0"
