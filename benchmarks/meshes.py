"""What devices of a mesh exchange, and what each holds, as programs are cut by data, by model, by both, and in stages.

    python -m benchmarks meshes [--only NAME]

On devices that the processor poses as: no time is measured, since they share its cores. Exchanges are those that the
compiler foretells (`run.explain("placement")`), summed up for each iteration of the outermost loop they are in; memory
is that of one device, with XLA's own temporaries. Examples are run as `--mesh` runs them, at few steps.
"""

from __future__ import annotations

import argparse
import io
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session
from benchmarks.llm.checkpoint import Size
from tempo.loop_ir.ir import Loop, LoopProgram
from tempo.placement.collectives import Collective, collectives
from tempo.runtime.engine import CompiledEngine
from tempo.symbolic import Symbol

COUNTS = (2, 4, 8)
ONE, BOTH = {"data": 1}, {"data": 4, "model": 2}
Axes = Mapping[str, int]


def along(axis: str) -> tuple[Axes, ...]:
    return tuple({axis: count} for count in COUNTS)


# -- what is run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Something that is run on each of `meshes`: `on` gives the executable, after a run."""

    name: str
    on: Callable[[tp.Mesh], tp.Executable]
    meshes: tuple[Axes, ...] = along("data")


class _Told(Exception):
    """An example has run, and would tell how it lay on the mesh."""


def example(name: str, *arguments: object, meshes: tuple[Axes, ...] = along("data")) -> Case:
    """A script of `examples/`; what comes behind its run is left out."""

    def on(mesh: tp.Mesh) -> tp.Executable:
        script = import_module(f"examples.{name}")

        def tell(options: argparse.Namespace, run: tp.Executable) -> None:
            raise _Told(run)

        given = ["--backend", "jax", "--mesh", str(mesh), *map(str, arguments)]
        with patch.object(script.on_mesh, "tell", tell), redirect_stdout(io.StringIO()):
            try:
                script.main(given)
            except _Told as told:
                run: tp.Executable = told.args[0]
                return run
        raise AssertionError(f"{name} does not tell how it lay")

    return Case(name, on, meshes)


def rnn(mesh: tp.Mesh, width: int = 256, steps: int = 32) -> tp.Executable:
    """An RNN that is trained: its matrices are cut by columns, and the way out by rows."""
    with tp.Program("rnn") as program:
        i, b = tp.dim("i"), tp.dim("b")
        t = tp.dim("t", steps)
        x = tp.random.normal((width,), dims=(i, b, t))
        random = np.random.default_rng(0)
        names = ("into", "up", "down")
        w = {
            name: tp.parameter(name, (width, width), random.normal(size=(width, width)) / width**0.5, dims=(i,))
            for name in names
        }
        h = tp.recurrent("h", (width,), (i, b, t))
        h[i, b, 0] = x[i, b, 0]
        h[i, b, t + 1] = tp.tanh(x[i, b, t + 1] @ w["into"] + tp.tanh(h @ w["up"]) @ w["down"])
        loss = (h[i, 0 : b.size, t.size - 1] ** 2).mean()
        tp.optim.Adam(1e-3).minimize(loss, w)
        tp.output("loss", loss)
    place = {"up": (None, "model"), "down": ("model", None)} if "model" in mesh.axes else {}
    shard = {"b": "data"} if "data" in mesh.axes else {}
    run = tp.compile(program, "jax", sizes={"i": 4, "b": 64}, mesh=mesh, shard=shard, place=place)
    run()
    return run


def ppo(mesh: tp.Mesh) -> tp.Executable:
    from examples.ppo import Settings, sizes, trainer

    settings = Settings(environments=64, steps=32, iterations=4, epochs=2, minibatches=4)
    program = trainer(tp.rl.CartPole(), settings, as_dim=True)
    run = tp.compile(program, "jax", sizes=sizes(settings), mesh=mesh, shard={"n": "data"})
    run()
    return run


LLAMA = Size(layers=4, hidden=256, inner=512, heads=8)


def decode(folder: Path, mesh: tp.Mesh) -> tp.Executable:
    """Eight rows that a Llama continues."""
    made: list[tp.Executable] = []

    def kept(*arguments: Any, **options: Any) -> tp.Executable:
        made.append(compiled(*arguments, **options))
        return made[-1]

    compiled = tp.compile
    with patch.object(tp, "compile", kept):
        model = tp.llm.load(folder, backend="jax", mesh=mesh)
        model.generate([[*range(1, 17)]] * 8, max_new_tokens=32, do_sample=False)
    return made[-1]


