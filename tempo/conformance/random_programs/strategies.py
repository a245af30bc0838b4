"""Random programs for hypothesis."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import assume, reject
from hypothesis import strategies as st

from tempo.conformance.random_programs.agreement import Situation
from tempo.conformance.random_programs.choices import Choices
from tempo.conformance.random_programs.description import RandomProgram
from tempo.conformance.random_programs.differences import draw_differentiable
from tempo.conformance.random_programs.generator import draw_program
from tempo.conformance.random_programs.gradients import smooth
from tempo.conformance.random_programs.session import Value
from tempo.errors import UnsupportedError
from tempo.language.program import Program

_SIZES = (1, 2, 3, 5, 7)


@st.composite
def programs(draw: st.DrawFn) -> RandomProgram:
    """A program of the language. What fails shrinks to few statements."""
    return draw_program(Choices(lambda bound: draw(st.integers(0, bound - 1)))).program


@st.composite
def differentiable_programs(draw: st.DrawFn, fits: Callable[[Program, Value], bool] = smooth) -> RandomProgram:
    """A program that ends with a loss that fits, and its gradients."""
    found = draw_differentiable(Choices(lambda bound: draw(st.integers(0, bound - 1))), fits)
    assume(found is not None)
    assert found is not None
    return found


@st.composite
def situations(draw: st.DrawFn, program: RandomProgram) -> list[Situation]:
    """One to three runs of the program, mostly at different sizes."""
    try:
        graph = program.build().program.graph()
    except UnsupportedError:  # a gradient that there is none of
        reject()
    open_sizes = [dim.symbol.name for dim in graph.dims if not dim.size.is_const]
    fixed = {dim.symbol.name: dim.size.as_int() for dim in graph.dims if dim.size.is_const}
    seed, special = draw(st.integers(0, 1 << 16)), draw(st.integers(0, 9)) == 9
    continued, streamed = draw(st.integers(0, 3)) == 3, draw(st.integers(0, 4)) == 4
    chunk = draw(st.integers(1, 3)) if streamed else None
    runs = draw(st.integers(1, 3 if open_sizes else 1))
    return [
        Situation(
            {**fixed, **{name: draw(st.sampled_from(_SIZES)) for name in open_sizes}}, seed, special, continued, chunk
        )
        for _ in range(runs)
    ]
