"""Three published experiments, at sizes by flag: what decoding holds over its length, PPO on images under a limit of
memory, and REINFORCE with returns that look more or less far ahead.

`decoding`: a small decoder that attends to all of the past, or to a window of it, with the reads' lengths run as the
cost model chooses and in blocks of given lengths (attention spelled out for these, where a backend has a kernel for it
no length is left to choose), beside the loops by hand, one of them over a padded cache.

`ppo`: the limit is a part of what the observations of an iteration take, so that who keeps them does not fit. What
Tempo's loops keep may go to the host's memory, which is not counted. Peers are told by what is measured beside their
weights, and the noise that they are given; ours with all that it is given. A goal is the limit.

`reinforce`: what is kept of the observations, step by step and as the cost model chooses (`n_step_memory`).

Measured bytes are told as `memory` tells them: of a second run, on the CPU what the array library is seen to hold, on
CUDA by its allocator (PyTorch) and by XLA (JAX). Times are of all in turn.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import tempo as tp
from benchmarks import n_step_memory
from benchmarks.attention.benchmark import CONFIGURATIONS, kind_of, peers_of
from benchmarks.attention.program import Config, decoder
from benchmarks.attention.program import sizes as decoding_sizes
from benchmarks.extents import SPELLED
from benchmarks.harness import Benchmark, Run, Session, close, to_host
from benchmarks.measure import ratios
from benchmarks.memory import Case, call_of, measured
from benchmarks.ppo.program import program as ppo
from benchmarks.ppo.settings import Settings, noise, weights

MIB = 2**20
ITERATIONS = 2
"""Of PPO in a run: what one keeps for the next is kept once, too."""
PEER = "by hand"
FREE = "without a limit"
LOSSES = "loss", "reward", "norm"
Source = Callable[[], tuple[int, Run]]
"""Gives the bytes that are measured of a run, and the run."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=list(EXPERIMENTS), help="one of the experiments")
    decoding = parser.add_argument_group("decoding")
    decoding.add_argument("--size", choices=sorted(CONFIGURATIONS), default="small", help="of the decoder")
    decoding.add_argument("--lengths", type=int, nargs="+", help="default: 512 1024 2048 4096; quick: 256")
    decoding.add_argument("--windows", type=int, nargs="+", default=(0, 128, 1024), help="0 is all of the past")
    decoding.add_argument("--tiles", type=int, nargs="+", help="of blocks; default: 128 512; quick: none")
    images = parser.add_argument_group("ppo")
    images.add_argument("--sides", type=int, nargs="+", help="of images of 3 channels; default: 64 128 256; quick: 32")
    images.add_argument("--environments", type=int, default=16)
    images.add_argument("--ppo-steps", type=int, default=64, help="of an iteration")
    images.add_argument("--width", type=int, default=16, help="of the layers of both networks")
    images.add_argument("--limit", type=float, default=0.6, help="of the bytes of an iteration's observations")
    ahead = parser.add_argument_group("reinforce")
    ahead.add_argument("--steps", type=int, help="default: 1000; quick: 100")
    ahead.add_argument("--n", type=int, nargs="+", help="steps of n-step returns; default: 4 16 64; quick: 8")


def measure(session: Session) -> None:
    for name, experiment in EXPERIMENTS.items():
        if session.options.only in (None, name):
            experiment(session)


# -- decoding over length ----------------------------------------------------------------------------------------------


def decoding(session: Session) -> None:
    for window in session.options.windows:
        for length in session.options.lengths or ((256,) if session.quick else (512, 1024, 2048, 4096)):
            if window < length:
                config = Config(**CONFIGURATIONS[session.options.size], window=window or None)
                decoding_of(session, config, length)


def decoding_of(session: Session, config: Config, length: int) -> None:
    case = f"decoding, {kind_of(config)}, {length} tokens"
    backend = session.backend_class()().with_device(session.device)
    given = {name: session.resident(array) for name, array in config.weights().items()}
    call = {"start": config.start(), **given}
    runs: dict[str, Run] = {}
    for name, how in ways(session, min(length, config.window or length)):
        run = tp.compile(decoder(config), backend, sizes=decoding_sizes(config, length), options=tp.Options(**how))
        add_bytes(session, case, name, run.memory, measured(backend, run, call))
        runs[name] = partial(tokens, session, run, call)
    if peers := peers_of(session, config, given, length):
        peak_bytes = import_module(f"benchmarks.attention.{session.backend}_peer").peak_bytes
        for name, found in peak_bytes(config, given, length).items():
            session.add(case, f"{name}, measured, inputs apart", "MiB", found / MIB)
    compare(session, case, {**runs, **peers}, np.testing.assert_array_equal, "ms/token", length)


