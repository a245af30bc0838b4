"""Random programs mean the same on the compiled path as on the reference evaluator.

A hundred run with the other tests, fewer in `make test`. The sweep runs as many as TEMPO_RANDOM_PROGRAMS says (5,000
unless given):

    TEMPO_RANDOM_PROGRAMS=5000 python -m pytest -m sweep tests/system/test_random_programs.py --hypothesis-seed=1

It prints what happened in how many runs. A failure prints the smallest program found, as Python source that runs.
Programs at the edges of the language are drawn by number, a hundred to a test, and printed as drawn: `-k edges` runs
them alone, `-k "edges and 4200"` those from 4,200 on, and `--last-failed` again those that failed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tempo.conformance.random_programs import Choices
from tempo.conformance.random_programs.agreement import MEANINGLESS, check, meanings, numpy_modes
from tempo.conformance.random_programs.differences import check_differences, draw_differentiable
from tempo.conformance.random_programs.edges import draw_edge_program, draw_edges, edge_situations
from tempo.conformance.random_programs.strategies import differentiable_programs, programs, situations
from tempo.errors import IndexOutOfRangeError

_EXAMPLES = settings.default.max_examples
_SWEEP = int(os.environ.get("TEMPO_RANDOM_PROGRAMS", "5000"))
_BATCH = 100
_GENERATED = settings(
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


def _edges(seeds: Iterable[int]) -> Counter[str]:
    """What the reference evaluator makes of programs at the edges of the language, and differences of their gradients.

    By seed, since hypothesis seldom draws programs as large as it takes.
    """
    tally: Counter[str] = Counter()
    for seed in seeds:
        _hold_edge(seed, tally)
    return tally


def _hold_edge(seed: int, tally: Counter[str]) -> None:
    program = draw_edge_program(Choices.seeded(seed))
    tally["programs"] += 1
    for outcome in meanings(program, edge_situations(program, seed)):
        assert outcome.error is None or isinstance(outcome.error, (*MEANINGLESS, IndexOutOfRangeError)), program
        tally["arrays" if outcome.error is None else type(outcome.error).__name__] += 1
    smooth = draw_differentiable(Choices.seeded(seed), steps=draw_edges)
    for situation in edge_situations(smooth, seed) if smooth else ():
        check_differences(smooth, replace(situation, special=False), tally)


def test_the_reference_holds_at_the_edges_of_the_language() -> None:
    tally = _edges(range(15))
    assert tally["arrays"] > 30
    assert tally["compared"] > 15


@pytest.mark.sweep
@pytest.mark.parametrize("first", range(0, _SWEEP, _BATCH))
def test_a_sweep_of_edges_holds_on_the_reference(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    tally = _edges(range(first, min(first + _BATCH, _SWEEP)))
    with capsys.disabled():
        sys.stdout.write(f"\nfrom {first}: " + ", ".join(f"{count} {what}" for what, count in sorted(tally.items())))


def _run(examples: int) -> Counter[str]:
    """Check that many programs, each by default and in two of the other ways; what happened, by kind."""
    tally: Counter[str] = Counter()

    @settings(_GENERATED, max_examples=examples)
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        program = data.draw(programs())
        runs = data.draw(situations(program))
        modes = numpy_modes(checks=data.draw(st.integers(0, 4)) < 4)
        others = data.draw(st.lists(st.integers(1, len(modes) - 1), min_size=2, max_size=2, unique=True))
        tally["programs"] += 1
        check(program, runs, [modes[0], *(modes[at] for at in others)], tally)

    agree()
    return tally


def _hold_rates(tally: Counter[str], refused: float = 0.05, meaningless: float = 0.2, few: int = 0) -> None:
    """Programs nearly always have a meaning, and the greedy scheduler finds an order for nearly all."""
    assert tally["unsupported"] < few + refused * (tally["compared"] + tally["unsupported"])
    assert tally["runs without meaning"] < few + meaningless * (
        tally["runs with meaning"] + tally["runs without meaning"]
    )


@pytest.mark.hypothesis
def test_random_programs_agree_with_the_reference() -> None:
    _hold_rates(_run(_EXAMPLES), refused=0.3, meaningless=0.4, few=6)  # of few programs, and others each time


def _differences(examples: int, derandomize: bool) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(_GENERATED, max_examples=examples, derandomize=derandomize)
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        program = data.draw(differentiable_programs())
        situation = replace(data.draw(situations(program))[0], special=False)
        check_differences(program, situation, tally)

    agree()
    return tally


@pytest.mark.hypothesis
def test_random_gradients_agree_with_differences() -> None:
    tally = _differences(_EXAMPLES, derandomize=True)
    assert tally["compared"] > _EXAMPLES // 5


@pytest.mark.sweep
def test_a_sweep_of_random_gradients_agrees_with_differences(capsys: pytest.CaptureFixture[str]) -> None:
    tally = _differences(_SWEEP, derandomize=False)
    with capsys.disabled():
        sys.stdout.write("\n" + "".join(f"{count:8} {what}\n" for what, count in tally.most_common()))


@pytest.mark.sweep
def test_a_sweep_of_random_programs_agrees_with_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    tally = _run(_SWEEP)
    with capsys.disabled():
        sys.stdout.write("\n" + "".join(f"{count:8} {what}\n" for what, count in tally.most_common()))
    _hold_rates(tally)
