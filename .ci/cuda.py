"""The conformance suite and the benchmarks on a machine with a GPU that can fetch nothing.

python .ci/cuda.py wheels [--python 3.12]   here: what such a machine lacks beside JAX, PyTorch and what they bring, and
                                            the entry points of the distributions, into wheels/
python .ci/cuda.py run [PART ...]           there: all parts that have not passed yet, or these

A part is one command with a limit of time. What it says is in results/DEVICE/logs/, whether it passed in parts.json
beside it: a run that was cut off goes on where it ended, on another machine too where that folder comes with it. The
suite is run without TF32, so that products have the precision of float32.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from release import DISTRIBUTIONS, ROOT

WHEELS = ROOT / "wheels"
LACKING = ("islpy", "gymnasium", "cloudpickle", "farama-notifications")
"""What images with JAX and PyTorch do not bring."""
PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17))
ENVIRONMENT = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "JAX_DEFAULT_MATMUL_PRECISION": "float32",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "PYTHONUNBUFFERED": "1",
}
BENCHMARKS = {
    "device_loop": "--steps 20000",
    "graphs": "",
    "ppo": "--sweep environments --values 512",
    "attention": "--size 3B --dtype bfloat16 --batches 1 4 16 --lengths 1024 4096 --windows 0 1024 --prompts",
    "n_step_memory": "",
    "memory": "",
    "memory_limit": "",
    "paper": "--only decoding",
}
BACKENDS = {"graphs": ("torch",)}


@dataclass(frozen=True)
class Part:
    """A command of Python's, and what its environment has besides."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def suite(backend: str, device: str, jobs: str) -> Part:
    pytest = ("-m", "pytest", "-q", "-n", jobs, "--dist", "worksteal", "--hypothesis-seed=0", "--tb=short")
    chosen = ("-p", "tempo.conformance.plugin", "--pyargs", "tempo.conformance", f"--tempo-backend={backend}")
    few = ("-m", "not slow", "--tempo-random-programs=15", "--tempo-edges=0:3", "--tempo-passes=all")
    fast = (("XLA_FLAGS", "--xla_gpu_autotune_level=0"),)  # nothing here is timed
    return Part(f"suite-{backend}", (*pytest, *chosen, f"--tempo-device={device}", *few), fast)


def benchmark(name: str, backend: str, device: str, out: Path, quick: bool) -> Part:
    options = (*shlex.split(BENCHMARKS[name]), "--device", device, "--backend", backend, "--out", str(out))
    return Part(f"{name}-{backend}", ("-m", "benchmarks", name, *options, *["--quick"] * quick))


def parts(device: str, jobs: str, out: Path, quick: bool) -> list[Part]:
    found = [suite(backend, device, jobs) for backend in ("torch", "jax")]
    kinds = [(name, each) for name in BENCHMARKS for each in BACKENDS.get(name, ("torch", "jax"))]
    return found + [benchmark(name, each, device, out, quick) for name, each in kinds]


# -- there -------------------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Sources are those of the checkout; entry points and what is lacking come from the wheels."""
    site = Path(tempfile.gettempdir(), "tempo-cuda-site")
    wheels = sorted(map(str, WHEELS.glob("*.whl")))
    if not wheels:
        raise SystemExit(f"there are no wheels in {WHEELS.name}/: `make cuda-wheels` makes them")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--upgrade", "--target", str(site))
    subprocess.run([*pip, *wheels], check=True)
    paths = [*(str((ROOT / each).resolve()) for each in DISTRIBUTIONS), str(site), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def device_name(device: str) -> str:
    if device == "cpu":
        return "cpu"
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.sub(r"[^a-z0-9]+", "-", told.splitlines()[0].lower())


def run(part: Part, around: dict[str, str], log: Path, limit: float) -> int:
    """Its status. At its limit it is interrupted, so that pytest tells of what has failed by then, and 124."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        file.write(f"$ python {shlex.join(part.command)}\n")
        file.flush()
        process = subprocess.Popen([sys.executable, *part.command], cwd=ROOT, env={**around, **dict(part.environment)},
                                   stdout=file, stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            return 124
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run_all(asked: argparse.Namespace) -> int:
    """How many parts did not pass."""
    begun = time.monotonic()
    out = asked.out / device_name(asked.device)
    every = {each.name: each for each in parts(asked.device, asked.jobs, out, asked.quick)}
    if unknown := [name for name in asked.parts if name not in every]:
        raise SystemExit(f"no part is called {', '.join(unknown)}; there are {', '.join(every)}")
    kept = out / "parts.json"
    done: dict[str, list[float]] = json.loads(kept.read_text()) if kept.exists() else {}
    left = [every[name] for name in asked.parts or every if asked.parts or name not in done or done[name][0]]
    around, failed = environment(), 0
    for part in left:
        remaining = asked.seconds - (time.monotonic() - begun)
        if remaining < 5:
            print(f"{part.name}: no time is left for it")
            failed += 1
            continue
        start, log = time.monotonic(), out / "logs" / f"{part.name}.log"
        status = run(part, around, log, min(asked.limit, remaining))
        done[part.name] = [status, round(time.monotonic() - start, 1)]
        kept.write_text(json.dumps(done, indent=1) + "\n")
        tail = log.read_text().strip().splitlines()[-1:] or [""]
        print(f"{part.name}: status {status} after {done[part.name][1]} s; {tail[0]}", flush=True)
        failed += bool(status)
    return failed


# -- here --------------------------------------------------------------------------------------------------------------


def make_wheels(python: str) -> None:
    WHEELS.mkdir(exist_ok=True)
    for old in WHEELS.glob("*.whl"):
        old.unlink()
    pip = (sys.executable, "-m", "pip")
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", WHEELS, *DISTRIBUTIONS], cwd=ROOT, check=True)
    where = [f"--platform={each}" for each in PLATFORMS]
    subprocess.run([*pip, "download", "-q", "--no-deps", "--only-binary=:all:", f"--python-version={python}",
                    "--implementation=cp", *where, "-d", WHEELS, *LACKING], cwd=ROOT, check=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("wheels").add_argument("--python", default="3.12", metavar="X.Y")
    there = commands.add_parser("run")
    there.add_argument("parts", nargs="*", metavar="PART")
    there.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: a dry run")
    there.add_argument("--jobs", default="auto", help="processes of the suite")
    there.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results")
    there.add_argument("--limit", type=float, default=540, help="seconds of a part (540)")
    there.add_argument("--seconds", type=float, default=540, help="of the run (540)")
    there.add_argument("--quick", action="store_true", help="less of each benchmark")
    asked = parser.parse_args()
    if asked.command == "wheels":
        make_wheels(asked.python)
        return 0
    return int(bool(run_all(asked)))


if __name__ == "__main__":
    sys.exit(main())
