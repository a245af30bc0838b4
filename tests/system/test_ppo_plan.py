"""What PPO is compiled to: each forward pass once, one executable, and nothing in the compiler that knows of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tempo as tp
from benchmarks.ppo.program import program
from benchmarks.ppo.settings import Settings
from tempo.passes.manager import PassContext, PassManager
from tempo.passes.pipeline import default_passes
from tempo.sdg.graph import Graph

ROOT = Path(__file__).resolve().parents[2]
SMALL = Settings(environments=3, steps=5, iterations=3, layers=2, width=8, observation=4)
LIBRARIES = {"rl", "nn", "optim", "llm", "conformance"}
WORDS = re.compile(r"\b(ppo|dqn|reinforce|gae|advantages?|policy|policies|rewards?|episodes?|optimizers?|adam)\b", re.I)


def optimized(graph: Graph) -> Graph:
    return PassManager.configured(default_passes(), environment={}).run(graph, PassContext())[0]


def forward_passes(graph: Graph, weight: str) -> int:
    """Contractions of activations with the weight: over its first axis. The way back is over its second."""
    (parameter,) = (node.id for node in graph.nodes.values() if node.op == "merge" and node.name == weight)
    return sum(
        node.operands[1].node == parameter and node.attr("rhs_contract") == (0,)
        for node in graph.nodes.values()
        if node.op == "dot"
    )


@pytest.mark.parametrize("layer", range(3))
def test_learning_uses_what_acting_computed_forward(layer: int) -> None:
    """As written the policy is applied twice to every observation: when acting, and in the loss."""
    written = program(SMALL).graph()
    assert forward_passes(written, f"policy.{layer}.weight") == 2
    assert forward_passes(optimized(written), f"policy.{layer}.weight") == 1


def test_explain_shows_that_equal_operators_became_one() -> None:
    """Two hidden layers: policy and value of the observations, and the value of the last: six of eight are left."""
    text = tp.compile(program(SMALL), "numpy").explain("all")
    table = text.split("# operators\n")[1].split("\n\n")[0]
    (counts,) = (line.split()[1:] for line in table.splitlines() if line.startswith("tanh "))
    assert counts[0] == "8"
    assert counts[-1] == "6"


def test_all_iterations_are_one_executable_without_the_host() -> None:
    pytest.importorskip("tempo_jax")
    text = tp.compile(program(SMALL), "jax").explain("all")
    assert re.findall(r"^segment (segment_\d+)\(", text, re.M) == ["segment_0"]
    schedule = text.split("# schedule\n")[1].split("\n\n")[0]
    loops = [line for line in schedule.splitlines() if line.lstrip().startswith("for ")]
    assert loops
    assert all(line.endswith("# device") for line in loops)


def test_nothing_but_the_libraries_knows_of_learning() -> None:
    """No name and no comment: what PPO gains, any program gains."""
    modules = [path for path in (ROOT / "tempo").rglob("*.py") if path.relative_to(ROOT).parts[1] not in LIBRARIES]
    modules += (ROOT / "schedulers").glob("*/tempo_*/**/*.py")
    modules += (ROOT / "backends").glob("*/tempo_*/**/*.py")
    assert len(modules) > 100
    knowing = [path.relative_to(ROOT) for path in modules if WORDS.search(path.read_text())]
    assert knowing == []