def ways(session: Session, longest: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """As the cost model chooses, as it does among blocks, and in blocks of given lengths."""
    yield "tempo", {}
    yield "blocks", {"extent": "blocks", **SPELLED}
    for tile in session.options.tiles or (() if session.quick else (128, 512)):
        if tile < longest:
            yield f"blocks of {tile}", {"extent": "blocks", "tile": tile, **SPELLED}


def tokens(session: Session, run: tp.Executable, call: Mapping[str, Any]) -> np.ndarray:
    return to_host(session.ready(run(**call)["token"]))


# -- PPO on images, under a limit --------------------------------------------------------------------------------------


def ppo_on_images(session: Session) -> None:
    chosen = session.options
    for side in chosen.sides or ((32,) if session.quick else (64, 128, 256)):
        sizes = {"layers": 1 if session.quick else 2, "width": chosen.width, "observation": 3 * side * side}
        settings = Settings(chosen.environments, chosen.ppo_steps, ITERATIONS, **sizes)
        ppo_within(session, f"PPO, 3 x {side} x {side}, {settings}", settings)


def ppo_within(session: Session, case: str, settings: Settings) -> None:
    backend = session.backend_class()().with_device(session.device)
    observations = 4 * settings.observation * settings.environments * settings.steps
    limit = int(session.options.limit * observations)
    session.add(case, "observations of an iteration", "MiB", observations / MIB)
    made = Case(ppo(settings), noise(settings), state=weights(settings))
    call = call_of(made, session.resident)
    run = within(session, case, made.program, backend, limit)
    memory, held = run.memory, measured(backend, run, call)
    add_bytes(session, case, "tempo", memory, held)
    how = memory.choices[-1].how if memory.choices else "all that may on the host"
    session.add(case, f"tempo, planned ({how}, of {len(memory.choices)} looked at)", "MiB", memory.peak_bytes / MIB,
                goal=limit / MIB)  # fmt: skip
    session.add(case, "tempo, measured", "MiB", (held + memory.given_bytes) / MIB, goal=limit / MIB)
    for what, bytes in (("pool", memory.pool_bytes), *vars(memory.traffic).items()):
        session.add(case, f"host, {what}", "MiB", bytes / MIB)
    sources: dict[str, Source] = {FREE: partial(unlimited, made.program, backend, call)}
    if session.backend != "numpy":
        sources[PEER] = partial(by_hand, session, settings)
    runs = {"tempo": partial(losses, run, call)}
    if not session.options.no_peers:
        runs |= {name: peer for name, source in sources.items() if (peer := told(session, case, name, source, limit))}
    compare(session, case, runs, close(2e-3, 2e-4), "ms/iteration", ITERATIONS)


def within(session: Session, case: str, program: tp.Program, backend: Any, limit: int) -> tp.Executable:
    """Compiled within the limit. Where no plan is found, the least is told, and all goes to the host that may."""
    try:
        return tp.compile(program, backend, memory_limit=limit, offload="host")
    except tp.MemoryLimitError as error:
        print(f"  {error.message}")
        if least := re.search(r"the least holds \D*(\d+) B", error.message):
            session.add(case, "no plan within the limit: the least", "MiB", int(least[1]) / MIB, goal=limit / MIB)
        return tp.compile(program, backend, offload="host")


def told(session: Session, case: str, name: str, source: Source, limit: int) -> Run | None:
    """What a peer runs, its bytes told; nothing where the device has no memory for it."""
    try:
        bytes, run = source()
    except Exception as error:
        backend = session.backend_class()()
        if not (isinstance(error, tp.MemoryLimitError) or backend.is_out_of_memory(error)):
            raise
        print(f"  {name}: the device has no memory for it")
        return None
    session.add(case, f"{name}, measured", "MiB", bytes / MIB, goal=limit / MIB)
    return run


def unlimited(program: tp.Program, backend: Any, call: dict[str, Any]) -> tuple[int, Run]:
    run = tp.compile(program, backend)
    return measured(backend, run, call) + run.memory.given_bytes, partial(losses, run, call)


def by_hand(session: Session, settings: Settings) -> tuple[int, Run]:
    """What it holds with its noise, but not its weights, and its run."""
    peer = import_module(f"benchmarks.ppo.{session.backend}_peer").Peer(session, settings)
    return peer.peak_bytes() + sum(array.nbytes for array in noise(settings).values()), peer.train


def losses(run: tp.Executable, call: Mapping[str, Any]) -> list[np.ndarray]:
    found = run(**call)
    return [to_host(found[name]) for name in LOSSES]


# -- REINFORCE, looking ahead ------------------------------------------------------------------------------------------


def reinforce(session: Session) -> None:
    steps = session.options.steps or (100 if session.quick else 1_000)
    lengths = session.options.n or ((8,) if session.quick else (4, 16, 64))
    kinds = {name: returns for n in lengths for name, returns in n_step_memory.all_returns(n).items()}
    for name, returns in kinds.items():
        program = n_step_memory.reinforce(returns, steps)
        case = f"REINFORCE, {name} returns, {steps} steps"
        n_step_memory.measure_one(session, case, program, steps, session.backend_class())


# -- what is told ------------------------------------------------------------------------------------------------------


def add_bytes(session: Session, case: str, name: str, memory: Any, found: int) -> None:
    """Planned and measured, beside what is given."""
    session.add(case, f"{name}, planned, inputs apart", "MiB", (memory.peak_bytes - memory.given_bytes) / MIB)
    session.add(case, f"{name}, measured, inputs apart", "MiB", found / MIB)


def compare(session: Session, case: str, runs: Mapping[str, Run], agree: Callable[[Any, Any], None], unit: str,
            count: int) -> None:  # fmt: skip
    """What all give must agree; their times in turn, and for each of so many in a run."""
    wanted = runs["tempo"]()
    for run in runs.values():
        agree(wanted, run())
    timings = session.time(case, runs)
    for name, timing in timings.items():
        session.add(case, name, unit, *(1e3 * seconds / count for seconds in timing.seconds))
    for name in runs:
        if name != "tempo":
            session.add(case, f"tempo / {name}", "x", *ratios(timings, "tempo", name))


EXPERIMENTS: dict[str, Callable[[Session], None]] = {
    "decoding": decoding,
    "ppo": ppo_on_images,
    "reinforce": reinforce,
}

BENCHMARK = Benchmark(
    measure,
    "Published experiments on memory",
    repeats=3,
    quick_repeats=2,
    backends=("numpy", "jax", "torch"),
    devices=("cpu", "cuda"),
    add_options=options,
    docs=lambda row: row.unit in ("MiB", "x") or row.unit.startswith("ms/"),
)
