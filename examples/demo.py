"""Run the examples one after another, and tell at the end what they made and where.

python examples/demo.py           each once, on one of the backends: within five minutes
python examples/demo.py --long    each on every backend, trained for longer
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BACKENDS = ("numpy", "jax", "torch")
BRIEFLY = ("--steps", "480", "--layers", "3", "--hidden", "128", "--positions", "128", "--text", "topics")
PROMPT = 'The "with" statement'
TRAINED = {"numpy": 40, "jax": 200, "torch": 100}  # iterations of PPO in a long run


@dataclass(frozen=True)
class Example:
    """A script of this folder and what its picture shows."""

    script: str
    backend: str
    shows: str
    arguments: tuple[str, ...] = ("--check",)
    mesh: str | None = None

    @property
    def picture(self) -> str:
        return f"{self.script}-{self.backend}{'' if self.mesh is None else '-mesh'}.png"

    def command(self, out: Path) -> list[str]:
        mesh = () if self.mesh is None else ("--mesh", self.mesh)
        path = out / self.picture
        return python(self.script, "--backend", self.backend, *mesh, *self.arguments, "--plot", str(path))


@dataclass(frozen=True)
class Made:
    example: Example
    seconds: float
    said: str  # its last line but the picture's


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(FOLDER / f"{script}.py"), *arguments]


def checkpoint(out: Path) -> Path:
    return out / "tiny-llama"


MODELS = {
    "wave": "a plate that was struck",
    "value_iteration": "values and ways in a maze",
    "edit_distance": "distances of sequences",
    "kalman": "an object's way, measured and filtered",
    "linear_recurrence": "a state space model",
    "rnn": "a recurrent network, trained",
    "lstm": "an LSTM, trained",
    "online_regression": "weights that follow a stream",
}
ON_DEVICES = (
    Example(
        "rnn",
        "jax",
        "the same on two devices, as which the processor poses",
        ("--iterations", "60", "--check"),
        mesh="data=2",
    ),
    Example(
        "pipeline",
        "jax",
        "a transformer's layers on four devices, and the waves",
        ("--iterations", "150", "--check"),
        mesh="stage=4",
    ),
)
IN_TURN = ("torch", "numpy", "jax")


def short(out: Path) -> Iterator[Example]:
    """Each example once; the backends in turn."""
    yield Example("cartpole_rollout", "numpy", "Gymnasium's CartPole and the returns of each step")
    for place, (script, shows) in enumerate(MODELS.items()):
        yield Example(script, IN_TURN[place % len(IN_TURN)], shows)
    yield from ON_DEVICES
    yield reckoning("jax", "--steps", "2000")
    yield decoding("jax", out)
    yield Example("ppo", "jax", "PPO learns CartPole", ())
    yield Example("reinforce", "jax", "REINFORCE learns it", ("--iterations", "200"))
    yield Example("dqn", "jax", "deep Q-learning learns it", ("--steps", "3000"))
    yield training("jax", out, *BRIEFLY)
    yield adapting("jax", out, "--steps", "30")


def long(out: Path) -> Iterator[Example]:
    for backend in BACKENDS:
        yield Example("cartpole_rollout", backend, "Gymnasium's CartPole and the returns of each step")
        for script, shows in MODELS.items():
            yield Example(script, backend, shows)
        yield reckoning(backend)
        yield decoding(backend, out)
        yield Example("ppo", backend, "PPO learns CartPole", ("--iterations", str(TRAINED[backend])))
        yield Example("reinforce", backend, "REINFORCE learns it, by returns", ("--returns", "mc", "nstep", "td"))
        yield Example("dqn", backend, "deep Q-learning learns it", ())
    yield from ON_DEVICES
    yield training("jax", out)
    yield adapting("jax", out)


def reckoning(backend: str, *settings: str) -> Example:
    return Example("dynamic/treelstm", backend, "a Tree-LSTM learns to reckon", (*settings, "--check"))


def decoding(backend: str, out: Path) -> Example:
    return Example("decode", backend, "a Llama checkpoint decodes", ("--model", str(checkpoint(out)), "--check"))


def model(out: Path) -> Path:
    return out / "python-llama"


def training(backend: str, out: Path, *settings: str) -> Example:
    shows = "a Llama learns Python's documentation"
    return Example("train_llm", backend, shows, ("--out", str(model(out)), *settings, "--check"))


def adapting(backend: str, out: Path, *settings: str) -> Example:
    return Example("lora", backend, "adapters teach it another text", ("--model", str(model(out)), *settings))


def run(example: Example, out: Path) -> Made:
    """Run one, printing what it prints. Raises SystemExit where it fails."""
    start = time.perf_counter()
    if example.script == "decode" and not (checkpoint(out) / "tokenizer.json").exists():
        said(python("make_tiny_llama", str(checkpoint(out))))
    lines = said(example.command(out))
    told = [line for line in lines if line and not line.startswith("picture: ")]
    return Made(example, time.perf_counter() - start, told[-1])


def said(command: list[str]) -> list[str]:
    """The lines that a command prints, which are also printed as they come."""
    print(f"\n$ python {' '.join(command[1:])}", flush=True)
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip())
    if process.returncode:
        raise SystemExit(f"it failed with {process.returncode}: {' '.join(command)}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="each on every backend, trained for longer")
    names = list(dict.fromkeys(each.script for each in short(Path())))
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the pictures")
    options = parser.parse_args(arguments)
    examples = list((long if options.long else short)(options.out))
    chosen = [each for each in examples if options.only is None or each.script in options.only]
    made = [run(each, options.out) for each in chosen]
    print(f"\n{len(made)} pictures in {options.out}/, in {sum(each.seconds for each in made):.0f} s:")
    for each in made:
        print(f"  {each.example.picture:28} {each.example.shows}: {each.said}")
    if "train_llm" in [each.script for each in chosen]:
        print("\nand a text by the language model that was trained:")
        generate = ("generate", "--model", str(model(options.out)), "--backend", "jax", "--prompt", PROMPT)
        said([sys.executable, "-m", "tempo", *generate])
    return 0


if __name__ == "__main__":
    sys.exit(main())
