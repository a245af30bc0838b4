"""Random programs as users run them: the conformance suite poisons buffers, so there no segment makes its own."""

from __future__ import annotations

import pytest

import tempo as tp
from tempo.conformance.random_programs import random_program
from tempo.conformance.random_programs.agreement import Mode, Situation, check


@pytest.mark.parametrize("seed", range(20))
def test_segments_that_make_their_buffers_mean_what_the_reference_says(seed: int):
    program = random_program(seed)
    dims = program.build().program.graph().dims
    sizes = {dim.symbol.name: 1 + (seed + at) % 5 for at, dim in enumerate(dims) if not dim.size.is_const}
    mode = Mode("jax", tp.Options(checks=False, lift=seed % 2 == 0, debug=True))
    check(program, [Situation(sizes, seed), Situation(sizes, seed + 1, continued=True)], [mode])
