"""A process on one core that runs a Tree-LSTM: Tempo's, or a peer's, perhaps by an interpreter of its own.

It is started as `python -m benchmarks.dynamic.process SETTINGS`, with SETTINGS as JSON, and answers each line with one
of JSON. The module that SETTINGS name has a function `prepare`; all that its arguments say is made once, before
anything is timed. So this module needs nothing but NumPy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
"""What keeps libraries to one thread."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
WHOLE = "whole"
Run = Callable[[], Any]


@dataclass(frozen=True)
class Prepared:
    """`whole` takes a batch from the structure of its trees to outputs that are there, and `arrays` makes them NumPy's.
    `parts` are timed apart; `told` are other figures."""

    whole: Run
    arrays: Callable[[Any], Mapping[str, Any]]
    parts: Mapping[str, Run] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)


def agree(found: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> None:
    """Raises where arrays differ, relative to the greatest element of each: their elements are sums of many."""
    assert found.keys() == wanted.keys(), f"{name} has {', '.join(wanted)}, and Tempo {', '.join(found)}"
    for each, array in wanted.items():
        scale = np.abs(array).max()
        what = f"{each} of Tempo and of {name}"
        np.testing.assert_allclose(found[each] / scale, array / scale, rtol=0, atol=1e-4, err_msg=what)


# -- outside -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A process that runs, as it is seen from outside."""

    name: str
    process: subprocess.Popen[str]

    def asked(self, **question: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None  # noqa: PT018
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.name} ended: {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def prepared(self, path: Path, **arguments: Any) -> dict[str, Any]:
        """Seconds of the first run, whose results are then in `path`, the names of its parts, and what else it told."""
        return self.asked(prepare=arguments, path=str(path))

    def seconds(self, part: str = WHOLE) -> float:
        return float(self.asked(part=part)["seconds"])


@contextmanager
def started(
    name: str, module: str, clock: str = "wall", interpreter: Path | None = None, **settings: Any
) -> Iterator[Process]:
    """`settings` are arguments of all calls of `prepare`."""
    paths = sys.path if interpreter is None else [str(ROOT)]
    environment = {**os.environ, **ALONE, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    said = json.dumps({"module": module, "clock": clock, "settings": settings})
    with subprocess.Popen(
        [str(interpreter or sys.executable), "-P", "-m", __name__, said],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield Process(name, process)
        finally:
            process.terminate()


# -- inside ------------------------------------------------------------------------------------------------------------


def main(module: str, clock: str, settings: Mapping[str, Any]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    prepare = import_module(f"benchmarks.dynamic.{module}").prepare
    prepared: Prepared | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "prepare" in asked:
            prepared = None  # one at a time is in memory
            prepared = prepare(**asked["prepare"], **settings)
            answer = _first(prepared, Path(asked["path"]))
        else:
            assert prepared is not None
            run = prepared.whole if asked["part"] == WHOLE else prepared.parts[asked["part"]]
            answer = {"seconds": _seconds(run, CLOCKS[clock])}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _first(prepared: Prepared, path: Path) -> dict[str, Any]:
    start = time.perf_counter()
    found = prepared.whole()
    seconds = time.perf_counter() - start
    np.savez(path, **prepared.arrays(found))
    return {"seconds": seconds, "parts": list(prepared.parts), "told": dict(prepared.told)}


def _seconds(run: Run, clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
