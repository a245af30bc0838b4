"""From Python to the first result of the decoding example, by stage.

`trace` is the program's own Python; `checks` whether every read is in range and every value defined; `passes` to
`lowering` the compiler; `code` what the backend makes of its result. JAX compiles when a function is first called: its
own stages follow. `first run` is all of the first run beyond what the runs after it take, these included. `total` is
all of it, from Python to the end of compilation.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.front_end import LAYERS, SMALL, example_inputs, seconds, sizes
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import rounds
from examples.decode import Config, decoder

JAX_STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "JAX: trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "JAX: lower",
    "/jax/core/compile/backend_compile_duration": "JAX: XLA",
}
Stages = dict[str, float]


@contextmanager
def jax_stages(backend: str, found: Stages) -> Iterator[None]:
    """Adds the seconds that JAX reports of its stages within the block."""
    if backend != "jax":
        yield
        return
    from jax import monitoring

    within = [True]

    def heard(event: str, seconds: float, **_: object) -> None:
        if within[0] and event in JAX_STAGES:
            found[JAX_STAGES[event]] = found.get(JAX_STAGES[event], 0.0) + seconds

    monitoring.register_event_duration_secs_listener(heard)
    yield
    within[0] = False


def stages_of(session: Session, config: Config, positions: int) -> Stages:
    """Seconds by stage."""
    inputs = example_inputs(config)
    start = time.perf_counter()
    program = decoder(config)
    found = {"trace": time.perf_counter() - start}
    start = time.perf_counter()
    run = session.compile(program, sizes(config, positions))
    whole = time.perf_counter() - start
    stages = dict(explained_times(run.explain("times")))
    found |= {"checks": whole - sum(stages.values()), **stages}
    with jax_stages(session.backend, found):
        first = seconds(run, inputs)
    found["first run"] = first - statistics.median(seconds(run, inputs) for _ in range(3))
    found["total"] = found["trace"] + whole + found["first run"]
    return found


def explained_times(text: str) -> Iterator[tuple[str, float]]:
    """What `explain()` says under "# times"."""
    section = text.split("# times\n")[1].split("\n\n")[0]
    for line in section.splitlines():
        name, milliseconds, _ = line.rsplit(maxsplit=2)
        yield name.strip(), float(milliseconds) / 1e3


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, nargs="+", help=f"default {LAYERS}, quick 4")
    parser.add_argument("--positions", type=int, default=64)


def measure(session: Session) -> None:
    positions = session.options.positions
    stages_of(session, replace(SMALL, layers=1), positions=8)  # loads the backend
    for layers in session.options.layers or (LAYERS[:1] if session.quick else LAYERS):
        stages = [stages_of(session, replace(SMALL, layers=layers), positions) for _ in rounds(session.repeats)]
        for name in stages[0]:
            samples = [1e3 * found[name] for found in stages]
            session.add(f"the decoding example, {layers} layers, {positions} positions", name, "ms", *samples)


BENCHMARK = Benchmark(
    measure,
    "Compiling by stage",
    repeats=5,
    quick_repeats=2,
    backends=("numpy", "jax", "torch"),
    add_options=options,
    docs=lambda row: row.what == "total",
)