def cases(folder: Path) -> Iterator[Case]:
    """`folder` is for models."""
    yield Case("RNN, trained", rnn, (ONE, *along("data"), *along("model"), BOTH))
    yield Case("PPO, 64 environments", ppo, (ONE, *along("data")))
    stages = ({"stage": 1}, *along("stage"), {"stage": 4, "data": 2})
    yield example("pipeline", "--microbatches", 16, "--iterations", 2, meshes=stages)
    LLAMA.write(folder / "llama", "float32")
    yield Case("Llama, 8 rows", partial(decode, folder / "llama"), (ONE, *along("data"), *along("model"), BOTH))
    yield example("decode", "--model", folder / "llama", "--prompt", "1 2 3 4", "--tokens", 8, meshes=along("model"))
    for name in ("lstm", "ppo", "reinforce", "rnn"):
        yield example(name, "--iterations", 2)
    yield example("cartpole_rollout", "--steps", 20)
    yield example("edit_distance", "--length", 20)
    for name in ("kalman", "linear_recurrence", "value_iteration", "wave"):
        yield example(name)
    for name in ("birnn", "nestedrnn", "stackrnn"):
        yield example(f"dynamic.{name}", "--steps", 2)
    yield example("dynamic.berxit", "--layers", 4, "--heads", 2, "--sequence", 16)
    yield example("dynamic.drnn", "--nodes", 20)
    sizes = ("--layers", 2, "--hidden", 32, "--vocabulary", 300, "--positions", 32, "--rows", 8)
    trained = folder / "trained"
    train = example("train_llm", "--text", "bisect", "contextlib", *sizes, "--steps", 2, "--out", trained)
    adapt = example("lora", "--model", trained, "--text", "bisect", "--steps", 2)

    def adapted(mesh: tp.Mesh) -> tp.Executable:
        if not trained.exists():
            train.on(mesh)
        return adapt.on(mesh)

    yield train
    yield Case("lora", adapted)


# -- what is told of it ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Of an executable, at the sizes of its last run."""

    exchanges: tuple[Collective, ...]
    iterations: Mapping[Symbol, int]
    said: tuple[str, ...]

    @staticmethod
    def of(run: tp.Executable) -> Found:
        engine, sizes = run._engine, run._sizes
        assert isinstance(engine, CompiledEngine)
        assert sizes is not None
        made = engine.at(engine.plan_for(sizes), sizes).compiled
        lines = tuple(run.explain("all").splitlines())
        return Found(collectives(made.passes), iterations(made.program, sizes), lines)

    def kinds(self) -> dict[str, list[Collective]]:
        found: dict[str, list[Collective]] = {}
        for each in self.exchanges:
            loops, times = ", ".join(symbol.name for symbol in each.loops), self._often(each)
            often = f", {times} times in each {each.loops[0].name}" if times > 1 else ""
            where = f"inside {loops}{often}" if loops else "outside of loops"
            found.setdefault(f"{each.kind} over {each.over} {where}", []).append(each)
        return found

    def totals(self) -> dict[str, int]:
        """Bytes, for each iteration of each loop that is outermost."""
        found: dict[str, int] = {}
        for each in self.exchanges:
            for symbol in each.loops[:1]:
                found[symbol.name] = found.get(symbol.name, 0) + each.bytes * self._often(each)
        return found

    def _often(self, each: Collective) -> int:
        """How often it is done for each iteration of the outermost of its loops."""
        return math.prod(self.iterations[symbol] for symbol in each.loops[1:])

    def bubble(self) -> float | None:
        """The share of waves that a stage waits in."""
        shares = [line.rpartition("bubble ")[2] for line in self.said if ": pipeline of " in line]
        idle, waves = map(int, shares[0].split("/")) if shares else (0, 0)
        return idle / waves if shares else None


def iterations(program: LoopProgram, sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
    """Of the longest loop over each variable; bounds that vary count as they are at first."""
    known, found = dict(sizes), dict[Symbol, int]()
    for each in program.statements():
        if isinstance(each, Loop):
            bounds = (each.lo, each.hi)
            at = {**{symbol: 0 for bound in bounds for symbol in bound.symbols()}, **known}
            count = int(each.hi.evaluate(at)) - int(each.lo.evaluate(at))
            found[each.var] = max(count, found.get(each.var, 0))
    return found


def measure(session: Session) -> None:
    """On devices as which the processor poses."""
    most = COUNTS[0] if session.quick else COUNTS[-1]
    import_module("jax").config.update("jax_num_cpu_devices", most)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(Path(folder)):
            for axes in case.meshes if session.options.only in case.name else ():
                if math.prod(axes.values()) <= most:
                    _tell(session, case, tp.Mesh(axes))


def _tell(session: Session, case: Case, mesh: tp.Mesh) -> None:
    run, name = case.on(mesh), f"{case.name} on {mesh}"
    found = Found.of(run)
    for kind, these in found.kinds().items():
        session.add(name, f"{len(these)} x {kind}", "KiB", sum(each.bytes for each in these) / 1024)
    for loop, total in found.totals().items():
        session.add(name, f"all in each {loop}", "KiB", total / 1024)
    bubble = found.bubble()
    if bubble is not None:
        session.add(name, "bubble", "%", 100 * bubble)
    session.add(name, "a device holds", "MiB", run.memory.peak_bytes / 2**20)
    session.add(name, "of that, temporaries", "MiB", run.memory.working_bytes / 2**20)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="cases with this in their name")


BENCHMARK = Benchmark(
    measure,
    "What the devices of a mesh exchange and hold",
    repeats=1,
    quick_repeats=1,
    backends=("jax",),
    add_options=options,
    docs=lambda row: row.unit in ("MiB", "KiB"),
)
