"""From Python to the first result of the decoding example, by stage.

`trace` is the program's own Python; `checks` whether every read is in range and every value defined; `passes` to
`lowering` the compiler; `code` what the backend makes of its result. JAX compiles when a function is first called: its
own stages follow. `first run` is all of the first run beyond what the runs after it take.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

import tempo as tp
from benchmarks.front_end import SMALL
from benchmarks.harness import Benchmark, Session
from examples.decode import Config, decoder, input_name, weight_shapes

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
    sizes = {"l": config.layers, "p": 8, "t": positions}
    inputs = example_inputs(config, sizes["p"])
    start = time.perf_counter()
    program = decoder(config)
    found = {"trace": time.perf_counter() - start}
    start = time.perf_counter()
    run = session.compile(program, sizes)
    whole = time.perf_counter() - start
    stages = dict(explained_stages(run.explain()))
    found |= {"checks": whole - sum(stages.values()), **stages}
    with jax_stages(session.backend, found):
        first = seconds(run, inputs)
    found["first run"] = first - statistics.median(seconds(run, inputs) for _ in range(3))
    return found


def explained_stages(text: str) -> Iterator[tuple[str, float]]:
    """What `explain()` says under "# stages"."""
    section = text.split("# stages\n")[1].split("\n\n")[0]
    for line in section.splitlines():
        name, milliseconds, _ = line.rsplit(maxsplit=2)
        yield name.strip(), float(milliseconds) / 1e3


def example_inputs(config: Config, prompt: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {input_name(name): (config.layers, *shape) for name, shape in weight_shapes(config).items()}
    whole = (config.vocabulary, config.hidden)
    shapes |= {"embedding": whole, "norm": (config.hidden,), "head": whole}
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {"prompt": np.arange(prompt), **weights}


def seconds(run: tp.Executable, inputs: dict[str, np.ndarray]) -> float:
    start = time.perf_counter()
    np.asarray(run(**inputs)["token"])
    return time.perf_counter() - start


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--positions", type=int, default=64)


def measure(session: Session) -> None:
    layers, positions = session.options.layers, session.options.positions
    config = replace(SMALL, layers=layers)
    stages_of(session, replace(config, layers=1), positions=8)  # loads the backend
    rounds = [stages_of(session, config, positions) for _ in range(session.repeats)]
    case = f"the decoding example, {layers} layers, {positions} positions"
    for name in rounds[0]:
        session.add(case, name, "ms", *(1e3 * found[name] for found in rounds))


BENCHMARK = Benchmark(measure, repeats=5, quick_repeats=2, backends=("numpy", "jax", "torch"), add_options=options)
