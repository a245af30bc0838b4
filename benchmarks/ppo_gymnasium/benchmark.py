"""PPO on Gymnasium's CartPole-v1, acting and learning: environment steps per second, against stable-baselines3, TorchRL
and a loop by hand as CleanRL's. All have the same network, batches, epochs and optimizer; each draws its own noise, so
what is compared is how many gradient steps were made, and the mean return of the last episodes is told.

Peers run in processes of their own, in turn with ours; stable-baselines3 and TorchRL in environments of their own:

    tox -e benchmarks-sb3,benchmarks-torchrl --notest
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session
from benchmarks.measure import in_turn, ratios
from examples.ppo import Settings, sizes, trainer

LONG = 1_000_000
PEERS = Path(__file__).resolve().parent / "peers"
TOX = Path(__file__).resolve().parents[2] / ".tox"
ROOMS = {  # environments x steps, epochs, minibatches
    "small batches": Settings(environments=8, steps=32, iterations=20, epochs=20, minibatches=1),
    "large batches": Settings(environments=32, steps=128, iterations=4, epochs=4, minibatches=4),
}


class Peer:
    """A peer's process; see `peers/serve.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.name: str = self.answer()["name"]
        self.last: dict[str, Any] = {}

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer {self.process.args!r} ended: {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def train(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.last = self.answer()


@contextmanager
def started(python: Path | str, script: str, settings: dict[str, Any]) -> Iterator[Peer]:
    command = [str(python), str(PEERS / script), json.dumps(settings)]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=alone
    ) as process:
        try:
            yield Peer(process)
        finally:
            process.terminate()


class Ours:
    """Rounds that go on from each other's weights, as the peers' do."""

    def __init__(self, session: Session, settings: Settings) -> None:
        environment = tp.rl.GymnasiumEnvs("CartPole-v1", settings.environments, seed=0)
        program = trainer(environment, replace(settings, iterations=LONG))  # the learning rate falls to 0 in so many
        self.run: Callable[..., Any] = session.compile(program, sizes(settings))
        self.envs = environment.envs
        self.state: Any = None
        self.rounds, self.mean_return = 0, 0.0

    def train(self) -> None:
        self.rounds += 1
        found = self.run(seed=self.rounds, **({} if self.state is None else {"state": self.state}))
        np.asarray(found["loss"])
        self.state = found.state
        _, means = tp.rl.learning_curve(found["reward"], found["done"])
        self.mean_return = float(means[-1]) if len(means) else 0.0

    def environment_alone(self, steps: int) -> None:
        """The part of a round that no trainer can do without."""
        action = np.zeros(self.envs.num_envs, np.int64)
        self.envs.reset(seed=0)
        for _ in range(steps):
            self.envs.step(action)


def measure(session: Session) -> None:
    for case, settings in ROOMS.items():
        if session.options.only not in case:
            continue
        if session.quick:
            settings = replace(settings, iterations=max(1, settings.iterations // 2))
        measure_room(session, f"{case}: {settings.environments} environments x {settings.steps} steps", settings)


def measure_room(session: Session, case: str, settings: Settings) -> None:
    ours = Ours(session, settings)
    with ExitStack() as stack:
        wanted = () if session.options.no_peers else peers_of(session, settings)
        peers = [stack.enter_context(each) for each in wanted]
        runs = {"tempo": ours.train, **{peer.name: peer.train for peer in peers}}
        runs["the environment alone"] = lambda: ours.environment_alone(settings.iterations * settings.steps)
        for run in runs.values():
            run()
        timings = in_turn(runs, session.repeats)
    points = settings.environments * settings.steps * settings.iterations
    updates = settings.iterations * settings.epochs * settings.minibatches
    for peer in peers:
        if peer.last["updates"] != updates:
            raise SystemExit(f"{peer.name} made {peer.last['updates']} gradient steps a round, we {updates}")
    for name, timing in timings.items():
        session.add(case, name, "environment steps/s", *(points / seconds for seconds in timing.seconds))
    for peer in peers:
        session.add(case, f"tempo / {peer.name}", "x", *ratios(timings, "tempo", peer.name), goal=1.0)
    after = f"after {(1 + session.repeats) * points} steps"
    session.add(case, f"tempo, {after}", "mean return", ours.mean_return)
    for peer in peers:
        session.add(case, f"{peer.name}, {after}", "mean return", peer.last["return"])


def peers_of(session: Session, settings: Settings) -> Iterator[Any]:
    """Those whose interpreters are there; of the others it says so."""
    given = {**asdict(settings), "threads": session.options.threads or os.cpu_count()}
    yield started(sys.executable, "cleanrl_style.py", given)
    for name, script in (("sb3", "sb3.py"), ("torchrl", "torch_rl.py")):
        python = getattr(session.options, name)
        if python.exists():
            yield started(python, script, given)
        else:
            print(f"without {name}: `tox -e benchmarks-{name} --notest` makes its environment", file=sys.stderr)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="cases whose name contains this")
    for name in ("sb3", "torchrl"):
        python = TOX / f"benchmarks-{name}" / "bin" / "python"
        parser.add_argument(f"--{name}", type=Path, default=python, help="the interpreter of its environment")


BENCHMARK = Benchmark(
    measure, "PPO on Gymnasium", repeats=7, quick_repeats=2, backends=("jax", "torch"), add_options=options
)
