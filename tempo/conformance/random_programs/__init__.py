"""Random programs, made through the public language: for holding backends and schedulers to the meaning.

`random_program(seed)` draws one; `strategies.programs()` is the same for hypothesis, which shrinks what fails;
`agreement.check(program, ...)` runs one on a backend and compares with the reference evaluator. A program prints as
the Python source that makes it.
"""

from tempo.conformance.random_programs.choices import Choices
from tempo.conformance.random_programs.description import Built, RandomProgram, Statement
from tempo.conformance.random_programs.generator import draw_program
from tempo.conformance.random_programs.recorder import RecordedCall, Recorder, own_step

__all__ = [
    "Built",
    "Choices",
    "RandomProgram",
    "RecordedCall",
    "Recorder",
    "Statement",
    "draw_program",
    "own_step",
    "random_program",
]


def random_program(seed: int) -> RandomProgram:
    """The program of this number; the same on every machine."""
    return draw_program(Choices.seeded(seed)).program
