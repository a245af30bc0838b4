"""Gradients of random losses against differences of the losses, on the reference evaluator in float64."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tempo.conformance.random_programs.agreement import Array, Disagreement, Situation, arrays
from tempo.conformance.random_programs.choices import Choices
from tempo.conformance.random_programs.description import RandomProgram, Statement
from tempo.conformance.random_programs.generator import draw_steps
from tempo.conformance.random_programs.gradients import depends, smooth, total_loss
from tempo.conformance.random_programs.session import Session, Value
from tempo.errors import TempoError
from tempo.language.program import Program
from tempo.runtime.compile import compile
from tempo.runtime.executable import Executable

STEP = 1e-6
TOLERANCE = 1e-4
_LOSS, _SLOPE = "loss", "slope_"
_DECLARES = re.compile(r"= tp\.(input|recurrent|parameter)\(")


def draw_differentiable(
    choices: Choices,
    fits: Callable[[Program, Value], bool] = smooth,
    steps: Callable[[Session], None] = draw_steps,
) -> RandomProgram | None:
    """A program whose outputs are a loss and its gradients by the float inputs; None: no loss was one that fits.

    `steps` draws everything before them.
    """
    with Program("random") as program:
        session = Session(choices, program)
        steps(session)
        losses = (total_loss(session, value) for value in reversed(session.values[-8:]) if not value.open)
        loss = next((each for each in losses if each is not None and fits(program, each)), None)
        if loss is None:
            return None
        inputs = (value for value in session.values if value.is_float and value.tensor.node.op == "input")
        session.run(Statement(f'tp.output("{_LOSS}", {loss.name})', effect=True))
        for x in dict.fromkeys(value.name for value in inputs if depends(program, loss, value)):
            session.run(Statement(f'tp.output("{_SLOPE}{x}", tp.grad({loss.name}, {x}))', effect=True))
    return session.finished()


def in_doubles(program: RandomProgram) -> RandomProgram:
    """The program with float64 for every float."""

    def widened(statement: Statement) -> Statement:
        source = statement.source.replace("float32", "float64").replace("float16", "float64")
        if _DECLARES.search(source) and "dtype=" not in source:
            source = source.removesuffix(")") + ", dtype=tp.float64)"
        return Statement(source, statement.defines, statement.extends, statement.effect)

    return RandomProgram(tuple(map(widened, program.functions)), tuple(map(widened, program.statements)))


def check_differences(program: RandomProgram, situation: Situation, tally: Counter[str]) -> None:
    """Along a random direction for every input: what the gradient says of the loss, and how much it changes.

    `tally` counts what happened. Raises `Disagreement`.
    """
    try:
        built = in_doubles(program).build()
        run = compile(built.program, "reference")
        given: dict[str, Any] = dict(arrays(built, situation))
        outputs = run(seed=situation.seed, sizes=situation.sizes, **given)
    except TempoError:
        tally["without meaning"] += 1
        return
    random = np.random.default_rng(situation.seed)
    for name, slope in outputs.items():
        if not name.startswith(_SLOPE):
            continue
        key = name.removeprefix(_SLOPE)
        direction = random.uniform(-1, 1, given[key].shape)
        said, found = float((slope * direction).sum()), _difference(run, situation, given, key, direction)
        allowed = TOLERANCE * (1 + float(np.abs(slope * direction).sum()))
        agrees = abs(said - found) <= allowed
        if not agrees and abs(found - _difference(run, situation, given, key, direction / 2) * 2) > allowed:
            tally["too steep for differences"] += 1  # whatever the gradient is, they do not approach it at these steps
            continue
        tally["zero" if said == 0 else "compared"] += 1
        if not agrees:
            problem = f"the gradient by {key} says {said}, the loss changes by {found}"
            raise Disagreement(f"{problem}\n{situation}\n{program}")


def _difference(run: Executable, situation: Situation, given: Mapping[str, Array], key: str, direction: Array) -> float:
    losses = []
    for step in (STEP, -STEP):
        moved: dict[str, Any] = {**given, key: given[key] + step * direction}
        losses.append(float(np.sum(run(seed=situation.seed, sizes=situation.sizes, **moved)[_LOSS])))
    return (losses[0] - losses[1]) / (2 * STEP)
