"""A process that loads a model and continues one text: how long each part takes, and how much memory.

`python -m benchmarks.llm.process SETTINGS`, a JSON object, says "imported", waits for a line, and prints a JSON object
of seconds. The memory is watched from outside: what is the process's own (anonymous), without files that are mapped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.compile_time import JAX_STAGES, jax_stages
from benchmarks.measure import finding_bytecode
from tempo.runtime.executable import Executable

OURS = "tempo"
EVERY = 0.002  # seconds between looks at the memory


@dataclass(frozen=True)
class Settings:
    """`name`: Tempo, or one of `continuing.PEERS`."""

    name: str
    backend: str
    device: str
    folder: str
    rows: list[list[int]]
    count: int


@dataclass(frozen=True)
class Seen:
    """Seconds by part, and bytes of the process's own memory beyond those after its imports; None where unknown."""

    seconds: Mapping[str, float]
    peak: int | None


# -- outside -----------------------------------------------------------------------------------------------------------


def seen(settings: Settings, bytecode: str, cache: str = "") -> Seen:
    """Of a new process, which keeps its executables in `cache`, or nowhere."""
    environment = {
        **finding_bytecode(bytecode),
        "TEMPO_CACHE_DIR": cache,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-P", "-m", __name__, json.dumps(asdict(settings))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018
        process.stdout.readline()
        before = peak = own_memory(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        while process.poll() is None:
            if peak is not None:
                peak = max(peak, own_memory(process.pid) or 0)
            time.sleep(EVERY)
        found = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"the process of {settings.name} ended with {process.returncode}")
    return Seen(json.loads(found), None if before is None or peak is None else peak - before)


def own_memory(process: int) -> int | None:
    """Bytes of anonymous memory, as Linux tells them."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except FileNotFoundError:
        return None
    found = [line for line in lines if line.startswith("RssAnon:")]
    return 1024 * int(found[0].split()[1]) if found else None


# -- inside ------------------------------------------------------------------------------------------------------------


def main(settings: Settings) -> None:
    start = time.perf_counter()
    make = _imported(settings)
    found = {"imports": time.perf_counter() - start}
    print("imported", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    made = make()
    found["load"] = time.perf_counter() - start
    stages: dict[str, float] = {}
    with jax_stages(settings.backend if settings.name == OURS else "", stages), _laying_out() as laying_out:
        first = _seconds(lambda: made.generate(settings.rows, 1))
    found["load"] += sum(laying_out)
    found["first token"] = first - sum(laying_out)
    found |= {name: stages[name] for name in JAX_STAGES.values() if name in stages}
    found["first token again"] = _seconds(lambda: made.generate(settings.rows, 1))
    made.generate(settings.rows, settings.count)
    print(json.dumps(found), flush=True)


@contextmanager
def _laying_out() -> Iterator[list[float]]:
    """The seconds in which weights are made the backend's arrays: within the first call, but part of loading."""
    found: list[float] = []
    plain = Executable.device_put

    def device_put(*args: Any, **arrays: Any) -> Any:
        start = time.perf_counter()
        try:
            return plain(*args, **arrays)
        finally:
            found.append(time.perf_counter() - start)

    Executable.device_put = device_put  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Executable.device_put = plain  # type: ignore[method-assign]


def _imported(settings: Settings) -> Callable[[], Any]:
    """Makes the model; all libraries are there."""
    from benchmarks.llm.continuing import PEERS, ours

    folder = Path(settings.folder)
    if settings.name == OURS:
        __import__(f"tempo_{settings.backend}.backend")
        return lambda: ours(folder, settings.backend, settings.device)
    peer = PEERS[settings.name]
    for library in peer.needs:
        __import__(library)
    if "transformers" in peer.needs:
        from transformers import LlamaForCausalLM  # noqa: F401  # it is imported when it is asked for
    return lambda: peer.make(folder, settings.device)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(Settings(**json.loads(sys.argv[1])))
