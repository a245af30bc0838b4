"""Drawing a whole program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tempo.conformance.random_programs import gradients, idioms, outside, pointwise, recurrences, stencils, temporal
from tempo.conformance.random_programs.choices import Choices
from tempo.conformance.random_programs.description import RandomProgram
from tempo.conformance.random_programs.recurrences import Step
from tempo.conformance.random_programs.session import Session
from tempo.language.program import Program

_STEPS: tuple[tuple[int, Step], ...] = (
    (8, pointwise.binary),
    (6, pointwise.unary),
    (14, temporal.read),
    (6, pointwise.reduce),
    (2, pointwise.cast),
    (3, pointwise.compare),
    (3, pointwise.where),
    (4, pointwise.scan),
    (4, pointwise.contract),
    (3, pointwise.convolve),
    (3, pointwise.move),
    (2, pointwise.concatenate),
    (3, pointwise.spatial),
    (1, pointwise.one_hot),
    (2, pointwise.create),
    (2, pointwise.gather),
    (1, pointwise.sort_by),
    (3, temporal.cases),
    (4, temporal.gather),
    (3, idioms.attention),
    (2, idioms.window),
    (2, idioms.discounted),
    (1, idioms.growing),
    (2, stencils.stencil),
    (2, outside.draw),
    (4, outside.host_call),
    (2, outside.backend_call),
    (10, gradients.gradient),
    (4, gradients.descent),
)
_TRIES = 3
_LONGEST = 12


@dataclass(frozen=True)
class Drawn:
    """A program, and what the language refused while it was drawn."""

    program: RandomProgram
    refused: Counter[str]


def draw_program(choices: Choices) -> Drawn:
    """A program with at least one output. It nearly always has a meaning; some are wrong at some sizes."""
    with Program("random") as program:
        session = Session(choices, program)
        draw_steps(session)
        _outputs(session)
    return Drawn(session.finished(), session.refused)


def draw_steps(session: Session) -> None:
    """Everything but the outputs."""
    outside.declare_dims(session)
    for _ in range(session.choices.number(1, 3)):
        outside.declare_input(session)
    for _ in range(session.choices.number(1, _LONGEST)):
        _step(session)


def _step(session: Session) -> None:
    kind = session.choices.weighted([(70, "step"), (22, "recurrence"), (5, "sink"), (3, "parameter"), (3, "input")])
    if kind == "recurrence":
        recurrences.define(session, _STEPS)
    elif kind == "sink":
        outside.sink(session)
    elif kind == "parameter":
        outside.constant_parameter(session)
    elif kind == "input":
        outside.declare_input(session)
    else:
        for _ in range(_TRIES):
            if session.choices.weighted(_STEPS)(session) is not None:
                break


def _outputs(session: Session) -> None:
    """The newest value, and sometimes others."""
    wanted = [session.values[-1], *session.choices.some(session.values[-6:-1], 25)]
    made = [outside.output(session, value) for value in wanted]
    if not any(made):
        outside.output(session, session.values[0])
    if session.choices.chance(8):
        outside.stop(session)
