"""What devices of a mesh exchange, and what each holds, as the program is cut by data, by model, and by both.

    python -m benchmarks meshes

On devices that the processor poses as: no time is measured, since they share its cores. Exchanges are those that the
compiler foretells (`run.explain()`); memory is that of one device, with XLA's own temporaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session
from examples.ppo import Settings, trainer
from examples.ppo import sizes as ppo_sizes
from tempo.placement.collectives import Collective, collectives
from tempo.runtime.engine import CompiledEngine

DEVICES = 8


@dataclass(frozen=True)
class Case:
    """A program, and along which axes of a mesh it lies: of each axis what `tp.compile` is told."""

    name: str
    program: tp.Program
    sizes: Mapping[str, int]
    data: Mapping[str, str]
    model: Mapping[str, tuple[str | None, ...]]

    def on(self, mesh: Mapping[str, int]) -> tp.Executable:
        shard = self.data if "data" in mesh else {}
        place = self.model if "model" in mesh else {}
        return tp.compile(self.program, "jax", sizes=self.sizes, mesh=tp.Mesh(mesh), shard=shard, place=place)


def rnn(width: int = 256, layers: int = 32) -> Case:
    """An RNN that is trained: its matrices are cut by columns, and the way out by rows."""
    with tp.Program("rnn") as program:
        i, b = tp.dim("i"), tp.dim("b")
        t = tp.dim("t", layers)
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
    return Case(
        "RNN, trained", program, {"i": 4, "b": 64}, {"b": "data"}, {"up": (None, "model"), "down": ("model", None)}
    )


def ppo() -> Case:
    settings = Settings(environments=64, steps=32, iterations=4, epochs=2, minibatches=4)
    program = trainer(tp.rl.CartPole(), settings, as_dim=True)
    return Case("PPO", program, ppo_sizes(settings), {"n": "data"}, {})


def meshes(case: Case) -> Iterator[dict[str, int]]:
    yield {"data": 1}
    for count in (2, 4, 8):
        yield {"data": count}
    if case.model:
        for count in (2, 4, 8):
            yield {"model": count}
        yield {"data": 4, "model": 2}


def exchanged(run: tp.Executable, sizes: Mapping[str, int]) -> tuple[Collective, ...]:
    engine: Any = run._engine
    assert isinstance(engine, CompiledEngine)
    known = {symbol: sizes.get(symbol.name, 0) for dim in engine.graph.dims for symbol in dim.size.sizes()}
    return collectives(engine.at(engine.plan_for(known), known).compiled.passes)


def measure(session: Session) -> None:
    """On devices as which the processor poses."""
    import_module("jax").config.update("jax_num_cpu_devices", 2 if session.quick else DEVICES)
    for case in (rnn(), ppo()):
        for mesh in meshes(case):
            if session.quick and max(mesh.values()) > 2:
                continue
            run = case.on(mesh)
            run()
            name = f"{case.name} on {', '.join(f'{axis}={count}' for axis, count in mesh.items())}"
            inside: dict[str, list[Collective]] = {}
            for each in exchanged(run, case.sizes):
                loops = ", ".join(symbol.name for symbol in each.loops)
                inside.setdefault(f"inside {loops}" if loops else "outside of loops", []).append(each)
            for where, these in inside.items():
                session.add(name, f"{len(these)} exchanges {where}", "KiB", sum(each.bytes for each in these) / 1024)
            session.add(name, "a device holds", "MiB", run.memory.peak_bytes / 2**20)


BENCHMARK = Benchmark(
    measure,
    "What the devices of a mesh exchange and hold",
    repeats=1,
    quick_repeats=1,
    backends=("jax",),
    docs=lambda row: row.unit in ("MiB", "KiB"),
)
