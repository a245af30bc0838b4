"""Family 14, programs at the edges of the language: drawn by number, held to the reference evaluator.

`--tempo-edges=0:400` runs more, each a test of its own; `-s` prints what happened in how many runs. The evaluator
itself is held to differences, and to errors that are documented, by `tests/system/test_random_programs.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tempo.conformance.random_programs import Choices
from tempo.conformance.random_programs.agreement import Mode, check
from tempo.conformance.random_programs.edges import draw_edge_program, edge_situations
from tempo.conformance.target import Target

pytestmark = [pytest.mark.one_configuration, pytest.mark.planned]


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """What happened in all tests together, of which hardly any may be refused."""
    counts: Counter[str] = Counter()
    yield counts
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    sys.stdout.write(f"\n{told}\n")
    few = 6  # runs of two programs, where a process has but some of the tests
    assert counts["unsupported"] <= few + 0.05 * (counts["compared"] + counts["unsupported"])


@pytest.mark.parametrize(
    ("mapping", "buckets"),
    [(None, False), ("sequential", False), (None, True)],
    ids=["searched", "sequential", "in buckets"],
)
def test_programs_at_the_edges(
    target: Target, edge: int, mapping: str | None, buckets: bool, tally: Counter[str]
) -> None:
    program = draw_edge_program(Choices.seeded(edge))
    tally["programs"] += 1
    mode = Mode(
        target.backend, target.options(mapping=mapping), target.scheduler, target.to_numpy, buckets, mesh=target.mesh
    )
    graph = program.build().program.graph()
    runs = [each.divided(graph, target.mesh) for each in edge_situations(program, edge)]
    check(program, runs, [mode], tally)
