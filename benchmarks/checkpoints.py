"""Checkpoints: what they cost a run, and what they hold; beside what Orbax and PyTorch Lightning save of the same PPO.

A run of PPO with a checkpoint every 100 iterations against the same run without, in turn. Then, for runs of the
examples, the bytes of a checkpoint and of what is added to it in an iteration, and the seconds that writing one takes
(to where it is on the disk; while the run goes on). Orbax and Lightning save parameters and moments alone: their
seconds are those of a call that waits until the files are there.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import examples.dqn
import examples.lstm
import examples.ppo
import tempo as tp
from benchmarks.harness import Benchmark, Session, close
from tempo.runtime.checkpoints.folder import Folder

WITHIN = 1.03
"""What a run with a checkpoint every 100 iterations of at least 10 ms may take, of one without."""
EVERY = 100
Arrays = Mapping[str, np.ndarray]


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tempo-checkpoints-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def ppo(session: Session, iterations: int, environments: int, width: int) -> tp.Executable:
    settings = examples.ppo.Settings(
        environments=environments, iterations=iterations, epochs=4, minibatches=4, width=width
    )
    program = examples.ppo.trainer(tp.rl.CartPole(), settings)
    return session.compile(program, examples.ppo.sizes(settings))


def dqn(session: Session, steps: int) -> tp.Executable:
    return session.compile(examples.dqn.trainer(tp.rl.CartPole(), examples.dqn.Settings(steps=steps)))


def lstm(session: Session, iterations: int) -> tp.Executable:
    return session.compile(examples.lstm.training(examples.lstm.weights(64, 0)), {"i": iterations, "b": 16, "t": 20})


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iterations", type=int, help="of PPO; default: 300, quick: 4")
    parser.add_argument("--environments", type=int, help="default: 64, quick: 2")


def measure(session: Session) -> None:
    quick = session.quick
    iterations, environments = session.options.iterations or (4 if quick else 300), session.options.environments
    environments, every = environments or (2 if quick else 64), 2 if quick else EVERY
    run = ppo(session, iterations, environments, 8 if quick else 64)
    costs(session, run, iterations, every)
    parameters = {name: np.asarray(array) for name, array in run(seed=0).state.items()}
    held(session, "ppo", run, "i", every, parameters)
    libraries(session, parameters)
    held(session, "dqn", dqn(session, 40 if quick else 2_000), "t", 20 if quick else 1_000)
    held(session, "lstm", lstm(session, 4 if quick else 200), "i", 2 if quick else EVERY)


def costs(session: Session, run: tp.Executable, iterations: int, every: int) -> None:
    case = f"ppo, a checkpoint every {every} of {iterations} iterations"

    def with_checkpoints() -> Any:
        with folder() as path:
            return session.ready(run(seed=0, checkpoint=tp.Checkpoints(path, along="i", every=every)))

    def without() -> Any:
        return session.ready(run(seed=0))

    timings = session.compare(
        case, with_checkpoints, {"without": without}, close(1e-5, 1e-6), goals={"without": WITHIN}
    )
    session.add(case, "an iteration", "ms", timings["tempo"].median / iterations * 1e3)


def held(
    session: Session, case: str, run: tp.Executable, along: str, every: int, parameters: Arrays | None = None
) -> None:
    """Of the first checkpoint, which is in the middle of the run."""
    with folder() as path:
        run(seed=0, checkpoint=tp.Checkpoints(path, along=along, every=every, keep=None))
        first = sorted(path.glob("checkpoint-*"))[0]
        session.add(case, "a checkpoint", "bytes", first.stat().st_size)
        if parameters is not None:
            bytes = sum(array.nbytes for array in parameters.values())
            session.add(case, "a checkpoint / parameters and moments", "x", first.stat().st_size / bytes)
        added = sum(each.stat().st_size for each in path.glob("points-*")) / len(list(path.glob("checkpoint-*")))
        session.add(case, f"added to it in {every} iterations", "bytes", added)
        saved, into = Folder(path).open(first), Folder(path / "again")
        into.path.mkdir()
        session.add(case, "writing it", "ms", *timed(session, lambda: into.write("checkpoint", saved.arrays, {})))


def timed(session: Session, call: Callable[[], Any]) -> list[float]:
    """Milliseconds of each of some calls."""
    found = []
    for _ in range(session.repeats + 1):
        start = time.perf_counter()
        call()
        found.append((time.perf_counter() - start) * 1e3)
    return found[1:]


def libraries(session: Session, parameters: Arrays) -> None:
    """What others save of the same parameters and moments, where they are installed."""
    for name, save in (("Orbax", orbax), ("PyTorch Lightning", lightning)):
        try:
            saving = save(parameters)
        except ImportError as error:
            print(f"  {name} is not measured: {error}")
            continue
        with folder() as path:
            times = timed(session, partial(_next_to, path, saving))
            last = max(path.iterdir(), key=lambda each: each.stat().st_mtime)
            files = [last] if last.is_file() else [each for each in last.rglob("*") if each.is_file()]
            session.add("ppo", f"{name} saves", "bytes", sum(each.stat().st_size for each in files))
            session.add("ppo", f"{name} takes", "ms", *times)


def _next_to(path: Path, saving: Callable[[Path], None]) -> None:
    saving(path / str(len(list(path.iterdir()))))


def orbax(parameters: Arrays) -> Callable[[Path], None]:
    import orbax.checkpoint as library

    checkpointer = library.StandardCheckpointer()

    def save(path: Path) -> None:
        checkpointer.save(path, dict(parameters))
        checkpointer.wait_until_finished()

    return save


def lightning(parameters: Arrays) -> Callable[[Path], None]:
    """A module with these weights and Adam with these moments."""
    import lightning as library
    import torch

    weights = {
        name: array for name, array in parameters.items() if not name.startswith("adam") and ".adam." not in name
    }

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            given = {
                name.replace(".", "_"): torch.nn.Parameter(torch.from_numpy(w.copy())) for name, w in weights.items()
            }
            self.weights = torch.nn.ParameterDict(given)

        def training_step(self, batch: Any) -> Any:
            return sum((weight * weight).sum() for weight in self.weights.values())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    trainer = library.Trainer(
        max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu",
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.zeros(1)))
    return lambda path: trainer.save_checkpoint(path)


BENCHMARK = Benchmark(
    measure,
    title="Checkpoints",
    repeats=10,
    quick_repeats=1,
    backends=("jax", "torch", "numpy"),
    add_options=options,
)
